"""One sample of what `costguard agent` and `costguard web` print as JSON, to the letter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from costguard_agent.protocol import compute_fingerprint, decode_base64, encode_base64

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.services.serving import agent_commands
from costguard.services.serving.agent_enrolment import hash_code
from costguard.services.serving.login_key import LoginKey
from costguard.values.agent import Agent
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.web.signing import open_seal
from tests.conftest import Command

HERE = Path(__file__).parent
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SCOPE, KEY = ScopeKey("aws", "123456789012", "us-east-1"), ResourceKey("aws", "123456789012", "us-east-1", "i-0a1b")
WEB = {
    "enrol": ("agent", "enrol", "train-1"),
    "agents": ("agent", "list"),
    "tokens": ("web", "token", "grafana", "--for", "90d"),
}
CODE, TOKEN = "Q7KM-2RXD-9VTP-HW4C", "cg_4vZ"


@pytest.fixture
def machine(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A machine that runs, and the agent of another run of it."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{url}"\n[web]\nurl = "https://guard.example"\n')
    seen = Observation(key=KEY, state="running", name="train-1", started_at=NOON - timedelta(hours=3))
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=NOON - timedelta(minutes=1), inventory=Complete(items=(seen,)))])
    (tmp_path / "ledger.db.web-key").touch(0o600)
    (tmp_path / "ledger.db.web-key").write_text(encode_base64(bytes(32)))
    monkeypatch.setattr(agent_commands, "compute_agent_digest", lambda: "ab" * 32)
    for name, value in (("get_now", NOON), ("describe_user", "ada@lab"), ("make_code", CODE)):
        monkeypatch.setattr(agent_commands, name, lambda value=value: value)
    monkeypatch.setattr(LoginKey, "make_secret", lambda *_, **__: TOKEN)
    return costguard


@pytest.mark.parametrize("name", WEB)
def test_the_json_is_the_sample_to_the_letter(
    machine: Command, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    if name == "agents":
        assert machine("agent", "enrol", "train-1").code == 0
        with AgentStore(f"sqlite:///{tmp_path}/ledger.db") as book:
            joined = Agent(id="a1b2c3d4e5f60718", key=KEY, public_key="A" * 43 + "=", joined_at=NOON, version="0.1.0")
            assert isinstance(book.join(hash_code(CODE), joined), Agent)
    ran = machine(*WEB[name], "--json")
    assert ran.code == 0, ran.err
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(ran.out)
    assert ran.out == sample.read_text()


def test_a_code_is_shown_with_the_line_for_the_machine(machine: Command) -> None:
    ran = machine("agent", "enrol", "train-1")
    assert ran.code == 0
    assert f"echo {CODE}.COPD-SQHG-JNKJ-C4RA-RDM2 | python3 costguard-agent.pyz join https://guard.example -" in ran.out
    assert f"in {'ab' * 32}*) ;; *) echo" in ran.out
    assert "was created" not in ran.out


def test_a_key_that_is_missing_is_created_as_the_watchdog_does_and_said(machine: Command, tmp_path: Path) -> None:
    key = tmp_path / "ledger.db.web-key"
    key.unlink()
    ran = machine("agent", "enrol", "train-1")
    assert f"key was created in {key}" in ran.out
    assert key.stat().st_mode & 0o777 == 0o600
    assert compute_fingerprint(decode_base64(open_seal(key).public_key) or b"") in ran.out


def test_tokens_are_made_listed_and_revoked_and_one_is_shown_once(machine: Command) -> None:
    assert TOKEN in machine("web", "token", "grafana").out
    machine("web", "token", "grafana").says("already has a token", "costguard web revoke grafana")
    assert TOKEN not in machine("web", "tokens").out
    assert machine("web", "revoke", "grafana").code == 0
    assert "revoked" in machine("web", "tokens").out
    machine("web", "revoke", "grafana").says("has no token")
    machine("web", "tokens", "--for", "1d").says("--for: is not used by costguard web tokens", "costguard web token --for")


def test_enrolling_says_what_is_missing(machine: Command, tmp_path: Path) -> None:
    machine("agent", "enrol", "train-9").says("no machine has the name 'train-9'")
    machine("agent", "enrol").says("Missing argument", "costguard agent enrol --help")
    machine("agent", "list", "--through-restarts").says(
        "is not used by costguard agent list", "costguard agent enrol --through-restarts"
    )
    machine("agent", "revoke", "train-1").says("has no agent")
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n')
    machine("agent", "enrol", "train-1").says("web.listen", "127.0.0.1:8470")
