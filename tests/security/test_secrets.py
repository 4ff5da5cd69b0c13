"""Keys: from files that nobody else can read, not by value in the settings, on no command line, in no core, with no hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer import Context

from costguard.cli import COMMANDS, app
from costguard.errors import ExposedError
from costguard.providers.transport import ProviderContext, Transport
from costguard.system.file_security import describe_exposure
from tests.conftest import Command
from tests.contract.rig import BILLS, NAMES, NoCache, Rig
from tests.fakes.aws import KEY_ID, SECRET
from tests.fakes.gcp import account_file
from tests.providers.aws.rig import AwsRig
from tests.providers.coreweave.rig import CoreWeaveRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.scaleway.rig import ScalewayRig
from tests.providers.vast.rig import VastRig
from tests.security.house import NOBODY, House, a_house, a_public_place, table_of

NOWHERE = "http://127.0.0.1:9"
RIGS: tuple[type[Rig], ...] = (AwsRig, CoreWeaveRig, GcpRig, LambdaRig, RunpodRig, ScalewayRig, VastRig)
"""Those whose key may stand in a file: Azure's secret comes from the environment alone."""


@pytest.fixture
def public() -> Iterator[Path]:
    with a_public_place() as place:
        yield place


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def keyed_by_file(rig: Rig, place: Path) -> tuple[Path, Mapping[str, str], Mapping[str, object]]:
    """The key of `rig` in a file in `place`, 0600: the file, the environment and the settings with which it is found."""
    file = place / "key"
    if rig.provider == "aws":
        file.write_text(f"[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n")
        environ = {
            "AWS_SHARED_CREDENTIALS_FILE": str(file),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
        }
        found: tuple[Mapping[str, str], Mapping[str, object]] = (environ, {})
    elif rig.provider == "gcp":
        file.write_text(account_file(NOWHERE, "/token"))
        found = ({}, {"credentials_file": str(file)})
    else:
        file.write_text(rig.secret)
        found = ({}, {"key_file": str(file)})
    file.chmod(0o600)
    return file, *found


@pytest.mark.parametrize("make", RIGS, ids=lambda rig: rig.provider)
def test_a_key_that_others_can_read_is_not_used(make: type[Rig], public: Path, transport: Transport) -> None:
    rig = make()
    file, environ, settings = keyed_by_file(rig, public)
    plain = {key: value for key, value in rig.table(NOWHERE).items() if key not in ("anonymous", "credentials_file")}
    around = ProviderContext(
        transport=transport, clock=rig.clock, gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=public / "home"
    )

    def opened() -> None:
        rig.plugin().open({**plain, **settings}, around)

    opened()  # control: 0600 is fine
    for mode in (0o644, 0o604):
        file.chmod(mode)
        with pytest.raises(ExposedError) as refused:
            opened()
        said = str(refused.value)
        assert f"can be read by everybody on this machine (its mode is {mode:04o})" in said
        assert f"chmod 600 '{file}'" in said
        assert rig.secret not in said
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, -1, NOBODY)
        with pytest.raises(ExposedError, match="can be read by the whole group"):
            opened()
    file.chmod(0o644)
    public.chmod(0o700)  # nobody else gets there
    opened()


def test_what_is_exposed_depends_on_the_way_to_it_and_on_whose_it_is(public: Path) -> None:
    secret = public / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    assert "everybody" in describe_exposure(secret)
    link = public / "link"
    link.symlink_to(secret)
    assert "everybody" in describe_exposure(link)  # what it leads to counts
    secret.chmod(0o440)
    os.chown(secret, -1, 0) if os.geteuid() == 0 else None
    if secret.stat().st_gid == 0:
        assert describe_exposure(secret) == ""  # as systemd hands credentials over: the superuser's group
    secret.chmod(0o600)
    assert describe_exposure(secret) == ""
    assert describe_exposure(public / "not there") == ""
    os.mkfifo(public / "pipe", 0o644)
    assert describe_exposure(public / "pipe") == ""  # process substitution: nothing is kept there


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with a_house(tmp_path, cloud=True) as made:
        yield made


def with_key_in(house: House, file: Path, more: str = "") -> None:
    """The settings with the key of its cloud in `file`."""
    assert house.rig is not None
    text = (house.folder / "costguard.toml").read_text()
    file.write_text(house.rig.secret)
    house.environ.pop("RUNPOD_API_KEY", None)
    (house.folder / "costguard.toml").write_text(f"{text}key_file = {json.dumps(str(file))}\n{more}")


