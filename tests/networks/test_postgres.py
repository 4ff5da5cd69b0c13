"""PostgreSQL at the end of a bad wire: what is lost is said, once more leaves the same rows, no act goes without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from costguard.errors import LedgerError
from costguard.guard.action_intents import DONE, DOUBTFUL_STATES, EXECUTING, READY
from costguard.guard.policy import Rails
from costguard.ledger.db import maintenance, postgresql
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding.act.send_action import confirm_action, send_action, settle_action
from costguard.values.provider import ActionResponse
from tests.crashes.story import Story, make_story, open_ledger, record_rest
from tests.ledger.fleet import rows
from tests.networks.plan import CONNECT, DOWN, UP, Fault
from tests.networks.proxy import Proxy, port_of, proxied
from tests.services.deeds import MIN, START, World, intent

SEED, LOT = 11, 20
SOON_S = 1.5
"""How long an answer may take while a fault is planted; 120 s elsewhere, as for whoever is only late on a busy machine."""
MOMENTS = ("INSERT INTO observation", "INSERT INTO span", "UPDATE account_state", "COMMIT")
KINDS = ("cut", "reset", "hole", "half")
WAYS = [(kind, side, moment) for moment in MOMENTS for side in (UP, DOWN) for kind in KINDS]


@contextmanager
def planted(proxy: Proxy, fault: Fault) -> Iterator[None]:
    """While it is open the proxy has `fault`, and answers are awaited for a short time only."""
    proxy.plan = [fault]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgresql, "ANSWER_SECONDS_MAX", SOON_S)
            yield
    finally:
        proxy.plan = ()


@contextmanager
def through(url: str) -> Iterator[tuple[str, Proxy]]:
    """The URL of the database `url` behind a proxy."""
    parts = urlsplit(url)
    folder = parse_qs(parts.query).get("host", [""])[0]
    to: str | int = f"{folder}/.s.PGSQL.{parts.port or 5432}" if folder else port_of(parts.netloc)
    who = (parts.username or "postgres") + (f":{parts.password}" if parts.password else "")
    with proxied(to) as proxy:
        yield f"postgresql+psycopg://{who}@127.0.0.1:{proxy.port}{parts.path}", proxy


@pytest.fixture(scope="module")
def story() -> Story:
    return make_story(SEED, polls=120, size=60)


@pytest.fixture(scope="module")
def calm(story: Story, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[SqlRow]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('calm')}/ledger.db"
    open_ledger(url).close()
    record_rest(url, story)
    return rows(url)


def is_said(error: LedgerError) -> None:
    said, _, hint = str(error).partition("\nhint: ")
    assert "the ledger's server" in said
    assert hint
    assert "Traceback" not in said


@pytest.mark.proof
def test_a_wire_that_breaks_while_a_poll_is_written_loses_and_doubles_nothing(
    postgres_url: str, story: Story, calm: dict[str, list[SqlRow]]
) -> None:
    polls = [story.poll(number) for number in range(len(story.entries))]
    known, broken = 0, list[tuple[str, str, str]]()
    with through(postgres_url) as (url, proxy), open_ledger(url) as ledger:
        ledger.record_polls(polls[:7])
        first = 7
        for kind, side, moment in WAYS:
            lot, before = polls[first : first + LOT], rows(postgres_url)
            first += LOT
            assert lot, "the story is too short"
            proxy._do(proxy._drop())  # a new connection says each statement in full
            already = len(proxy.struck)
            proxy._seen.clear()
            try:
                with planted(proxy, Fault(kind=kind, side=side, mark=moment)):
                    ledger.record_polls(lot)
            except LedgerError as told:
                is_said(told)
            else:
                assert len(proxy.struck) == already, f"nobody said that the wire broke: {kind, side, moment}"
                continue
            assert len(proxy.struck) == already + 1, (kind, side, moment)
            broken.append((kind, side, moment))
            proxy._do(proxy._drop())  # what hangs lets go of its locks
            if (side, moment) != (DOWN, "COMMIT"):
                assert rows(postgres_url) == before, (kind, side, moment)
            else:
                known += rows(postgres_url) != before
            ledger.record_polls(lot)
        ledger.record_polls(polls[first:])
    assert known, "no commit was ever done without its answer"
    assert len(broken) > len(WAYS) * 3 / 4, broken
    assert rows(postgres_url) == calm
    assert maintenance.check_ledger(postgres_url) == []


def state_of(url: str, id_: str) -> str:
    """As another program reads it."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other:
        found = other.execute("SELECT state FROM intent WHERE id = %s", [id_]).fetchone()
    return str(found[0]) if found else ""


