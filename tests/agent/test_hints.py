"""Hints of jobs: cheap, silent, and nothing that anybody sends can hurt the agent."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import costguard_agent
import pytest
from costguard_agent import hints, local_requests, state_dir
from costguard_agent.diagnostics import AgentError
from costguard_agent.local_requests import HintListener, HintState, LocalRequestQueue
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = 1_795_000_000_000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the agent's, for this process."""
    monkeypatch.setenv(state_dir.DIR, str(tmp_path))
    monkeypatch.delenv(hints.SOCKET_ENV, raising=False)
    monkeypatch.setattr(hints, "_last_sent_s", {})
    monkeypatch.setattr(hints, "_socket_cache", {})
    return tmp_path


@pytest.fixture
def listener(here: Path) -> Iterator[HintListener]:
    made = HintListener(here / state_dir.SOCKET, LocalRequestQueue(here))
    yield made
    made.close()
    ours = hints._socket_cache.get("socket")
    if ours is not None:
        ours.close()


def sent(listener: HintListener, *datagrams: bytes) -> HintState:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        for datagram in datagrams:
            ours.sendto(datagram, str(listener._path))
            listener.drain(NOW)
    return listener.heard


def test_two_lines_tell_the_step(listener: HintListener) -> None:
    costguard_agent.progress(1200)
    listener.drain(NOW)
    assert listener.heard.to_signals() == {"step": 1200}


@pytest.mark.parametrize(
    "said",
    [
        b'{"hint":"ask","what":"keep","for_s":1' + b"0" * 400 + b"}",
        b'{"hint":"ask","what":"keep","for_s":NaN}',
        b'{"hint":"ask","what":["keep"],"for_s":Infinity}',
        b'{"hint":"phase","name":' + b"[" * 400 + b"]" * 400 + b',"for_s":1' + b"0" * 400 + b"}",
        b'{"hint":"ask","what":"keep","for_s":3600,"why":"\\ud800"}',
        b'{"hint":"ask","what":"keep","for_s":3600,"id":{}}',
    ],
)
def test_nothing_that_anybody_sends_ends_the_agent(listener: HintListener, said: bytes) -> None:
    sent(listener, said, b'{"hint":"progress","step":5}')
    assert listener.heard.step == 5


def test_the_last_step_goes_on_being_told(listener: HintListener) -> None:
    sent(listener, b'{"hint":"progress","step":7}', b'{"hint":"beat"}')
    listener.drain(NOW + 10**6)
    assert listener.heard.to_signals() == {"step": 7, "heartbeat": NOW / 1000}


def test_a_phase_is_asked_for_and_not_again_while_most_of_it_is_left(listener: HintListener) -> None:
    for _ in range(3):
        sent(listener, b'{"hint":"phase","name":"eval","for_s":7200}')
    asks = listener._asks.list_waiting(NOW)
    assert [(ask["what"], ask["name"], ask["for_s"]) for ask in asks] == [("phase", "eval", 7200)]
    listener._asks.add_phase_hint("eval", 7200, NOW + 4_000_000)
    assert len(listener._asks) == 2


def test_a_hint_costs_a_job_nothing_where_no_agent_listens(here: Path) -> None:
    for step in range(100_000):
        costguard_agent.progress(step)
    assert list(here.iterdir()) == []


def test_at_most_one_hint_of_a_kind_leaves_in_a_second(listener: HintListener) -> None:
    for step in range(1000):
        costguard_agent.progress(step)
    costguard_agent.beat()
    listener.drain(NOW)
    assert listener.heard == HintState(0, NOW / 1000)


@pytest.mark.parametrize("step", [float("nan"), float("inf"), "many", None, [], 10**400])
def test_a_hint_never_raises(listener: HintListener, step: object) -> None:
    costguard_agent.progress(step)  # type: ignore[arg-type]
    costguard_agent.phase(step, step)  # type: ignore[arg-type]
    listener.drain(NOW)
    assert listener.heard == HintState()


def test_a_child_of_a_job_tells_by_itself(listener: HintListener) -> None:
    costguard_agent.progress(1)
    hints._last_sent_s.clear()
    pid = os.fork()
    if pid == 0:
        costguard_agent.progress(2)
        os._exit(0)
    os.waitpid(pid, 0)
    listener.drain(NOW)
    assert listener.heard.step == 2


def test_jobs_of_other_users_reach_an_agent_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    before = os.umask(0o077)
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        runtime = state_dir.make_dir(place / "run", state_dir.OPEN_FOLDER)
        monkeypatch.setenv(hints.SOCKET_ENV, str(runtime / state_dir.SOCKET))
        monkeypatch.setattr(hints, "_last_sent_s", {})
        monkeypatch.setattr(hints, "_socket_cache", {})
        made = HintListener(runtime / state_dir.SOCKET, LocalRequestQueue(tmp_path))
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            costguard_agent.progress(9)
            os._exit(0)
        os.waitpid(pid, 0)
        made.drain(NOW)
        made.close()
        assert made.heard.step == 9
    finally:
        os.umask(before)
        shutil.rmtree(place)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(AgentError, match="other users can write to"):
        state_dir.make_dir(tmp_path / "open")


