"""The switch as a whole, on a fake cloud: who is ended, who never is, what a restart does with an open intent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from costguard_agent.clock import Moment
from costguard_agent.deadman_policy import HOUR_S, PROTECTION_UNKNOWN, compute_delay_s
from costguard_agent.deadman_switch import INTENT, SETTINGS, TOLD, DeadmanSwitch, arm_switch, disarm_switch, is_costguard_run
from costguard_agent.diagnostics import AgentError

from tests.agent.near import Machine
from tests.agent.test_deadman import STILL
from tests.fakes.server import serving
from tests.fakes.vast import KEY
from tests.providers.vast.rig import VastRig

AGENT = "agent-1"
START_MS = 1_764_000_000_000
ANSWER = {"protected": False, "kept_until": None}
MINUTE_S = 60.0
WAIT_H = 6 + compute_delay_s(AGENT) / HOUR_S


class Box:
    """One rented container at Vast with an armed switch, and a clock that is turned by hand."""

    def __init__(self, folder: Path, name: str = AGENT, **choice: float) -> None:
        self.rig = VastRig()
        self.mine = self.rig.put(1)[0]
        self.machine = Machine(folder / name)
        self.folder, self.name = folder / f"{name}-state", name
        self.folder.mkdir()
        self.choice = choice
        self.at = Moment(START_MS, 5000.0, 5000.0)
        self.machine.file("proc/sys/kernel/random/boot_id", "boot-1\n")
        self.wishes: dict[str, int] = {}
        self.log: list[str] = []
        self.switch: DeadmanSwitch | None = None

    @contextmanager
    def armed(self) -> Iterator[Box]:
        with serving(self.rig.fake) as base:
            self.machine.env.update(COSTGUARD_VAST_API=base, VAST_CONTAINERLABEL=f"C.{self.mine}", CONTAINER_API_KEY=KEY)
            arm_switch(self.folder, "stop", self.machine.around, agent_id=self.name, **self.choice)  # type: ignore[arg-type]
            self.restart()
            yield self

    def restart(self) -> None:
        """The agent begins."""
        self.switch = DeadmanSwitch.load_armed(self.folder, self.name, self.machine.around)
        if self.switch is not None:
            self.switch.wait(20)

    def answer(self, **more: object) -> None:
        """The watchdog answers."""
        assert self.switch is not None
        self.switch.handle_answer(self.at, {**ANSWER, **more})

    def go(
        self, hours: float, signals: Mapping[str, float] | None = STILL, *, slept_s: float = 0.0, step_s: float = MINUTE_S
    ) -> None:
        """Time goes by; a record and a look a minute. `signals` None: no records."""
        assert self.switch is not None
        for _ in range(round(hours * 3600 / step_s)):
            wall, boot, awake = self.at
            self.at = Moment(wall + int((step_s + slept_s) * 1000), boot + step_s + slept_s, awake + step_s)
            slept_s = 0.0
            if signals is not None:
                self.switch.add_record(self.at, step_s, signals)
            self.log += self.switch.look(self.at, self.wishes)

    @property
    def state(self) -> str:
        return self.rig.state_of(self.mine)

    @property
    def ends(self) -> int:
        """How often the cloud was asked to end anything."""
        return self.rig.fake.calls("^PUT|^DELETE")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with Box(tmp_path).armed() as made:
        yield made


def test_a_silent_idle_machine_is_stopped_after_a_last_call(box: Box) -> None:
    box.answer()
    box.go(WAIT_H - 0.05)
    assert box.ends == 0
    box.go(0.2)
    assert box.ends == 0
    assert any("will be ended (stop) in 10 min" in line for line in box.log)
    box.go(0.2)
    assert (box.ends, box.state) == (1, "stopped")
    intent = json.loads((box.folder / INTENT).read_text())
    assert (intent["state"], intent["outcome"], intent["act"]) == ("sent", "accepted", "stop")
    assert KEY not in "".join(path.read_text() for path in box.folder.iterdir())


def test_a_watchdog_that_refuses_this_agent_is_not_silent_and_may_have_protected_the_machine(box: Box) -> None:
    """Revoked, replaced by another agent of this machine, started anew: the watchdog guards it, and does not speak to us."""
    assert box.switch is not None
    box.answer()
    for _ in range(3 * 24):
        box.go(1)
        box.switch.handle_refusal(box.at)
    assert box.ends == 0
    box.go(3 * WAIT_H)  # and now it is gone indeed
    box.restart()
    box.go(3 * WAIT_H)
    assert (box.ends, box.switch.judgement.reason) == (0, PROTECTION_UNKNOWN)
    box.answer()
    box.go(WAIT_H + 1)
    assert box.ends == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("by_s", [86400, 30 * 86400, -86400])
def test_a_clock_that_is_set_ends_no_lease_and_no_wish(box: Box, by_s: int) -> None:
    """Its watchdog is gone, so nobody tells this machine what time it is."""
    box.answer(kept_until=START_MS + 20 * 3_600_000, guard_at=START_MS)
    box.go(0.1)
    box.at = box.at._replace(wall_ms=box.at.wall_ms + by_s * 1000)
    box.go(19.5)
    assert box.ends == 0
    box.wishes = {"keep": box.at.wall_ms + 20 * 3_600_000}
    box.go(0.1)
    box.at = box.at._replace(wall_ms=box.at.wall_ms + by_s * 1000)
    box.go(19.5)
    assert box.ends == 0
    box.go(WAIT_H + 25)
    assert box.ends, "and then it is over"


def test_a_lease_that_was_told_before_a_restart_counts_as_long_as_it_was(box: Box) -> None:
    """The clock of a machine that was off may say anything: what was left of the lease when it was told is what it has."""
    box.answer(kept_until=START_MS + 20 * 3_600_000, guard_at=START_MS)
    box.go(1)
    box.at = box.at._replace(wall_ms=box.at.wall_ms + 400 * 86_400_000)
    box.restart()
    box.go(19.5)
    assert box.ends == 0
    box.go(WAIT_H)
    assert box.ends == 1


@pytest.mark.proof
def test_with_the_watchdog_dead_for_a_month_a_busy_machine_is_not_ended(box: Box) -> None:
    """It trains, downloads, evaluates on a core, or somebody types: half an hour each, then half an hour of nothing."""
    box.answer(kept_until=START_MS + 3_600_000)
    kinds: tuple[dict[str, float], ...] = (
        {"gpu_util": 99.0},
        {"network_bytes_s": 6.1e6},
        {"cpu_cores": 1.0},
        {"input_age_s": 20.0},
    )
    for hour in range(30 * 24):
        box.go(0.5, {**STILL, **kinds[hour % len(kinds)]}, step_s=150.0)
        box.go(0.5, STILL, step_s=150.0)
    assert (box.ends, box.state) == (0, "running")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", sorted(STILL))
def test_with_the_watchdog_dead_for_days_no_machine_that_misses_a_signal_is_ended(box: Box, family: str) -> None:
    box.answer()
    box.go(48, {name: value for name, value in STILL.items() if name != family})
    assert box.ends == 0


@pytest.mark.parametrize("answer", [{"protected": True}, {"protected": None}, {"protected": "false"}])
def test_what_is_protected_or_not_known_not_to_be_is_not_ended(box: Box, answer: Mapping[str, object]) -> None:
    box.answer(**answer)
    box.go(24)
    assert box.ends == 0


def test_what_the_watchdog_said_is_remembered_over_a_restart(box: Box) -> None:
    box.answer(protected=True)
    box.restart()
    box.go(24)
    assert box.ends == 0
    assert json.loads((box.folder / TOLD).read_text())["protected"] is True


def test_keep_in_the_last_call_cancels_it(box: Box) -> None:
    box.answer()
    while not box.log or "will be ended" not in box.log[-1]:
        box.go(1 / 60)
    box.wishes["keep"] = box.at.wall_ms + 4 * 3_600_000
    box.go(3.9)
    assert box.ends == 0
    assert any("is cancelled" in line for line in box.log)
    box.go(0.5)
    assert box.ends == 1


def test_a_lease_that_runs_keeps_it_and_one_that_ended_does_not(box: Box) -> None:
    box.answer(kept_until=START_MS + 20 * 3_600_000)
    box.go(20)
    assert box.ends == 0
    box.go(0.3)
    assert box.ends == 1


def test_a_costguard_run_that_lives_keeps_it(box: Box) -> None:
    box.machine.process(
        700, "python", words=("/venv/bin/python", "/venv/bin/costguard", "run", "--job", "job.toml", "--", "python", "t.py")
    )
    box.answer(kept_until=START_MS + 3_600_000)
    box.go(24)
    assert box.ends == 0


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("costguard run -- python t.py", True),
        ("/usr/bin/python3 -m costguard run --yes", True),
        ("/venv/bin/python /venv/bin/costguard --config x run", True),
        ("costguard watch", False),
        ("costguard-agent run", False),
        ("python run.py costguard", False),
    ],
)
def test_a_run_is_known_by_its_command_line(words: str, *, is_one: bool) -> None:
    assert is_costguard_run(words.split()) == is_one


def test_a_machine_that_slept_or_whose_clock_was_set_counts_anew(box: Box) -> None:
    box.answer()
    for _ in range(6):
        box.go(5)
        box.go(1 / 60, slept_s=30.0)
    assert box.ends == 0
    box.go(5)
    wall, boot, awake = box.at
    box.at = Moment(wall + 3_600_000, boot, awake)
    box.go(5)
    assert box.ends == 0


def test_a_gap_that_the_agents_loop_saw_counts_anew(box: Box) -> None:
    box.answer()
    box.go(WAIT_H - 0.1)
    assert box.switch is not None
    box.switch.handle_gap(box.at)
    box.go(WAIT_H - 0.1)
    assert box.ends == 0


def test_a_key_that_does_not_fit_any_more_ends_nothing_and_says_so(box: Box) -> None:
    box.answer()
    box.machine.env["CONTAINER_API_KEY"] = "revoked"
    box.go(8)
    assert box.ends == 0
    assert any("is not ended: Vast answered" in line for line in box.log)


def test_an_armed_switch_that_would_not_work_says_so_at_the_start(box: Box) -> None:
    box.machine.env["CONTAINER_API_KEY"] = "revoked"
    box.restart()
    box.go(1 / 60)
    assert "it is armed and would not work as this user, here and now: Vast answered 404" in box.log[0]


def test_another_machine_than_the_armed_one_is_not_ended(box: Box) -> None:
    other = box.rig.put(1)[0]
    box.machine.env["VAST_CONTAINERLABEL"] = f"C.{other}"
    box.restart()
    box.answer()
    box.go(24)
    assert box.ends == 0


def test_a_machine_that_turns_out_to_be_another_right_before_the_request_is_not_ended(box: Box) -> None:
    other = box.rig.put(1)[0]
    box.answer()
    while not box.log or "will be ended" not in box.log[-1]:
        box.go(1 / 60)
    box.machine.env["VAST_CONTAINERLABEL"] = f"C.{other}"
    box.go(1)
    assert (box.ends, box.state, box.rig.state_of(other)) == (0, "running", "running")
    assert any("it is not the machine for which the switch was armed" in line for line in box.log)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["did", "status"])
def test_an_attempt_that_is_not_confirmed_needs_hours_of_silence_anew_and_after_two_a_person(box: Box, kind: str) -> None:
    box.rig.fake.deaf = True
    box.rig.fake.fault("^PUT", kind)
    box.answer()
    box.go(7)
    assert box.ends == 1
    box.go(5)
    assert box.ends == 1
    box.go(60)
    assert box.ends == 2
    assert box.switch is not None
    assert box.switch.judgement.reason == "tried"
    box.answer()
    box.go(8)
    assert box.ends == 3


def test_an_intent_that_a_restart_finds_open_is_settled_by_looking(box: Box) -> None:
    box.answer()
    open_ = {"state": "sending", "act": "stop", "how": "x", "boot_id": "boot-1", "attempts": 1, "at_ms": 1}
    (box.folder / INTENT).write_text(json.dumps(open_))
    box.restart()
    box.go(1 / 60)
    assert "not confirmed, it still runs; it is not sent again" in box.log[0]
    assert box.ends == 0
    assert json.loads((box.folder / INTENT).read_text())["settled"] == "running"
    box.log.clear()
    box.restart()
    box.go(1 / 60)
    assert "not confirmed" not in box.log[0]


def test_after_another_boot_an_open_intent_is_taken_to_have_worked(box: Box) -> None:
    (box.folder / INTENT).write_text(json.dumps({"state": "sending", "act": "stop", "boot_id": "boot-0", "attempts": 1}))
    box.restart()
    box.go(1 / 60)
    assert "worked, or the machine was restarted since" in box.log[0]


def test_without_a_disk_for_the_intent_nothing_is_sent(box: Box) -> None:
    box.answer()
    box.go(WAIT_H)
    assert box.ends == 0
    (box.folder / INTENT).unlink(missing_ok=True)
    (box.folder / INTENT).mkdir()
    box.go(1)
    assert box.ends == 0
    assert any("the intent cannot be written" in line for line in box.log)


# Switching it on and off


def test_a_switch_is_armed_only_where_the_act_is_certain(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "box", COSTGUARD_PLACE="lambda")
    with pytest.raises(AgentError, match="stays off: on Lambda nothing from inside stops billing"):
        arm_switch(tmp_path, "terminate", machine.around)
    assert not (tmp_path / SETTINGS).exists()


@pytest.mark.parametrize(("choice", "why"), [({"after_s": 1800.0}, "--dead-man-after"), ({"idle_s": 600.0}, "--dead-man-idle")])
def test_a_switch_with_too_little_patience_is_refused(tmp_path: Path, choice: dict[str, float], why: str) -> None:
    with pytest.raises(AgentError, match=why):
        arm_switch(tmp_path, "stop", Machine(tmp_path / "box").around, **choice)  # type: ignore[arg-type]


def test_arming_says_what_it_loses_and_what_bills_on_and_disarming_ends_it(box: Box) -> None:
    said = arm_switch(box.folder, "stop", box.machine.around, agent_id=AGENT)
    assert "after 6 h and" in said
    assert "What bills on: its disk" in said
    assert disarm_switch(box.folder)
    assert not disarm_switch(box.folder)
    box.restart()
    assert box.switch is None
