"""The disk of a run, to the nano-dollar, and the plans that sell access."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.quoting.offer import read_subscriptions
from costguard.quoting.storage import SYSTEM_GB, compute_disk_gb, read_storage_rates
from costguard.sizing.job import parse_job
from costguard.values.interval import Interval
from tests.sizing.speeds import LLAMA_3_8B


def test_a_full_fine_tune_keeps_checkpoints_and_an_adapter_none_worth_counting() -> None:
    weights = 2 * LLAMA_3_8B.parameters / 1e9
    adapter = compute_disk_gb(LLAMA_3_8B, parse_job({"method": "qlora"}, LLAMA_3_8B).recipe)
    full = compute_disk_gb(LLAMA_3_8B, parse_job({"method": "full"}, LLAMA_3_8B).recipe)
    assert adapter == pytest.approx(SYSTEM_GB + weights, abs=2)
    assert full - adapter == pytest.approx(2 * 14 * LLAMA_3_8B.parameters / 1e9, abs=2)


def test_a_rate_nobody_states_is_unknown_and_one_that_is_included_is_zero() -> None:
    rates = ShippedFacts().get_storage_rates()
    assert "vast" not in rates
    assert rates["lambda"].nano_per_gb_month == 0
    assert rates["aws"].nano_per_gb_month == 80_000_000


def test_a_rate_that_is_no_money_names_its_row() -> None:
    row = {
        "provider": "acme",
        "usd_per_gb_month_running": "cheap",
        "of_a_run": "yes",
        "disk": "",
        "source": "",
        "observed_on": "",
    }
    with pytest.raises(InputError, match=r"storage_rates\.csv acme"):
        read_storage_rates([row])


def test_eight_hours_on_an_l4_take_the_units_of_eight_hours() -> None:
    plans = [p for p in ShippedFacts().get_subscriptions() if p.gpu == "L4" and p.units]
    assert plans
    for plan in plans:
        needed = plan.compute_units(Interval.exactly(8.0))
        assert needed.low == pytest.approx(8 * plan.units_per_hour.low)
        assert needed.high == pytest.approx(8 * plan.units_per_hour.high)
        assert plan.session_hours <= 24


def test_a_plan_whose_price_is_no_money_names_it() -> None:
    row = {"provider": "colab", "plan": "Pro", "price_usd": "?", "gpu": "T4", "units": "1", "session_hours": "1", "source": ""}
    row |= {f"units_per_hour_{end}": "1" for end in ("low", "expected", "high")} | {"observed_on": ""}
    with pytest.raises(InputError, match=r"subscriptions\.csv Pro"):
        read_subscriptions([row])
