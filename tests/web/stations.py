"""A watchdog that answers over loopback: its room, its guard and its server, over a ledger with machines in it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from costguard_agent import ed25519
from costguard_agent.protocol import AT_HEADER, BEATS_PATH, SEQ_HEADER, SIGNATURE_HEADER, encode_base64

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import identify_incarnation
from costguard.services.guarding.watchdog_context import WatchdogContext, open_watchdog_context
from costguard.services.serving.agent_desk import AgentDesk, serve_while_watching
from costguard.services.serving.agent_enrolment import format_code, hash_code
from costguard.services.serving.agent_gateway import hash_token
from costguard.services.serving.web_backend import build_web_services, find_key_file
from costguard.settings import check_settings, resolve_ledger_url
from costguard.settings.web import ListenAddress
from costguard.values.agent import CODE_VALID_FOR, EnrollmentCode
from costguard.web.server import serve_http
from costguard.web.signing import open_seal
from costguard.web.watchdog_server import serve_desk
from costguard.web.watchdog_socket import bind_watchdog_socket, find_watchdog_socket
from tests.metering.stories import SCOPE, key, machine
from tests.web.desks import CODE, SECRET, envelope
from tests.web.logins import write_token

TOKEN = "cg_reader"  # noqa: S105 - a test's
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:  # noqa: ANN401 - JSON
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Station:
    """A watchdog. `room`: its own; a test lets its guard run."""

    room: WatchdogContext
    at: ListenAddress
    url: str

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request on a connection of its own."""
        wire = http.client.HTTPConnection(self.at.host, self.at.port, timeout=30)
        try:
            wire.request(method, path, body, dict(headers or {}))
            came = wire.getresponse()
            return Reply(came.status, {name.lower(): value for name, value in came.getheaders()}, came.read())
        finally:
            wire.close()

    def beat(self, agent: str, seq: int, said: object, *, at: datetime | None = None, secret: bytes = SECRET) -> Reply:
        """A signed beat."""
        message = envelope(agent, seq, at or datetime.now(UTC), said, secret=secret)
        headers = {SEQ_HEADER: message.seq, AT_HEADER: message.at, SIGNATURE_HEADER: message.signature, **JSON}
        return self.ask("POST", BEATS_PATH.format(agent), message.body, headers)

    def enrol(self, name: str = "i-0", code: str = CODE) -> str:
        """A code for a machine; returned as the machine needs it."""
        now = datetime.now(UTC)
        live = next(one for one in self.lives() if one.observation.key.id == name)
        made = EnrollmentCode(
            hash=hash_code(code),
            key=live.observation.key,
            who="ada",
            at=now,
            expires_at=now + CODE_VALID_FOR,
            life=identify_incarnation(live.observation),
        )
        with AgentStore(self.url) as book:
            book.add_code(made)
        return format_code(code, open_seal(find_key_file(self.room.settings)).public_key)

    def join(self, code: str = CODE, secret: bytes = SECRET) -> Reply:
        """A join."""
        said = {"code": code, "public_key": encode_base64(ed25519.derive_public_key(secret)), "version": "0.1.0"}
        return self.ask("POST", "/v1/agents/join", json.dumps(said).encode(), JSON)

    def joined(self, name: str = "i-0") -> str:
        """The id of an agent that joined."""
        self.enrol(name)
        return str(self.join().data["agent"])

    def token(
        self, shown: str = TOKEN, *, name: str = "ada", lasts: timedelta = timedelta(days=1), role: str = "viewer"
    ) -> dict[str, str]:
        """The header of a reader who may read. The watchdog accepts it as one of an earlier version."""
        write_token(self.url, shown, name, role, lasts=lasts)
        with Path(f"{self.url.removeprefix('sqlite:///')}.web-key-logins").open("a") as file:
            file.write(f"{hash_token(shown)}\n")
        return {"Authorization": f"Bearer {shown}"}

    def lives(self) -> list[Any]:
        """What the ledger says lives."""
        with self.room.guard.books() as books:
            return list(books.load_live(datetime.now(UTC)))


@contextmanager
def station(folder: Path, *, machines: int = 2, web: str = "", more: str = "") -> Iterator[Station]:
    """A watchdog whose ledger lies in `folder`. `web`: further settings of [web]; `more`: of others."""
    text = f'[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n{more}\n[web]\nlisten = "127.0.0.1:0"\n{web}\n'
    settings = check_settings(text, "costguard.toml")
    url, now = resolve_ledger_url(settings), datetime.now(UTC)
    began = now - timedelta(hours=2)
    seen = tuple(replace(machine(f"i-{n}", started_at=began), name=f"train-{n}") for n in range(machines))
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        for number in (30, 20, 10, 0):
            at = now - timedelta(minutes=number)
            ledger.record_polls([Poll(scope=SCOPE, at=at, asked_at=at, inventory=Complete(items=seen))])
    where = list[ListenAddress]()

    @contextmanager
    def open_door(_: WatchdogContext, desk: AgentDesk) -> Iterator[None]:
        path, bound = bind_watchdog_socket(find_watchdog_socket(settings))
        with serve_desk(desk, bound), serve_http(build_web_services(settings), path) as at:
            where.append(at)
            yield

    with ExitStack() as stack:
        made = stack.enter_context(open_watchdog_context(settings, offline=True))
        stack.enter_context(serve_while_watching(made, open_door))
        yield Station(made, where[0], url)


__all__ = ["JSON", "TOKEN", "Reply", "Station", "key", "station"]
