"""Whatever anybody makes of valid beats without the key, in whatever order: nothing changes but by the first copy of each."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings

from costguard.agents.messages import MessageRefusedError
from costguard.services.serving.agent_gateway import AgentEnvelope
from tests.web.desks import NOON, SECRET, Rig, S, beat, envelope, keys, ledger_at, record, rig

ONE, TWO = keys()
OTHER = bytes(range(1, 33))
COUNT = 6


@contextmanager
def two_agents() -> Iterator[tuple[Rig, str, str]]:
    with tempfile.TemporaryDirectory() as folder, rig(ledger_at(Path(folder))) as desk:
        yield desk, desk.joined(ONE), desk.joined(TWO, secret=OTHER, code="22222222")


def valid(agent: str, secret: bytes, number: int) -> AgentEnvelope:
    """Beat `number` of an agent, a quarter of a minute after the one before it."""
    at = NOON + 15 * S * number
    ask = [{"id": f"ask-{number}", "what": "busy", "for_s": 60.0 * number}] if number % 3 == 0 else []
    return envelope(agent, number, at, beat(record(at, gpu_util=float(number)), ask=ask), secret=secret)


def spoiled(message: AgentEnvelope, how: str, chance: random.Random) -> AgentEnvelope:
    """`message` as one makes it who has no key."""
    body = message.body
    at, bit, cut = chance.randrange(len(body)), 1 << chance.randrange(8), chance.randrange(len(body))
    idle = json.loads(body)
    idle["records"][0]["signals"]["gpu_util"] = 0.0
    return {
        "bit": message._replace(body=body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]),
        "cut": message._replace(body=body[:cut]),
        "longer": message._replace(body=body + b" "),
        "seq": message._replace(seq=str(int(message.seq) + chance.choice((-1, 1, 1000)))),
        "at": message._replace(at=str(int(message.at) + chance.choice((-1, 1, 10**6)))),
        "signature": message._replace(signature=message.signature[::-1]),
        "unsigned": message._replace(signature=""),
        "idle": message._replace(body=json.dumps(idle).encode()),
        "method": message._replace(method="PUT"),
    }[how]


HOW = ("bit", "cut", "longer", "seq", "at", "signature", "unsigned", "idle", "method")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("send", "spoil", "foreign", "stale")), st.integers(1, COUNT), st.sampled_from(HOW), st.integers(0, 99)
    ),
    min_size=1,
    max_size=24,
)


@settings(max_examples=int(os.environ.get("COSTGUARD_FUZZ", "0")) // 100 or 5)
@given(STEPS)
def test_no_forged_replayed_reordered_stale_or_foreign_message_changes_anything(steps: list[tuple[str, int, str, int]]) -> None:
    """The state, compared whole, is that after the valid messages alone, each once and in rising order."""
    with two_agents() as (desk, one, two):
        highest, taken = 0, []
        for kind, number, how, seed in steps:
            chance = random.Random(seed)  # noqa: S311 - it spoils, and keeps no secret
            message = valid(one, SECRET, number)
            desk.clock.advance_to(max(desk.clock.now(), NOON + 15 * S * number))
            before = desk.state()
            if kind == "spoil":
                message = spoiled(message, how, chance)
            elif kind == "foreign":
                message = message._replace(agent=two, path=message.path.replace(one, two))
            elif kind == "stale":
                message = envelope(one, number, desk.clock.now() - timedelta(seconds=chance.choice((-500, 121, 10**6))), beat())
            try:
                desk.send(message)
            except MessageRefusedError:
                assert desk.state() == before
            else:
                assert (kind, number > highest) == ("send", True), (kind, how, number, highest)
                highest = number
                taken.append((number, desk.clock.now()))
        with two_agents() as (fresh, name, _):
            for number, at in taken:
                fresh.clock.advance_to(at)
                fresh.send(valid(name, SECRET, number))
            assert told(fresh, name) == told(desk, one)


def told(desk: Rig, name: str) -> object:
    """What the ledger holds of an agent, but for its name, which chance gave."""
    agent = desk.agent(name)
    return agent.seq, agent.record_ms, agent.beat_at, desk.samples(ONE), desk.samples(TWO)
