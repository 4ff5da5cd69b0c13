"""What people confirmed on a page and the watchdog does: stops, and answers to questions that a message carried a link for.

    door: session, role, form, confirmation -> channel -> here: session and role looked up -> `act_on_resource` -> the page
    door: link, form                        -> channel -> here: link and question looked up      -> `answer_ask`   -> the page

The door has no provider keys. What it offers is believed no further than the ledger confirms: a session that is valid now and
has the role for it, or the secret of a link whose question still waits. A thread of its own does one at a time: neither the
channel nor the guard waits for a provider.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from costguard.agents.messages import BROKEN, NOT_ALLOWED, NOT_READY, TOO_OFTEN, UNWRITABLE
from costguard.errors import CostguardError, LedgerError
from costguard.guard.machine_reference import require_machine
from costguard.guard.policy import STOP
from costguard.ledger.agents.logins import LoginStore
from costguard.services.guarding import overrides
from costguard.services.guarding.act.by_hand import act_on_resource
from costguard.services.guarding.ask_links import answer_ask
from costguard.services.serving.door_messages import AskOffer, PersonOffer, PersonReply
from costguard.values.web_login import ADMIN, WebSession, has_role, is_session_valid

WAITING_MOST = 8
"""Stops and answers that may wait for their turn; a stop takes as long as its proof."""
PROVE_WITHIN_S = 20.0
"""How long a page waits for the proof: browsers and their readers give up soon after. The guard goes on proving it."""
END_WAIT_S = 5.0


@dataclass(slots=True, kw_only=True)
class PersonActs:
    """Does what people confirmed.

    `url`: of the ledger. `config`: the settings file of this watchdog; None: the one that applies.
    """

    url: str
    config: str | None
    clock: Callable[[], datetime] = overrides.get_now
    _waiting: queue.Queue[tuple[PersonOffer, Callable[[PersonReply], object]] | None] = field(
        default_factory=lambda: queue.Queue(maxsize=WAITING_MOST)
    )
    _thread: threading.Thread | None = None
    _ended: bool = False

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="person-stops", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Begin nothing more; a stop that is under way is left to the guard of the next watchdog, which proves it."""
        self._ended = True
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        if self._thread is not None:
            self._thread.join(END_WAIT_S)

    def take(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        """Have it done when its turn comes, and call `answer` once with what became of it."""
        try:
            self._waiting.put_nowait((offer, answer))
        except queue.Full:
            answer(PersonReply(TOO_OFTEN, "other acts are in progress: try again in a minute", 60))

    def answer(self, offer: PersonOffer) -> PersonReply:
        """Do it, and return what became of it."""
        try:
            if isinstance(offer, AskOffer):
                answer = answer_ask(offer.secret, approve=offer.approve, url=self.url, config=self.config, now=self.clock())
            else:
                session = self._find_session(offer.session_hash)
                if session is None or not has_role(session.role, ADMIN):
                    return PersonReply(NOT_ALLOWED, f"a stop needs a valid session with the role {ADMIN}")
                with overrides.act_for(f"{session.name} (page)"):
                    machine = require_machine(offer.path, offer.life)
                    answer = act_on_resource(
                        machine, STOP, yes=True, why=offer.why, config=self.config, prove_within_s=PROVE_WITHIN_S
                    )
        except LedgerError:
            return PersonReply(UNWRITABLE, wait_s=5)
        except CostguardError as refused:
            return PersonReply(lines=[line for line in str(refused).splitlines() if line])
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits gets an answer, and the thread goes on
            return PersonReply(BROKEN, f"{type(error).__name__}: the watchdog's log may say more")
        lines = (*answer.document.lead, *answer.document.notes, *(str(answer.refusal).splitlines() if answer.refusal else ()))
        return PersonReply(done=answer.refusal is None, lines=[line for line in lines if line])

    def _find_session(self, session_hash: str) -> WebSession | None:
        with LoginStore(self.url) as book:
            session = book.load_session(session_hash)
        now = self.clock()
        return session if session is not None and is_session_valid(session, now, now) else None

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None:
            offer, tell = one
            tell(PersonReply(NOT_READY, wait_s=5) if self._ended else self.answer(offer))
