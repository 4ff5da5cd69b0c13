"""The Python API: what the commands answer, as typed values.

    import costguard

    answer = costguard.quote(model="llama-3.1-8b", method="qlora", tokens=50e6)
    print(answer.best.usd.expected, answer.best.gpu.name)     # in a notebook, `answer` draws itself; answer.plot(), .to_frame()

    costguard.quote("qlora.yml", "task.sky.yaml")             # configs and launch files of other tools
    costguard.size("job.toml", on="H100:1").fits
    costguard.report(month="2026-10", by="owner").data        # the JSON of `costguard report --json`

Each function calls the service that the command of its name calls, so both give one answer. Wrong input raises
`costguard.errors.InputError`; where the answer is no (nothing fits), it is returned with `refusal` set, as a command prints its
answer before it ends with exit code 3. `docs/API.md` has an example of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from os import PathLike, fspath
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar, Unpack, cast, get_type_hints

from costguard.errors import CostguardError, UnknownNameError, shorten
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import FLAG_PLACES, LIST_FLAGS, JobFields, Number, build_job_table
from costguard.values.checks import find_nearest_names
from costguard.values.resource import ResourceKey
from costguard.views.document import Document

if TYPE_CHECKING:  # types and no more: each function imports what it needs
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from costguard.guard.overrides import Override
    from costguard.quoting.quote import Quote, QuoteOption, QuoteRefusal
    from costguard.reporting.statement.statement import Statement
    from costguard.reporting.status import FleetStatus
    from costguard.runs.admission import AdmitResult
    from costguard.sizing.size_answer import FittingGpus, SizeAnswer

NOTEBOOK_ROWS = 10
"""Rows of a table in a notebook; `data` has all."""
REPR_LENGTH = 190
"""Characters of an answer in a prompt or a notebook that shows text."""
File = str | PathLike[str]
Names = str | Sequence[str]
P = ParamSpec("P")
R = TypeVar("R")
Machine = str | ResourceKey
"""A machine by its full key, "provider/account/region/id"."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """What a command answers.

    `warnings`: what was assumed, is old or is missing. `refusal`: why the answer is no; None if it is not.
    """

    document: Document
    warnings: tuple[str, ...] = ()
    refusal: CostguardError | None = None

    @property
    def data(self) -> Mapping[str, object]:
        """Return the object that the command prints with `--json`."""
        return self.document.data

    def __repr__(self) -> str:
        """Return one line: what is answered, and `data` has all of it."""
        return shorten(f"<{type(self).__name__}: {self._summarize()}>", REPR_LENGTH)

    def _summarize(self) -> str:
        return self.document.lead[0] if self.document.lead else "; ".join(self.document.data)

    def to_frame(self) -> DataFrame:
        """Return the records of the answer as a pandas DataFrame, amounts as floats (the extra `notebook`)."""
        from costguard.notebook import build_frame

        return build_frame(self.document.records)

    def raise_refusal(self) -> None:
        """Raise the refusal, if there is one: NoAnswerError or IncompleteError, whose `exit_code` is the command's."""
        if self.refusal is not None:
            raise self.refusal

    def format_markdown(self) -> str:
        """Return the answer as Markdown tables, as `--markdown` prints them."""
        from costguard.renderers.markdown import render

        return render(self.document)

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        from costguard.renderers.html import render_fragment

        return render_fragment(self._build_summary(), NOTEBOOK_ROWS)

    def _build_summary(self) -> Document:
        return self.document


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QuoteAnswer(Answer):
    """A quote: every way to run the job, ranked."""

    quote: Quote

    def _summarize(self) -> str:
        return f"{self.document.lead[-1]}: {len(self.options)} options" + (f", first {self.best!r}" if self.best else "")

    def _build_summary(self) -> Document:
        """Return the document with the few options that `costguard quote` shows instead of all."""
        from costguard.quoting.quote import choose_advice
        from costguard.views.quote import build_option_table

        advice = choose_advice(self.quote.options)
        few = build_option_table(self.quote, advice.options, advice.words)
        return replace(self.document, tables=(few, *self.document.tables[1:]))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw cost over hours of the few options that `costguard quote` shows, with their intervals (the extra `notebook`)."""
        from costguard.notebook import draw_options
        from costguard.quoting.quote import choose_advice

        return draw_options(choose_advice(self.quote.options).options, axes)

    @property
    def options(self) -> tuple[QuoteOption, ...]:
        """Return the options, best first: `usd` and `hours` are intervals with `low`, `expected` and `high`."""
        return self.quote.options

    @property
    def best(self) -> QuoteOption | None:
        """Return the first option; None if there is none."""
        return self.quote.options[0] if self.quote.options else None

    @property
    def refused(self) -> tuple[QuoteRefusal, ...]:
        """Return what was refused, and why."""
        return self.quote.refused


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryAnswer(Answer):
    """The GPU memory of a job."""

    size: SizeAnswer

    @property
    def peak_gib(self) -> float:
        """Return the peak of one GPU, in GiB."""
        return self.size.footprint.peak / 2**30

    @property
    def fits(self) -> bool | None:
        """Return whether it fits on the stated hardware; None if none was stated."""
        return self.size.fits

    @property
    def fits_on(self) -> tuple[FittingGpus, ...]:
        """Return the smallest number of each kind of GPU that holds the job."""
        return self.size.fits_on


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StatusAnswer(Answer):
    """What runs and costs now."""

    status: FleetStatus


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportAnswer(Answer):
    """The costs of a period."""

    statement: Statement

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the spend of each day, stacked by owner; of each month in a longer period (the extra `notebook`)."""
        from costguard.notebook import draw_columns

        return draw_columns(self.document.charts, axes)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdmitAnswer(Answer):
    """Whether a run's money is held, or which budget refuses it."""

    admission: AdmitResult

    @property
    def held(self) -> bool:
        """Return whether the money is held: the run may be launched."""
        return self.admission.admission.admitted

    @property
    def hold_id(self) -> str:
        """Return the id of the hold, with which `costguard admit --ended` ends it."""
        return self.admission.hold.id


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeepAnswer(Answer):
    """A lease. `lease`: as it was recorded; None where one was lifted."""

    lease: Override | None


