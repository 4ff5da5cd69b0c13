"""The real command against five fake clouds at once, one of them broken in turn: the other four whole, the broken one named.

Every provider is asked over real HTTP on loopback by a `costguard` of its own process, as somebody would run it (where all are
whole, from a cold start). Nothing that the broken one held is believed gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.db import maintenance
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Transport
from costguard.services.poll.poll import poll_sources
from tests import warm
from tests.contract.rig import Rig
from tests.fakes.gcp import account_file
from tests.fakes.server import serving
from tests.fakes.vast import FakeVast
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

RIGS = (AwsRig, GcpRig, LambdaRig, RunpodRig, VastRig)
NAMES = tuple(rig.provider for rig in RIGS)
MACHINES = 2
BROKEN: Mapping[str, Mapping[str, Any]] = {
    "aws": {"kind": "status", "status": 500},
    "gcp": {"kind": "html", "status": 403},
    "lambda": {"kind": "reset"},
    "runpod": {"kind": "status", "status": 401, "body": b'{"error": "unauthorized"}'},
    "vast": {"kind": "drip", "seconds": 30},
}
"""How each cloud breaks: its own failure, a firewall's page, no answer at all, a key it does not know, a byte at a time."""
ASK: Mapping[str, Any] = {
    "id": 7,
    "gpu_name": "RTX 4090",
    "num_gpus": 1,
    "gpu_ram": 24564,
    "dph_base": 0.4,
    "dph_total": 0.41,
    "verification": "verified",
    "geolocation": "Sweden, SE",
    "machine_id": 7,
    "hosting_type": 1,
}
"""What one of Vast's hosts offers: the other fakes have a catalogue of their own."""
SLOW_S: Mapping[str, int] = {"vast": 10}
"""`timeout_s` of the one that drips, so that it does not take a minute."""
LONGEST_S = 300


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    data: dict[str, Any]
    text: str

    def offers_of(self) -> set[str]:
        return {offer["provider"] for offer in self.data["offers"] if offer["live"]}


@dataclass
class Five:
    """The five fakes, served, and a ledger that saw them all two minutes ago."""

    folder: Path
    rigs: dict[str, Rig]
    environ: dict[str, str]
    number: int = 0
    bases: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> str:
        return f"sqlite:///{self.folder}/ledger.db"

    def run(self, *commands: tuple[str, ...], cold: bool = False) -> list[Ran]:
        """`costguard` with each of `commands`, all at the same time, the ledger as it was after the first look.

        `cold`: each starts from nothing.
        """
        now = datetime.now(UTC)
        for rig in self.rigs.values():
            rig.clock.at = now
        words = [(*command, "--json") for command in commands]
        environs = [{**self.environ, "COSTGUARD_LEDGER__URL": self._copy()} for _ in commands]
        if not cold:
            ended = warm.run(*words, cwd=self.folder, environs=environs, limit_s=LONGEST_S)
            return [_ran(one.returncode, one.stdout, one.stderr) for one in ended]
        started = [self._started(*one) for one in zip(words, environs, strict=True)]
        said = [process.communicate(timeout=LONGEST_S) for process in started]
        return [_ran(process.returncode, *texts) for process, texts in zip(started, said, strict=True)]

    def _copy(self) -> str:
        self.number += 1
        kept = self.folder / f"{self.number}.db"
        maintenance.backup_ledger(self.ledger, kept)
        return f"sqlite:///{kept}"

    def _started(self, words: tuple[str, ...], environ: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "costguard", *words]
        return subprocess.Popen(command, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _ran(code: int, out: bytes, err: bytes) -> Ran:
    assert out, err.decode()
    return Ran(code=code, data=json.loads(out), text=(out + err).decode())


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Five]:
    folder = tmp_path_factory.mktemp("five")
    made = Five(folder=folder, rigs={rig.provider: rig() for rig in RIGS}, environ=_environ(folder))
    with ExitStack() as stack:
        for name, rig in made.rigs.items():
            made.bases[name] = stack.enter_context(serving(rig.fake))
            made.environ |= rig.environ()
        (folder / "home").mkdir(exist_ok=True)
        key = folder / "home" / "key.json"
        key.write_text(account_file(made.bases["gcp"], "/token"))
        made.environ |= {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "NO_GCE_CHECK": "true"}
        (folder / "costguard.toml").write_text("".join(_section(name, made) for name in NAMES))
        _first_look(made)
        yield made


