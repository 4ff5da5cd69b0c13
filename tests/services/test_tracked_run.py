"""`with costguard.run(...)`: what it prints, where it stops, what it teaches, and what a step costs."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from costguard_agent.shutdown import MachineIdentity, ShutdownWay

import costguard as package
from costguard.errors import InputError
from costguard.services.run_jobs import machine_shutdown
from costguard.services.run_jobs.terms import _compute_tokens_per_step
from costguard.services.run_jobs.tracked_run import TrackedRun, find_listener
from tests.conftest import Command
from tests.sizing.test_passes import job, placed

JOB: dict[str, object] = {
    "model": "llama-3.1-8b",
    "method": "qlora",
    "tokens": 50_000_000,
    "seq_len": 2048,
    "micro_batch": 2,
    "global_batch_tokens": 16_384,
}
STEP_S_MAX = 50e-6
Make = Callable[..., tuple[TrackedRun, "Clock"]]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def make(costguard: Command, market: str, monkeypatch: pytest.MonkeyPatch) -> Make:
    del costguard
    monkeypatch.setattr("costguard.services.run_jobs.terms._list_local_gpus", list)
    monkeypatch.setattr("costguard.services.run_jobs.tracked_run.list_hint_sockets", list)

    def made(**options: Any) -> tuple[TrackedRun, Clock]:  # noqa: ANN401 - of the run
        clock = Clock()
        stated = {"job": JOB, "on": "RTX-4090:1", "rate": "0.34", "market": market, **options}
        return package.run(clock=clock, **stated), clock

    return made


def train(run: TrackedRun, clock: Clock, steps: int, step_s: float) -> None:
    for _ in range(steps):
        clock.now_s += step_s
        if run.step():
            break


def test_it_says_the_end_and_the_cost_at_the_start_at_each_evaluation_and_at_the_end(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run, clock = make(steps=3000)
    with run:
        begun = capsys.readouterr().err
        train(run, clock, 600, 6.0)
        clock.now_s += 240
        run.exclude_pause()
        run.report()
        told = capsys.readouterr().err
        train(run, clock, 2400, 6.0)
    ended = capsys.readouterr().err
    assert "costguard: job training, attempt 1 on RTX-4090 x1, at $0.3400/h (--rate)" in begun
    assert "costguard: quoted: " in begun
    assert "costguard: expected end: " in begun
    # 600 steps took 3,840 s with the evaluation: 2,400 more take 15,360 s at the same share of evaluations, 5.33 h in all
    assert "step 600 of 3000 after 1.07 h, $0.3627; expected end " in told
    assert "$1.81 in all" in told
    assert "ended at step 3000 after 5.07 h, $1.72" in ended
    assert "calibrated with 2,731 tokens a second" in ended
    assert "next quote: " in ended


def test_the_second_quote_is_closer_than_the_first(make: Make) -> None:
    first, clock = make(steps=3000)
    with first:
        assert first.terms.hours is not None
        quoted, seconds = first.terms.hours.expected, first.terms.hours.expected * 3600 * 1.5
        train(first, clock, 3000, seconds / 3052)  # 50e6 tokens are 3,052 steps of 16,384
    second, _ = make(steps=3000)
    with second:
        assert second.terms.hours is not None
        again = second.terms.hours.expected
    assert abs(again - 1.5 * quoted) < 0.7 * abs(quoted - 1.5 * quoted)


@pytest.mark.parametrize(
    ("cap", "steps"),
    [({"max_usd": 0.17}, 1800), ({"max_hours": 0.5}, 1800), ({"job": {**JOB, "limits": {"max_usd": 0.17}}}, 1800), ({}, 5000)],
)
def test_it_stops_at_its_own_cap(cap: dict[str, Any], steps: int, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run, clock = make(steps=5000, **cap)
    with run:
        train(run, clock, 5000, 1.0)
        assert run._step == steps
        assert run.should_stop is bool(cap)
    assert ("the cap is reached after 30.0 min, $0.1700: stopping" in capsys.readouterr().err) is bool(cap)


def test_an_agent_gets_the_steps_and_measures_them(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hints.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(path))
        monkeypatch.setenv("COSTGUARD_HINTS", str(path))
        monkeypatch.setattr("costguard.services.run_jobs.tracked_run.list_hint_sockets", lambda: [str(path)])
        monkeypatch.setattr("costguard_agent.hints._last_sent_s", {})
        sender: dict[str, Any] = {}
        monkeypatch.setattr("costguard_agent.hints._socket_cache", sender)
        run, clock = make(steps=100)
        with run:
            train(run, clock, 100, 10.0)
        assert json.loads(agent.recv(4096)) == {"hint": "progress", "step": 1}
        assert find_listener() == "the agent"
        sender["socket"].close()
    assert run.learnt is None
    assert not list(tmp_path.rglob("calibration.json"))


def test_what_fails_and_what_resumes_teaches_nothing_wrong(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run, clock = make(steps=3000)

    def fail() -> None:
        with run:
            train(run, clock, 600, 6.0)
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        fail()
    assert "ended with an exception at step 600" in capsys.readouterr().err
    assert run.learnt is not None
    assert run.learnt.tokens_per_s is None
    resumed, clock = make(steps=3000)
    with resumed:
        resumed.begin_at(2000)
        train(resumed, clock, 500, 6.0)
        resumed.report()
    assert "step 2500 of 3000" in capsys.readouterr().err
    assert resumed.learnt is not None
    assert resumed.learnt.tokens_per_s == pytest.approx(16_384 / 6)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"job": "no-such.toml"}, "no-such.toml"),
        ({"job": {**JOB, "model": "no-such"}}, "model"),
        ({"max_usd": "much"}, "max_usd"),
        ({"max_hours": -1}, "max_hours"),
        ({"steps": 0}, "steps"),
        ({"on": "H1000:8"}, "--on"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_training_begins(options: dict[str, Any], field: str, make: Make) -> None:
    run, _ = make(**options)
    with pytest.raises(InputError) as refused:
        run.__enter__()
    assert field in str(refused.value)


def test_other_ranks_print_and_record_nothing(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run, clock = make(steps=100, quiet=True)
    with run:
        train(run, clock, 100, 10.0)
        run.report()
    assert capsys.readouterr().err == ""
    assert run.learnt is None


def test_a_step_costs_less_than_fifty_microseconds(make: Make) -> None:
    options = {"job": None, "steps": 10**9, "max_usd": 1000}
    run, _ = make(**options)
    run.clock = time.monotonic
    with run:
        best = min(_time_steps(run, 20_000) for _ in range(3))
        run.look_every_s = run._next_look_s = 0.0  # each step looks: never so in practice
        looking = min(_time_steps(run, 500) for _ in range(3))
    assert best < STEP_S_MAX
    assert looking < 10 * STEP_S_MAX


def _time_steps(run: TrackedRun, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        run.step()
    return (time.perf_counter() - began) / count


ACCUMULATED: dict[str, object] = {
    "model": "llama-3.1-8b",
    "method": "qlora",
    "tokens": 200 * 8 * 2 * 1024,
    "seq_len": 1024,
    "micro_batch": 2,
}
"""200 steps of eight passes of two sequences."""


def drop(*names: str, **more: object) -> dict[str, object]:
    return {key: value for key, value in ACCUMULATED.items() if key not in names} | more


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bases of the callbacks without their frameworks, which are large and not always installed."""
    names = ("TrainerCallback", "TrainerControl", "TrainerState", "TrainingArguments")
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(**dict.fromkeys(names, object)))
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=object))
    ours = [f"costguard.integrations.{name}" for name in ("transformers", "lightning")]
    for name in ours:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ours:  # made of the bases above: other tests import them anew
        sys.modules.pop(name, None)


