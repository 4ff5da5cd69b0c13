"""Links in messages: to the page of a machine, and to the answer of a question of the guard.

    delivery: question -> secret of 256 random bits, its hash into the ledger -> link in the message
    a click:  page of the link -> button -> channel -> `answer_ask` in the watchdog -> override, and every link settled

The outbox holds no secret: a link is made when its message is sent, and made anew for a retry after a restart.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from urllib.parse import quote

from costguard.errors import LedgerError
from costguard.guard.alerts.alert import KEEP_FOR, Alert, Notification
from costguard.guard.overrides import Override, name_question
from costguard.ledger.guard.ask_links import AskLinkStore
from costguard.services import CommandAnswer
from costguard.services.guarding import overrides
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import format_duration, parse_duration
from costguard.settings.notify import CONSOLE_CHANNEL
from costguard.settings.sections import ANSWER_LINKS, NO_LINKS
from costguard.values.ask_link import APPROVED, ASK_LINK_VALID_FOR, DENIED, AskLink
from costguard.values.resource import ResourceKey, parse_resource_key

ASK_PATH = "/ask/"
SECRET_BYTES = 32
PATHS_SAFE = "/:@"
POLICY_TOPIC = "policy:"
SETTINGS_TOPICS = frozenset(("rail:accept", "held:rate"))
"""What is answered by a change of settings: their page is linked."""
MESSAGES_KEPT = 1_000
"""Messages whose links are remembered for a retry."""
PAGE_LABEL, ANSWER_LABEL = "page", "to approve or deny"


@dataclass(slots=True, kw_only=True)
class MessageLinker:
    """Adds links to a message that is about to be sent. `url`: of the ledger. `base`: the address that others use.

    `answers`: with links that answer questions.
    """

    url: str
    base: str
    answers: bool
    clock: Callable[[], datetime] = overrides.get_now
    _made: OrderedDict[str, Notification] = field(default_factory=OrderedDict)

    def add_links(self, message: Notification) -> Notification:
        """Return `message` with its links. If the ledger cannot record one that answers, it goes without that one."""
        linked_message = self._made.get(message.id)
        if linked_message is None or tuple(replace(one, links=()) for one in linked_message.notices) != message.notices:
            linked_message = self._made[message.id] = self._build(message)
            while len(self._made) > MESSAGES_KEPT:
                self._made.popitem(last=False)
        return linked_message

    def _build(self, message: Notification) -> Notification:
        notices, links = list[Alert](), list[AskLink]()
        for notice in message.notices:
            key = parse_resource_key(notice.subject)
            path = "/policies" if notice.topic in SETTINGS_TOPICS else build_machine_path(notice.subject) if key else ""
            page_links = [(PAGE_LABEL, f"{self.base}{path}")] if path else []
            if key is not None and notice.ask and self._may_answer(message):
                secret = secrets.token_hex(SECRET_BYTES)
                links.append(self._build_link(secret, message, notice, key))
                page_links.append((ANSWER_LABEL, f"{self.base}{ASK_PATH}{secret}"))
            notices.append(replace(notice, links=tuple(page_links)))
        try:
            if links:
                with AskLinkStore(self.url) as book:
                    book.add(links)
        except LedgerError:
            notices = [replace(one, links=one.links[:1]) for one in notices]
        return replace(message, notices=tuple(notices))

    def _may_answer(self, message: Notification) -> bool:
        """Return whether a link that answers goes into the message: never into a terminal or a journal, which are kept."""
        return self.answers and message.channel != CONSOLE_CHANNEL

    def _build_link(self, secret: str, message: Notification, notice: Alert, key: ResourceKey) -> AskLink:
        now = self.clock()
        return AskLink(
            hash=hash_secret(secret),
            addressee=format_channel_name(message.channel),
            policy=notice.topic.removeprefix(POLICY_TOPIC),
            key=key,
            act=notice.ask,
            episode=notice.episode,
            at=now,
            expires_at=now + ASK_LINK_VALID_FOR,
        )


def format_channel_name(name: str) -> str:
    """Return the public name of a channel: where its address is stored, or its host."""
    scheme, separator, rest = name.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else name


def build_linker(settings: Settings) -> Callable[[Notification], Notification]:
    """Return what adds links to messages: nothing unless `[web] url` says at which address people reach the pages."""
    web = settings.web
    if web.url is None or web.listen is None or web.links == NO_LINKS:
        return lambda message: message
    base = web.url.rstrip("/")
    return MessageLinker(url=resolve_ledger_url(settings), base=base, answers=web.links == ANSWER_LINKS).add_links


def answer_ask(secret: str, *, approve: bool, url: str, config: str | None, now: datetime) -> CommandAnswer:
    """Answer the question of a link as `costguard approve`, or as `costguard keep` where it is denied, and settle its links.

    `url`: of the ledger. The override has the name of the link's addressee. Raises NoAnswerError if nobody asks any more.
    """
    with AskLinkStore(url) as book:
        link, _ = book.find(hash_secret(secret), now)
        why = f"answer to {link.policy}"
        record = partial(_settle, book, link, APPROVED if approve else DENIED, now)
        with overrides.act_for(f"{link.addressee} (link)"):
            if approve:
                question = name_question(link.policy, link.episode)
                return overrides.approve_action(
                    link.key, link.act, why=why, config=config, record=record, question=question, most=link.expires_at
                )
            lasts = choose_keep_length(read_settings(config), link.policy)
            return overrides.keep_resource(link.key, length=format_duration(lasts), why=why, config=config, record=record)


def _settle(book: AskLinkStore, link: AskLink, answer: str, now: datetime, override: Override) -> None:
    book.settle(link.hash, answer, override, now)


def choose_keep_length(settings: Settings, policy: str) -> timedelta:
    """Return for how long a machine is kept whose question was denied: as messages say, or as long as the policy allows."""
    usual = parse_duration(KEEP_FOR, "keep")
    return min([usual, *(one.lease_max for one in settings.policies if one.name == policy and one.lease_max)])


def hash_secret(secret: str) -> str:
    """Return what is stored of a link's secret."""
    return sha256(secret.encode()).hexdigest()


def build_machine_path(path: str) -> str:
    """Return the path and query of a machine's page. `path`: its whole key."""
    return f"/machine?id={quote(path, safe=PATHS_SAFE)}"