HOSTILE = [
    b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 2000, b'{"hint":[]}', b'{"hint":"progress"}',
    b'{"hint":"progress","step":true}', b'{"hint":"progress","step":"1"}', b'{"hint":"progress","step":NaN}',
    b'{"hint":"progress","step":1e999}', b'{"hint":"progress","step":' + b"9" * 1900 + b"}", b'{"hint":"stop"}',
    b'{"hint":"phase","for_s":{}}', b'{"hint":"ask","what":"stop","for_s":7200}', b'{"hint":"ask"}',
    b'{"hint":"progress","step":3,"pad":"' + b"x" * 60_000 + b'"}',
]  # fmt: skip


@pytest.mark.parametrize("datagram", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_hint_is_passed_over(listener: HintListener, datagram: bytes) -> None:
    assert sent(listener, datagram) == HintState()
    assert len(listener._asks) == 0


@settings(max_examples=200, deadline=None)
@given(
    found=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["hint", "step", "for_s", "name", "what", "id"]), inner)
        ),
        max_leaves=6,
    ),
    kind=st.sampled_from(["progress", "beat", "phase", "ask"]),
)
def test_whatever_json_it_is_the_agent_lives(found: object, kind: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        made = HintListener(Path(place) / "s", LocalRequestQueue(Path(place)))
        try:
            data = {**found, "hint": kind} if isinstance(found, dict) else found
            made._handle_datagram(json.dumps(data).encode(), None, NOW)
            json.dumps(made._asks.list_waiting(NOW), allow_nan=False)
            json.dumps(made.heard.to_signals(), allow_nan=False)
        finally:
            made.close()


def test_nobody_fills_the_memory_with_asks(listener: HintListener) -> None:
    ask = json.dumps({"hint": "ask", "what": "busy", "for_s": 7200}).encode()
    sent(listener, *[ask] * 50)
    assert len(listener._asks) == 8


def test_an_odd_ask_becomes_one_that_a_watchdog_takes(tmp_path: Path) -> None:
    asks = LocalRequestQueue(tmp_path)
    for odd in ("\ud800", "a b", "x" * 999, "\x1b[31m\n", 7, None):
        assert asks.add_request({"what": "phase", "for_s": 7200, "id": odd, "name": odd, "why": odd}, NOW) == ""
    for ask in asks.list_waiting(NOW):
        assert re.fullmatch("[0-9a-f]{16}", ask["id"])
        assert len(ask["name"]) <= 100
        assert (ask["name"] + ask["why"]).isprintable()


def test_an_ask_that_waits_grows_shorter_and_ends(tmp_path: Path) -> None:
    asks = LocalRequestQueue(tmp_path)
    asks.add_request({"what": "busy", "for_s": 3600}, NOW)
    assert asks.list_waiting(NOW + 1_800_000)[0]["for_s"] == 1800
    assert asks.list_waiting(NOW + 3_599_000) == []


def test_an_ask_survives_a_restart_with_its_id(tmp_path: Path) -> None:
    asks = LocalRequestQueue(tmp_path)
    asks.add_request({"what": "keep", "for_s": 3600, "why": "demo"}, NOW, b"x")
    again = LocalRequestQueue(tmp_path)
    assert again.list_waiting(NOW) == asks.list_waiting(NOW)
    assert again.until_ms == {"keep": NOW + 3_600_000}


@pytest.mark.parametrize("torn", [b"", b"[]", b'{"open":[7,{"what":"keep"}],"until_ms":[]}', b'{"open":7}', b"\xff"])
def test_torn_asks_are_none(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "asks.json").write_bytes(torn)
    assert len(LocalRequestQueue(tmp_path)) == 0


def test_who_asks_is_told_what_became_of_it(listener: HintListener) -> None:
    answers: list[object] = []
    asking = threading.Thread(
        target=lambda: answers.append(
            local_requests.send_local_request(
                hints.list_hint_sockets(), {"what": "busy", "for_s": 7200, "name": "", "why": ""}, 5
            )
        )
    )
    asking.start()
    while not len(listener._asks):
        listener.drain(NOW)
    waiting = listener._asks.list_waiting(NOW)
    for ask, why in listener._asks.mark_answered({waiting[0]["id"]: "too long"}, waiting):
        listener.answer(ask.reply_to, {"why": why})
    asking.join()
    assert answers == [{"why": "too long"}]


def test_where_no_agent_runs_it_is_said(here: Path) -> None:
    with pytest.raises(AgentError, match="no agent runs on this machine"):
        local_requests.send_local_request([str(here / "none")], {}, 1)
    stale = HintListener(here / "stale", LocalRequestQueue(here))
    stale._socket.close()
    with pytest.raises(AgentError, match="no agent answers at"):
        local_requests.send_local_request([str(here / "stale")], {}, 1)
