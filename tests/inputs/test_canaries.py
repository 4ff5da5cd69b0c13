"""No secret in any byte that costguard produces (RELIABILITY M10, H40).

Real commands in processes of their own, against five fake clouds, two channels and a heartbeat on loopback, each with a canary
for its key; all is well at first, then everything goes wrong that could make a program say too much. Whatever they print or
write is searched.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from tests import warm
from tests.contract.rig import Rig
from tests.fakes.gcp import account_file
from tests.fakes.server import serving
from tests.inputs.canaries import Search, forms
from tests.inputs.test_bad_replies import RIGS
from tests.providers.transport.wires import Told

HOOK, CHAT, DEAD, SIGNING = "canaryHook7Qm2Zx9Lp", "canaryChat4vT8wB3nYc", "canaryDead5kR1sD6fGh", "canarySign9jH2gF4dSa"
HEARTBEAT, PASSWORD, PROXY = "canaryBeat3zX5cV7bNm", "canary+Pass/8pL1=oK2", "canaryProxy6tY4uI8oP"
LONGEST_S = 300
SETTINGS = """
[ledger]
url = "sqlite:///ledger.db"
[watch]
interval = "1s"
heartbeat_url = "env:HEARTBEAT_URL"
[notify]
signed_with = "env:SIGNING_SECRET"
[[notify.route]]
to = ["env:HOOK_URL", "env:CHAT_URL", "env:DEAD_URL", "console"]
[[policy]]
name = "old"
arm = "notify"
when = 'power == "running"'
then = [{ do = "notify" }]
[[budget]]
name = "all"
cap = "1 USD"
"""
PLUGIN = """
import os
KEYS = " ".join(os.environ[name] for name in ("RUNPOD_API_KEY", "VAST_API_KEY", "SIGNING_SECRET") if name in os.environ)
HOW = os.environ.get("BAD_PLUGIN", "")
if HOW == "import": raise RuntimeError("with " + KEYS)
from datetime import UTC, datetime
from costguard.values.resource import ScopeKey
from costguard.values.provider import ProviderManifest
class Account:
    providers = ("bad",)
    def list_scopes(self):
        if HOW == "scopes": raise RuntimeError(KEYS)
        return [ScopeKey("bad", "lab", "here")]
    def poll(self, scope):
        raise RuntimeError("with " + KEYS)
class Plugin:
    manifest = ProviderManifest(name="bad", title="A cloud", credentials=(), abilities={})
    def open(self, table, around):
        if HOW == "open": raise RuntimeError(KEYS)
        return [Account()]
bad = Plugin()
"""


@dataclass
class Place:
    """A folder with settings for the five fakes, and all that was printed in it."""

    folder: Path
    rigs: list[Rig]
    environ: dict[str, str]
    bases: dict[str, str]
    canaries: dict[str, str]
    printed: list[tuple[str, bytes]] = field(default_factory=list)

    def run(self, *words: str, settings: str = "", cold: bool = False, **environ: str) -> int:
        """The exit code of `costguard` with these words; all that it prints is kept. `cold`: it starts from nothing."""
        if settings:
            (self.folder / "other.toml").write_text(settings)
            words = ("--config", "other.toml", *words)
        for rig in self.rigs:
            rig.clock.at = datetime.now(UTC)
        around = {**self.environ, **environ}
        if cold:
            typed = [sys.executable, "-m", "costguard", *words]
            done = subprocess.run(typed, cwd=self.folder, env=around, capture_output=True, timeout=LONGEST_S, check=False)
        else:
            (done,) = warm.run(words, cwd=self.folder, environs=[around], limit_s=LONGEST_S)
        self.printed.append((" ".join(words), done.stdout + b"\0" + done.stderr))
        return done.returncode

    def leaks(self, search: Search) -> list[str]:
        """Where a canary stands that should not: `what was run: which`. Of what was printed, what was not searched before."""
        printed = [f"{words}: {name}" for words, data in self.printed for name in search.found(data)]
        self.printed.clear()
        kept = frozenset(self.folder / "home" / name for name in ("key.json", "authority.pem"))
        return [*printed, *search.found_below(self.folder, but=kept)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("canaries")
    (folder / "home").mkdir()
    rigs = [rig() for rig in RIGS]
    told = Told()
    with ExitStack() as stack:
        bases = {rig.provider: stack.enter_context(serving(rig.fake)) for rig in rigs}
        told_at = stack.enter_context(serving(told))
        for rig in rigs:
            rig.clock.at = datetime.now(UTC)
            rig.put(1)
        key = folder / "home" / "key.json"
        key.write_text(account_file(bases["gcp"], "/token"))
        made = Place(
            folder=folder, rigs=rigs, environ=_environ(folder, rigs, told_at), bases=bases, canaries=_canaries(rigs, key)
        )
        (folder / "costguard.toml").write_text(SETTINGS + _providers(made))
        _plugin(folder)
        yield made


def _environ(folder: Path, rigs: list[Rig], told: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    path = os.pathsep.join((str(folder), *(str(Path(__file__).parents[2] / room) for room in (".", "providers"))))
    keys = {name: value for rig in rigs for name, value in rig.environ().items()}
    addresses = {
        "HOOK_URL": f"{told}/{HOOK}",
        "CHAT_URL": f"{told.replace('http', 'json')}/{CHAT}",
        "DEAD_URL": f"http://127.0.0.1:9/{DEAD}?token={DEAD}",
        "HEARTBEAT_URL": f"{told}/{HEARTBEAT}",
        "SIGNING_SECRET": SIGNING,
        "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "home" / "key.json"),
        "NO_GCE_CHECK": "true",
    }
    dirs = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    return {**kept, **keys, **addresses, **dirs, "HOME": str(folder / "home"), "PYTHONPATH": path}


def _canaries(rigs: list[Rig], key: Path) -> dict[str, str]:
    """Every secret there is, by what it is for. Of Google's private key a line of its middle."""
    clouds = {f"{rig.provider} {number}": one for rig in rigs for number, one in enumerate((rig.secret, *rig.more_secrets))}
    private = json.loads(key.read_text())["private_key"].split("\n")[5]
    stated = {"hook": HOOK, "chat": CHAT, "dead": DEAD, "signing": SIGNING, "heartbeat": HEARTBEAT}
    return {**clouds, **stated, "google's key": private, "password": PASSWORD, "proxy": PROXY}


