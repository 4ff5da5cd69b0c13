"""What the door does of `POST /v1/admit`: read the request, quote it, ask the watchdog for the hold, and build the answer.

The door has the market and no keys, so quotes are made here, outside the watchdog; it writes nothing. The quote of one job is
kept for a minute: launchers ask again, and many at once.

    {"gpu": "H100", "count": 8, "hours": 12, "owner": "ada", "labels": {"team": "vision"}, "id": "build-7"}
    {"job": {"model": "llama-3.1-8b", "method": "qlora", "tokens": 50000000}, "on": "H100:8"}
    {"usd": "50", "hours": 12}
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.agents.messages import MALFORMED, MessageRefusedError
from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import RATE_REASONS, Admission
from costguard.budgets.hold import HOLD_DURATION_MAX, Hold, describe_token
from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError
from costguard.ledger.holds import make_hold_id
from costguard.runs.admission import (
    AdmitRequest,
    AdmitResult,
    FittingChange,
    RunPrice,
    build_admit_result,
    build_admitted_hold,
    parse_labels,
)
from costguard.services.quote.file_limit import refuse_files
from costguard.services.run_jobs.admit import RunQuoter, list_fitting_changes, price_run
from costguard.services.serving.door_messages import HOLD_ID_MATCH, AdmitOffer, AdmitReply
from costguard.sizing.job import merge_flags
from costguard.sizing.job_flags import build_job_table
from costguard.values.checks import require, require_number, require_whole_number
from costguard.values.instant import from_micros
from costguard.values.money import Money, MoneyInterval
from costguard.views.admit import build_admit_data

KEPT_S, KEPT_MOST = 60.0, 256
"""How long a quote is kept, and how many are."""
NAMES = ("on", "owner", "account", "name", "id")
PLACES = ("gpu", "provider", "region", "tier")
KEYS = ("job", "count", "hours", "machines", "usd", "currency", "labels", "for_s", *PLACES, *NAMES)
OF_THE_HOLD = frozenset(("owner", "account", "name", "id", "labels", "for_s"))
"""Keys that do not change what is quoted."""


@dataclass(slots=True)
class _KeptQuote:
    price: RunPrice
    quoter: RunQuoter | None
    until: float
    fits: OrderedDict[int, tuple[FittingChange, ...]] = field(default_factory=OrderedDict)


@dataclass(slots=True, kw_only=True)
class AdmissionQuoter:
    """Quotes requests that came over HTTP. `config`: the settings file. `budgets`: returns those of the settings."""

    config: str | None
    budgets: Callable[[], Sequence[Budget]]
    clock: Callable[[], float] = time.monotonic
    _facts: ShippedFacts = field(default_factory=ShippedFacts)
    _kept: OrderedDict[str, _KeptQuote] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def price(self, body: bytes, who: str, now: datetime) -> tuple[Hold, _KeptQuote]:
        """Return the hold that a request asks for, and its quote.

        Raises MessageRefusedError for a request of another form, NoAnswerError if it cannot be priced.
        """
        table = _parse_body(body)
        try:
            request = parse_admit_request(table, self.config)
            key = json.dumps({name: table[name] for name in sorted(table) if name not in OF_THE_HOLD}, sort_keys=True)
            kept_quote = self._quote(key, request)
            hold = build_admitted_hold(
                request, kept_quote.price, hold_id=request.id or make_hold_id(), who=describe_token(who), now=now
            )
        except InputError as error:
            raise MessageRefusedError(MALFORMED, " ".join(str(error).splitlines())) from None
        return hold, kept_quote

    def build_answer(self, hold: Hold, kept_quote: _KeptQuote, reply: AdmitReply) -> dict[str, object]:
        """Return the answer to a request, as `costguard admit --json` gives it."""
        admission = _unpack_admission(reply, hold)
        fits: tuple[FittingChange, ...] = ()
        if not admission.admitted:
            fits = self._list_fits(kept_quote, admission)
        return build_admit_data(self._build_result(hold, kept_quote, admission, fits, reply))

    def _build_result(
        self, hold: Hold, kept_quote: _KeptQuote, admission: Admission, fits: tuple[FittingChange, ...], reply: AdmitReply
    ) -> AdmitResult:
        until = from_micros(reply.until_us) if reply.until_us else hold.expires_at
        return build_admit_result(
            replace(hold, expires_at=until), kept_quote.price, admission, budgets=self.budgets(), fits=fits
        )

    def _quote(self, key: str, request: AdmitRequest) -> _KeptQuote:
        """Return the kept quote, or a new one; of several that ask for the same at once, one waits for the other."""
        with self._lock:
            kept_quote = self._kept.get(key)
            if kept_quote is None or kept_quote.until < self.clock():
                with refuse_files():
                    price, quoter = price_run(request, self._facts)
                kept_quote = self._kept[key] = _KeptQuote(price, quoter, self.clock() + KEPT_S)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_MOST:
                self._kept.popitem(last=False)
            return kept_quote

    def _list_fits(self, kept_quote: _KeptQuote, admission: Admission) -> tuple[FittingChange, ...]:
        left = 0 if admission.left is None else admission.left.nano
        with self._lock:
            if left not in kept_quote.fits:
                try:
                    kept_quote.fits[left] = list_fitting_changes(kept_quote.price, admission, kept_quote.quoter)
                except CostguardError:  # the refusal stands, and says less
                    kept_quote.fits[left] = ()
            while len(kept_quote.fits) > KEPT_MOST:
                kept_quote.fits.popitem(last=False)
            return kept_quote.fits[left]


def pack_admission(hold: Hold, token: str, now: datetime) -> AdmitOffer:
    """Return the offer of a hold to the watchdog."""
    return AdmitOffer(
        token=token,
        hold=hold.id,
        nano=hold.money.nano,
        currency=hold.money.currency,
        lasts_s=(hold.expires_at - now).total_seconds(),
        why=hold.why,
        provider=hold.provider,
        account=hold.account,
        owner=hold.owner,
        gpu=hold.gpu,
        labels=list(hold.labels),
        hourly=None if hold.hourly is None else hold.hourly.nano,
    )


def parse_admit_request(table: Mapping[str, object], config: str | None) -> AdmitRequest:
    """Return the request in a parsed body. Raises InputError for the first key that cannot be used."""
    unknown = next((key for key in table if key not in KEYS), None)
    require(unknown is None, "the request", f"has an unknown key: {str(unknown)[:40]!r}", f"known: {', '.join(KEYS)}")
    words = {name: _read_text(table, name) for name in NAMES}
    places = {name: [_read_text(table, name)] for name in PLACES if name in table}
    priced = "usd" not in table
    job = table.get("job", {})
    if not isinstance(job, dict):
        raise InputError("must be an object", field="job", hint='write {"model": "llama-3.1-8b", "method": "qlora"}')
    merged = merge_flags(job, build_job_table(places)) if priced else job
    lasts = table.get("for_s")
    most = HOLD_DURATION_MAX.total_seconds() - 1
    is_hold_id = bool(not words["id"] or HOLD_ID_MATCH.fullmatch(words["id"]))
    require(is_hold_id, "id", "is not an id", "write letters, digits and . _ : -, at most 128")
    return AdmitRequest(
        flags=merged,
        on=words["on"] or None,
        count=_read_number(table, "count"),
        hours=_read_number(table, "hours"),
        machines=1 if table.get("machines") is None else require_whole_number(table["machines"], "machines", least=1),
        money=None if priced else _read_money(table),
        owner=words["owner"],
        account=words["account"],
        provider="" if priced else places.get("provider", [""])[0],
        gpu="" if priced else places.get("gpu", [""])[0],
        labels=_read_labels(table),
        name=words["name"],
        lasts=None if lasts is None else timedelta(seconds=require_number(lasts, "for_s", least=1, most=most)),
        id=words["id"],
        config=config,
    )


def _parse_body(body: bytes) -> Mapping[str, object]:
    try:
        table = json.loads(body)
    except (ValueError, RecursionError):
        raise MessageRefusedError(MALFORMED, "the request is not JSON") from None
    if not isinstance(table, dict):
        raise MessageRefusedError(MALFORMED, "the request must be an object")
    return table


def _read_text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise InputError("must be a text", field=key, hint='write it in "quotes"')
    return value


def _read_number(table: Mapping[str, object], key: str) -> float | None:
    return None if table.get(key) is None else require_number(table[key], key, least=0, most=1e6)


def _read_money(table: Mapping[str, object]) -> Money:
    amount, currency = table["usd"], _read_text(table, "currency") or "USD"
    if isinstance(amount, bool) or not isinstance(amount, str | int):
        raise InputError("must be a text or a whole number", field="usd", hint='write "12.50"')
    return Money.parse(amount, currency, field="usd")


def _read_labels(table: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    labels = table.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InputError("must be an object of texts", field="labels", hint='write {"team": "vision"}')
    return parse_labels(labels, "labels")


def _unpack_admission(reply: AdmitReply, hold: Hold) -> Admission:
    was = Money(nano=reply.was, currency=hold.money.currency) if reply.was else None
    if not reply.budget:
        return Admission(admitted=reply.admitted, reason=reply.reason, asked=hold.money, was=was)

    def money(nano: int) -> Money:
        return Money(nano=nano, currency=reply.currency)

    return Admission(
        admitted=reply.admitted,
        reason=reply.reason,
        asked=(hold.hourly if reply.reason in RATE_REASONS else None) or hold.money,
        budget=reply.budget,
        exposure=money(reply.cap - reply.left),
        cap=money(reply.cap),
        left=money(reply.left),
        left_range=MoneyInterval(low=money(reply.left), expected=money(reply.left_expected), high=money(reply.left_high)),
        was=was,
    )
