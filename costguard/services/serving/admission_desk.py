"""The watchdog's side of `POST /v1/admit`: takes the holds that the door passes on, all that wait in one transaction.

    door: token, request, quote -> channel -> here: token looked up again -> `HoldStore.take_all` -> answered after the commit

What the door offers is believed no further than the ledger confirms: a token that is valid now and has the role for it. A
thread of its own writes, so that neither the channel nor the guard waits. While one transaction is written, others queue for
the next: a hundred callers at once take two or three, and the writer's lock lets none of them count what another one gets.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from secrets import token_hex

from costguard.agents.messages import BROKEN, MALFORMED, NO_TOKEN, NOT_ALLOWED, NOT_READY, TOO_OFTEN, UNWRITABLE
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import Hold, describe_token
from costguard.errors import CostguardError, InputError, LedgerError
from costguard.guard.alerts.denial import DENIAL_TOLD_FOR, build_denial
from costguard.ledger.agents.directory import AgentDirectory
from costguard.ledger.holds import HoldStore
from costguard.services.guarding.overrides import get_now, open_guard_store
from costguard.services.run_jobs.admit import open_holds
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.door_messages import AdmitOffer, AdmitReply, HoldEndOffer, HoldEndReply
from costguard.services.serving.login_key import LoginKey, open_login_key
from costguard.settings import Settings, resolve_ledger_url
from costguard.system.logs import get_log
from costguard.values.agent import OPERATOR, WebToken, is_token_valid
from costguard.values.instant import to_micros
from costguard.values.money import Money

WAITING_MOST = 512
"""Requests that may wait for their turn."""
BATCH_MOST = 128
"""Of one transaction: it takes about 40 ms, in which nobody else writes."""
END_WAIT_S = 5.0
DENIALS_KEPT = 1000
OTHER_KEY = (
    "this token was not made with this watchdog's login key: on its machine, run costguard web revoke {0}, then "
    "costguard web token {0} --role operator"
)

Offer = AdmitOffer | HoldEndOffer
Answer = Callable[[AdmitReply | HoldEndReply], object]


@dataclass(slots=True, kw_only=True)
class AdmissionDesk:
    """Takes and ends holds. `settings`: returns those of the watchdog as they are now."""

    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = get_now
    _waiting: queue.Queue[tuple[Offer, Answer] | None] = field(default_factory=lambda: queue.Queue(maxsize=WAITING_MOST))
    _thread: threading.Thread | None = None
    _ended: bool = False
    _holds: HoldStore | None = None
    _tokens: AgentDirectory | None = None
    _key: LoginKey | None = None
    _told: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="admissions", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take no more holds."""
        self._ended = True
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        if self._thread is not None:
            self._thread.join(END_WAIT_S)

    def take(self, offer: Offer, answer: Answer) -> None:
        """Have a hold taken or ended when its turn comes, and call `answer` once with what became of it."""
        try:
            self._waiting.put_nowait((offer, answer))
        except queue.Full:
            answer(_refuse(offer, TOO_OFTEN, "too many runs wait to be admitted", 1))

    def admit_all(self, offers: Sequence[Offer]) -> list[AdmitReply | HoldEndReply]:
        """Take and end the holds of `offers`, in their order, and return what became of each, after the commit."""
        try:
            settings, now = self.settings(), self.clock()
            holds = self._open(settings)
            tokens = self._load_tokens({offer.token for offer in offers}, now)
            replies = dict[int, AdmitReply | HoldEndReply]()
            requests = list[tuple[int, AdmitOffer, Hold]]()
            for place, offer in enumerate(offers):
                token = tokens.get(offer.token)
                if token is None or token.role != OPERATOR:
                    replies[place] = _refuse(offer, NO_TOKEN if token is None else NOT_ALLOWED)
                    continue
                if self._key is None or not self._key.has_issued_token(offer.token, token):
                    replies[place] = _refuse(offer, NOT_ALLOWED, OTHER_KEY.format(token.name))
                    continue
                try:
                    if isinstance(offer, HoldEndOffer):
                        replies[place] = _end_hold(offer, token, holds, now)
                    else:
                        requests.append((place, offer, _build_hold(offer, token, now)))
                except InputError as error:
                    replies[place] = _refuse(offer, MALFORMED, f"{error.field}: {error.what}")
            admissions = holds.take_all([hold for _, _, hold in requests], settings.budgets, now) if requests else []
            for (place, _, hold), admission in zip(requests, admissions, strict=True):
                replies[place] = _build_reply(hold, admission)
            self._record_denials(settings, [(hold, one) for (_, _, hold), one in zip(requests, admissions, strict=True)], now)
            return [replies[place] for place in range(len(offers))]
        except LedgerError:
            self._close()
            return [_refuse(offer, UNWRITABLE, wait_s=5) for offer in offers]
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits gets an answer, and the thread goes on
            self._close()
            get_log().error("admission_broke", error=f"{type(error).__name__}: {error}")
            return [_refuse(offer, BROKEN) for offer in offers]

    def _run(self) -> None:
        try:
            self._take_turns()
        finally:
            self._close()

    def _take_turns(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch, ending = [first], False
            while len(batch) < BATCH_MOST and not ending:
                try:
                    one = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if one is None:
                    ending = True
                else:
                    batch.append(one)
            offers = [offer for offer, _ in batch]
            replies = [_refuse(one, NOT_READY, wait_s=5) for one in offers] if self._ended else self.admit_all(offers)
            for (_, answer), reply in zip(batch, replies, strict=True):
                answer(reply)
            if ending:
                return

    def _open(self, settings: Settings) -> HoldStore:
        """Return the ledger's holds, which stay open until an error, or the end of the thread."""
        if self._holds is None:
            self._holds, self._tokens = open_holds(settings), AgentDirectory(resolve_ledger_url(settings))
            self._key = open_login_key(resolve_ledger_url(settings), settings.web.key_file)
        return self._holds

    def _close(self) -> None:
        for one in (self._holds, self._tokens):
            if one is not None:
                one.close()
        self._holds = self._tokens = None

    def _load_tokens(self, shown: set[str], now: datetime) -> dict[str, WebToken]:
        """Return the records of the tokens `shown` that are valid now."""
        tokens = [(one, self._tokens.load_token(hash_token(one))) for one in shown] if self._tokens is not None else []
        return {one: token for one, token in tokens if token is not None and is_token_valid(token, now)}

    def _record_denials(
        self, settings: Settings, outcomes: Sequence[tuple[Hold, Admission | InputError]], now: datetime
    ) -> None:
        """Have the next run of the guard alert about refusals: one of each holder and budget within an hour."""
        due = []
        for hold, admission in outcomes:
            denial = None if isinstance(admission, InputError) else build_denial(hold, admission, now, token_hex(8))
            if denial is None:
                continue
            notified_at = self._told.get((denial.who, denial.subject))
            if notified_at is None or now - notified_at >= DENIAL_TOLD_FOR:
                self._told[denial.who, denial.subject] = now
                due.append(denial)
        while len(self._told) > DENIALS_KEPT:
            del self._told[next(iter(self._told))]
        if not due:
            return
        try:
            with open_guard_store(settings) as book:
                for denial in due:
                    book.add_override(denial)
        except CostguardError as error:  # the refusal stands; only its alert is missing
            get_log().warning("denial_not_recorded", why=str(error))


def _build_hold(offer: AdmitOffer, token: WebToken, now: datetime) -> Hold:
    return Hold(
        id=offer.hold,
        money=Money(nano=offer.nano, currency=offer.currency),
        who=describe_token(token.name),
        scope=token.name,
        why=offer.why,
        taken_at=now,
        expires_at=now + timedelta(seconds=offer.lasts_s),
        provider=offer.provider,
        account=offer.account,
        owner=offer.owner,
        gpu=offer.gpu,
        labels=tuple(offer.labels),
        hourly=None if offer.hourly is None else Money(nano=offer.hourly, currency=offer.currency),
    )


def _build_reply(hold: Hold, admission: Admission | InputError) -> AdmitReply:
    if isinstance(admission, InputError):
        return AdmitReply(MALFORMED, f"{admission.field}: {admission.what}")
    left, cap = admission.left_range, admission.cap
    return AdmitReply(
        admitted=admission.admitted,
        reason=admission.reason,
        budget=admission.budget,
        currency=cap.currency if cap else "",
        cap=cap.nano if cap else 0,
        left=left.low.nano if left else 0,
        left_expected=left.expected.nano if left else 0,
        left_high=left.high.nano if left else 0,
        until_us=to_micros(admission.until or hold.expires_at) if admission.admitted else 0,
        was=admission.was.nano if admission.was else 0,
    )


def _end_hold(offer: HoldEndOffer, token: WebToken, holds: HoldStore, now: datetime) -> HoldEndReply:
    """End a hold that this token took; another one's is refused as if there were none."""
    who = describe_token(token.name)
    own_hold = next((one for one in holds.open_holds(now) if one.id == offer.hold and one.who == who), None)
    if own_hold is None:
        return HoldEndReply(MALFORMED, f"{offer.hold} is not an open hold of this token")
    ended = holds.commit(own_hold.key, None, now) if offer.started else holds.release(own_hold.key, now)
    return HoldEndReply(ended_by=ended.ended_by)


def _refuse(offer: Offer, name: str, says: str = "", wait_s: float | None = None) -> AdmitReply | HoldEndReply:
    kind = AdmitReply if isinstance(offer, AdmitOffer) else HoldEndReply
    return kind(name, says, wait_s)
