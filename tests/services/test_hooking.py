"""Hooks as real processes: what they are told, how they end, what is kept of what they say, and what a crash leaves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, sleep

import pytest

from costguard.guard.escalation import BEGUN, FAILED, LOST, SUCCEEDED, TIMED_OUT, Hook, HookEnd, HookRun
from costguard.guard.overrides import FREEZE, LEASE, Override
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.notifiers.webhook import sign_webhook
from costguard.services.guarding.act.hooks import (
    HookCall,
    HookRunner,
    build_hook_environment,
    record_hook_ends,
    run_hook_command,
)
from costguard.services.guarding.dispatch import build_hook_runner
from costguard.settings import Settings
from costguard.system.process import PLAIN_VARIABLES
from costguard.testing import FakeClock
from costguard.values.resource import Incarnation, ResourceKey

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = ResourceKey("aws", "1111", "us-east-1", "i-1")
LIFE = Incarnation(KEY, NOON, NOON)
MIN = timedelta(minutes=1)


def call(*command: str, within_s: float = 30, id_: str = "run-1", env: tuple[str, ...] = ()) -> HookCall:
    return HookCall(
        id=id_,
        hook=Hook(name="checkpoint", command=command, env=env),
        within_s=within_s,
        at=NOON,
        provider=KEY.provider,
        account=KEY.account,
        region=KEY.region,
        resource=KEY.id,
        name="train\x1b[31m\n<!channel>",
        owner="ada",
        policy="idle-gpu",
        reason="GPU duty 0 %",
        deadline=NOON + 15 * MIN,
    )


def python(code: str, *, within_s: float = 30) -> HookEnd:
    return run_hook_command(call(sys.executable, "-c", code, within_s=within_s))


def test_a_hook_is_told_what_whose_why_and_when_as_json_and_in_variables() -> None:
    end = python(
        "import os, sys; print(sys.stdin.read()); print(os.environ['COSTGUARD_NAME'], os.environ['COSTGUARD_DEADLINE'])"
    )
    body, variables = end.output.splitlines()
    assert end.state == SUCCEEDED
    assert end.status == 0
    told = json.loads(body)
    assert told["schema"] == "costguard.hook/1"
    assert (told["provider"], told["id"], told["owner"], told["policy"]) == ("aws", "i-1", "ada", "idle-gpu")
    assert (told["reason"], told["deadline"], told["run"]) == ("GPU duty 0 %", "2026-11-20T12:15:00Z", "run-1")
    assert "\x1b" not in variables
    assert variables.endswith("2026-11-20T12:15:00Z")


def test_a_hook_gets_no_key_of_ours_unless_it_is_named() -> None:
    ours = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "s", "COSTGUARD_WEBHOOK_SECRET": "t", "RUNPOD_API_KEY": "u", "WANTED": "w"}
    found = build_hook_environment(call("true", env=("WANTED", "MISSING")), ours)
    assert {name: text for name, text in found.items() if not name.startswith("COSTGUARD_")} == {"PATH": "/bin", "WANTED": "w"}
    assert "COSTGUARD_WEBHOOK_SECRET" not in found
    assert not any("KEY" in name or "SECRET" in name or "TOKEN" in name for name in PLAIN_VARIABLES)


def test_a_hook_that_fails_says_how_and_what_it_said() -> None:
    end = python("import sys; print('no space left'); sys.exit(3)")
    assert end == HookEnd(state=FAILED, status=3, why="it ended with status 3", output="no space left\n")


def test_a_command_that_is_not_there_is_told_when_it_should_run() -> None:
    end = run_hook_command(call("/nowhere/save"))
    assert (end.state, end.why) == (FAILED, "/nowhere/save cannot be run: no such file or directory")


def test_a_hook_that_takes_too_long_is_ended_with_all_it_began(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    deaf = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN);"
        f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    code = (
        "import os, signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
        f"subprocess.Popen([sys.executable, '-c', {deaf!r}]);"
        f"\nwhile not (os.path.exists({str(mark)!r}) and open({str(mark)!r}).read()): time.sleep(0.01)\n"
        "print('saving', flush=True); time.sleep(600)"
    )
    end = python(code, within_s=5)
    assert (end.state, end.status, end.why) == (TIMED_OUT, -signal.SIGKILL, "it was killed after 5 s")
    assert end.output == "saving\n"
    assert _has_gone(int(mark.read_text()))


def _has_gone(pid: int) -> bool:
    """Whether that program ends: what was sent SIGKILL may still be on its way out when who sent it goes on."""
    until = monotonic() + 60
    while _runs(pid) and monotonic() < until:
        sleep(0.01)
    return not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_of_ten_megabytes_of_output_the_beginning_and_the_end_are_kept() -> None:
    end = python("import sys; print('begin'); sys.stdout.write('x' * 10_000_000); print('the end')")
    assert end.state == SUCCEEDED
    assert end.output.startswith("begin\n")
    assert end.output.endswith("the end\n")
    assert "left out" in end.output
    assert len(end.output) < 5000


@pytest.fixture
def book(tmp_path: Path) -> Iterator[GuardStore]:
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=Rails()) as opened:
        assert opened.acquire_leader_lease("me", NOON, 10 * MIN) == 1
        yield opened


def run(**changes: object) -> HookRun:
    usual: dict[str, object] = {"id": "run-1", "life": LIFE, "policy": "idle-gpu", "rule": "idle", "number": 1}
    usual |= {"hook": "checkpoint", "began_at": NOON, "until": NOON + 5 * MIN, "epoch": 1}
    return HookRun(**{**usual, **changes})  # type: ignore[arg-type]  # any field


def wished(book: GuardStore, what: str, **of: object) -> None:
    book.add_override(Override(id=what, what=what, who="ada", why="", at=NOON, until=NOON + 60 * MIN, **of))  # type: ignore[arg-type]


def test_a_hook_runs_beside_the_guard_and_its_end_is_recorded_once(book: GuardStore) -> None:
    hooks = HookRunner()
    assert book.begin_hook(run(), NOON)
    hooks.begin(call("sh", "-c", "echo saved"))
    record_hook_ends(book, hooks, NOON)
    hooks.wait()
    record_hook_ends(book, hooks, NOON + MIN)
    (found,) = book.load_hook_runs(NOON)
    assert (found.state, found.status, found.output, found.ended_at) == (SUCCEEDED, 0, "saved\n", found.ended_at)
    assert hooks.list_running() == frozenset()
    assert not book.end_hook("run-1", HookEnd(state=FAILED), NOON)


def test_nothing_begins_that_could_not_be_recorded(book: GuardStore) -> None:
    assert not book.begin_hook(run(epoch=7), NOON), "the turn is another one's"
    wished(book, LEASE, key=KEY, life=LIFE)
    assert not book.begin_hook(run(), NOON), "it is kept"
    book.lift_override(LEASE, who="ada", now=NOON)
    wished(book, FREEZE)
    assert not book.begin_hook(run(), NOON), "all acts are frozen"
    book.lift_override(FREEZE, who="ada", now=NOON)
    assert book.begin_hook(run(), NOON)
    assert not book.begin_hook(run(id="run-2"), NOON), "one of this step has not ended"
    assert book.begin_hook(run(id="run-3", number=2), NOON)


def test_a_hook_of_a_watchdog_that_ends_is_ended_with_it(book: GuardStore) -> None:
    hooks = HookRunner()
    assert book.begin_hook(run(), NOON)
    hooks.begin(call("sleep", "600", within_s=600))
    hooks.wait(cut_short=True)
    record_hook_ends(book, hooks, NOON, lost=False)
    (found,) = book.load_hook_runs(NOON)
    assert (found.state, found.why) == (LOST, "the watchdog ended while the hook ran")


def test_a_hook_whose_watchdog_was_killed_is_neither_forgotten_nor_run_a_second_time_before_its_time_is_over(
    book: GuardStore, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    code = f"""
