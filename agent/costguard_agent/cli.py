"""The commands of costguard-agent: join, run, status, phase, busy, keep, install, version.

Exit codes: 0; 1 if something failed; 2 for wrong usage or if `run` cannot start; 3 if the watchdog refused or has not answered
yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from costguard_agent.diagnostics import AgentError

if TYPE_CHECKING:
    import argparse

OK, FAILED, WRONG, REFUSED = 0, 1, 2, 3
ANSWER_S = 15.0
DURATION_PATTERN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
SECONDS = (86400, 3600, 60, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words == ["run"]:  # it stays: what only commands need is not imported for it
            return _run()
        return _run_command(words)
    except AgentError as error:
        sys.stderr.write(f"costguard-agent: {error}\n")
        return WRONG if words[:1] == ["run"] else FAILED
    except KeyboardInterrupt:
        return 130


def parse_duration(text: str) -> float:
    """Parse a duration such as 90m, 3h, 1h30m or 2d into seconds; raises AgentError."""
    match = DURATION_PATTERN.fullmatch(text.strip())
    total = sum(int(part) * unit for part, unit in zip(match.groups(), SECONDS) if part) if match else 0
    if not total:
        raise AgentError(f"{text!r} is not a duration: write 90m, 3h, 1h30m or 2d")
    return float(total)


def _run() -> int:
    from costguard_agent import installation, state_dir

    installation.run_unpacked(state_dir.make_dir(state_dir.find_state_dir()))
    from costguard_agent.daemon import run_agent

    return run_agent()


def _run_command(words: list[str]) -> int:
    args = _build_parser().parse_args(words)
    return int(args.do(args))


def _join(args: argparse.Namespace) -> int:
    from costguard_agent import enrollment, state_dir

    code = sys.stdin.readline().strip() if args.code == "-" else args.code
    config = enrollment.join_watchdog(
        state_dir.find_state_dir(), args.url, code, ca=args.ca, proxy=args.proxy, again=args.again
    )
    print(f"joined {config.url} as {config.name or config.agent}; now: costguard-agent install, or costguard-agent run")  # noqa: T201
    return OK


def _status(args: argparse.Namespace) -> int:
    from costguard_agent import status_file

    status = status_file.read_status()
    if args.json:
        import json

        print(json.dumps(status, indent=1, sort_keys=True))  # noqa: T201 - its answer
    else:
        print(status_file.format_status(status))  # noqa: T201
    return OK if status["guarded"] else FAILED


def _send_request(args: argparse.Namespace) -> int:
    from costguard_agent import hints, local_requests

    for_s = parse_duration(args.span)
    answer = local_requests.send_local_request(
        hints.list_hint_sockets(), {"what": args.what, "name": args.name, "for_s": for_s, "why": args.why}, ANSWER_S
    )
    if answer is None:
        sys.stderr.write("costguard-agent: no answer from the watchdog yet; the agent keeps trying\n")
        return REFUSED
    if answer.get("why"):
        sys.stderr.write(f"costguard-agent: not granted: {answer['why']}\n")
        return REFUSED
    print(f"granted: {args.what} {args.name}".rstrip() + f" for {args.span}")  # noqa: T201
    return OK


def _install(args: argparse.Namespace) -> int:
    if args.print:
        from costguard_agent import installation

        print(installation.format_unit(), end="")  # noqa: T201
        return OK
    from costguard_agent import enrollment, installation, state_dir

    state = state_dir.find_state_dir()
    agent = enrollment.load_enrollment(state).agent
    if args.dead_man:
        print(_arm_deadman_switch(args, agent))  # noqa: T201
    print(installation.install_service())  # noqa: T201
    return OK


def _arm_deadman_switch(args: argparse.Namespace, agent: str) -> str:
    from costguard_agent import deadman_switch, state_dir
    from costguard_agent.host import HostView

    if args.dead_man == "off":
        return (
            "the dead-man switch is off"
            if deadman_switch.disarm_switch(state_dir.find_state_dir())
            else "the dead-man switch was off"
        )
    bounds = {"after_s": args.dead_man_after, "idle_s": args.dead_man_idle}
    chosen: dict[str, Any] = {name: parse_duration(text) for name, text in bounds.items() if text}
    around = HostView.real()
    return deadman_switch.arm_switch(
        state_dir.find_state_dir(), args.dead_man, around, shutdown_means=args.shutdown_means, agent_id=agent, **chosen
    )


def _version(_: argparse.Namespace) -> int:
    from costguard_agent import __version__

    print(f"costguard-agent {__version__}")  # noqa: T201
    return OK


def _build_parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        "costguard-agent",
        description="Report this machine's activity to the watchdog. The agent reports and requests; it does not act.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    join = commands.add_parser("join", help="join a watchdog with a one-time code (costguard agent enrol ID makes one)")
    join.add_argument("url", help="https://HOST[:PORT], or http://127.0.0.1:PORT of a tunnel")
    join.add_argument("code", help="CODE.FINGERPRINT, or - to read it from standard input (hidden from ps)")
    join.add_argument("--ca", default="", metavar="FILE", help="certificates to trust instead of the system's")
    join.add_argument("--proxy", default="", metavar="URL", help="http://HOST:PORT; environment variables are ignored")
    join.add_argument("--again", action="store_true", help="replace an existing enrolment, with a new key")
    join.set_defaults(do=_join)

    commands.add_parser("run", help="measure and report until stopped").set_defaults(do=lambda _: _run())

    status = commands.add_parser("status", help="show the measured signals and the watchdog's last answer")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(do=_status)

    phase = commands.add_parser("phase", help="declare a phase of work that looks idle")
    phase.add_argument("name", help="download, compile, evaluate, ...")
    _add_request_parser(commands, phase, "phase", "a job")
    _add_request_parser(
        commands, commands.add_parser("busy", help="mark this machine busy, overriding metrics"), "busy", "work"
    )
    _add_request_parser(
        commands, commands.add_parser("keep", help="request to keep this machine running, with a reason"), "keep", "", why=True
    )

    install = commands.add_parser("install", help="install as a systemd service (needs root)")
    install.add_argument("--print", action="store_true", help="print the unit and do nothing")
    install.add_argument(
        "--dead-man",
        choices=("stop", "terminate", "off"),
        default="",
        help="end this machine if it is idle and the watchdog does not answer for hours (docs/DEADMAN.md)",
    )
    install.add_argument("--dead-man-after", default="", metavar="6h", help="required time without an answer of the watchdog")
    install.add_argument("--dead-man-idle", default="", metavar="1h", help="required time of idleness")
    install.add_argument(
        "--shutdown-means",
        choices=("stop", "terminate"),
        default="",
        help="effect of a shutdown from inside this machine, if it cannot be detected",
    )
    install.set_defaults(do=_install)

    commands.add_parser("version", help="print the version").set_defaults(do=_version)
    return parser


def _add_request_parser(_: object, parser: argparse.ArgumentParser, what: str, reason: str, *, why: bool = False) -> None:
    parser.add_argument("--for", dest="span", required=True, metavar="3h", help="duration: 90m, 3h, 1h30m, 2d")
    parser.add_argument("--why", required=why, default=reason, help="reason, shown to others")
    parser.set_defaults(do=_send_request, what=what)
    if what != "phase":
        parser.set_defaults(name="")
