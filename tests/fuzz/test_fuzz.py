"""What fuzzing found stays mended, and an input that passes a bound is noticed, kept and told."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import bounds
from tests.fuzz.bounds import BoundError, Meter, shrink
from tests.fuzz.mutation import change_inputs
from tests.fuzz.targets import TARGETS, Target, split_input

each_target = pytest.mark.parametrize("name", TARGETS)


@each_target
def test_every_seed_and_every_input_that_once_failed_stays_within_the_bounds(name: str, tmp_path: Path) -> None:
    target, kept = TARGETS[name], fuzz.read_corpus(name)
    (tmp_path / "reader").mkdir()
    with target.open_reader(tmp_path / "reader") as read:
        meter = Meter(read, target.refusals, tmp_path / "current")
        seeds = target.seeds()[:: 1 + len(target.seeds()) // 16]
        for seed in seeds:
            meter.take(seed, limited=False)
        assert meter.refused <= len(seeds) / 2, "most seeds are read"
        for data in kept:
            meter.take(data)
        assert meter.count == len(kept)


def fail(_: bytes) -> None:
    raise KeyError("x")


def take_memory(_: bytes) -> None:
    bytearray(10**9)


def take_time(_: bytes) -> None:
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass


@pytest.mark.parametrize(("read", "told"), [(fail, "KeyError: 'x'"), (take_memory, "500 MB"), (take_time, "s of CPU")])
def test_an_input_that_passes_a_bound_is_told(
    read: Callable[[bytes], None], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CPU_S_MAX", 0.1)
    meter = Meter(read, (ValueError,), tmp_path / "current")
    with pytest.raises(BoundError, match=told):
        meter.take(b"a\nb")
    assert (tmp_path / "current").read_bytes() == b"a\nb", "for the process that finds this one ended"


def test_an_input_that_fails_is_made_smaller_and_kept_and_is_tried_first_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_odd(data: bytes) -> None:
        if b"x" in split_input(data)[1]:
            raise RuntimeError("an x")

    target = Target("odd", lambda: [b"a\n" + b"y" * 50, b"b\nz"], lambda _: nullcontext(refuse_odd), (), 100)
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path)
    monkeypatch.setattr(
        fuzz, "try_inputs", lambda *_, **__: (b"a\n" + b"y" * 40 + b"x" + b"y" * 40, BoundError("RuntimeError: an x"))
    )
    assert fuzz.fuzz_target(target, tmp_path, 1, "seed") == 1
    (kept,) = fuzz.read_corpus("odd")
    assert kept == b"\nx"
    assert "RuntimeError: an x" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path)
    meter = Meter(refuse_odd, (), tmp_path / "current")
    assert fuzz.try_inputs(target, meter, [b"b\nz"], 0, "seed") is not None


@hypothesis.given(change_inputs([b'a\n{"b": [1, "x"]}', b"c\n"], 1000))
def test_changed_inputs_have_a_name_and_stay_within_their_size(data: bytes) -> None:
    name, content = split_input(data)
    assert name in ("a", "c")
    assert len(content) <= 1000


def test_smaller_inputs_are_found_piece_by_piece() -> None:
    assert shrink(b"abcXdefghYi" * 9, lambda one: b"X" in one and b"Y" in one) in (b"XY", b"YX")
