"""Launch times from the audit log: joined by id, read in sweeps, kept between two starts, and missing where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from costguard_lambda.launches import FORBIDDEN_FOR, PATIENCE, LaunchTimes, parse_audit_lines
from costguard_lambda.wire import AuditEvent, ItemPage

from costguard.errors import ForbiddenError, UnreachableError
from costguard.metering.inventory import Complete
from costguard.providers.transport import Deadline
from tests.fakes.lambda_ import OWNER
from tests.fakes.server import START
from tests.providers.lambda_.open_fake import account, items, polled
from tests.providers.lambda_.rig import LambdaRig


@dataclass
class Kept:
    """A cache in memory."""

    held: dict[str, bytes] = field(default_factory=dict)

    def get(self, name: str, youngest: datetime) -> bytes | None:  # noqa: ARG002 - the port's signature
        return self.held.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.held[name] = data


@dataclass
class Log:
    """An audit log: (days ago, action, id), and what was asked of it."""

    lines: Sequence[tuple[float, str, str]]
    size: int = 2
    asked: list[tuple[datetime | None, str]] = field(default_factory=list)

    def ask(self, start: datetime | None, token: str) -> ItemPage[AuditEvent]:
        self.asked.append((start, token))
        events = [event(action, id_, ago) for ago, action, id_ in sorted(self.lines, reverse=True)]
        events = [one for one in events if start is None or str(one.event_time) >= start.isoformat()]
        first = int(token or 0)
        after = first + self.size
        return ItemPage(items=tuple(events[first:after]), token=str(after) if after < len(events) else "")


def event(action: str, id_: str, ago: float) -> AuditEvent:
    at = (START - timedelta(days=ago)).isoformat()
    lrns = [f"lrn:cloud:instance:{id_}"]
    return AuditEvent(event_time=at, resource_name="instance", action=action, resource_lrns=lrns, resource_owner_lrn=OWNER)


def dated(launches: LaunchTimes) -> Mapping[str, float]:
    """Id -> days ago."""
    return {id_: (START - at) / timedelta(days=1) for id_, at in (launches.dated or {}).items()}


def learn(launches: LaunchTimes, log: Log, *ids: str, at: datetime = START) -> str:
    return launches.learn(ids, log.ask, at, Deadline(60))


def test_a_recent_launch_is_found_without_reading_the_whole_log() -> None:
    log, launches = Log([(300, "created", "old"), (2, "created", "new")]), LaunchTimes(Kept(), "x")
    assert learn(launches, log, "new") == ""
    assert dated(launches) == {"new": 2}
    assert log.asked == [(START - timedelta(days=7), "")]


def test_an_old_launch_is_found_by_reading_all_of_it() -> None:
    log, launches = Log([(300, "created", "old"), (2, "restarted", "old")]), LaunchTimes(Kept(), "x")
    learn(launches, log, "old")
    assert dated(launches) == {"old": 300}


def test_a_restart_never_dates_a_launch_that_may_lie_before_what_was_read() -> None:
    log, launches = Log([(n, "restarted", "one") for n in range(8, 60)] + [(2, "restarted", "one")]), LaunchTimes(Kept(), "x")
    learn(launches, log, "one")
    assert dated(launches) == {}, "ten pages were read, and not all"
    for _ in range(5):
        learn(launches, log, "one")
    assert dated(launches) == {"one": 59}, "the earliest line of the whole log"


def test_a_long_log_is_read_on_by_the_next_polls() -> None:
    log = Log([(100 + n, "created", f"other-{n}") for n in range(50)] + [(50, "created", "one")])
    launches = LaunchTimes(Kept(), "x")
    polls = 0
    while "one" not in dated(launches):
        learn(launches, log, "one")
        polls += 1
    assert polls == 3
    assert len(log.asked) == 1 + 26


def test_what_is_new_is_read_from_where_the_last_reading_ended() -> None:
    log, launches = Log([(2, "created", "one")]), LaunchTimes(Kept(), "x")
    learn(launches, log, "one")
    log.asked.clear()
    later = START + timedelta(hours=5)
    log.lines = [*log.lines, (-0.2, "created", "two")]
    learn(launches, log, "one", "two", at=later)
    assert set(dated(launches)) == {"one", "two"}
    assert log.asked == [(START - timedelta(minutes=15), "")]


def test_an_instance_that_the_log_never_names_is_given_up() -> None:
    log, launches = Log([(2, "created", "one")]), LaunchTimes(Kept(), "x")
    learn(launches, log, "stranger")
    learn(launches, log, "stranger", at=START + PATIENCE)
    log.asked.clear()
    learn(launches, log, "stranger", at=START + 2 * PATIENCE)
    assert log.asked == []


def test_what_an_earlier_process_dated_is_known_before_the_first_listing() -> None:
    """Else a look at a machine contradicts its listing, and it counts as replaced."""
    cache = Kept()
    learn(LaunchTimes(cache, "x"), Log([(2, "created", "one")]), "one")
    assert set(LaunchTimes(cache, "x").list_dated(START)) == {"one"}


@pytest.mark.parametrize("held", [b"", b"x", b"[]", b"null", b'{"one": "no time"}', b'{"one": []}', b"\xff"])
def test_a_spoilt_cache_is_as_good_as_none(held: bytes) -> None:
    launches, log = LaunchTimes(Kept({"x": held}), "x"), Log([(2, "created", "one")])
    learn(launches, log, "one")
    assert dated(launches) == {"one": 2}


def test_a_forbidden_log_is_left_alone_for_an_hour_and_said() -> None:
    asked = list[str]()

    def forbidden(start: datetime | None, token: str) -> ItemPage[AuditEvent]:  # noqa: ARG001 - the signature
        asked.append(token)
        raise ForbiddenError("no", provider="lambda")

    launches = LaunchTimes(Kept(), "x")
    for minutes in (0, 1, 30):
        assert "first seen" in launches.learn({"one"}, forbidden, START + timedelta(minutes=minutes), Deadline(60))
    assert len(asked) == 1
    launches.learn({"one"}, forbidden, START + FORBIDDEN_FOR + timedelta(minutes=1), Deadline(60))
    assert len(asked) == 2


def test_a_log_that_fails_is_said_and_asked_again_by_the_next_poll() -> None:
    def broken(start: datetime | None, token: str) -> ItemPage[AuditEvent]:  # noqa: ARG001 - the signature
        raise UnreachableError("failed (503)", provider="lambda")

    launches, log = LaunchTimes(Kept(), "x"), Log([(2, "created", "one")])
    assert "503" in launches.learn({"one"}, broken, START, Deadline(60))
    assert learn(launches, log, "one") == ""
    assert dated(launches) == {"one": 2}


def test_a_page_that_leads_to_itself_ends_the_reading() -> None:
    asked = list[str]()

    def circle(start: datetime | None, token: str) -> ItemPage[AuditEvent]:  # noqa: ARG001 - the signature
        asked.append(token)
        return ItemPage(items=(), token="again")  # noqa: S106 - a page's, no secret

    LaunchTimes(Kept(), "x").learn({"one"}, circle, START, Deadline(60))
    assert len(asked) <= 10


@pytest.mark.parametrize(
    "odd",
    [
        AuditEvent(),
        AuditEvent(event_time="x", resource_lrns=["lrn:cloud:instance:a"]),
        AuditEvent(event_time="2026-11-21T10:00:00Z", resource_name="api_key", resource_lrns=["lrn:cloud:instance:a"]),
        AuditEvent(
            event_time="2026-11-21T10:00:00Z",
            resource_lrns=["lrn:cloud:api_key:a", "a", "", "instance:", "lrn:cloud:instance:"],
        ),
    ],
)
def test_a_line_that_is_about_no_instance_dates_none(odd: AuditEvent) -> None:
    assert parse_audit_lines(odd) == []


def test_without_the_log_the_listing_is_whole_and_undated_and_says_so(rig: LambdaRig, tmp_path: Path) -> None:
    rig.fake.log = False
    rig.put(2)
    with account(rig, tmp_path) as source:
        poll = polled(source)
        assert source.fetch_identity() is None
    assert isinstance(poll.inventory, Complete)
    assert {seen.created_at for seen in items(poll).values()} == {None}
    assert len(poll.notes) == 1


def test_the_owner_of_the_account_is_who_it_is(rig: LambdaRig, tmp_path: Path) -> None:
    with account(rig, tmp_path) as source:
        assert source.fetch_identity() == OWNER
