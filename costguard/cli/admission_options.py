"""The options of a run that is admitted: those with which `costguard quote` states a job, and what budgets select by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, cast

from typer import Option

from costguard.cli import options as o
from costguard.runs.admission import AdmitRequest, parse_labels
from costguard.sizing.job_flags import build_job_table, parse_hours, parse_number
from costguard.values.checks import require_whole_number
from costguard.values.money import Money

JOB_OPTIONS: o.Options = {
    "on": o.On,
    "count": o.Count,
    "hours": o.Hours,
    "market": o.Market,
    "calibration": o.Calibration,
}
HOLD_OPTIONS: o.Options = {
    "usd": Annotated[o.Text, Option("--usd", metavar="USD", help="Amount to hold, instead of a quote: 50, or 50 EUR.")],
    "machines": Annotated[o.Text, Option("--machines", metavar="N", help="Number of machines to rent (1).")],
    "owner": Annotated[o.Text, Option("--owner", metavar="NAME", help="Owner of the run.")],
    "account": Annotated[o.Text, Option("--account", metavar="NAME", help="Account that the run uses.")],
    "label": Annotated[o.Names, Option("--label", metavar="KEY=VALUE", help="Label that budgets can select (repeatable).")],
    "name": Annotated[o.Text, Option("--name", metavar="NAME", help="Name of the run.")],
    "length": Annotated[o.Text, Option("--for", metavar="TIME", help="Maximum duration of the hold: 12h, 2d.")],
    "id": Annotated[o.Text, Option("--id", metavar="ID", help="Id of the hold; costguard holds the same id only once.")],
}


def list_admission_options() -> o.Options:
    """Return every option that states a job and its hold."""
    return {**o.list_job_options(), **JOB_OPTIONS, **HOLD_OPTIONS}


def read_admit_request(params: Mapping[str, object], job_file: str | Sequence[str] | None, config: str | None) -> AdmitRequest:
    """Return the request that the options of a command state. Raises InputError for one that cannot be used."""

    def text(name: str) -> str:
        return cast("str", params.get(name) or "")

    def number(name: str) -> float | None:
        return parse_number(text(name), name) if params.get(name) is not None else None

    machines = number("machines")
    return AdmitRequest(
        flags=build_job_table(params),
        job_file=job_file,
        on=text("on") or None,
        count=number("count"),
        hours=parse_hours(text("hours"), "hours") if params.get("hours") is not None else None,
        machines=1 if machines is None else require_whole_number(machines, "--machines", least=1),
        money=_parse_money(text("usd")) if params.get("usd") is not None else None,
        owner=text("owner"),
        account=text("account"),
        labels=parse_labels(cast("list[str]", params.get("label") or [])),
        name=text("name"),
        lasts=_parse_length(text("length")) if params.get("length") is not None else None,
        id=text("id"),
        market=text("market") or None,
        calibration=text("calibration") or None,
        config=config,
    )


def _parse_money(text: str) -> Money:
    amount, _, currency = text.strip().partition(" ")
    return Money.parse(amount, currency.strip() or "USD", field="--usd")


def _parse_length(text: str) -> timedelta:
    from costguard.budgets.hold import HOLD_DURATION_MAX
    from costguard.settings.fields import parse_duration

    return parse_duration(text, "--for", least=timedelta(minutes=1), most=HOLD_DURATION_MAX)