def _accept_job(function: Callable[P, R]) -> Callable[P, R]:
    """Name every field of a job in the signature of `function`: what notebooks and shells complete and explain."""
    declared = signature(function)
    own = [one for one in declared.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    kinds = get_type_hints(JobFields).items()
    fields = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in kinds]
    function.__signature__ = declared.replace(parameters=[*own, *fields])  # type: ignore[attr-defined]  # `inspect` reads it
    return function


@_accept_job
def quote(
    *files: File,
    on: str | None = None,
    count: float | None = None,
    hours: float | None = None,
    sort: str = "usd",
    market: File | None = None,
    calibration: File | None = None,
    strict: bool = False,
    config: File | None = None,
    **job: Unpack[JobFields],
) -> QuoteAnswer:
    """Quote a job as `costguard quote` does: cost and duration on each offer, ranked.

    `files`: a job file, or configs and launch files of other tools; `job` overrides them. `on`: fixed hardware, `"H100:8x2"`.
    `count`: GPUs of a machine. `hours`: without a model, hours to rent `count` of `gpu`. `sort`: usd, hours, usd_per_hour or
    provider. `market`, `calibration`, `config`: files instead of the usual ones. `strict`: refuse a job of which something
    must be assumed.

    Raises InputError for wrong input. Where nothing fits, `options` is empty and `refusal` says why.
    """
    from costguard.services.quote.quote_commands import answer_quote

    answer = answer_quote(
        flags=_build_table(job),
        job_file=[fspath(one) for one in files],
        on=on,
        count=count,
        hours=hours,
        sort=sort,
        market=_name_file(market),
        strict=strict,
        every=True,
        calibration=_name_file(calibration),
        config=_name_file(config),
    )
    return QuoteAnswer(**_share(answer), quote=cast("Quote", answer.value))