def test_a_watchdog_does_not_run_with_a_key_that_others_can_read_and_doctor_says_what_to_do(house: House, public: Path) -> None:
    assert house.rig is not None
    with_key_in(house, public / "key")
    (public / "key").chmod(0o644)
    for words in (("watch",), ("watch", "--once")):
        assert house.run(*words) == 2
        assert "can be read by everybody on this machine" in house.said
        assert "chmod 600" in house.said
    assert house.run("doctor") == 3
    assert "can be read by everybody" in house.said
    assert house.run("status") == 0  # the others are told of, and this one is not asked
    assert "can be read by everybody" in house.said
    assert house.rig.fake.asked == []
    (public / "key").chmod(0o600)
    assert house.run("watch", "--once") == 0, house.said
    assert house.rig.fake.asked


def test_of_several_accounts_one_whose_key_others_can_read_stops_the_watchdog_too(house: House, public: Path) -> None:
    assert house.rig is not None
    (public / "one").write_text(house.rig.secret)
    (public / "one").chmod(0o600)
    (public / "two").write_text(house.rig.secret + "2")
    (public / "two").chmod(0o644)
    tables = (
        f'[[providers.runpod.accounts]]\naccount = "{name}"\nkey_file = {json.dumps(str(public / name))}\n'
        for name in ("one", "two")
    )
    house.write(table_of("runpod", {"base_url": house.base}) + "".join(tables))
    assert house.run("watch", "--once") == 2
    assert "two" in house.said
    assert "can be read by everybody" in house.said


@pytest.mark.parametrize(
    "settings",
    [
        '[notify]\nsigned_with = "file:{}"\n[[notify.route]]\nto = "https://127.0.0.1:9/x"\n',
        '[[notify.route]]\nto = "file:{}"\n',
    ],
    ids=["signature", "address"],
)
def test_a_channels_secret_that_others_can_read_stops_the_watchdog(tmp_path: Path, public: Path, settings: str) -> None:
    secret = public / "address"
    secret.write_text("https://127.0.0.1:9/hook/canary-0123456789")
    with a_house(tmp_path) as house:
        house.write(settings.format(secret))
        secret.chmod(0o600)
        assert house.run("--offline", "watch", "--once") == 0, house.said
        secret.chmod(0o644)
        assert house.run("--offline", "watch", "--once") == 2
        assert "holds a secret and can be read by everybody" in house.said
        assert "canary" not in house.said


# By value


BY_VALUE = {
    "ledger": '[ledger]\nurl = "postgresql://ada:{}@db.example/costs"',
    "ledger, in the query": '[ledger]\nurl = "postgresql+psycopg://db.example/costs?user=ada&password={}"',
    "proxy": '[network]\nproxy = "http://ada:{}@proxy.example:3128"',
    "heartbeat": '[watch]\nheartbeat_url = "https://hc.example/ping/{}"',
    "signature": '[notify]\nsigned_with = "{}"',
    "channel": '[[notify.route]]\nto = "slack://{}/a/b"',
    "channel's address": '[[notify.route]]\nto = "https://hooks.example/{}"',
    "hook": '[[hook]]\nname = "save"\nurl = "https://hooks.example/?token={}"',
    "api_key": '[providers.runpod]\napi_key = "{}"',
    "in a list": '[providers.vast]\naccounts = [{{ token = "{}" }}]',
    "as the name of a variable": '[providers.lambda]\nkey_env = "{}"',
}
CANARY = "canary0Pa55word1n7heF1le"


@pytest.mark.parametrize("where", BY_VALUE)
def test_a_secret_that_stands_in_the_settings_is_refused_with_the_cure_and_not_shown(
    costguard: Command, tmp_path: Path, where: str
) -> None:
    (tmp_path / "costguard.toml").write_text(BY_VALUE[where].format(CANARY) + "\n")
    ran = costguard("db", "path")
    ran.says("hint: ")
    assert CANARY not in ran.err
    assert any(word in ran.err for word in ("env:", "variable", "export", "file that holds it")), ran.err


def test_a_password_of_the_ledger_is_taken_from_the_environment(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"postgresql://ada:{CANARY}@db.example/costs")
    ran = costguard("db", "path")
    assert (ran.code, ran.out) == (0, "postgresql://ada@db.example/costs\n")