@pytest.mark.parametrize(("kind", "side"), [(kind, side) for side in (UP, DOWN) for kind in KINDS])
def test_an_act_whose_commit_is_lost_is_not_sent_until_a_commit_is_known(postgres_url: str, kind: str, side: str) -> None:
    world, states = World(), list[str]()

    def obeys(world: World) -> ActionResponse:
        states.append(state_of(postgres_url, "one"))
        return world.stop_it()

    world.obeys = obeys
    with through(postgres_url) as (url, proxy), GuardStore(url, rails=Rails()) as book:
        epoch = book.acquire_leader_lease("me", START, 2 * MIN)
        assert epoch is not None
        one = intent(epoch=epoch)
        assert book.plan_intent(one)
        with planted(proxy, Fault(kind=kind, side=side, mark="COMMIT")):
            acted = send_action(one, world.hands, book, world, world.still, seconds=world.seconds)
        assert len(proxy.struck) == 1
        assert acted.broken
        assert "the ledger's server" in acted.broken
        assert (acted.sent, world.asked, states) == (False, [], [])
        proxy._do(proxy._drop())
        (left,) = book.load_open_intents()
        assert left.state == (EXECUTING if side == DOWN else READY)
        world.goes_by(MIN)
        assert book.acquire_leader_lease("me", world.now(), 2 * MIN) == epoch
        if left.state in DOUBTFUL_STATES:
            settled = settle_action(left, world.hands, book, world, world.still)
            assert settled.intent.state == READY, "it still runs, so nothing was done"
            assert world.asked == []
            left = settled.intent
        again = send_action(left, world.hands, book, world, world.still, seconds=world.seconds)
        assert again.sent, again
        world.goes_by(MIN)
        assert book.acquire_leader_lease("me", world.now(), 2 * MIN) == epoch
        done = confirm_action(again.intent, world.seen, book, world.still, absences=0, asked_at=world.now(), now=world.now())
        assert done.intent.state == DONE
    assert (len(world.asked), states) == (1, [EXECUTING])


@pytest.mark.parametrize("kind", ["cut", "reset", "hole", "garbage", "refused"])
def test_a_server_that_cannot_be_reached_is_said_in_time(postgres_url: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.ledger.db.connection.CONNECT_TIMEOUT_S", 2)
    open_ledger(postgres_url).close()
    with through(postgres_url) as (url, proxy):
        if kind == "refused":
            proxy.refuse()
        else:
            proxy.plan = [Fault(kind=kind, side=CONNECT, times=None)]
        with pytest.raises(LedgerError) as told:
            open_ledger(url)
        is_said(told.value)
        proxy.heal()
        open_ledger(url).close()


def test_a_reader_waits_for_no_answer_for_ever(postgres_url: str) -> None:
    from costguard.ledger.db.reader import LedgerReader

    open_ledger(postgres_url).close()
    with through(postgres_url) as (url, proxy), LedgerReader(url) as reader:
        hole = Fault(kind="hole", mark="ledger_state")
        with planted(proxy, hole), pytest.raises(LedgerError) as told, reader.snapshot() as ask:
            ask("SELECT * FROM ledger_state", ())
        assert f"no answer for {SOON_S:g} s" in str(told.value)
