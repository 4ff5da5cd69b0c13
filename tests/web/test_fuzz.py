"""Schemathesis against the application's own description: whatever is sent, nothing breaks and every answer is as described.

COSTGUARD_FUZZ=100000 is the campaign; the usual number is small.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from costguard_agent.protocol import BEATS_PATH

from costguard.agents.messages import MessageRefusedError
from costguard.web import middleware, routes
from tests.web.desks import NOON, Rig, beat, envelope, keys, ledger_at, record, rig
from tests.web.stations import Station, station

EXAMPLES = int(os.environ.get("COSTGUARD_FUZZ", "0")) or 60
BODIES = max(EXAMPLES, 300)
WORDS: list[Any] = [
    None, True, -1, 0, 1e308, 2**70, "", "x" * 500, "\x00", "\ud800", [], {}, [[[]]], {"a": {}}, "gpu_util", 1795219215000,
]  # fmt: skip


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A watchdog that lets one address ask as often as it likes."""
    patch = pytest.MonkeyPatch()
    for module, names in (
        (middleware, ("PER_ADDRESS", "BURST")),
        (routes, ("BAD_PER_ADDRESS", "BAD_BURST", "JOINS_OF_CODE", "JOINS_BURST")),
    ):
        for name in names:
            patch.setattr(module, name, 1e9)
    with station(tmp_path_factory.mktemp("fuzz")) as made:
        made.room.run_guard()
        yield made
    patch.undo()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agents/hello"),
        ("POST", "/v1/agents/join"),
        ("POST", "/v1/agents/{agent}/beats"),
        ("GET", "/v1/status"),
        ("GET", "/healthz"),
    ],
)
def test_every_answer_is_one_that_is_described(described: Station, method: str, path: str) -> None:
    described.room.run_guard()  # in a long campaign its health would be late, which is 503
    document = described.ask("GET", "/openapi.json").data
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://{described.at.shown}")
    checks = [schemathesis.checks.not_a_server_error]

    @hypothesis.settings(max_examples=max(5, EXAMPLES // 4), deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=schema[path][method].as_strategy())
    def run(case: Any) -> None:  # noqa: ANN401 - schemathesis' own
        case.validate_response(case.call(), checks=checks) if path == "/healthz" else case.call_and_validate()

    run()


def mutated(value: Any, chance: random.Random) -> Any:  # noqa: ANN401 - JSON
    """`value` with something in it that does not belong there."""
    if chance.random() < 0.15:
        return chance.choice(WORDS)
    if isinstance(value, dict):
        made = {key: mutated(one, chance) for key, one in value.items() if chance.random() > 0.05}
        if chance.random() < 0.1:
            made[str(chance.choice(WORDS))] = chance.choice(WORDS)
        return made
    if isinstance(value, list):
        return [mutated(one, chance) for one in value] * chance.choice((1, 1, 1, 2, 30))
    return value


def test_bodies_that_an_agent_signed_are_taken_or_refused_by_name_and_nothing_breaks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """An agent that somebody took over signs what it likes: no body of its breaks the desk."""
    chance, names = random.Random(9), dict[str, int]()  # noqa: S311 - the same bodies in every run
    with rig(ledger_at(tmp_path_factory.mktemp("bodies"))) as desk:
        agent = desk.joined(keys()[0])
        for number in range(1, BODIES + 1):
            ask = {"id": "a", "what": "busy", "name": "x", "for_s": 60, "why": "y"}
            said = beat(record(NOON, cpu_util=1.0), troubles=["no GPU"], dropped=0, ask=[ask])
            body = json.dumps(mutated(said, chance)).encode()
            if chance.random() < 0.2:
                at = chance.randrange(len(body) + 1)
                body = body[:at] + chance.randbytes(chance.randrange(5)) + body[at + chance.randrange(9) :]
            name = outcome(desk, agent, number, body)
            names[name] = names.get(name, 0) + 1
        assert set(names) <= {"", "malformed", "too_large"}
        assert names.get("", 0) > 0
        assert names.get("malformed", 0) > 0
        assert desk.commits.broke == ""


def outcome(desk: Rig, agent: str, number: int, body: bytes) -> str:
    """By what name a signed body is refused; "" where it is taken."""
    try:
        desk.send(envelope(agent, number, NOON, body, path=BEATS_PATH.format(agent)))
    except MessageRefusedError as refused:
        return refused.name
    return ""