def _providers(place: Place, **base: str) -> str:
    """The `[providers]` tables, those of `base` at another address."""
    tables = {
        rig.provider: {**rig.table(base.get(rig.provider, place.bases[rig.provider])), "timeout_s": 15} for rig in place.rigs
    }
    lines = (
        f"[providers.{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in one.items()) for name, one in tables.items()
    )
    return "".join(lines)


def _plugin(folder: Path) -> None:
    info = folder / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[costguard.providers]\nbad = bad_cloud:bad\n")
    (folder / "bad_cloud.py").write_text(PLUGIN)


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--json-log", "watch", "--once"), ("doctor",), ("--debug", "status", "--json"), ("plan", "--json"),
    ("report", "--csv", "--by", "provider,account,owner"), ("db", "backup", "copy.db"), ("policy", "explain"),
    ("prices", "refresh"), ("offers", "--live", "--csv", "--top", "5"), ("init", "--yes", "--path", "made.toml"),
)  # fmt: skip
ECHOES: Mapping[str, Mapping[str, Any]] = {
    "auth": {"kind": "status", "status": 401},
    "forbidden": {"kind": "status", "status": 403},
    "failed": {"kind": "status", "status": 500},
    "throttled": {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}},
}
"""Refusals whose text says back what was sent."""
FAILING: tuple[tuple[str, ...], ...] = (
    ("--debug", "status", "--strict"),
    ("doctor",),
    ("--json-log", "--debug", "watch", "--once"),
)


@pytest.mark.proof
def test_nothing_leaks_while_all_is_well(place: Place) -> None:
    codes = {words: place.run(*words, cold=True) for words in COMMANDS}
    assert not any(code for words, code in codes.items() if words[0] not in ("doctor", "prices", "offers")), codes
    search = Search(place.canaries)
    assert place.leaks(search) == []
    assert (place.folder / "ledger.db").stat().st_size
    assert search.seen > 100_000


