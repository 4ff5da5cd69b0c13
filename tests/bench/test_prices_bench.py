"""The bench of prices compares what was known with what came later, and counts honestly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest

from bench import prices
from bench.prices import WEEK, Choice, list_shipped_ages, play_ranking
from costguard.data import ShippedFacts
from costguard.quoting.offer import DRIFT_CLASSES, Offer
from costguard.values.money import Rate
from scripts.fit_price_drift import Series

SHIPPED = ShippedFacts().get_price_drift()
START = date(2026, 1, 5)


def make_series(provider: str, usd: Sequence[float], *, tier: str = "spot", region: str = "r", every: int = 7) -> Series:
    """Dated prices of an H100, one every `every` days."""
    offer = Offer(
        provider=provider,
        region=region,
        instance_type="t",
        gpu="H100-SXM",
        gpu_count=1,
        tier=tier,
        rate=Rate.parse("1"),
        observed_on=START,
        source="made up",
        pricing="dynamic" if tier == "spot" or provider == "vast" else "standard",
    )
    days = [START + timedelta(days=every * n) for n in range(len(usd))]
    return Series(collector="x", offer=offer, prices=tuple(zip(days, usd, strict=True)))


def play(*series: Series) -> list[Choice]:
    return play_ranking(series, SHIPPED, WEEK)


def test_a_price_is_never_compared_with_itself() -> None:
    swapped = [1.0, 2.0] * 10  # which of the two is cheaper changes every week, so last week's answer is always wrong
    choices = play(make_series("gcp", swapped), make_series("azure", swapped[::-1]))
    assert choices
    assert all(choice.wrong and not choice.hit for choice in choices)


def test_steady_prices_are_always_hit() -> None:
    choices = play(make_series("gcp", [1.0] * 20), make_series("azure", [2.0] * 20))
    assert choices
    assert all(choice.hit and not choice.wrong and not choice.maybe for choice in choices)


def test_medians_and_bids_are_no_offers() -> None:
    cheap = [0.1] * 20
    others = make_series("azure", cheap, region="median"), make_series("vast", cheap)
    choices = play(make_series("gcp", [1.0] * 20), make_series("aws", [2.0] * 20), *others)
    assert choices
    assert all(choice.hit and choice.hit_asks for choice in choices)


def test_an_old_ask_is_not_ranked_but_counted_beside() -> None:
    ask = make_series("vast", [0.5] * 20, tier="on-demand")
    choices = play(make_series("gcp", [1.0] * 20), make_series("aws", [2.0] * 20), ask)
    assert any(choice.hit and choice.wrong_asks and not choice.hit_asks for choice in choices)


def test_shipped_ages_are_of_the_shipped_prices() -> None:
    ages = list_shipped_ages()
    assert ages.keys() <= set(DRIFT_CLASSES)
    assert all(age >= 1 for some in ages.values() for age in some)
    assert sum(map(len, ages.values())) > 1000


def test_without_the_history_it_is_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prices, "HISTORY", tmp_path / "history.csv")
    assert prices.main([]) == 0
    assert "skipped, history.csv is not in" in capsys.readouterr().out
    assert prices.main([str(tmp_path / "mine.csv")]) == 2
