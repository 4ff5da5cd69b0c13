"""Commands for agents and HTTP readers: enrol, list and revoke them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.guard.machine_reference import format_resource
from costguard.ledger.agents.records import load_agents
from costguard.ledger.agents.tokens import load_tokens
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user, find_machine, get_now
from costguard.services.poll.ports import Seal
from costguard.services.serving.agent_enrolment import (
    format_code,
    format_enrolment_script,
    format_join_command,
    format_tunnel,
    hash_code,
    make_code,
)
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.login_key import TOKEN, open_login_key
from costguard.services.serving.web_backend import find_key_file
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.settings.web import parse_listen_address, resolve_web_address
from costguard.values.agent import CODE_VALID_FOR, OPERATOR, TOKEN_ROLES, TOKEN_VALID_MAX, VIEWER, EnrollmentCode, WebToken
from costguard.values.checks import require, require_one_of
from costguard.values.resource import INSTANCE, RUNNING
from costguard.views.agents import build_agents_document, build_enrolment_document, build_tokens_document
from costguard.views.document import PastedLine

if TYPE_CHECKING:  # a type and no more: it brings SQLAlchemy with it
    from costguard.ledger.agents.store import AgentStore

TOKEN_PREFIX = "cg_"  # noqa: S105 - how tokens begin
TOKEN_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


def enrol_agent(
    reference: str, *, open_seal: Callable[[Path], Seal], through_restarts: bool = False, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard agent enrol`: a one-time code for the machine that `reference` names, valid for its present run.

    `open_seal`: opens the watchdog's key in a file, or creates it as the watchdog does; its fingerprint is part of the code.
    """
    settings, now = read_settings(config), get_now()
    address = resolve_web_address(settings.web)
    hint = 'write [web] listen = "127.0.0.1:8470", and url as machines call it'
    require(bool(address), "web.listen", "is missing: agents would get no answer", hint)
    live = find_machine(reference, settings, now)
    observation = live.observation
    able = observation.kind == INSTANCE and observation.state == RUNNING
    require(
        able,
        f"ID {observation.key.id}",
        f"is {observation.kind}, {observation.state}: it is not running",
        "enrol it once it runs",
    )
    code, key_file = make_code(), find_key_file(settings)
    is_key_new = not key_file.exists()
    seal = open_seal(key_file)
    life = None if through_restarts else identify_incarnation(observation)
    stored = EnrollmentCode(
        hash=hash_code(code), key=observation.key, who=describe_user(), at=now, expires_at=now + CODE_VALID_FOR, life=life
    )
    with open_agent_store(settings) as book:
        book.add_code(stored)
    notes = ["The code can be used once. An agent can report and make requests for its own machine; it can never act."]
    if settings.web.url is None and parse_listen_address(settings.web.listen or "127.0.0.1:0", "web.listen").is_loopback:
        notes.append("Only this machine can reach that address: set [web] url to a reachable address, or use a tunnel.")
    if is_key_new:
        notes.append(
            f"The watchdog's key was created in {key_file}: start costguard watch here, as this user, or set [web] key_file."
        )
    if address.startswith("http://"):
        notes.append(PastedLine(f"A tunnel that fails if the port is taken: {format_tunnel(address)}"))
    shown, digest = format_code(code, seal.public_key), compute_agent_digest()
    document = build_enrolment_document(
        stored,
        shown,
        join=format_join_command(address, shown),
        script=format_enrolment_script(address, shown, digest),
        agent_sha256=digest,
        called=format_resource(observation),
        address=address,
        notes=notes,
    )
    return CommandAnswer(document=document)


def compute_agent_digest() -> str:
    """Return the SHA-256 of the agent that this installation's watchdog serves."""
    from costguard_agent.installation import build_archive

    return sha256(build_archive()).hexdigest()


def list_agents(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard agent list`: every agent that ever joined, and its state."""
    settings, now = read_settings(config), get_now()
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        agents = load_agents(ask, every=True)
    live = {one.observation.key: one for one in _load_live(settings, now)}
    return CommandAnswer(document=build_agents_document(agents, live, now))


def revoke_agent_access(reference: str, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard agent revoke`: refuse messages of this agent from now on. `reference`: its id, or its machine."""
    settings, now = read_settings(config), get_now()
    live_resources = _load_live(settings, now)
    with open_agent_store(settings) as book:
        agents = {one.id: one for one in book.load_agents()}
        if reference not in agents:
            key = find_machine(reference, settings, now, "AGENT").observation.key
            of = [one.id for one in agents.values() if one.key == key]
            if not of:
                raise InputError("has no agent", field=f"AGENT {key.id}", hint="costguard agent list shows them")
            reference = of[0]
        agent = book.revoke(reference, who=describe_user(), now=now)
    live = {one.observation.key: one for one in live_resources}
    did = f"Agent {agent.id} of {agent.key.id} is revoked: its messages are no longer accepted."
    return CommandAnswer(document=build_agents_document([agent], live, now, did=did))


def create_web_token(name: str, *, length: str | None, role: str | None = None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web token`: create a token, shown once. `role`: of TOKEN_ROLES, None: a reader's."""
    settings, now = read_settings(config), get_now()
    what = "is not a name: letters, digits and . _ @ -, at most 64"
    require(bool(TOKEN_NAME_PATTERN.fullmatch(name)), "NAME", what, "costguard web token grafana --for 90d")
    lasts = parse_duration(length or "90d", "--for", least=timedelta(minutes=1), most=TOKEN_VALID_MAX)
    chosen = require_one_of(role or VIEWER, TOKEN_ROLES, "--role")
    key = open_login_key(resolve_ledger_url(settings), settings.web.key_file)
    shown = key.make_secret(TOKEN, name, chosen, now + lasts, prefix=TOKEN_PREFIX)
    token = WebToken(hash=hash_token(shown), name=name, role=chosen, who=describe_user(), at=now, expires_at=now + lasts)
    with open_agent_store(settings) as book:
        book.add_token(token)
    did = f"{name} may {'read status and admit runs' if chosen == OPERATOR else 'read status'}, with this token:"
    return CommandAnswer(document=build_tokens_document([token], now, shown=shown, did=did))


def list_web_tokens(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web tokens`: the tokens of readers, and when each expires."""
    settings, now = read_settings(config), get_now()
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        return CommandAnswer(document=build_tokens_document(load_tokens(ask), now))


def revoke_web_token(name: str, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard web revoke`: refuse the token of `name` from now on."""
    settings, now = read_settings(config), get_now()
    with open_agent_store(settings) as book:
        book.revoke_token(name, who=describe_user(), now=now)
        last = [one for one in book.load_tokens() if one.name == name][-1:]
    return CommandAnswer(document=build_tokens_document(last, now, did=f"The token of {name} is no longer valid."))


@contextmanager
def open_agent_store(settings: Settings) -> Iterator[AgentStore]:
    """Open the agents' part of the ledger for writing."""
    from costguard.ledger.agents.store import AgentStore

    with AgentStore(resolve_ledger_url(settings)) as book:
        yield book


def _load_live(settings: Settings, now: datetime) -> list[LiveResource]:
    with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
        return books.load_live(now)
