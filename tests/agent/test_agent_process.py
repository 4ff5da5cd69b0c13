"""A real agent process, on the oldest Python that it promises and on ours: it joins, tells, outlives what comes, and ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.watchdog import CODE, Asked, Watchdog

ROOT = Path(__file__).parent.parent.parent
OLDEST = "3.9.18"
START = "import sys; from costguard_agent.cli import main; sys.exit(main(sys.argv[1:]))"
GPU = {"util": 97, "memory_util": 40, "power": 612.0, "limit": 700.0, "used": 60, "total": 80, "heat": 64, "pcie": 1200}


def oldest() -> str:
    """The oldest Python, where there is one."""
    shim = shutil.which("python3.9")
    if shim is None:
        pytest.skip("no Python 3.9 here")
    asked = subprocess.run(
        [shim, "-c", "import sys; print(sys.executable)"],
        env={**os.environ, "PYENV_VERSION": OLDEST}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if asked.returncode != 0:
        pytest.skip("no Python 3.9 here")
    return asked.stdout.strip()


class Machine:
    """One machine with an agent."""

    def __init__(self, folder: Path, python: str, dog: Watchdog) -> None:
        self.folder, self.python, self.dog = folder / "agent", python, dog
        self.nvml = folder / "nvml.json"
        self.gpus(GPU, GPU)
        self.log = folder / "log"
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "COSTGUARD_AGENT_DIR": str(self.folder),
            "PYTHONPATH": f"{ROOT / 'agent'}:{ROOT / 'tests' / 'agent' / 'fake_nvml'}", "FAKE_NVML": str(self.nvml),
            "PYTHONPYCACHEPREFIX": str(folder / "cache"), "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9",
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def gpus(self, *gpus: dict[str, Any], **more: object) -> None:
        fresh = self.nvml.with_suffix(".new")
        fresh.write_text(json.dumps({"gpus": gpus, **more}))
        fresh.replace(self.nvml)

    def command(self, *words: str, within_s: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-S", "-c", START, *words],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.python, "-S", "-c", START, "run"], env=self.env, stderr=log)

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(10)

    def said(self) -> list[str]:
        return [line.partition(": ")[2] for line in self.log.read_text().splitlines()]


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    made = Watchdog()
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path, dog: Watchdog) -> Iterator[Machine]:
    made = Machine(tmp_path, sys.executable, dog)
    yield made
    if made.process is not None:
        made.end(signal.SIGKILL)


def gone_and_back(dog: Watchdog) -> Callable[[], None]:
    """Takes the watchdog away; what it returns brings it back."""

    def hang_up(asked: Asked) -> None:
        asked.close_connection = True

    dog.misbehave = hang_up
    return lambda: setattr(dog, "misbehave", None)


@pytest.mark.sampled(2, first=1)
@pytest.mark.parametrize("version", ["oldest", "ours"])
def test_an_agent_joins_tells_and_loses_nothing_whatever_happens(machine: Machine, dog: Watchdog, version: str) -> None:
    machine.python = oldest() if version == "oldest" else sys.executable
    joined = machine.command("join", dog.url, CODE)
    assert (joined.returncode, joined.stderr) == (0, "")
    machine.start()
    dog.until(lambda: len(dog.records) >= 3 and any("gpu_util" in record["signals"] for record in dog.told()))
    signals = next(record["signals"] for record in dog.told() if "gpu_util" in record["signals"])  # a busy machine may skip one
    assert (signals["gpu_util"], signals["gpu_busy_count"], signals["gpu_power_w"], signals["agent_alive"]) == (97, 2, 1224, 1)

    back = gone_and_back(dog)
    tries = dog.tries
    dog.until(lambda: dog.tries >= tries + 3)
    machine.end(signal.SIGKILL)
    waiting = len((machine.folder / "records.jsonl").read_bytes().splitlines())
    assert waiting >= 2
    before = dog.seqs[-1]
    back()
    machine.start()
    known = len(dog.records)
    dog.until(lambda: len(dog.records) > known + waiting)
    assert min(seq for seq in dog.seqs if seq > before) == dog.seqs[dog.seqs.index(before) + 1]
    assert dog.seqs == sorted(set(dog.seqs))
    assert "replayed" not in dog.refused
    gaps = [two["at"] - one["at"] for one, two in zip(dog.told(), dog.told()[1:], strict=False)]
    over = [record["over_s"] * 1000 for record in dog.told()[1:]]
    assert all(gap >= length - 600 for gap, length in zip(gaps, over, strict=True)), "no two records tell of the same time"

    assert machine.end() == 0
    assert machine.command("status").stdout.startswith("does not run")
    assert all(len(each) == 1 for each in dog.records.values())


@pytest.mark.proof
def test_a_machine_that_was_suspended_makes_no_record_over_the_gap(machine: Machine, dog: Watchdog) -> None:
    machine.command("join", dog.url, CODE)
    machine.start()
    dog.until(lambda: len(dog.records) >= 2)
    machine.send(signal.SIGSTOP)
    time.sleep(12.5)
    machine.send(signal.SIGCONT)
    dog.until(
        lambda: any(
            "no records for a gap: the agent did not run for" in text for beat in dog.beats for text in beat["troubles"]
        )
    )
    assert max(record["over_s"] for record in dog.told()) < 4
    gaps = [two["at"] - one["at"] for one, two in zip(dog.told(), dog.told()[1:], strict=False)]
    assert max(gaps) > 12_000


@pytest.mark.proof
def test_hints_and_asks_reach_the_watchdog_and_its_answer_comes_back(machine: Machine, dog: Watchdog) -> None:
    machine.command("join", dog.url, CODE)
    machine.start()
    dog.until(lambda: dog.beats)
    job = "import costguard_agent; costguard_agent.progress(42)"
    subprocess.run([sys.executable, "-S", "-c", job], env=machine.env, check=True)
    dog.until(lambda: dog.told()[-1]["signals"].get("step") == 42)
    granted = machine.command("phase", "download", "--for", "3h")
    assert (granted.returncode, granted.stdout) == (0, "granted: phase download for 3h\n")
    dog.why_not = "the lease may be 12 h at most"
    refused = machine.command("keep", "--for", "1d", "--why", "a demo")
    assert (refused.returncode, refused.stderr) == (3, "costguard-agent: not granted: the lease may be 12 h at most\n")
    asked = [ask for beat in dog.beats for ask in beat["ask"]]
    assert [(ask["what"], ask["name"], ask["why"]) for ask in asked] == [("phase", "download", "a job"), ("keep", "", "a demo")]
    status = json.loads(machine.command("status", "--json").stdout)
    assert (status["running"], status["guarded"], status["machine"], status["state"]) == (True, True, "active", "answered")


def test_a_watchdog_whose_clock_is_hours_away_gets_records_by_its_own_clock(machine: Machine, dog: Watchdog) -> None:
    dog.ahead_ms = 5 * 3_600_000
    machine.command("join", dog.url, CODE)
    machine.start()
    dog.until(lambda: len(dog.records) >= 3)
    assert all(abs(at - dog.now_ms()) < 60_000 for at in dog.records)
    assert dog.refused == ["stale"]
    dog.until(lambda: any("clock is -18" in text for text in dog.beats[-1]["troubles"]))


def test_a_renewed_driver_starts_the_agent_anew_as_the_same_process(machine: Machine, dog: Watchdog) -> None:
    machine.command("join", dog.url, CODE)
    machine.start()
    dog.until(lambda: dog.beats)
    machine.gpus(GPU, renewed=True)
    dog.until(lambda: any("the agent restarts" in line for line in machine.said()))
    dog.until(lambda: dog.told()[-1]["signals"].get("gpu_busy_count") == 1)
    assert machine.process is not None
    assert machine.process.poll() is None


def test_two_agents_do_not_share_a_folder(machine: Machine, dog: Watchdog) -> None:
    machine.command("join", dog.url, CODE)
    machine.start()
    dog.until(lambda: dog.beats)
    second = machine.command("run")
    assert second.returncode == 2
    assert "an agent is already running from" in second.stderr


def test_a_machine_that_has_not_joined_says_how(machine: Machine) -> None:
    ran = machine.command("run")
    assert ran.returncode == 2
    assert "has not joined a watchdog" in ran.stderr
    asked = machine.command("busy", "--for", "2h")
    assert (asked.returncode, "no agent runs on this machine" in asked.stderr) == (1, True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["busy", "--for", "soon"], 1, "'soon' is not a duration: write 90m, 3h, 1h30m or 2d"),
        (["join", "http://example.org", "x"], 1, "plain http only to this machine"),
        (["keep", "--for", "2h"], 2, "--why"),
        ([], 2, "COMMAND"),
        (["version"], 0, "costguard-agent 0.1.0"),
        (["install", "--print"], 0, "DynamicUser=yes"),
    ],
)
def test_commands_say_what_is_wrong_with_them(machine: Machine, words: list[str], code: int, said: str) -> None:
    done = machine.command(*words)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
