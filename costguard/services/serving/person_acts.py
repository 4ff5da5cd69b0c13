"""What people do on pages and the watchdog does for them: logins, acts, and answers to links in messages.

    server: session, role, form, confirmation -> channel -> here: session, login key and role -> act of the command -> page
    server: link's code, or provider's answer -> channel -> here: link or ID token            -> new session        -> cookie
    server: link in a message, form           -> channel -> here: link and question           -> `answer_ask`       -> page

The server writes nothing and has no provider keys. What it offers is believed no further than its secret goes: that of a
session that this watchdog opened and that is valid now, of a link, or of an answer that the identity provider signed. Threads
of their own do one at a time: neither the channel nor the guard waits for a provider, and no click for a stop.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast

from costguard.agents.messages import BROKEN, NOT_ALLOWED, NOT_READY, TOO_OFTEN, UNWRITABLE
from costguard.errors import CostguardError, InputError, LedgerError
from costguard.guard.machine_reference import MachineReference, require_machine
from costguard.guard.policy import STOP, TERMINATE
from costguard.ledger.agents.logins import LoginStore
from costguard.services import CommandAnswer
from costguard.services.guarding import overrides
from costguard.services.guarding.act.by_hand import act_on_resource
from costguard.services.guarding.ask_links import answer_ask
from costguard.services.guarding.policy import arm_policy
from costguard.services.guarding.route_checks import answer_notify_test
from costguard.services.serving.door_messages import ActOffer, AskOffer, LoginOffer, OidcOffer, PersonOffer, PersonReply
from costguard.services.serving.login_key import LoginKey, open_login_key
from costguard.services.serving.web_logins import LoginDesk
from costguard.settings import read_settings
from costguard.system.logs import get_log
from costguard.values.agent import OPERATOR
from costguard.values.web_login import ADMIN, ROLES, choose_role, has_role, name_person

if TYPE_CHECKING:  # a type and no more: it imports authlib, which few watchdogs need
    from costguard.services.serving.oidc import OidcClient

PROVE_WITHIN_S = 20.0
"""How long a page waits for the proof: browsers and their readers give up soon after. The guard goes on proving it."""
END_WAIT_S = 5.0
REFUSED_PAUSE_S = 0.25
"""After a login that the identity provider does not confirm: strangers can begin as many as they like, of 10 ms each."""
LOGOUT, PREVIEW_STOP, TEST_ROUTE = "logout", "preview-stop", "test-route"


def _find(offer: ActOffer) -> MachineReference:
    return require_machine(offer.subject, offer.life)


def _preview_stop(offer: ActOffer, config: str | None) -> CommandAnswer:
    """Ask the cloud about the machine, and return what its stop would lose and save; nothing is sent."""
    answer = act_on_resource(_find(offer), STOP, ask=lambda _: False, config=config)
    consequences = cast("list[str]", answer.document.data["consequences"])
    return replace(answer, document=replace(answer.document, lead=tuple(consequences), notes=()))


def _test_route(offer: ActOffer, config: str | None) -> CommandAnswer:
    """Send a test message to each channel of the route `offer.subject`, and return a line on each."""
    answer = answer_notify_test(offer.subject, config=config)
    lines = (
        f"{one['route']} ({one['channel']}): {one['outcome']}" + (f"; {one['answer']}" if one["answer"] else "")
        for one in answer.document.records
    )
    return replace(answer, document=replace(answer.document, lead=tuple(lines)))


Act = Callable[[ActOffer, str | None], CommandAnswer]
ACTS: Mapping[str, Act] = {
    "keep": lambda o, config: overrides.keep_resource(_find(o), length=o.value, why=o.why, config=config),
    "unkeep": lambda o, config: overrides.keep_resource(_find(o), length=None, why=None, lift=True, config=config),
    "protect": lambda o, config: overrides.protect_resource(_find(o), why=o.why, config=config),
    "unprotect": lambda o, config: overrides.protect_resource(_find(o), why=o.why, lift=True, config=config),
    "snooze": lambda o, config: overrides.snooze_alerts(_find(o), length=o.value, why=o.why, config=config),
    "unsnooze": lambda o, config: overrides.snooze_alerts(_find(o), length=None, lift=True, config=config),
    "approve-stop": lambda o, config: overrides.approve_action(_find(o), STOP, why=o.why, config=config),
    "approve-terminate": lambda o, config: overrides.approve_action(_find(o), TERMINATE, why=o.why, config=config),
}
"""What operators can do to a machine: with the offer and the settings file to the answer of the command of that name."""
ADMIN_ACTS: Mapping[str, Act] = {
    STOP: lambda o, config: act_on_resource(_find(o), STOP, yes=True, why=o.why, config=config, prove_within_s=PROVE_WITHIN_S),
    PREVIEW_STOP: _preview_stop,
    TEST_ROUTE: _test_route,
    "arm": lambda o, config: arm_policy(o.subject, o.value, why=o.why, config=config, offline=True),
}


class Lane:
    """Offers of one kind in their turn. `threads`: how many are done at once; `waiting_most`: how many may wait."""

    def __init__(self, name: str, threads: int, waiting_most: int) -> None:
        self.name, self.threads = name, threads
        self.waiting: queue.Queue[tuple[PersonOffer, Callable[[PersonReply], object]] | None] = queue.Queue(waiting_most)
        self.running = list[threading.Thread]()


@dataclass(slots=True, kw_only=True)
class PersonActs:
    """Does what people confirmed, and logs them in.

    `url`: of the ledger. `config`: the settings file of this watchdog; None: the one that applies. `key_file`: as the settings
    state it.
    """

    url: str
    config: str | None
    key_file: str | None = None
    clock: Callable[[], datetime] = overrides.get_now
    stops: Lane = field(default_factory=lambda: Lane("person-stops", 1, 8))
    clicks: Lane = field(default_factory=lambda: Lane("person-clicks", 1, 64))
    logins: Lane = field(default_factory=lambda: Lane("oidc-logins", 4, 16))
    _key: LoginKey | None = None
    _oidc: OidcClient | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def start(self) -> None:
        """Start the threads."""
        for lane in (self.stops, self.clicks, self.logins):
            for _ in range(lane.threads):
                thread = threading.Thread(target=self._run, args=(lane,), name=lane.name, daemon=True)
                lane.running.append(thread)
                thread.start()

    def end(self) -> None:
        """Begin nothing more; a stop that is under way is left to the guard of the next watchdog, which proves it."""
        self._ended, until = True, monotonic() + END_WAIT_S
        lanes = [lane for lane in (self.stops, self.clicks, self.logins) if _wake_threads(lane)]
        for thread in (thread for lane in lanes for thread in lane.running):
            thread.join(max(0.0, until - monotonic()))

    def take(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        """Have it done when its turn comes, and call `answer` once with what became of it."""
        lane = self.logins if isinstance(offer, OidcOffer) else self.clicks
        if isinstance(offer, ActOffer) and offer.act in (STOP, PREVIEW_STOP, TEST_ROUTE):
            lane = self.stops
        try:
            lane.waiting.put_nowait((offer, answer))
        except queue.Full:
            answer(PersonReply(TOO_OFTEN, "other acts are in progress: try again in a minute", 60))

    def answer(self, offer: PersonOffer) -> PersonReply:
        """Do it, and return what became of it."""
        try:
            if isinstance(offer, AskOffer):
                answer = answer_ask(offer.secret, approve=offer.approve, url=self.url, config=self.config, now=self.clock())
                return _build_reply(answer)
            if isinstance(offer, OidcOffer):
                return self._log_in(offer)
            with self._open_desk() as desk:
                return (
                    PersonReply(done=True, secret=desk.redeem(offer.code))
                    if isinstance(offer, LoginOffer)
                    else self._act(desk, offer)
                )
        except LedgerError:
            return PersonReply(UNWRITABLE, wait_s=5)
        except CostguardError as refused:
            return PersonReply(lines=[line for line in str(refused).splitlines() if line])
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits gets an answer, and the thread goes on
            return PersonReply(BROKEN, f"{type(error).__name__}: the watchdog's log may say more")

    def _act(self, desk: LoginDesk, offer: ActOffer) -> PersonReply:
        if offer.act == LOGOUT:
            desk.end(offer.secret)
            return PersonReply(done=True)
        session, role = desk.find_session(offer.secret), ADMIN if offer.act in ADMIN_ACTS else OPERATOR
        if session is None or not has_role(session.role, role):
            return PersonReply(NOT_ALLOWED, f"{offer.act} needs a valid session with the role {role}")
        act = ACTS.get(offer.act) or ADMIN_ACTS.get(offer.act)
        if act is None:
            raise InputError("is not an act of a page", field=offer.act[:20], hint=", ".join((*ACTS, *ADMIN_ACTS)))
        with overrides.act_for(f"{session.name} (page)"):
            return _build_reply(act(offer, self.config))

    def _log_in(self, offer: OidcOffer) -> PersonReply:
        """Log in who the identity provider says it is: its answer is read and checked here, so no server can invent one."""
        client = self._open_provider()
        try:
            claims, back = client.finish_login(offer.cookie, offer.query)
        except InputError as error:  # the client's secret cannot be read: for whoever runs the watchdog
            get_log().error("oidc_broken", why=str(error))
            return PersonReply(BROKEN, "The server's login settings are wrong: see the watchdog's log.")
        except CostguardError as error:
            get_log().warning("oidc_refused", why=error.what)
            raise
        settings, name = client.settings, name_person(claims)
        role = choose_role(claims, settings.role_claim, {one: getattr(settings, one) for one in ROLES})
        if name is None or role is None:
            get_log().warning("oidc_refused", why="no role" if name else "no subject", name=name or "")
            who = name or "A user without a subject"
            return PersonReply(NOT_ALLOWED, f"{who}: no group in {settings.role_claim} has access to these pages.")
        with self._open_desk() as desk:
            return PersonReply(done=True, secret=desk.open_session(name, role, settings.issuer), back=back)

    @contextmanager
    def _open_desk(self) -> Iterator[LoginDesk]:
        with self._lock:
            self._key = self._key or open_login_key(self.url, self.key_file)
        with LoginStore(self.url) as book:
            yield LoginDesk(book=book, key=self._key, clock=self.clock)

    def _open_provider(self) -> OidcClient:
        from costguard.services.serving.oidc import open_oidc_client

        with self._lock:
            self._oidc = self._oidc or open_oidc_client(read_settings(self.config), self.clock)
        if self._oidc is None:
            raise InputError("is not in the watchdog's settings", field="[web.oidc]", hint="restart costguard watch")
        return self._oidc

    def _run(self, lane: Lane) -> None:
        while (one := lane.waiting.get()) is not None:
            offer, tell = one
            reply = PersonReply(NOT_READY, wait_s=5) if self._ended else self.answer(offer)
            tell(reply)
            if lane is self.logins and not reply.done:
                sleep(REFUSED_PAUSE_S)


def _wake_threads(lane: Lane) -> bool:
    """Have the threads of `lane` end after what they do; False if too much waits for that."""
    try:
        for _ in range(lane.threads):
            lane.waiting.put_nowait(None)
    except queue.Full:
        return False
    return True


def _build_reply(answer: CommandAnswer) -> PersonReply:
    notes = (note for note in answer.document.notes if not note.startswith("next:"))
    lines = (*answer.document.lead, *notes, *(str(answer.refusal).splitlines() if answer.refusal else ()))
    return PersonReply(done=answer.refusal is None, lines=[line for line in lines if line])