def test_nothing_leaks_into_a_log_that_is_not_yet_in_the_ledger(place: Place) -> None:
    words = [sys.executable, "-m", "costguard", "--json-log", "watch"]
    running = subprocess.Popen(words, cwd=place.folder, env=place.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout
    first = running.stdout.readline()
    running.send_signal(signal.SIGKILL)
    out, err = running.communicate(timeout=LONGEST_S)
    place.printed.append(("watch, cut off", first + out + err))
    assert (place.folder / "ledger.db-wal").stat().st_size
    assert place.leaks(Search(place.canaries)) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("echo", ECHOES)
def test_nothing_leaks_where_a_cloud_says_back_what_it_was_sent(place: Place, echo: str) -> None:
    for rig in place.rigs:
        body = " ".join((rig.secret, quote(rig.secret, safe=""), rig.secret.replace("/", "\\/")))
        rig.fake.fault(".", body=json.dumps({"error": body}).encode(), **ECHOES[echo])
    try:
        place.run(*FAILING[list(ECHOES).index(echo) % len(FAILING)])
    finally:
        for rig in place.rigs:
            rig.fake.faults.clear()
    assert place.leaks(Search(place.canaries)) == []


@pytest.mark.proof
def test_nothing_leaks_where_a_cloud_cannot_be_reached_or_trusted(place: Place) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(context)
    with serving(Told(), context) as untrusted:
        bases = ("https://nowhere.invalid", "http://127.0.0.1:9", untrusted)
        others = {rig.provider: bases[number % len(bases)] for number, rig in enumerate(place.rigs)}
        place.run("--debug", "status", "--strict", settings=SETTINGS + _providers(place, **others))
        place.run("doctor", settings=SETTINGS + _providers(place, **dict.fromkeys(place.bases, untrusted)))
    proxy = f"http://me:{PROXY}@127.0.0.1:9"
    place.run("--debug", "status", COSTGUARD_NETWORK__PROXY=proxy)
    place.run("--debug", "status", settings=f'[network]\nproxy = "{proxy}"\n')
    (place.folder / "other.toml").unlink()  # it states a password on purpose
    assert place.leaks(Search(place.canaries)) == []


@pytest.mark.parametrize("how", ["import", "open", "scopes", "poll"])
def test_nothing_leaks_from_a_plug_in_that_puts_it_into_its_own_error(place: Place, how: str) -> None:
    settings = SETTINGS + "[providers.bad]\n"
    place.run("--debug", "doctor" if how in ("import", "open") else "status", settings=settings, BAD_PLUGIN=how)
    assert place.leaks(Search(place.canaries)) == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://costguard:{quote(PASSWORD, safe='')}@127.0.0.1:9/costguard",
        f"postgresql://costguard@nowhere.invalid/costguard?password={quote(PASSWORD, safe='')}&connect_timeout=2",
        f"postgresql+psycopg2://costguard:{quote(PASSWORD, safe='')}@127.0.0.1/costguard",
        f"postgresql://costguard:{quote(PASSWORD, safe='')}@127.0.0.1:no/costguard",
        f"costguard:{quote(PASSWORD, safe='')}@127.0.0.1/costguard",
        *(f"postgresql://cost{user}guard:{one}{PASSWORD}@127.0.0.1/costguard" for user in ("", "@") for one in "@#/?%:"),
    ],
)
def test_nothing_leaks_from_a_database_that_does_not_open(place: Place, url: str) -> None:
    assert place.run("--debug", "status", COSTGUARD_LEDGER__URL=url)
    assert place.leaks(Search(place.canaries)) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "changed",
    [
        {"HOOK_URL": f"https://user:{HOOK}@nowhere.invalid/{HOOK}"},
        {"HOOK_URL": f"http://192.0.2.1/{HOOK}"},
        {"CHAT_URL": f"nosuch://{CHAT}/x"},
        {"CHAT_URL": f"slack://{CHAT}"},
        {"HEARTBEAT_URL": f"https://nowhere.invalid/{HEARTBEAT}"},
        {"HEARTBEAT_URL": f"no address {HEARTBEAT}"},
        {"RUNPOD_API_KEY": "canaryKeyOf two words"},
    ],
    ids=["dns", "http", "scheme", "short", "heartbeat", "heartbeat that is none", "key of two words"],
)
def test_nothing_leaks_from_an_address_that_cannot_be_used(place: Place, changed: dict[str, str]) -> None:
    place.run("--json-log", "--debug", "watch", "--once", **changed)  # type: ignore[arg-type]  # `changed` has no other key
    assert place.leaks(Search({**place.canaries, "words": "canaryKeyOf two words"})) == []


def _spellings(canary: str) -> list[bytes]:
    raw = canary.encode()
    offsets = [base64.b64encode(b"x" * skip + raw + b"yz") for skip in range(3)]
    return [raw, raw.hex().encode(), raw.hex().upper().encode(), quote(canary, safe="").encode(), *offsets]


@pytest.mark.parametrize("number", range(7), ids=["raw", "hex", "HEX", "address", "base64", "base64 + 1", "base64 + 2"])
def test_one_that_is_planted_is_found(tmp_path: Path, number: int) -> None:
    for name, canary in (("password", PASSWORD), ("hook", HOOK)):
        search = Search({name: canary})
        (tmp_path / "log.json").write_bytes(b"\0" * 1000 + b"before" + _spellings(canary)[number] + b"after")
        assert list(search.found_below(tmp_path)) == [f"log.json: {name}"]


def test_a_name_of_a_file_is_searched_too_and_what_is_no_secret_is_not_found(tmp_path: Path) -> None:
    (tmp_path / f"{HOOK}.txt").write_text("")
    assert list(Search({"hook": HOOK}).found_below(tmp_path)) == [f"{HOOK}.txt: hook"]
    assert Search({"hook": HOOK}).found(b"canaryHook" * 100 + bytes(range(256))) == []
    assert not [form for form in forms(HOOK) if re.fullmatch(rb"(.)\1*", form)]