# On the command line


SECRET_WORDS = ("key", "token", "secret", "password", "passphrase", "credential", "auth")


def test_no_option_takes_a_secret() -> None:
    """Whoever lists processes sees the words of each."""
    context = Context(app)
    seen = []
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        for one in command.params:
            words = " ".join((*one.opts, str(getattr(one, "metavar", "") or ""))).lower().replace("-", " ").split()
            seen += [f"{name} {one.opts}" for word in words if word in SECRET_WORDS]
            assert not getattr(one, "hide_input", False)
    assert seen == []


def test_no_process_bears_a_secret_in_its_words_and_it_leaves_no_core(house: House, public: Path) -> None:
    assert house.rig is not None
    with_key_in(house, public / "key")
    (public / "key").chmod(0o600)
    keeps_cores = 'ulimit -c "$(ulimit -H -c)"; exec "$0" "$@"'
    running = subprocess.Popen(
        ["/bin/sh", "-c", keeps_cores, sys.executable, "-m", "costguard", "watch", "--interval", "1s"],
        cwd=house.folder,
        env=house.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert running.stdout
        running.stdout.readline()
        proc = Path("/proc") / str(running.pid)
        limits = dict(line.split("  ", 1) for line in (proc / "limits").read_text().splitlines())
        assert limits["Max core file size"].split()[0] == "0"
        words = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_there(path))
        assert house.rig.secret.encode() not in words
        assert b"--interval" in words  # control: its words were looked at
    finally:
        running.kill()
        running.communicate(timeout=300)


def _is_there(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


# Hooks

PROBE = """
import ctypes, json, os, sys
from datetime import UTC, datetime
from costguard.system import file_security
from costguard.guard.escalation import Hook
from costguard.services.guarding.act.hooks import HookCall, run_hook_command
import selectors, subprocess, threading
user = int(sys.argv[1])
if user:
    os.setgroups([]); os.setgid(user); os.setuid(user)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process is that a user starts
os.chdir("/")
def said(*command):
    hook = Hook(name="save", command=command)
    facts = dict.fromkeys(("provider", "account", "region", "resource", "name", "owner", "policy", "reason"), "x")
    end = run_hook_command(HookCall(id="1", hook=hook, within_s=30, at=datetime(2026, 11, 22, tzinfo=UTC), **facts))
    return end.output
own = said("/bin/sh", "-c", "env")
before = said("/bin/sh", "-c", "tr '\\\\0' '\\\\n' < /proc/$PPID/environ; head -c1 /proc/$PPID/mem; ls /proc/$PPID/fd")
file_security.disable_memory_dumps()
after = said("/bin/sh", "-c", "tr '\\\\0' '\\\\n' < /proc/$PPID/environ; head -c1 /proc/$PPID/mem; ls /proc/$PPID/fd")
print(json.dumps([own, before, after]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_hook_is_given_no_key_and_cannot_look_one_up_in_the_watchdog() -> None:
    keys = {"AWS_SECRET_ACCESS_KEY": CANARY, "RUNPOD_API_KEY": CANARY, "COSTGUARD_LEDGER__URL": f"postgresql://a:{CANARY}@h/d"}
    user = NOBODY if os.geteuid() == 0 else 0
    words, environ = [sys.executable, "-c", PROBE, str(user)], {**os.environ, **keys}
    ran = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=True)
    own, before, after = json.loads(ran.stdout)
    assert "COSTGUARD_PROVIDER=x" in own
    assert CANARY not in own
    assert CANARY in before  # control: without what costguard does, a hook of the same user reads its parent's environment
    assert CANARY not in after
    assert "ermission denied" in after


def test_every_command_that_opens_accounts_is_undumped(house: House) -> None:
    """What the probe shows is in force in a real one."""
    code = (
        "import ctypes, sys; from costguard.cli import run_cli; code = run_cli([{!r}]); "
        "print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)); sys.exit(code)"
    )

    def after(command: str) -> str:
        words = [sys.executable, "-c", code.format(command)]
        return subprocess.run(
            words, cwd=house.folder, env=house.environ, capture_output=True, text=True, timeout=300, check=True
        ).stdout

    assert "dumpable 0" in after("status")
    assert "dumpable 1" in after("providers")  # control: one that asks nobody holds nothing
