"""Bad replies of providers, through the real adapters and the real command: each is told clearly, and nothing is believed gone.

Each reply of `corpus/replies.toml` is tried with every cloud, over HTTP on loopback, after a look at which all was well. What
cannot be read ends `status --strict` with 4 and names the account; an odd value costs its machine a price, and no other one.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine

from costguard.data import ShippedFacts
from costguard.ledger.db import maintenance
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.transport import Transport
from costguard.services.poll.poll import poll_sources
from tests.conftest import Command, Ran
from tests.contract.edits import machine_list, parsed, put, renamed, replaying, with_body
from tests.contract.rig import Rig
from tests.fakes.gcp import account_file
from tests.fakes.server import Answer, serving
from tests.inputs.cases import CORPUS, Case
from tests.inputs.judging import Snapshot, unclean
from tests.providers.aws.rig import AwsRig
from tests.providers.azure.rig import AzureRig
from tests.providers.coreweave.rig import CoreWeaveRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.scaleway.rig import ScalewayRig
from tests.providers.vast.rig import VastRig

RIGS: tuple[type[Rig], ...] = (AwsRig, AzureRig, CoreWeaveRig, GcpRig, LambdaRig, RunpodRig, ScalewayRig, VastRig)
NAMES = tuple(rig.provider for rig in RIGS)
MACHINES = 2
MOST_WARNINGS = 5
LONGEST_WARNING = 500
CHANGING = ((re.compile(r"127\.0\.0\.1:\d+"), "FAKE"), (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?"), "TIME"))
"""What differs from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One bad reply of one cloud."""

    case: Case
    rig: type[Rig]
    how: str
    code: int


def replies() -> Iterator[Reply]:
    """Every reply with every cloud that has such."""
    for group in tomllib.loads((CORPUS / "replies.toml").read_text())["group"]:
        for name, told, how in group["cases"]:
            for rig in RIGS:
                if rig.provider not in group.get("clouds", NAMES) or (how == "loop" and not rig.paged):
                    continue
                case = Case(group=rig.provider, name=name, told=told, names=(rig.provider,), arguments=("status", "--strict"))
                yield Reply(case=case, rig=rig, how=how, code=group["exit"])


REPLIES = list(replies())
SNAPSHOT = Snapshot("replies", [one.case for one in REPLIES])


@dataclass(slots=True)
class Cloud:
    """One cloud, served, and a ledger that saw it whole two minutes ago."""

    rig: Rig
    base: str
    ledger: Path
    ids: list[str]
    environ: dict[str, str] = field(default_factory=dict)


@pytest.fixture(autouse=True, scope="module")
def amid_a_month() -> Iterator[None]:
    """The clock goes on from a day amid a month of 30 days: on the first of one, two days back are in another."""
    with time_machine.travel(datetime(2026, 11, 21, 12, tzinfo=UTC)):
        yield


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Cloud]]:
    folder = tmp_path_factory.mktemp("clouds")
    with ExitStack() as stack:
        yield {rig.provider: _cloud(rig(), stack, folder / rig.provider) for rig in RIGS}


def _cloud(rig: Rig, stack: ExitStack, folder: Path) -> Cloud:
    folder.mkdir()
    base = stack.enter_context(serving(rig.fake))
    rig.clock.at = datetime.now(UTC) - timedelta(minutes=2)
    cloud = Cloud(rig=rig, base=base, ledger=folder / "ledger.db", ids=rig.put(MACHINES), environ=dict(rig.environ()))
    transport = Transport()
    with LedgerWriter(f"sqlite:///{cloud.ledger}", rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        done = poll_sources(rig.accounts(base, transport, folder), ledger, rig.clock)
    transport.close()
    assert (done.unseen, done.refused) == ((), ())
    if rig.provider == "gcp":
        key = folder / "key.json"
        key.write_text(account_file(base, "/token"))
        cloud.environ |= {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "NO_GCE_CHECK": "true"}
    return cloud


def _numbers(right: Answer) -> Answer:
    """A 5 in the place of every machine."""
    value = parsed(right)
    found = machine_list(value)
    if found is None:  # XML
        text = right.body.decode()
        return Answer(
            status=200, headers=right.headers, body=re.sub(r"<reservationSet>.*</reservationSet>", "5", text).encode()
        )
    return with_body(right, put(value, found[0], [5 for _ in found[1]]))


WAYS: Mapping[str, Callable[[], Callable[[Answer], Answer]]] = {
    "renamed": lambda: renamed,
    "numbers": lambda: _numbers,
    "loop": lambda: replaying(1),
}
VALUES: Mapping[str, Any] = {"nan": "NaN", "-1": -1, "1e9": 1e9, "text": "cheap", "-3": -3}


def _spoilt(cloud: Cloud, how: str, undo: ExitStack) -> None:
    """Let the listing be answered badly, until `undo` is closed."""
    kind, _, rest = how.partition(" ")
    rig = cloud.rig
    if kind in ("price", "gpu_count"):
        rig.spoil(cloud.ids[0], **{kind: VALUES[rest]})
    elif kind in WAYS:
        if kind == "loop":
            rig.page(1)
        rig.fake.fault(rig.lists, "edit", edit=WAYS[kind]())
    elif kind == "body":
        rig.fake.fault(rig.lists, "body", body=rest.encode())
    else:
        rig.fake.fault(rig.lists, kind, **({"status": int(rest)} if rest else {}))
    undo.callback(rig.fake.faults.clear)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("reply", [pytest.param(one, id=one.case.id) for one in REPLIES])
def test_a_bad_reply_is_told_and_nothing_is_believed_gone(  # noqa: PLR0917 - fixtures
    reply: Reply,
    clouds: Mapping[str, Cloud],
    costguard: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    kept = clouds[reply.rig.provider] if reply.code else _fresh(reply.rig, tmp_path, request)
    shutil.copy(kept.ledger, tmp_path / "ledger.db")
    _settings(kept, tmp_path, monkeypatch)
    with ExitStack() as undo:
        kept.rig.clock.at = datetime.now(UTC)
        _spoilt(kept, reply.how, undo)
        ran = costguard(*reply.case.arguments, "--json")
    assert ran.code == reply.code, ran
    warnings = [_masked(one, tmp_path) for one in ran.data["warnings"]]
    assert not list(unclean(ran.err + "\n".join(warnings))), ran
    assert len(warnings) <= MOST_WARNINGS
    assert all(len(one) <= LONGEST_WARNING for one in warnings)
    assert _running(ran) == MACHINES
    assert maintenance.check_ledger(f"sqlite:///{tmp_path}/ledger.db") == []
    if reply.code:
        assert any(one.startswith(f"{reply.rig.provider}/") for one in warnings)
        assert {scope["state"] for scope in ran.data["scopes"]} & {"failed", "partial"}
    text = "".join(f"{one}\n" for one in (f"exit {ran.code}", *warnings, *sorted(map(_priced, ran.data["resources"]))))
    if request.config.getoption("--write-golden"):
        SNAPSHOT.freeze(reply.case, text)
    assert SNAPSHOT.frozen().get(reply.case.id) == text


def test_the_corpus_holds_fifty_replies_and_is_frozen_whole() -> None:
    assert len({one.case.id for one in REPLIES}) == len(REPLIES) >= 50
    assert set(SNAPSHOT.frozen()) == {one.case.id for one in REPLIES}


def _fresh(rig: type[Rig], tmp_path: Path, request: pytest.FixtureRequest) -> Cloud:
    """A cloud of its own, where what is spoilt stays so."""
    stack = ExitStack()
    request.addfinalizer(stack.close)
    return _cloud(rig(), stack, tmp_path / "cloud")


def _settings(cloud: Cloud, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**cloud.rig.table(cloud.base), "timeout_s": 20}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in table.items()]
    text = f'[ledger]\nurl = "sqlite:///ledger.db"\n[providers.{cloud.rig.provider}]\n{"".join(lines)}'
    (folder / "costguard.toml").write_text(text)
    monkeypatch.setenv("HOME", str(folder / "home"))
    for name, value in cloud.environ.items():
        monkeypatch.setenv(name, value)


def _running(ran: Ran) -> int:
    return sum(one["kind"] == "instance" and one["state"] == "running" for one in ran.data["resources"])


def _priced(resource: Mapping[str, Any]) -> str:
    return f"{resource['kind']} {resource['state']} {resource['gpu_count']}x{resource['gpu']} {resource['usd_per_hour']}"


def _masked(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER")
    for looks, instead in CHANGING:
        text = looks.sub(instead, text)
    return text