@_accept_job
def size(
    *files: File,
    on: str | None = None,
    strict: bool = False,
    exact: bool = False,
    calibration: File | None = None,
    config: File | None = None,
    **job: Unpack[JobFields],
) -> MemoryAnswer:
    """Compute the GPU memory of a job as `costguard size` does.

    `exact`: also run one step on tensors without data (the extra `exact`). The rest: as in `quote`.

    Raises InputError for wrong input. Where the job does not fit `on`, `fits` is False and `refusal` says what would help.
    """
    from costguard.services.quote.quote_commands import answer_size

    answer = answer_size(
        flags=_build_table(job),
        job_file=[fspath(one) for one in files],
        on=on,
        strict=strict,
        exact=exact,
        calibration=_name_file(calibration),
        config=_name_file(config),
    )
    return MemoryAnswer(**_share(answer), size=cast("SizeAnswer", answer.value))


@_accept_job
def admit(
    *files: File,
    on: str | None = None,
    count: float | None = None,
    hours: float | None = None,
    machines: int = 1,
    usd: Number | None = None,
    owner: str = "",
    account: str = "",
    labels: Mapping[str, str] | None = None,
    name: str = "",
    id: str = "",  # noqa: A002 - the flag's name
    config: File | None = None,
    **job: Unpack[JobFields],
) -> AdmitAnswer:
    """Hold what a run may cost before it is launched, as `costguard admit` does; where a budget refuses it, nothing is held.

    `usd`: hold this instead of the high end of a quote. `machines`: so many rentals. `owner`, `account`, `labels`: what budgets
    select by. `id`: of the hold, so that a repeated call holds once. The rest: as in `quote`.

    Raises InputError for wrong input and NoAnswerError for a run that cannot be priced. Refused: `held` is False, and `refusal`
    says why and what would fit.
    """
    from costguard.runs.admission import AdmitRequest
    from costguard.services.run_jobs.admit import answer_admit
    from costguard.values.money import Money

    request = AdmitRequest(
        flags=_build_table(job),
        job_file=[fspath(one) for one in files],
        on=on,
        count=count,
        hours=hours,
        machines=machines,
        money=None if usd is None else Money.parse(str(usd), field="usd"),
        owner=owner,
        account=account,
        labels=tuple(sorted((labels or {}).items())),
        name=name,
        id=id,
        config=_name_file(config),
    )
    answer = answer_admit(request)
    return AdmitAnswer(**_share(answer), admission=cast("AdmitResult", answer.value))


def status(*, zone: str | None = None, strict: bool = False, offline: bool = False, config: File | None = None) -> StatusAnswer:
    """Return what runs and costs now, as `costguard status` does: the configured providers are polled first.

    `zone`: time zone of the month's boundaries. `offline`: read the ledger alone. `strict`: set `refusal` if a provider could
    not be asked.
    """
    from costguard.services.report.status_answer import answer_status

    answer = answer_status(zone=zone, strict=strict, offline=offline, config=_name_file(config))
    return StatusAnswer(**_share(answer), status=cast("FleetStatus", answer.value))