def build_arguments(**stated: object) -> SimpleNamespace:
    usual = {"gradient_accumulation_steps": 8, "world_size": 1, "n_gpu": 0, "train_batch_size": 2, "parallelism_config": None}
    return SimpleNamespace(**{**usual, **stated})


@pytest.mark.parametrize(
    ("arguments", "state", "said"),
    [
        (build_arguments(), {}, {"passes_per_step": 8, "batch_size": 2}),
        (build_arguments(world_size=4, n_gpu=1), {}, {"passes_per_step": 32, "batch_size": 2}),
        (build_arguments(n_gpu=2, train_batch_size=4), {"train_batch_size": 4}, {"passes_per_step": 16, "batch_size": 2}),
        (
            build_arguments(train_batch_size=8, auto_find_batch_size=True),
            {"train_batch_size": 4},
            {"passes_per_step": 8, "batch_size": 4},
        ),
        (build_arguments(train_batch_size=8), {"train_batch_size": 4}, {"passes_per_step": 8, "batch_size": 8}),  # resumed
        (build_arguments(parallelism_config=object()), {}, {}),
        (build_arguments(hf_deepspeed_config=SimpleNamespace(config={"tensor_parallel": {"autotp_size": 2}})), {}, {}),
        (build_arguments(accelerator_config=SimpleNamespace(split_batches=True)), {}, {}),
    ],
)
@pytest.mark.usefixtures("frameworks")
def test_the_transformers_callback_states_the_passes_of_a_step(
    arguments: SimpleNamespace, state: dict[str, object], said: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from costguard.integrations.transformers import read_step

    assert read_step(arguments, SimpleNamespace(**state)) == said
    assert read_step(arguments, SimpleNamespace(**state), SimpleNamespace(_tp_size=2)) == {}
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    assert read_step(arguments, SimpleNamespace(**state)) == {}


@pytest.mark.parametrize(
    ("stated", "manual", "said"),
    [
        ({}, "", {"steps": 200, "passes_per_step": 8}),
        ({"distributed_sampler_kwargs": {"num_replicas": 4, "rank": 0}}, "", {"steps": 200, "passes_per_step": 32}),
        ({"estimated_stepping_batches": float("inf")}, "", {"steps": None, "passes_per_step": 8}),
        ({"max_steps": 50}, "manual", {"steps": 50}),
        ({"max_steps": -1}, "manual", {"steps": None}),
    ],
)
@pytest.mark.usefixtures("frameworks")
def test_the_lightning_callback_states_the_passes_of_a_step(
    stated: dict[str, object], manual: str, said: dict[str, int | None]
) -> None:
    from costguard.integrations.lightning import read_steps

    usual = {
        "estimated_stepping_batches": 200,
        "accumulate_grad_batches": 8,
        "distributed_sampler_kwargs": None,
        "max_steps": 200,
    }
    assert read_steps(SimpleNamespace(**{**usual, **stated}), SimpleNamespace(automatic_optimization=not manual)) == said


@pytest.mark.parametrize("name", ["transformers", "lightning"])
@pytest.mark.usefixtures("frameworks", "make")
def test_a_callback_with_accumulated_gradients_learns_what_was_trained(name: str, market: str) -> None:
    clock = Clock()
    options: dict[str, Any] = {"on": "H100:1", "rate": "2", "market": market, "clock": clock}
    if name == "transformers":
        from costguard.integrations.transformers import CostguardCallback

        callback = CostguardCallback(drop("tokens"), **options)
        state = SimpleNamespace(max_steps=200, is_world_process_zero=True, global_step=0)
        arguments = build_arguments()
        callback.on_train_begin(arguments, state, None)
        for state.global_step in range(1, 201):
            clock.now_s += 4.0
            callback.on_step_end(arguments, state, None)
        callback.on_train_end(arguments, state, None)
        run = callback.run
    else:
        from costguard.integrations.lightning import CostguardCallback as LightningCallback

        lightning = LightningCallback(drop("tokens"), **options)
        usual = {"accumulate_grad_batches": 8, "distributed_sampler_kwargs": None, "is_global_zero": True, "world_size": 1}
        trainer = SimpleNamespace(estimated_stepping_batches=200, max_steps=200, global_step=0, **usual)
        lightning.on_train_start(trainer, SimpleNamespace(automatic_optimization=True))
        run = lightning.run
        for batch in range(1, 1601):
            clock.now_s += 0.5
            trainer.global_step = batch // 8
            lightning.on_train_batch_end(trainer)
        lightning.on_train_end(trainer, None)
    assert run is not None
    assert run.learnt is not None
    assert run.learnt.tokens_per_s == pytest.approx(4096, rel=0.01), run.learnt.unfit


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The acts on this machine, which is a pod that nobody else uses."""
    acts = list[str]()

    def end(way: ShutdownWay) -> SimpleNamespace:
        acts.append(way.act)
        return SimpleNamespace(result="accepted", text="")

    place = MachineIdentity("runpod", "pod-1")
    ways = {
        act: ShutdownWay(act, "RunPod", keeps="x", loses="y", bills_after="z", certain=True, place=place)
        for act in ("stop", "terminate")
    }
    monkeypatch.setattr(machine_shutdown, "locate_machine", lambda: place)
    monkeypatch.setattr(machine_shutdown, "choose_shutdown_way", lambda _, act: (ways[act], ""))
    monkeypatch.setattr(machine_shutdown, "find_keeper", lambda *_: "")
    monkeypatch.setattr(machine_shutdown, "end_machine", end)
    monkeypatch.setattr(machine_shutdown, "find_others", lambda _: iter(()))
    monkeypatch.setattr(machine_shutdown, "run_countdown", lambda *_: True)
    return acts


@pytest.mark.parametrize(
    ("stated", "error", "acts"),
    [
        ({"then": "stop"}, None, ["stop"]),
        ({"then": "terminate"}, None, ["terminate"]),
        ({"then": "stop"}, SystemExit(0), ["stop"]),
        ({"then": "stop"}, SystemExit(1), []),
        ({"then": "stop"}, RuntimeError("loss is NaN"), []),
        ({"then": "stop"}, KeyboardInterrupt(), []),
        ({"then_always": "stop"}, None, ["stop"]),
        ({"then_always": "stop"}, RuntimeError("loss is NaN"), ["stop"]),
        ({"then": "stop", "then_always": True}, RuntimeError("loss is NaN"), ["stop"]),
        ({"then": "stop", "quiet": True}, None, []),
        ({}, None, []),
    ],
)
def test_this_machine_is_stopped_after_a_success_or_however_it_ended(
    stated: dict[str, Any], error: BaseException | None, acts: list[str], make: Make, ended: list[str]
) -> None:
    run, clock = make(yes_then=True, **stated)
    with suppress(BaseException), run:
        train(run, clock, 10, 1.0)
        if error is not None:
            raise error
    assert ended == acts


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({"then": "sleep", "yes_then": True}, "nothing, stop, terminate"),
        ({"then": "stop", "then_always": "terminate"}, "then_always: is terminate, and then is stop"),
        ({"then": "stop"}, "yes_then=True in Python"),
    ],
)
def test_an_end_that_cannot_be_done_is_refused_before_the_training(
    stated: dict[str, Any], why: str, make: Make, ended: list[str]
) -> None:
    with pytest.raises(InputError, match=why), make(**stated)[0]:
        pytest.fail("it began")
    assert ended == []


if TYPE_CHECKING:
    from costguard.quoting.quote import QuoteOption


@pytest.mark.parametrize(("pairs", "sequences"), [(None, 1), ({"algorithm": "dpo"}, 2)])
@pytest.mark.parametrize("passes", [1, 4])
def test_a_step_has_the_tokens_of_all_its_passes_ranks_and_pairs(
    pairs: dict[str, object] | None, sequences: int, passes: int
) -> None:
    asked = job(pairs, micro_batch=2)
    asked = replace(asked, recipe=replace(asked.recipe, gradient_accumulation=passes))
    there = placed(asked)
    option = cast("QuoteOption", SimpleNamespace(placement=there))
    ranks = there.parallel.count_data_ranks(8)
    assert _compute_tokens_per_step(asked, option) == sequences * 2 * asked.recipe.seq_len * passes * ranks