def _environ(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    dirs = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    path = os.pathsep.join(str(Path(__file__).parents[2] / room) for room in (".", "providers"))
    return {**kept, **dirs, "HOME": str(folder / "home"), "PYTHONPATH": path}


def _section(name: str, five: Five) -> str:
    table = {**five.rigs[name].table(five.bases[name]), "timeout_s": SLOW_S.get(name, 40)}
    return "".join((f"[providers.{name}]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in table.items())))


def _first_look(five: Five) -> None:
    """All five seen whole two minutes ago: long enough that the command looks again."""
    vast = five.rigs["vast"].fake
    assert isinstance(vast, FakeVast)
    vast.asks = [dict(ASK)]
    rules, transport = ShippedFacts().get_billing_rules(), Transport()
    sources = list[InstanceSource]()
    before = datetime.now(UTC) - timedelta(minutes=2)
    for name, rig in five.rigs.items():
        rig.clock.at = before
        rig.put(MACHINES)
        sources += rig.accounts(five.bases[name], transport, five.folder)
    with LedgerWriter(five.ledger, rules=rules, ceilings={}) as ledger:
        done = poll_sources(sources, ledger, next(iter(five.rigs.values())).clock)
    transport.close()
    assert (done.unseen, done.refused) == ((), ())


@pytest.fixture(params=NAMES)
def broken(five: Five, request: pytest.FixtureRequest) -> Iterator[str]:
    fake = five.rigs[request.param].fake
    fake.fault(".", **BROKEN[request.param])
    yield request.param
    fake.faults.clear()


COMMANDS = (("doctor",), ("status", "--strict"), ("offers", "--live", "--strict", "--top", "0"))


def test_all_five_are_whole(five: Five) -> None:
    doctor, status, offers = five.run(*COMMANDS[:2], ("offers", "--live", "--top", "0"), cold=True)
    bad = [(p["provider"], c) for p in doctor.data["providers"] for c in p["checks"] if c["outcome"] == "bad"]
    assert (doctor.code, bad) == (0, []), doctor.text
    assert {p["provider"] for p in doctor.data["providers"]} == set(NAMES)
    assert status.code == 0, status.text
    assert running(status) == dict.fromkeys(NAMES, MACHINES)
    assert offers.code == 0, offers.text
    assert offers.offers_of() == set(NAMES)


@pytest.mark.proof
def test_one_that_breaks_is_named_the_others_are_whole_and_nothing_is_believed_gone(five: Five, broken: str) -> None:
    doctor, status, offers = five.run(*COMMANDS)
    others = set(NAMES) - {broken}
    bad = {p["provider"] for p in doctor.data["providers"] if any(c["outcome"] == "bad" for c in p["checks"])}
    assert (doctor.code, bad) == (3, {broken}), doctor.text
    assert status.code == 4, status.text
    states = {(s["provider"], s["state"]) for s in status.data["scopes"]}
    assert states == {*((name, "complete") for name in others), (broken, "failed")}
    assert running(status) == dict.fromkeys(NAMES, MACHINES)
    assert any(warning.startswith(f"{broken}/") for warning in status.data["warnings"])
    assert offers.code == 4, offers.text
    assert offers.offers_of() - {broken} == others  # a price list that was kept may still tell of the broken one
    assert any(f"{broken}: " in warning for warning in offers.data["warnings"])


def test_no_key_is_in_anything_that_was_printed(five: Five) -> None:
    five.rigs["runpod"].fake.fault(".", kind="status", status=401, body=five.rigs["runpod"].secret.encode())
    try:
        texts = [ran.text for ran in five.run(*COMMANDS)]
    finally:
        five.rigs["runpod"].fake.faults.clear()
    for rig in five.rigs.values():
        for secret in (rig.secret, *getattr(rig, "more_secrets", ())):
            assert not any(secret in text for text in texts), secret


def running(status: Ran) -> dict[str, int]:
    """Provider -> how many of its machines are believed to run."""
    found = [r["provider"] for r in status.data["resources"] if r["kind"] == "instance" and r["state"] == "running"]
    return {name: found.count(name) for name in NAMES}