import sys, time
from tests.services.test_hooking import GuardStore, HookRunner, NOON, Rails, call, run
with GuardStore({f"sqlite:///{tmp_path / 'ledger.db'}"!r}, rails=Rails()) as book:
    assert book.begin_hook(run(), NOON)
    HookRunner().begin(call("sh", "-c", {f"echo $$ > {shlex.quote(str(mark))}; exec sleep 600"!r}, within_s=600))
    while not {str(mark)!r} or not __import__("pathlib").Path({str(mark)!r}).exists(): time.sleep(0.01)
    print("begun", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as watchdog:
        assert watchdog.stdout is not None
        assert watchdog.stdout.readline() == "begun\n"
        watchdog.kill()
    os.kill(int(mark.read_text()), signal.SIGKILL)  # it outlived its watchdog
    again = HookRunner()
    record_hook_ends(book, again, NOON + 4 * MIN)
    assert [one.state for one in book.load_hook_runs(NOON)] == [BEGUN]
    assert not book.begin_hook(run(id="run-2", began_at=NOON + 4 * MIN), NOON + 4 * MIN)
    record_hook_ends(book, again, NOON + 5 * MIN)
    (found,) = book.load_hook_runs(NOON)
    assert (found.state, found.why) == (LOST, "the watchdog that started it has ended")


@dataclass
class Site:
    """A web server that answers `status` with `says`. `silent`: it answers nothing until the test is over."""

    status: int = 200
    says: bytes = b""
    silent: bool = False
    asked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            site.asked.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            if site.silent:
                site.over.wait(60)
                return
            self.send_response(site.status)
            self.end_headers()
            self.wfile.write(site.says)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the library
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    site.url = f"http://127.0.0.1:{server.server_port}/save"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.over.set()
        server.shutdown()
        server.server_close()


def ended(site: Site, *, url: str = "", within_s: float = 30, settings: Settings | None = None) -> HookEnd:
    hooks = build_hook_runner(settings or Settings(), FakeClock(NOON))
    call = HookCall(
        id="run-1",
        hook=Hook(name="drain", url=url or site.url),
        within_s=within_s,
        at=NOON,
        provider="aws",
        account="1111",
        region="east",
        resource="i-1",
        name="train",
        owner="ada",
        policy="idle-gpu",
        reason="GPU duty 0 %",
    )
    hooks.begin(call)
    hooks.wait()
    return hooks.get_ends()["run-1"]


def test_a_url_is_asked_by_post_with_what_whose_why_and_when_and_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "0123456789abcdef")
    with serving(Site(says=b"drained")) as site:
        end = ended(site, settings=Settings(signed_with="env:OUR_SECRET"))
    assert end == HookEnd(state=SUCCEEDED, status=200, output="drained")
    ((headers, body),) = site.asked
    told = json.loads(body)
    assert (told["id"], told["owner"], told["policy"], told["reason"]) == ("i-1", "ada", "idle-gpu", "GPU duty 0 %")
    assert headers["Costguard-Id"] == "run-1"
    stamp = headers["Costguard-Timestamp"]
    assert headers["Costguard-Signature"] == sign_webhook("0123456789abcdef", "run-1", stamp, body)


def test_an_answer_that_is_no_success_is_a_failure_and_is_not_asked_again() -> None:
    with serving(Site(status=503, says=b"busy")) as site:
        assert ended(site) == HookEnd(state=FAILED, status=503, why="it answered 503", output="busy")
    assert len(site.asked) == 1


def test_a_url_that_does_not_answer_fails_when_its_time_is_over() -> None:
    with serving(Site(silent=True)) as site:
        end = ended(site, within_s=1)
    assert end.state == FAILED
    assert end.why.startswith("no answer")


def test_a_command_with_a_zero_byte_is_told(tmp_path: Path) -> None:
    assert run_hook_command(call(str(tmp_path / "a\0b"))).why.endswith("its command cannot be read")
