"""Ask for bills by itself: a duty of `costguard watch`, so that settled lines narrow what nobody saw.

A cloud whose billing rule says so is asked when it has final lines for charges in doubt (a machine whose start is unknown, a
gap in the coverage, a restart that nobody saw), at most once an hour; others are asked once a day. About the same charges
nothing is asked again. A doubt of more than 14 days is asked about in stretches, one a run. A bill that cannot be read is
logged, and tried again later. Acts wait for nothing here, and polls for one short transaction at most: a bill of any size is
written in many (`ledger/bills/unfinished.py`). One that the watchdog's end interrupts counts for nothing, and is asked for
again.

Nothing is compared here and nobody is told of drift: `costguard reconcile` does that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.bills.bill_schedule import BillQuestion, Occasion, choose_daily_question, choose_question
from costguard.bills.evidence import REASON_SENTENCES, EvidenceFinding
from costguard.ledger.bills.evidence import RESOURCES_NAMED_MAX
from costguard.ledger.bills.reader import BillLedgerReader
from costguard.ledger.bills.store import BillStore
from costguard.metering.billing import ON_DOUBT, BillingRule, get_billing_rule
from costguard.providers.ports import ChargeSource, InstanceSource, OptionalChargeSource
from costguard.services.quote.price_refresh import compute_pause
from costguard.services.report.reconcile import BillAnswer, ask_for_bills, import_answers
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, from_micros
from costguard.values.resource import ScopeKey
from costguard.watchdog.duty import Log

CHECK_EVERY = timedelta(minutes=5)
"""How often the duty looks whether a bill is due: one query of the ledger."""
ANSWER_LIMIT_S = 45.0
"""Seconds for the bills of one run: less than the watchdog waits at its end."""
IMPORTED_BY = "watch"


@dataclass(slots=True)
class _AskedSource:
    """A source of bills, and the (provider, account) `places` that it answers for.

    `asked_at`: when it was last asked with success. `goes_on`: its answer was one stretch of what was due. `settled`: occasions
    that were asked about. After `failures`, it is tried again at `not_before`, and a reason that was `told` last is not logged
    again.
    """

    source: InstanceSource
    places: set[tuple[str, str]] = field(default_factory=set)
    asked_at: datetime | None = None
    goes_on: bool = False
    settled: set[Occasion] = field(default_factory=set)
    failures: int = 0
    not_before: datetime | None = None
    told: str = ""


class BillDuty:
    """Asks for the bills that are due; `run` is called again and again.

    `sources`: the account that answers for each scope. `leads`: whether this watchdog may: of several, one asks.
    """

    def __init__(
        self,
        url: str,
        *,
        rules: Mapping[str, BillingRule],
        sources: Callable[[], Mapping[ScopeKey, InstanceSource]],
        leads: Callable[[], bool],
        clock: Clock,
        log: Log,
    ) -> None:
        self._url, self._rules, self._sources, self._leads, self._clock, self._log = url, rules, sources, leads, clock, log
        self._asked: dict[int, _AskedSource] = {}
        self._contradicted = set[tuple[str, str, str, str, str, int]]()

    def run(self) -> None:
        """Ask for every bill that is due, and take the answers in."""
        now = self._clock.now()
        if not self._leads():
            return
        due = [(one, question) for one in self._list_sources() if (question := self._find_question(one, now)) is not None]
        for one, question in due:
            self._ask(one, question, now)

    def _list_sources(self) -> list[_AskedSource]:
        """Return the accounts that have a bill to ask for, with the (provider, account) pairs that they answer for."""
        places = defaultdict[int, set[tuple[str, str]]](set)
        for scope, source in self._sources().items():
            terms = get_billing_rule(self._rules, scope.provider).bill
            if terms is not None and isinstance(source, ChargeSource) and _has_bill(source):
                self._asked.setdefault(id(source), _AskedSource(source))
                places[id(source)].add((scope.provider, scope.account))
        for number, own_places in places.items():
            self._asked[number].places = own_places
        return [self._asked[number] for number in places]

    def _find_question(self, one: _AskedSource, now: datetime) -> BillQuestion | None:
        if one.not_before is not None and now < one.not_before:
            return None
        with BillLedgerReader(self._url) as bill_reader:
            question = self._choose_question(bill_reader, one, now)
            one.goes_on = one.goes_on and question is not None
            if question is None or one.goes_on:
                return question
            times = [bill_reader.load_last_import_time(*place, who=IMPORTED_BY, until=now) for place in one.places]
            one.asked_at = max((at for at in (one.asked_at, *times) if at is not None and at <= now), default=None)
            return self._choose_question(bill_reader, one, now)

    def _choose_question(self, bill_reader: BillLedgerReader, one: _AskedSource, now: datetime) -> BillQuestion | None:
        for provider, account in sorted(one.places):
            terms = get_billing_rule(self._rules, provider).bill
            if terms is None:
                continue
            if terms.asked == ON_DOUBT:
                doubts = bill_reader.load_doubtful_charges(provider, account, now)
                asked_at = None if one.goes_on else one.asked_at
                question = choose_question(doubts, terms, now=now, asked_at=asked_at, settled=one.settled)
            else:
                period = choose_daily_question(now=now, asked_at=one.asked_at)
                question = None if period is None else BillQuestion(period, frozenset())
            if question is not None:
                return question
        return None

    def _ask(self, one: _AskedSource, question: BillQuestion, now: datetime) -> None:
        name = "+".join(one.source.providers)
        answers = ask_for_bills([(name, one.source)], question.period, now, limit_s=ANSWER_LIMIT_S)
        whys = [answer.why for answer in answers if answer.why]
        if any(answer.billed is not None for answer in answers):
            self._take_in(answers, question.period, now)
            one.asked_at = now
        if whys:
            one.failures, one.goes_on = one.failures + 1, False
            one.not_before = now + compute_pause(one.failures)
            if (why := "; ".join(whys)) != one.told:
                self._log.warning("bill_not_read", account=name, why=why, next_try_at=one.not_before.isoformat())
            one.told = why
            return
        one.failures, one.not_before, one.told, one.goes_on = 0, None, "", question.more
        one.settled |= question.occasions

    def _take_in(self, answers: Sequence[BillAnswer], period: Period, now: datetime) -> None:
        with BillStore(self._url, rules=self._rules) as bills:
            for bill in import_answers(bills, answers, who=IMPORTED_BY, now=now):
                facts = {"provider": bill.provider, "lines": bill.lines, "new": bill.added, "withdrawn": bill.withdrawn}
                evidence = bills.apply_evidence(bill.provider, period, now=now)
                facts["repriced"] = sum(each.repriced for each in evidence.summaries)
                self._log.info("bill_read", **facts, resources_bound=sum(each.resources for each in evidence.summaries))
                for odd in evidence.findings:
                    self._tell_contradiction(odd)

    def _tell_contradiction(self, odd: EvidenceFinding) -> None:
        """Log a contradiction of which a resource or a day is new to this process: the same lines come with every answer."""
        new = {(odd.provider, odd.account, odd.charge, odd.reason, *place) for place in odd.days} - self._contradicted
        if new:
            resources = sorted({place[4] for place in new})[:RESOURCES_NAMED_MAX]
            fields = {"provider": odd.provider, "account": odd.account, "charge": odd.charge, "resources": resources}
            days = sorted({f"{from_micros(place[5] * DAY_US):%Y-%m-%d}" for place in new})
            why = REASON_SENTENCES[odd.reason]
            self._log.warning("bill_contradicts", **fields, reason=odd.reason, why=why, first_day=days[0], last_day=days[-1])
        self._contradicted |= new


def _has_bill(source: ChargeSource) -> bool:
    return not isinstance(source, OptionalChargeSource) or source.has_bill()
