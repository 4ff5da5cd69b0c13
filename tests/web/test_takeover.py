"""The web's process in the hands of somebody else: what it writes to the ledger stops, arms and holds nothing."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlmodel import col, select

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.tables.logins import WebSessionRow
from costguard.services.serving.door_messages import ActOffer, LoginOffer, encode_message
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.person_acts import PersonActs
from tests.cli.test_stop import Lab, lab
from tests.ledger.conftest import postgres_server
from tests.web.doors import Watch, watching
from tests.web.logins import forge_invite, forge_session, hash_secret, invite, make_token, open_session, write_token
from tests.web.test_page_stops import whole

__all__ = ["lab", "postgres_server"]
CANARY = "canary-7f3a"
QUOTE = "/quote?model=llama-3.1-8b&method=qlora&tokens=5e7"
PAGES = ("/budgets", "/report", "/report/export?format=csv", QUOTE, "/policies", "/accounts", "/log", "/healthz")


class UnixConnection(http.client.HTTPConnection):
    """HTTP at the watchdog's socket, as the web's process speaks it."""

    def __init__(self, path: str) -> None:
        super().__init__("watchdog", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)

    def post(self, path: str, body: bytes) -> Any:  # noqa: ANN401 - JSON
        self.request("POST", path, body)
        return json.loads(self.getresponse().read())


def acts_of(lab: Lab) -> PersonActs:
    return PersonActs(url=lab.ledger, config="costguard.toml")


def test_a_session_that_the_webs_own_code_wrote_stops_nothing_and_asks_for_a_new_login(lab: Lab) -> None:
    acts, path = acts_of(lab), whole(lab.pod())
    open_login_key(lab.ledger)
    for act in ("stop", "approve-terminate", "protect", "arm"):
        reply = acts.answer(ActOffer(forge_session(lab.ledger), act, path, why="x"))
        assert not reply.done, act
        assert "was not opened by this watchdog" in " ".join(reply.lines)
        assert "log out and log in again" in " ".join(reply.lines)
    assert lab.stops == 0
    assert acts.answer(ActOffer(open_session(lab.ledger, "ada", "admin"), "stop", path, why="x")).done
    assert lab.stops == 1


def test_a_login_link_that_the_webs_own_code_wrote_logs_nobody_in(lab: Lab) -> None:
    acts, code = acts_of(lab), forge_invite(lab.ledger)
    reply = acts.answer(LoginOffer(code))
    assert (reply.done, reply.secret) == (False, "")
    assert "was not made with this watchdog's login key" in " ".join(reply.lines)
    made = acts.answer(LoginOffer(invite(lab.ledger, "ada", "admin").rpartition("/")[2]))
    assert acts.answer(ActOffer(made.secret, "stop", whole(lab.pod()), why="x")).done


def test_a_row_that_is_given_another_role_or_name_acts_no_more(lab: Lab) -> None:
    path = whole(lab.pod())
    for change in ({"role": "admin"}, {"role": "admin", "name": "ada"}, {"expires_us": 2**52}):
        secret = open_session(lab.ledger, "bob", "operator")
        engine = open_engine(lab.ledger)
        with begin_write(engine) as connection:
            names = connection.execute(
                text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'web_session'")
            )
            for (name,) in names.fetchall():
                connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(update(WebSessionRow).where(col(WebSessionRow.hash) == hash_secret(secret)).values(change))
        engine.dispose()
        assert not acts_of(lab).answer(ActOffer(secret, "protect", path, why="x")).done, change
        assert not acts_of(lab).answer(ActOffer(secret, "stop", path, why="x")).done, change
    assert lab.stops == 0


def test_the_hash_of_a_session_which_the_ledger_has_is_no_session(lab: Lab) -> None:
    secret = open_session(lab.ledger, "ada", "admin")
    for shown in (hash_secret(secret), secret.partition(".")[0], f"{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}", ""):
        assert not acts_of(lab).answer(ActOffer(shown, "stop", whole(lab.pod()), why="x")).done, shown
    assert lab.stops == 0


def test_who_leaves_a_session_of_an_earlier_version_is_out(lab: Lab) -> None:
    secret = forge_session(lab.ledger)
    assert acts_of(lab).answer(ActOffer(secret, "logout")).done
    with LoginStore(lab.ledger) as book:
        session = book.load_session(hash_secret(secret))
    assert session is not None
    assert session.revoked_at is not None


def test_operators_tokens_from_before_the_key_are_accepted_and_those_that_are_written_later_are_not(lab: Lab) -> None:
    write_token(lab.ledger, "cg_before", "slurm", "operator")
    write_token(lab.ledger, "cg_reader", "grafana", "viewer")
    key = open_login_key(lab.ledger)
    write_token(lab.ledger, "cg_later", "mallory", "operator")
    made = make_token(lab.ledger, "sky", "operator")
    with AgentStore(lab.ledger) as book:
        tokens = {one.name: one for one in book.load_tokens()}
    accepted = [key.has_issued_token(shown, tokens[name]) for shown, name in (("cg_before", "slurm"), (made, "sky"))]
    refused = [key.has_issued_token(shown, tokens[name]) for shown, name in (("cg_later", "mallory"), ("cg_reader", "grafana"))]
    assert (accepted, refused) == ([True, True], [False, False])
    (file,) = Path(lab.ledger.removeprefix("sqlite:///")).parent.glob("*-logins")
    assert file.stat().st_mode & 0o777 == 0o600


def read_only_probe(url: str, code: str) -> str:
    """What `code` prints in a process that may only read, after its imports."""
    words = (
        "import sys; from costguard.ledger.db.connection import refuse_writes; from costguard.errors import LedgerError\n"
        "from tests.web.logins import *; url = sys.argv[1]; refuse_writes()\n"
        f"try:\n    {code}\nexcept LedgerError as error: print(error)\nexcept Exception as error: print(type(error), error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", words, url], capture_output=True, text=True, timeout=300, check=False)
    return ran.stdout + ran.stderr


@pytest.fixture(params=["sqlite", "postgres"])
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/ledger.db"
    else:
        psycopg = pytest.importorskip("psycopg")
        server = str(request.getfixturevalue("postgres_server"))
        name = f"takeover_{os.getpid()}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        head, _, query = server.partition("?")
        url = f"{head.rpartition('/')[0]}/{name}{'?' if query else ''}{query}"
    forge_session(url, "somebody", "viewer")
    return url


def test_the_webs_process_opens_the_ledger_for_reading_only(ready: str) -> None:
    assert "read-only" in read_only_probe(ready, "print(forge_session(url))")
    assert "somebody" in read_only_probe(
        ready, "with LoginStore(url) as book, book._begin_read() as ask: print(*ask('SELECT name FROM web_session'))"
    )


def test_a_ledger_that_is_not_there_is_not_made_by_the_webs_process(tmp_path: Path) -> None:
    assert "start costguard watch first" in read_only_probe(f"sqlite:///{tmp_path}/none.db", "LoginStore(url)")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_real_web_logs_in_by_the_watchdog_and_a_forged_session_does_nothing_over_its_socket(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tmp_path = tmp_path_factory.mktemp("w")  # short: a socket's path has 100 bytes
    keys = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "RUNPOD_API_KEY", "COSTGUARD_WEBHOOK_SECRET", "GITHUB_TOKEN"), CANARY)
    with watching(tmp_path, more=keys) as watch, closing(UnixConnection(f"{tmp_path}/ledger.db.door/socket")) as wire:
        cookie = log_in(watch, invite(watch.url, "ada", "operator"))
        status, page = watch.ask("GET", "/", headers={"Cookie": cookie})
        assert (status, b"ada" in page) == (200, True)
        for shown in PAGES:  # each is built without writing
            assert watch.ask("GET", shown, headers={"Cookie": cookie})[0] == 200, (shown, watch.log.read_text())
        machine = re.search(rb'/machine\?id=([^"]+)"', page)
        assert machine is not None
        for role in ("operator", "admin"):
            offer = ActOffer(forge_session(watch.url, role=role), "protect", machine[1].decode(), why="x")
            reply = wire.post("/acts", encode_message(offer))
            assert (reply["done"], "was not opened by this watchdog" in " ".join(reply["lines"])) == (False, True)
        assert CANARY in read_environment(watch.process.pid)  # control
        assert CANARY not in read_environment(watch.door())
        own = ActOffer(cookie.partition("=")[2], "protect", machine[1].decode(), why="x")
        assert wire.post("/acts", encode_message(own))["done"]


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_webs_process_and_the_child_of_a_review_hide_their_memory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    forge_session(url)
    (tmp_path / "c.toml").write_text(f'[ledger]\nurl = "{url}"\n[web]\nlisten = "127.0.0.1:0"\n')
    code = (
        "import ctypes; from costguard.web import process, server\n"
        "server.HttpServer.run = lambda self: print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
        f"process.run_server(config='{tmp_path}/c.toml', listen=None, interval=None, json_log=True)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert "dumpable 0" in ran.stdout, ran.stderr
    code = (
        "import ctypes; from costguard.system.child.limited import ChildLimits, run_limited\n"
        "look = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "print(run_limited(look, ChildLimits(cpu_s=9, wall_s=60, memory_bytes=1 << 29)), look())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout.split() == ["0", "1"], ran.stderr  # the child, and its parent as a control


def read_environment(pid: int) -> str:
    assert pid
    return Path(f"/proc/{pid}/environ").read_text(errors="replace")


def log_in(watch: Watch, link: str) -> str:
    """The cookie that the button of a login link brings."""
    with closing(http.client.HTTPConnection("127.0.0.1", watch.port, timeout=60)) as wire:
        wire.request("POST", link, b"", {"Origin": f"http://127.0.0.1:{watch.port}"})
        came = wire.getresponse()
        assert came.status == 303, came.read()
        return (came.getheader("set-cookie") or "").partition(";")[0]


PROBE = """
import os, signal, sys
from pathlib import Path
from costguard.errors import CostguardError
from costguard.web import process, server
folder, url = Path(sys.argv[1]), sys.argv[2]
from costguard.ledger.db import connection
from tests.web.logins import forge_session
def attack(self):
    connection._limits["read_only"] = False  # the web's own code undoes what costguard did
    for name, act in {
        "ledger": lambda: forge_session(url, "mallory"),
        "ledger file": lambda: open(folder / "ledger.db", "r+b"),
        "log file": lambda: open(folder / "ledger.db-wal", "r+b"),
        "settings": lambda: open(folder / "c.toml", "a"),
        "another file": lambda: (folder / "new").write_text("x"),
        "removal": lambda: (folder / "c.toml").unlink(),
        "move": lambda: (folder / "c.toml").rename(folder / "d.toml"),
        "signal": lambda: os.kill(os.getppid(), 0),
        "memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    }.items():
        try:
            act()
            print(name, "done")
        except (OSError, CostguardError) as error:
            print(name, "refused")
server.HttpServer.run = attack
process.run_server(config=str(folder / "c.toml"), listen=None, interval=None, json_log=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_the_kernel_refuses_the_web_changes_of_every_file_and_signals_to_the_watchdog(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    forge_session(url, "ada")
    (tmp_path / "c.toml").write_text(f'[ledger]\nurl = "{url}"\n[web]\nlisten = "127.0.0.1:0"\n')
    words = [sys.executable, "-c", PROBE, str(tmp_path), url]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if '"confined": false' in ran.stderr:
        pytest.skip("this kernel has no Landlock")
    done = [line for line in ran.stdout.splitlines() if line.endswith(" done")]
    assert done == [], ran.stderr
    assert len(ran.stdout.splitlines()) == 9, ran.stderr
    with LoginStore(url) as book, book._begin_read() as ask:
        assert [row[0] for row in ask(select(WebSessionRow.name, WebSessionRow.role))] == ["ada"]
