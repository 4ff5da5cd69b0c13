"""The desk where agents join and report: what is taken, what is refused and by which name, and what is in the ledger then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from costguard_agent.protocol import SIGNALS as THEIRS

from costguard.agents import messages as beats
from costguard.agents.messages import REFUSALS, MessageRefusedError
from costguard.guard.overrides import LEASE, PHASE
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.guard.audit_log import iterate_entries
from costguard.values.sample import CPU_CORES, GPU_UTIL, SIGNALS, Sample
from tests.web.desks import CODE, MIN, NOON, SECRET, Rig, S, beat, envelope, keys, ledger_at, record, rig

ONE, TWO = keys()
OTHER = bytes(range(1, 33))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Rig]:
    with rig(ledger_at(tmp_path)) as made:
        yield made


def refused(desk: Rig, message: object, name: str) -> str:
    """`message` is refused by that name and changes nothing; what is said."""
    before = desk.state()
    with pytest.raises(MessageRefusedError) as error:
        desk.send(message)  # type: ignore[arg-type]  # an envelope
    assert error.value.name == name
    assert desk.state() == before
    return error.value.says


def test_what_agents_may_say_is_one_definition_for_both() -> None:
    assert set(THEIRS) == set(SIGNALS) == set(beats.SIGNAL_BOUNDS)
    assert all(one.status in range(400, 600) and one.says for one in REFUSALS.values())


def test_four_records_of_a_quarter_minute_become_one_sample_of_each_signal(desk: Rig) -> None:
    agent = desk.joined(ONE)
    for number, duty in enumerate((100.0, 0.0, 50.0, 50.0), start=1):
        at = desk.clock.advance(15 * S)
        answer = desk.send(envelope(agent, number, at, beat(record(at, gpu_util=duty, cpu_cores=0.5, step=float(number)))))
        assert (answer["seq"], answer["asked"]) == (number, {})
    found = {one.signal: (one.at, one.value) for one in desk.samples(ONE)}
    assert found == {GPU_UTIL: (NOON + MIN, 50.0), CPU_CORES: (NOON + MIN, 0.5), "step": (NOON + MIN, 4.0)}
    stored = desk.agent(agent)
    assert (stored.seq, stored.beat_at, stored.version) == (4, NOON + MIN, "0.1.0")


def test_a_code_is_used_once(desk: Rig) -> None:
    desk.enrol(ONE)
    first = desk.join()
    assert desk.join() == first, "the same agent whose answer was lost gets it again"
    with pytest.raises(MessageRefusedError, match="used_code"):
        desk.join(secret=OTHER)
    with pytest.raises(MessageRefusedError, match="bad_code"):
        desk.join("AAAA-BBBB-CCCC-DDDD")
    desk.enrol(TWO, code="22222222")
    desk.clock.advance(timedelta(minutes=10))
    with pytest.raises(MessageRefusedError, match="expired_code"):
        desk.join("22222222", secret=OTHER)


def test_of_twenty_that_come_with_one_code_at_once_one_joins(desk: Rig) -> None:
    desk.enrol(ONE)
    came: list[str] = []

    def come(number: int) -> None:
        try:
            came.append(desk.join(CODE.lower(), secret=bytes([number]) * 32))
        except MessageRefusedError as error:
            came.append(error.name)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(1, 21)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(came)[1:] == ["used_code"] * 19
    assert [one.id for one in desk.book.load_agents()] == sorted(came)[:1]


def test_another_agent_of_a_machine_takes_the_place_of_the_first(desk: Rig) -> None:
    first = desk.joined(ONE)
    second = desk.joined(ONE, secret=OTHER, code="22222222")
    refused(desk, envelope(first, 1, NOON, beat()), "revoked")
    assert desk.send(envelope(second, 1, NOON, beat(), secret=OTHER))["seq"] == 1
    assert desk.agent(first).revoked_by == "another agent"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"signature": ""}, "unsigned"), ({"seq": "x"}, "unsigned"), ({"at": ""}, "unsigned"),
        ({"agent": "0123456789abcdef"}, "unknown_agent"), ({"signature": "AAAA"}, "foreign"), ({"seq": "2"}, "foreign"),
        ({"path": "/v1/agents/other/beats"}, "foreign"), ({"method": "PUT"}, "foreign"), ({"body": b"{}"}, "foreign"),
        ({"body": b" " * (64 * 1024 + 1)}, "too_large"),
    ],
)  # fmt: skip
def test_what_is_not_the_agents_own_is_refused_and_changes_nothing(desk: Rig, changes: dict[str, object], name: str) -> None:
    agent = desk.joined(ONE)
    message = envelope(agent, 1, NOON, beat(record(NOON)))
    refused(desk, message._replace(**changes), name)  # type: ignore[arg-type]  # its own fields
    assert desk.send(message)["seq"] == 1


def test_a_number_that_does_not_rise_is_refused_also_where_another_watchdog_took_it(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.send(envelope(agent, 5, NOON, beat()))
    refused(desk, envelope(agent, 5, NOON, beat()), "replayed")
    refused(desk, envelope(agent, 4, NOON, beat(record(NOON))), "replayed")
    with desk.book.begin_transaction() as page:
        assert page.accept_message(agent, 9, NOON, 0, "", ())
    refused(desk, envelope(agent, 7, NOON, beat(record(NOON))), "replayed")
    assert desk.send(envelope(agent, 10, NOON, beat()))["seq"] == 10


@pytest.mark.parametrize("off", [-121 * S, 121 * S])
def test_a_message_from_outside_the_window_is_stale(desk: Rig, off: timedelta) -> None:
    agent = desk.joined(ONE)
    assert "clock" in refused(desk, envelope(agent, 1, NOON + off, beat()), "stale")
    assert desk.send(envelope(agent, 1, NOON + off / 121 * 119, beat()))["seq"] == 1


def test_an_agent_is_of_one_life_unless_it_was_said_otherwise(desk: Rig) -> None:
    bound, through = desk.joined(ONE), desk.joined(TWO, through=True, secret=OTHER, code="22222222")
    desk.restart(ONE)
    desk.restart(TWO)
    assert "enrol" in refused(desk, envelope(bound, 1, NOON, beat()), "another_life")
    assert desk.send(envelope(through, 1, NOON, beat(), secret=OTHER))["seq"] == 1
    del desk.lives[TWO]
    refused(desk, envelope(through, 2, NOON, beat(), secret=OTHER), "gone")


def test_a_revoked_agent_is_refused_at_once_although_this_process_knew_it(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.send(envelope(agent, 1, NOON, beat()))
    desk.book.revoke(agent, who="ada@desk", now=NOON)
    refused(desk, envelope(agent, 2, NOON, beat(record(NOON))), "revoked")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"), (b"[1", "not JSON"), (b'{"agent": {"version": "1"}, "records": [], "records": []}', "not JSON"),
        (b'{"agent": {"version": "1"}, "records": [{"at": NaN}]}', "not JSON"),
        (b"[" * 9 + b"]" * 9, "the message must be an object, not a list"), (b"[" * 30_000, "not JSON"),
        (b'"' + b"\\" * 65_000, "not JSON"), ([], "the message must be an object"), ({"records": []}, "agent is missing"),
        ({"agent": {"version": "1"}, "records": [], "instance": "i-2"}, "has an unknown key: 'instance'"),
        ({"agent": {"version": 1}, "records": []}, "agent.version must be a text"),
        ({"agent": {"version": "1"}, "records": [{}] * 241}, "records has 241 entries"),
        ({"agent": {"version": "1"}, "records": [{"at": 1, "over_s": 1, "signals": {}}]}, "records[0].at must be between"),
        (beat({"at": 1795219215000, "over_s": 15, "signals": {"gpu_util": "9"}}), "signals.gpu_util must be a number"),
        (beat({"at": 1795219215000, "over_s": 10**400, "signals": {}}), "records[0].over_s must be a number"),
        (beat(ask=[{"id": "a", "what": "stop", "for_s": 1}]), "ask[0].what is not a request that an agent may make: 'stop'"),
        (beat(ask=[{"id": "a b", "what": "busy", "for_s": 1}]), "ask[0].id is not an id"),
    ],
)  # fmt: skip
def test_a_beat_of_another_shape_is_refused_with_the_field_named(desk: Rig, body: object, words: str) -> None:
    agent = desk.joined(ONE)
    assert words in refused(desk, envelope(agent, 1, NOON, body), "malformed")


def test_a_value_that_cannot_be_is_missing_and_the_agent_is_told(desk: Rig) -> None:
    agent = desk.joined(ONE)
    bad = record(NOON, 60.0, gpu_util=140.0, network_bytes_s=-1.0, cpu_util=3.0, tensor_util=1.0)
    answer = desk.send(envelope(agent, 1, NOON, beat(bad)))
    assert [one.signal for one in desk.samples(ONE)] == ["cpu_util"]
    assert [text.split()[0] for text in answer["notices"]] == ["gpu_util", "network_bytes_s", "'tensor_util'"]


def test_records_of_an_outage_become_samples_and_none_counts_twice(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.clock.advance(timedelta(minutes=30))
    lines = [record(NOON + 15 * S * k, gpu_util=k / 2) for k in range(1, 121)]
    desk.send(envelope(agent, 1, desk.clock.now(), beat(*lines)))
    samples = desk.samples(ONE)
    assert [one.at for one in samples] == [NOON + MIN * k for k in range(1, 31)]
    desk.send(envelope(agent, 2, desk.clock.now(), beat(*lines)))
    assert desk.samples(ONE) == samples
    assert desk.commits._states[agent].waiting == ()


def test_a_clock_that_is_off_moves_its_records_and_future_ones_do_not_count(desk: Rig) -> None:
    agent, ahead = desk.joined(ONE), 90 * S
    message = beat(record(NOON + ahead, 60.0, gpu_util=9.0), record(NOON + ahead + MIN, 60.0, gpu_util=99.0))
    desk.send(envelope(agent, 1, NOON + ahead, message))
    assert [(one.at, one.value) for one in desk.samples(ONE)] == [(NOON, 9.0)]


def test_a_quiet_claim_is_missing_where_the_provider_just_measured_work(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.heard.add_provider_samples([Sample(key=ONE, signal=GPU_UTIL, at=NOON, value=80.0)])
    desk.send(envelope(agent, 1, NOON, beat(record(NOON, 60.0, gpu_util=0.0, cpu_cores=0.0))))
    assert [one.signal for one in desk.samples(ONE)] == [CPU_CORES]
    desk.clock.advance(timedelta(minutes=20))
    at = desk.clock.now()
    desk.send(envelope(agent, 2, at, beat(record(at, 60.0, gpu_util=0.0))))
    assert [one.value for one in desk.samples(ONE) if one.signal == GPU_UTIL] == [0.0]


def test_asks_become_bounded_wishes_once(desk: Rig) -> None:
    agent = desk.joined(ONE)
    asks = [
        {"id": "a", "what": "phase", "name": "download", "for_s": 3 * 3600},
        {"id": "b", "what": "busy", "for_s": 7200},
        {"id": "c", "what": "keep", "for_s": 3600, "why": "evaluation"},
        {"id": "d", "what": "keep", "for_s": 3600},
        {"id": "e", "what": "busy", "for_s": 25 * 3600},
    ]
    told = desk.send(envelope(agent, 1, NOON, beat(ask=asks)))["asked"]
    assert {name: bool(why) for name, why in told.items()} == {"a": False, "b": False, "c": False, "d": True, "e": True}
    assert desk.send(envelope(agent, 2, NOON, beat(ask=asks)))["asked"] == told
    with LedgerReader(desk.url) as reader, reader.snapshot() as ask:
        found = ask("SELECT what, subject, who, external_id FROM wish ORDER BY id", ())
    assert found == [
        (PHASE, "download", "agent of i-0", "i-0"),
        (PHASE, "busy", "agent of i-0", "i-0"),
        (LEASE, "", "agent of i-0", "i-0"),
    ]


def test_an_agent_alone_cannot_delay_for_ever(desk: Rig) -> None:
    agent, granted = desk.joined(ONE), 0
    for number in range(1, 30):
        at = desk.clock.now()
        ask = {"id": f"a{number}", "what": "busy", "for_s": 7200}
        granted += desk.send(envelope(agent, number, at, beat(ask=[ask])))["asked"][f"a{number}"] == ""
        desk.clock.advance(timedelta(hours=2))
    assert granted == 12, "a day of phases in one run of the machine"


def test_what_happened_to_agents_stands_in_the_audit_and_a_changed_key_is_found(desk: Rig) -> None:
    agent = desk.joined(ONE)
    message = envelope(agent, 1, NOON, beat(), secret=OTHER)
    for _ in range(3):
        refused(desk, message, "foreign")
    desk.send(envelope(agent, 1, NOON, beat()))
    desk.book.revoke(agent, who="ada@desk", now=NOON)
    with LedgerReader(desk.url) as reader, reader.snapshot() as ask:
        kinds = [row.kind for row in iterate_entries(ask) if row.kind != "rows"]
        assert kinds == ["began", "enrolled", "joined", "refused", "revoked"]
        assert check_audit(ask)[1] == []


def test_what_cannot_be_written_is_answered_so_and_not_remembered(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(ONE)
        before = desk.state()
        desk.commits.book = _FullDisk()  # type: ignore[assignment]  # a book whose disk is full
        with pytest.raises(MessageRefusedError, match="unwritable"):
            desk.send(envelope(agent, 1, NOON, beat(record(NOON, 60.0))))
        desk.commits.book = desk.book
        assert desk.state() == before
        assert desk.send(envelope(agent, 1, NOON, beat(record(NOON, 60.0))))["seq"] == 1
        assert len(desk.samples(ONE)) == 2


class _FullDisk:
    """A book in which nothing can be written."""

    def begin_transaction(self) -> object:
        """Raises as the ledger does."""
        from costguard.errors import LedgerError

        raise LedgerError("the disk is full", field="ledger.db")


def test_many_messages_at_once_are_one_transaction(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path), machines=40, together_s=0.2) as desk:
        agents = {one: desk.joined(one, code=f"CODE{n:04}", secret=bytes([n + 1]) * 32) for n, one in enumerate(keys(40))}
        messages = [
            desk.checked(envelope(name, 1, NOON, beat(record(NOON, 60.0)), secret=bytes([n + 1]) * 32))
            for n, name in enumerate(agents.values())
        ]
        before = desk.commits.committed
        answers = [desk.commits.submit(one) for one in messages]
        assert all(one.result(timeout=30) == {} for one in answers)
        assert desk.commits.committed - before <= 3
        assert replace(desk.agent(agents[keys(40)[7]]), troubles=()).seq == 1
        assert SECRET != OTHER
