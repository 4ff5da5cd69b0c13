"""Who may enrol an agent: the watchdog whose key the code names, and nobody who took its port or stands in between."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from costguard_agent import enrollment as joining
from costguard_agent import protocol
from costguard_agent.diagnostics import AgentError
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.agent.watchdog import CODE, KEY, Asked, Watchdog

FINGERPRINT = CODE.partition(".")[2]


@pytest.fixture
def impostor() -> Iterator[Watchdog]:
    """A program that answers as a watchdog does, with a key of its own."""
    made = Watchdog()
    made.key = Ed25519PrivateKey.generate()
    yield made
    made.close()


def join(folder: Path, dog: Watchdog, code: str = CODE) -> joining.Enrollment:
    return joining.join_watchdog(folder / "agent", dog.url, code)


def test_another_key_than_the_codes_is_refused_before_anything_is_sent(tmp_path: Path, impostor: Watchdog) -> None:
    with pytest.raises(AgentError, match="has a different key from the watchdog that made the code: nothing was sent to it"):
        join(tmp_path, impostor)
    assert [path.partition("?")[0] for path in impostor.paths] == [protocol.HELLO_PATH]
    assert not list((tmp_path / "agent").iterdir()), "nothing was stored"


def test_one_who_states_the_right_key_and_lacks_it_is_refused(tmp_path: Path, impostor: Watchdog) -> None:
    right = base64.b64encode(KEY.public_key().public_bytes_raw()).decode()

    def lie(asked: Asked) -> None:
        body = json.dumps({"guard_key": right}).encode()
        asked.send(200, body, {protocol.SIGNATURE_HEADER: base64.b64encode(bytes(64)).decode()})

    impostor.misbehave = lie
    with pytest.raises(AgentError, match="cannot prove that it has the watchdog's key: nothing was sent"):
        join(tmp_path, impostor)


def test_a_proof_that_was_heard_before_is_none(tmp_path: Path, impostor: Watchdog) -> None:
    """The nonce is another in each join."""
    nonce, impostor.key = "A" * 32, KEY

    def replay(asked: Asked) -> None:
        asked.path = f"{protocol.HELLO_PATH}?nonce={nonce}"
        asked.hello()

    impostor.misbehave = replay
    with pytest.raises(AgentError, match="cannot prove that it has the watchdog's key"):
        join(tmp_path, impostor)


def test_an_answer_that_was_changed_on_the_way_is_not_stored(tmp_path: Path, impostor: Watchdog) -> None:
    """One in between passes the challenge on, and answers the join itself."""
    impostor.key = KEY

    def between(asked: Asked) -> None:
        if asked.command == "GET":
            asked.hello()
            return
        assert b"CODE1" not in asked.body.upper().replace(b"-", b""), "the code does not leave the machine"
        said = {"agent": "mine", "guard_key": asked.guard_key(), "every_s": 300, "name": "x"}
        asked.send(200, json.dumps(said).encode(), {protocol.SIGNATURE_HEADER: base64.b64encode(bytes(64)).decode()})

    impostor.misbehave = between
    with pytest.raises(AgentError, match="is not signed by the watchdog's key: nothing was stored"):
        join(tmp_path, impostor)
    assert not (tmp_path / "agent" / "config.json").exists()


def test_an_older_watchdog_or_another_server_is_named(tmp_path: Path, impostor: Watchdog) -> None:
    impostor.misbehave = lambda asked: asked.refuse(404, "not_found")
    with pytest.raises(AgentError, match="no costguard watchdog, or one older than this agent"):
        join(tmp_path, impostor)


@pytest.mark.parametrize("code", ["Q7KM-2RXD-9VTP-HW4C", f".{FINGERPRINT}", "code-1.ABCD", "code-1."])
def test_a_code_that_names_no_key_is_refused_with_what_to_do(tmp_path: Path, impostor: Watchdog, code: str) -> None:
    with pytest.raises(AgentError, match=r"does not name the key of its watchdog.*costguard agent enrol"):
        join(tmp_path, impostor, code)
    assert impostor.paths == []