def report(
    *,
    month: str | None = None,
    week: str | None = None,
    day: str | None = None,
    start: str | None = None,
    end: str | None = None,
    last: str | None = None,
    by: Names | None = None,
    only: Names = (),
    zone: str | None = None,
    strict: bool = False,
    config: File | None = None,
) -> ReportAnswer:
    """Report the costs of a period as `costguard report` does; this month where none is stated.

    `month`: "2026-10". `week`: "2026-W40". `day`, `start`, `end`: days or instants; `end` is exclusive. `last`: "7d". `by`:
    keys to group by, such as "owner" or "label:run". `only`: of which spending, such as "owner=a" or ("owner=a", "team=b").
    `strict`: set `refusal` if an account was not read without gaps.
    """
    from costguard.services.report.ledger_answers import answer_report

    answer = answer_report(
        period={"month": month, "day": day, "week": week, "from": start, "to": end, "last": last},
        by=by if by is None or isinstance(by, str) else ",".join(by),
        only=(only,) if isinstance(only, str) else only,
        zone=zone,
        strict=strict,
        needs="charts",
        config=_name_file(config),
    )
    return ReportAnswer(**_share(answer), statement=cast("Statement", answer.value))


def keep(
    machine: Machine, *, length: str | None = None, why: str | None = None, lift: bool = False, config: File | None = None
) -> KeepAnswer:
    """Keep a machine running for a time (a lease) as `costguard keep` does, or `lift` the lease.

    `machine`: its full key. `length`: "4h", "90m". `why`: the reason, which others see. Raises InputError for another word or
    an unknown key, NoAnswerError if a policy does not allow it.
    """
    from costguard.guard.machine_reference import require_resource_key
    from costguard.services.guarding.overrides import keep_resource

    answer = keep_resource(require_resource_key(machine), length=length, why=why, lift=lift, config=_name_file(config))
    return KeepAnswer(**_share(answer), lease=cast("Override | None", answer.value))


def stop(
    machine: Machine,
    *,
    yes: bool = False,
    why: str = "",
    ask: Callable[[str], bool] | None = None,
    config: File | None = None,
) -> Answer:
    """Stop one machine as `costguard stop` does: look, ask, send once, prove.

    `machine`: its full key, or with `ask` any word that `costguard stop` takes. `yes`: the question is answered in advance.
    `ask`: asks a person; without it and without `yes`, InputError is raised and nothing is sent. Raises NoAnswerError for a
    machine that must stay, IncompleteError if the effect was not seen in time.
    """
    return _act(machine, "stop", yes=yes, why=why, ask=ask, config=config)


def start(
    machine: Machine,
    *,
    yes: bool = False,
    why: str = "",
    ask: Callable[[str], bool] | None = None,
    config: File | None = None,
) -> Answer:
    """Start one stopped machine as `costguard start` does: look, say its price an hour of now, ask, send once, prove.

    `machine`, `yes` and `ask` as in `stop`; the question has the price. Raises NoAnswerError for a machine that cannot be
    started, or that its provider did not start; IncompleteError if the effect was not seen in time.
    """
    return _act(machine, "start", yes=yes, why=why, ask=ask, config=config)


def _act(machine: Machine, act: str, *, yes: bool, why: str, ask: Callable[[str], bool] | None, config: File | None) -> Answer:
    from costguard.guard.machine_reference import require_resource_key
    from costguard.services.guarding.act.by_hand import act_on_resource

    if yes or ask is None:  # nobody sees what a name was resolved to
        machine = require_resource_key(machine)
    return Answer(**_share(act_on_resource(machine, act, yes=yes, why=why, ask=ask, config=_name_file(config))))


class _Shared(TypedDict):
    document: Document
    warnings: tuple[str, ...]
    refusal: CostguardError | None


def _share(answer: CommandAnswer) -> _Shared:
    return {"document": answer.document, "warnings": answer.warnings, "refusal": answer.refusal}


def _build_table(job: JobFields) -> dict[str, object]:
    """Return the job's table; raise UnknownNameError for a field that no flag has."""
    for name in job:
        if name not in FLAG_PLACES:
            near = find_nearest_names(name, FLAG_PLACES)
            raise UnknownNameError("field", name, field=name, nearest=near, hint="or see costguard quote --help")
    fields = {name: [value] if name in LIST_FLAGS and isinstance(value, str) else value for name, value in job.items()}
    return build_job_table(fields)


def _name_file(file: File | None) -> str | None:
    return None if file is None else fspath(file)
