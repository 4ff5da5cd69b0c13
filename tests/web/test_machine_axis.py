"""The time axis of a machine's page: lines with gaps, peaks kept, bands and marks where they belong, one sentence."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

from costguard.guard.replay.history import RecordedChange, ResourceHistory
from costguard.guard.signals import IDLE, Activity
from costguard.services.serving.machine_timeline import LENGTHS, WIDTH, Timeline, build_timeline
from costguard.values.instant import to_micros
from costguard.values.sample import GPU_UTIL, NETWORK
from tests.metering.stories import SCOPE, key, machine, minute
from tests.web.stations import station
from tests.web.test_pages import House

NOW, SIX = minute(360), LENGTHS["6h"]
IDLE_SINCE = minute(300)


def draw(
    samples: dict[str, list[tuple[float, float]]], *events: tuple[datetime, str], stopped: float | None = None
) -> Timeline:
    changes = [RecordedChange(at=minute(0), seen=machine())]
    if stopped is not None:
        changes.append(RecordedChange(at=minute(stopped), seen=machine(state="stopped")))
    columns = {
        signal: ([to_micros(minute(at)) for at, _ in pairs], [value for _, value in pairs]) for signal, pairs in samples.items()
    }
    past = ResourceHistory(key=key(), scope=SCOPE, first_seen_at=minute(0), said=tuple(changes), samples=columns)
    work = None if stopped is not None else Activity(state=IDLE, since=IDLE_SINCE, reasons=("GPU 0 %",))
    return build_timeline(past=past, work=work, costs=(), events=events, now=NOW, length=SIX)


def list_points(path: str) -> list[tuple[int, float]]:
    return [(int(x), float(y)) for x, y in re.findall(r"[ML](\d+) ([\d.]+)", path)]


def test_a_gap_is_not_joined_and_a_peak_of_one_sample_is_drawn() -> None:
    samples = [(n / 2, 99.0 if n == 41 else 1.0) for n in range(200)] + [(n / 2, 1.0) for n in range(500, 700)]
    (lane,) = draw({GPU_UTIL: samples}).lanes
    assert lane.path.count("M") == 2
    points = list_points(lane.path)
    assert min(y for _, y in points) == round(100 - 96 * 0.99, 1)
    assert not [x for x, _ in points if 100 * WIDTH / 360 < x < 249 * WIDTH / 360], (
        "nothing is drawn where nothing was measured"
    )
    assert (lane.top, lane.last, lane.main) == ("100 %", "1 %", True)


def test_gpu_use_comes_first_and_other_signals_are_apart() -> None:
    lanes = draw({NETWORK: [(350, 7.0)], GPU_UTIL: [(350, 3.0)]}).lanes
    assert [(one.main, one.last) for one in lanes] == [(True, "3 %"), (False, "7")]


def test_bands_and_marks_stand_where_they_happened_and_a_step_that_is_due_soon_is_drawn() -> None:
    told, due, far = minute(345), minute(375), NOW + timedelta(days=2)
    axis = draw({}, (due, "stop due"), (told, "told"), (far, "stop due"), (minute(-90), "long ago"))
    assert axis.end > due
    (band,) = axis.bands
    assert band.state == IDLE
    scale = WIDTH / ((axis.end - axis.start) / timedelta(minutes=1))
    assert abs(band.left - 300 * scale) < 0.1
    assert abs(band.left + band.width - 360 * scale) < 0.2
    assert [(one.text, one.due) for one in axis.marks] == [("told", False), ("stop due", True)]
    assert abs(axis.marks[1].left - 375 * scale) < 0.1


def test_a_stopped_machine_has_a_band_of_its_state() -> None:
    (band,) = draw({}, stopped=180).bands
    assert (band.state, band.left, band.width) == ("stopped", WIDTH / 2, WIDTH / 2)


def test_the_page_has_the_cost_line_and_says_what_is_due(tmp_path: Path) -> None:
    with station(tmp_path) as made:
        made.room.run_guard()
        house = House(made, tmp_path / "pages.toml")
        client, path = house.open("viewer").client, house.machine()
        page = client.get(f"/machine?id={path}&length=6h").text
        other = client.get(f"/machine?id={path}&length=nonsense").text
    assert "Cost an hour <b>$60.00</b>" in page
    assert "Nothing is due." in page
    assert "Last 6 hours" in page
    assert "Last 2 days" in other
    assert "<script>" not in page
