"""The options of a run that is admitted: those with which `costguard quote` states a job, and what budgets select by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, ParamSpec, cast

from typer import Option

from costguard.cli import options as o
from costguard.cli import quote
from costguard.cli.options import Names, Text
from costguard.runs.admission import AdmitRequest, parse_labels
from costguard.values.checks import require_whole_number
from costguard.values.money import Money

P = ParamSpec("P")
OF_A_LIST = frozenset(
    ("ctx", "job", "top", "all_options", "sort", "explain", "strict", "json", "csv", "markdown", "output", "force")
)
"""Options of `costguard quote` that choose what it shows, and not what is quoted."""
HOLD_OPTIONS: Mapping[str, tuple[Any, object]] = {
    "usd": (
        Annotated[Text, Option("--usd", metavar="USD", help="Hold this much, and quote nothing: 50, or 50 EUR.")],
        None,
    ),
    "machines": (Annotated[Text, Option(metavar="N", help="So many machines of a rental (1).")], None),
    "owner": (Annotated[Text, Option(metavar="NAME", help="Whose run it is.")], None),
    "account": (Annotated[Text, Option(metavar="NAME", help="The account that it runs in.")], None),
    "label": (Annotated[Names, Option(metavar="KEY=VALUE", help="A label that budgets select by (repeatable).")], ()),
    "name": (Annotated[Text, Option("--name", metavar="NAME", help="Name of the run.")], None),
    "length": (
        Annotated[Text, Option("--for", metavar="TIME", help="How long the hold counts at most: 12h, 2d.")],
        None,
    ),
    "id": (Annotated[Text, Option("--id", metavar="ID", help="Id of the hold: the same one is held once.")], None),
}


def add_admission_options(command: Callable[P, None]) -> Callable[P, None]:
    """Return `command` with every option that states a job and its hold; it reads them off its context."""
    signature = inspect.signature(command, eval_str=True)
    stated = inspect.signature(quote.command, eval_str=True).parameters
    more = {name: (one.annotation, one.default) for name, one in stated.items() if name not in OF_A_LIST} | dict(HOLD_OPTIONS)
    own = signature.parameters
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in more.items()
        if name not in own
    ]

    @wraps(command)
    def run(*given: P.args, **options: P.kwargs) -> None:
        command(*given, **{name: value for name, value in options.items() if name in own})  # type: ignore[arg-type]  # a part

    read: Any = run  # what options are read off
    read.__signature__ = signature.replace(parameters=[*own.values(), *added])
    read.__annotations__ = {**command.__annotations__, **{one.name: one.annotation for one in added}}
    return run


def read_admit_request(params: Mapping[str, object], job_file: str | Sequence[str] | None, config: str | None) -> AdmitRequest:
    """Return the request that the options of a command state. Raises InputError for one that cannot be used."""

    def text(name: str) -> str:
        return cast("str", params.get(name) or "")

    def number(name: str) -> float | None:
        return o.parse_number(text(name), name) if params.get(name) is not None else None

    machines = number("machines")
    return AdmitRequest(
        flags=o.build_job_table(params),
        job_file=job_file,
        on=text("on") or None,
        count=number("count"),
        hours=number("hours"),
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


def _parse_money(stated: str) -> Money:
    amount, _, currency = stated.strip().partition(" ")
    return Money.parse(amount, currency.strip() or "USD", field="--usd")


def _parse_length(stated: str) -> timedelta:
    from costguard.budgets.hold import HOLD_DURATION_MAX
    from costguard.settings.fields import parse_duration

    return parse_duration(stated, "--for", least=timedelta(minutes=1), most=HOLD_DURATION_MAX)
