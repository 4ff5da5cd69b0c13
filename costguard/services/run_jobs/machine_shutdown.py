"""After the job: stop or terminate the machine from inside, if that is safe and nobody else uses or keeps it.

- `--then stop`: requested beforehand; what is lost is printed then and again before it is done.
- Exit code 0 of the job, unless `--then-always`.
- Nobody else: no process of the job, no other costguard run, no user of a GPU; if that cannot be checked, it counts as one.
- Nobody keeps it: the ledger is queried for the machine as its cloud names it: not protected, frozen, leased or in a phase of
work.
- 60 s in which any key, Ctrl-C or a signal cancels it; without a terminal in the foreground only if `--yes-then` was given.
- The request is sent once (costguard_agent.clouds), and its result is printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep

from costguard_agent.clouds import choose_shutdown_way, end_machine, locate_machine
from costguard_agent.deadman_switch import is_costguard_run
from costguard_agent.host import HostView, list_command_lines
from costguard_agent.shutdown import MachineIdentity, ShutdownWay

from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError
from costguard.guard.overrides import PROTECT, Override, explain_untouchable, find_freeze, find_lease, find_phase
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services.guarding.overrides import get_now, open_guard_store
from costguard.settings import Settings, resolve_ledger_url
from costguard.system.child.process import RUN_ENV, BlockedSignals, list_ancestor_processes, list_attempts
from costguard.system.child.terminal import can_ask, can_keep, run_countdown, write_message
from costguard.values.checks import require_one_of
from costguard.values.text_format import format_instant

NOTHING, STOP, TERMINATE = "nothing", "stop", "terminate"
END_ACTIONS = (NOTHING, STOP, TERMINATE)
COUNTDOWN_S = 60
LINGER_LIMIT_S, LOOK_S = 15.0, 0.5
"""What the job leaves behind for a moment, such as workers that end after it, is waited for so long."""
DEVICES, PROC = Path("/dev"), Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAction:
    """What to do after the job. `always`: for any exit code. `yes`: also without a terminal."""

    act: str = NOTHING
    always: bool = False
    yes: bool = False


NO_END_ACTION = EndAction()


def check_end_action(action: EndAction) -> EndAction:
    """Return `action` if it can be done here; raise InputError otherwise. What it would lose is printed now."""
    require_one_of(action.act, END_ACTIONS, "--then")
    if action.act == NOTHING:
        return action
    if not action.yes and not can_ask():
        hint = f"confirm in advance: --then {action.act} --yes-then, or yes_then=True in Python"
        raise InputError("there is no terminal to cancel it", field="--then", hint=hint)
    way, why = choose_shutdown_way(locate_machine(), action.act)
    if way is None:
        write_message(f"--then {action.act} will not be done: {why}")
    else:
        write_message(
            f"--then {action.act}, by {way.how}: loses {way.loses}; keeps {way.keeps}; bills after it: {way.bills_after}"
        )
    return action


def perform_end_action(
    action: EndAction,
    status: int,
    blocked_signals: BlockedSignals,
    attempt: str,
    spared: Callable[[MachineIdentity], str],
    *,
    seconds: int = COUNTDOWN_S,
) -> dict[str, object]:
    """Perform the end action; return the act and its result, {} if there is none.

    `attempt`: the id of the job's attempt; "": it has none, and runs in this process.
    `spared`: returns who wants the machine to stay, as of the call; "" for nobody.
    """
    if action.act == NOTHING:
        return {}
    way, why = _choose_way(action, status, attempt, spared)
    if way is None:
        return _say_kept(action, why)
    write_message(f"{action.act} by {way.how}. Lost: {way.loses}. Kept: {way.keeps}. Bills after it: {way.bills_after}")
    if not run_countdown(seconds, f"{action.act} of this machine", blocked_signals):
        write_message("it is kept")
        return {"act": action.act, "done": False, "why": "it was cancelled by a key press"}
    why = next(find_others(attempt), "") or spared(way.place)  # a minute has passed
    if why:
        return _say_kept(action, why)
    outcome = end_machine(way)
    write_message(f"{action.act} was sent: {outcome.result}; {outcome.text}")
    return {"act": action.act, "done": outcome.result == "accepted", "result": outcome.result, "why": outcome.text}


def _say_kept(action: EndAction, why: str) -> dict[str, object]:
    write_message(f"--then {action.act} is not done: {why}")
    return {"act": action.act, "done": False, "why": why}


def _choose_way(
    action: EndAction, status: int, attempt: str, spared: Callable[[MachineIdentity], str]
) -> tuple[ShutdownWay | None, str]:
    """Return how to do it; or None and why it is not done."""
    if status != 0 and not action.always:
        return None, f"the job ended with status {status} (--then-always would)"
    if not action.yes and not can_keep():
        return None, "the terminal is closed or in use by another program, so it could not be cancelled"
    why = _wait_for_others(attempt)
    if why:
        return None, why
    place = locate_machine()
    way, why = choose_shutdown_way(place, action.act)
    if way is not None:
        why = spared(place) or why
    return (None, why) if why else (way, "")


def find_keeper(settings: Settings, live: LiveResource | None, place: MachineIdentity) -> str:
    """Return who wants the machine at `place` to stay, by the ledger; "" for nobody.

    `live`: the machine that the run was started on. An unreadable ledger counts as somebody; a freeze also holds for machines
    that the ledger does not have.
    """
    now = get_now()
    try:
        with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
            listed = [one.observation for one in books.load_live(now)]
        with open_guard_store(settings) as book:
            overrides, protections = book.load_open_overrides(now), book.load_protections()
    except CostguardError as error:
        return f"its protection cannot be read: {str(error).splitlines()[0]}"
    own = (place.provider, place.id)
    key = live.observation.key if live else None
    observations = [
        observation for observation in listed if observation.key == key or (observation.key.provider, observation.key.id) == own
    ]
    for observation in observations or ([live.observation] if live else []):
        seen_before = protections[observation.key].at if observation.key in protections else None
        why = explain_untouchable(observation, overrides, settings.defaults.protect, seen_before, now) or _describe_lease(
            observation, overrides, now
        )
        if why:
            return why
    freeze = find_freeze(overrides, None, now)
    if freeze is not None:
        return f"{freeze.who} froze all acts" + (f": {freeze.why}" if freeze.why else "")
    protects = (
        override
        for override in overrides
        if override.what == PROTECT and override.key and (override.key.provider, override.key.id) == own
    )
    override = next(protects, None)
    return "" if override is None else f"{override.who} protects it: {override.why}"


def _describe_lease(observation: Observation, overrides: Sequence[Override], now: datetime) -> str:
    life = identify_incarnation(observation)
    override = find_lease(life, overrides, now) or find_phase(life, overrides, now)
    return (
        ""
        if override is None
        else f"{override.who} keeps it until {format_instant(override.until or now)}: {override.why or override.subject}"
    )


def _wait_for_others(attempt: str) -> str:
    """Return who else uses the machine after a short wait for trailing processes of the job; "" for nobody."""
    until = monotonic() + LINGER_LIMIT_S
    while (why := next(find_others(attempt), "")) and monotonic() < until:
        sleep(LOOK_S)
    return why


def find_others(attempt: str, devices: Path = DEVICES, proc: Path = PROC) -> Iterator[str]:
    """Yield who else uses the machine. What cannot be checked counts, and so do processes that the job left running."""
    within = os.environ.get(RUN_ENV)
    if within:
        yield f"attempt {within}, which started this run, is still running"
    for one, pids in list_attempts().items():
        shown = " ".join(map(str, pids[:8]))
        yield f"processes of the job are still running: {shown}" if one == attempt else f"attempt {one} also runs here: {shown}"
    own_pids = {os.getpid(), *list_ancestor_processes(os.getpid())}
    for pid, words in list_command_lines(HostView(os.environ)):
        if pid not in own_pids and is_costguard_run(words):
            yield f"another costguard run is active here: {pid}"
    if any(devices.glob("nvidia[0-9]*")):
        yield from _find_gpu_users(proc)


def _find_gpu_users(proc: Path) -> Iterator[str]:
    """Yield the users of a GPU, by NVML and by open device files, since NVML in a container lists few of its processes."""
    from costguard_agent.gpu_processes import DAEMONS, INITIAL_NAMESPACE, is_holding_gpu, read_processes
    from costguard_agent.nvml import GpuReader

    gpus = GpuReader()
    try:
        gpu_pids = gpus.look(0.0, full=False).pids
    finally:
        gpus.close()
    if gpu_pids is None:
        yield "other users of the GPUs cannot be detected (pip install nvidia-ml-py)"
        return
    own_pids = (os.getpid(), *list_ancestor_processes(os.getpid()))
    open_devices = {
        pid: is_holding_gpu(proc / str(pid) / "fd")
        for pid, one in read_processes(proc, 1).items()
        if pid not in own_pids and one.name not in DAEMONS
    }
    left = sorted({*gpu_pids, *(pid for pid, holds in open_devices.items() if holds)} - {os.getpid()})
    if left:
        yield f"{len(left)} other processes use the GPUs: {' '.join(map(str, left[:8]))}"
    contained = (proc / "self" / "ns" / "pid").readlink() != Path(INITIAL_NAMESPACE)
    if contained and None in open_devices.values():
        yield "processes of other users on the GPUs cannot be detected in this container"
