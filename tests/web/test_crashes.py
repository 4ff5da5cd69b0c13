"""A watchdog that dies around a commit, and two of them on one ledger: each message counts once, and each code."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from costguard.agents.messages import MessageRefusedError
from costguard.ledger.agents.store import AgentStore, AgentTransaction
from costguard.services.serving.agent_gateway import AgentEnvelope
from costguard.values.agent import Agent
from tests.processes import BESIDE
from tests.web.desks import MIN, NOON, Rig, S, beat, envelope, keys, ledger_at, record, rig

ONE, _ = keys()
BEFORE, AFTER = "before", "after"


class Mortal(AgentStore):
    """A book whose process dies by SIGKILL around a commit."""

    when = BEFORE

    @contextmanager
    def begin_transaction(self) -> Iterator[AgentTransaction]:
        """As the real one, up to the end."""
        with super().begin_transaction() as page:
            yield page
            if self.when == BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def join(self, code_hash: str, made: Agent) -> Agent | str:
        """As the real one, and then nothing more."""
        joined = super().join(code_hash, made)
        os.kill(os.getpid(), signal.SIGKILL)
        return joined


def message(agent: str, seq: int) -> AgentEnvelope:
    """Four records of a quarter of a minute, and a wish."""
    lines = [record(NOON + 15 * S * k, gpu_util=10.0 * k) for k in range(1, 5)]
    return envelope(agent, seq, NOON + MIN, beat(*lines, ask=[{"id": "a", "what": "busy", "for_s": 600}]))


def die_taking(url: str, agent: str, when: str) -> None:
    """A watchdog that takes one message and dies."""
    with rig(url) as desk:
        desk.clock.advance(MIN)
        mortal = Mortal(url)
        mortal.when = when
        desk.commits.book = mortal
        desk.send(message(agent, 1))


def die_joining(url: str) -> None:
    """A watchdog that lets an agent join and dies before it can say so."""
    with rig(url) as desk:
        desk.guarded.book = Mortal(url)
        desk.join()


def died(target: object, *arguments: str) -> None:
    process = BESIDE.Process(target=target, args=arguments)  # type: ignore[arg-type]
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_message_whose_answer_was_lost_counts_once(tmp_path: Path, when: str) -> None:
    url = ledger_at(tmp_path)
    with rig(url) as desk:
        agent = desk.joined(ONE)
    died(die_taking, url, agent, when)
    with rig(url) as desk:
        desk.clock.advance(MIN)
        assert desk.agent(agent).seq == (1 if when == AFTER else 0)
        if when == AFTER:
            with pytest.raises(MessageRefusedError, match="replayed"):
                desk.send(message(agent, 1))
        assert desk.send(message(agent, 2))["asked"] == {"a": ""}
        found = [(one.signal, one.at, one.value) for one in desk.samples(ONE)]
        assert found == [("gpu_util", NOON + MIN, 25.0)]
        with desk.book.begin_transaction() as page:
            assert len(page.load_overrides_since(NOON - MIN)) == 1


def test_a_code_whose_answer_was_lost_lets_the_same_agent_in_and_no_other(tmp_path: Path) -> None:
    url = ledger_at(tmp_path)
    with rig(url) as desk:
        desk.enrol(ONE)
    died(die_joining, url)
    with rig(url) as desk:
        (there,) = desk.book.load_agents()
        with pytest.raises(MessageRefusedError, match="used_code"):
            desk.join(secret=bytes(32))
        assert desk.join() == there.id
        assert desk.send(envelope(there.id, 1, NOON, beat()))["seq"] == 1


def test_two_watchdogs_on_one_ledger_take_each_message_once(tmp_path: Path) -> None:
    url = ledger_at(tmp_path)
    with ExitStack() as stack:
        one, two = stack.enter_context(rig(url)), stack.enter_context(rig(url))
        one.enrol(ONE)
        agent = one.join()
        taken = [outcome(desk, agent, number) for number in range(1, 9) for desk in (one, two)]
        assert taken == ["", "replayed"] * 8
        two.book.revoke(agent, who="ada", now=NOON)
        assert [outcome(desk, agent, 20) for desk in (one, two)] == ["revoked", "revoked"]


def outcome(desk: Rig, agent: str, number: int) -> str:
    """By what name a message is refused; "" where it is taken."""
    try:
        desk.send(envelope(agent, number, NOON, beat()))
    except MessageRefusedError as refused:
        return refused.name
    return ""
