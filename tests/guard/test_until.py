"""The date that ends a machine: what is read as one, what is refused, and what it means for a policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costguard.errors import InputError
from costguard.guard.overrides import UNTIL, Override
from costguard.guard.policy import LIMIT_RULE, PASSED, UNTIL_MISSING
from costguard.guard.until import AHEAD, find_until_override, parse_until, read_end_date
from costguard.metering.observation import identify_incarnation
from costguard.settings import check_settings
from tests.guard.cases import machine, wish

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
SIX = datetime(2026, 12, 1, 18, tzinfo=UTC)
NO_DATE, NO_TIME, NO_ZONE, ODD_ZONE = (
    "is no date with a time and a zone",
    "is a time that does not exist",
    "has no time zone",
    "has a zone that does not exist",
)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-01T18:00Z", SIX),
        ("2026-12-01T18:00:00Z", SIX),
        ("2026-12-01T18:00:00.000Z", SIX),
        ("2026-12-01T18:00:00.250000+00:00", SIX + timedelta(milliseconds=250)),
        ("2026-12-01 18:00Z", SIX),
        (" 2026-12-01T18:00Z\n", SIX),
        ("2026-12-01t18:00z", SIX),
        ("2026-12-01t18-00z", SIX),
        ("2026-12-01t18-00-30z", SIX + timedelta(seconds=30)),
        ("2026-12-01T23:30+05:30", SIX),
        ("2026-12-01T23:30+0530", SIX),
        ("2026-12-01T10:00-08:00", SIX),
        ("2026-12-02T08:00+14:00", SIX),
        ("2099-01-01T00:00Z", datetime(2099, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_date_with_a_zone_is_read_as_utc(text: str, at: datetime) -> None:
    assert parse_until(text) == at


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("2026-12-01T18:00", NO_ZONE),
        ("2026-12-01 18:00:00", NO_ZONE),
        ("2026-12-01", NO_DATE),
        ("2026-12-01t18-00", NO_DATE),
        ("2026-12-01T18-05", NO_DATE),
        ("2026-12-01t18-05-05-30", NO_DATE),
        ("2026-12-01T18:00 CET", NO_DATE),
        ("2026-12-01T18:00 Europe/Berlin", NO_DATE),
        ("2026-12-01T18:00+19:00", ODD_ZONE),
        ("2026-12-01T25:00Z", NO_TIME),
        ("2026-11-31T18:00Z", NO_TIME),
        ("0001-01-01T00:00+05:00", NO_TIME),
        ("9999-12-31T23:59-05:00", NO_TIME),
        ("01.12.2026 18:00", NO_DATE),
        ("12/01/2026 6pm", NO_DATE),
        ("1764612000", NO_DATE),
        ("tomorrow", NO_DATE),
        ("20261201T180000Z", NO_DATE),
        ("4h", NO_DATE),
        ("never", NO_DATE),
        ("Tue, 01 Dec 2026 18:00:00 GMT", NO_DATE),
        ("\uff12\uff10\uff12\uff16-12-01T18:00Z", NO_DATE),
        ("2026-12-01T18:00Z" * 1000, NO_DATE),
    ],
)
def test_a_text_that_is_no_date_with_a_zone_is_refused_with_what_to_write(text: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_until(text)
    assert refused.value.what == what
    assert refused.value.hint is not None
    assert "write 2026-12-01T18:00Z" in refused.value.hint


def label(text: str, key: str = "costguard:until") -> tuple[tuple[str, str], ...]:
    return ((key, text), ("team", "vision"))


@pytest.mark.parametrize(
    ("labels", "state", "fault", "why"),
    [
        ((), UNTIL_MISSING, False, "no label costguard:until"),
        (label("2026-12-01T18:00Z"), AHEAD, False, "2026-12-01T18:00Z ends it at"),
        (label("2026-12-01T12:00Z"), PASSED, False, "ends it at"),
        (label("2026-12-01T12:00:01Z"), AHEAD, False, "ends it at"),
        (label("2026-12-01t11-00z", "Costguard-Until"), PASSED, False, "ends it at"),
        (label("2026-12-08T12:00Z"), AHEAD, False, "ends it at"),
        (label("2026-12-08T12:01Z"), UNTIL_MISSING, True, "more than 7 d ahead"),
        (label("2099-01-01T00:00Z"), UNTIL_MISSING, True, "more than 7 d ahead"),
        (label("2026-12-01T18:00"), UNTIL_MISSING, True, "costguard:until=2026-12-01T18:00 has no time zone: write"),
        (label(""), UNTIL_MISSING, True, "costguard:until= is empty: write"),
        (label("1970-01-01T00:00Z"), UNTIL_MISSING, True, "from before the machine was created"),
        (label("x\x1b[31m\n" * 99), UNTIL_MISSING, True, "is no date"),
        ((*label("2026-12-01T11:00Z"), ("costguard-until", "2026-12-02T11:00Z")), UNTIL_MISSING, True, "differ"),
    ],
)
def test_a_label_ends_a_machine_or_counts_as_missing_with_the_reason(
    labels: tuple[tuple[str, str], ...],
    state: str,
    fault: bool,  # noqa: FBT001 - a case
    why: str,
) -> None:
    observation = machine(labels=labels, created_at=NOW - WEEK).observation
    end = read_end_date(observation, None, NOW, WEEK)
    assert (end.state, end.fault, end.at is None) == (state, fault, state == UNTIL_MISSING)
    assert why in end.why
    assert end.why.isprintable()


def until(at: datetime, labels: str = "", **stated: Any) -> Override:  # noqa: ANN401 - any field
    usual: dict[str, Any] = {"subject": "2026-12-01T14:00:00+00:00", "value": labels}
    return wish(UNTIL, machine(), at, **{**usual, **stated})


def test_the_newest_statement_counts_and_a_label_that_changed_since_is_newer() -> None:
    dates = [until(NOW - timedelta(hours=2)), until(NOW - timedelta(hours=1), subject="2026-12-01T11:30:00+00:00")]
    life = identify_incarnation(machine().observation)
    newest = find_until_override(life, dates, NOW)
    assert newest == dates[1]
    assert read_end_date(machine().observation, newest, NOW, WEEK).state == PASSED
    changed = machine(labels=label("2026-12-01T18:00Z")).observation
    assert read_end_date(changed, newest, NOW, WEEK).at == SIX
    same = until(NOW, labels="costguard:until=2026-12-01T18:00Z")
    assert read_end_date(changed, same, NOW, WEEK).why == "ada set its end to 2026-12-01 14:00 UTC"


def test_a_recorded_date_holds_for_one_run_of_the_machine_until_it_is_lifted() -> None:
    life = identify_incarnation(machine().observation)
    restarted = identify_incarnation(machine(started_at=NOW).observation)
    assert find_until_override(restarted, [until(NOW)], NOW) is None
    assert find_until_override(life, [until(NOW, lifted_at=NOW)], NOW) is None


POLICY = """
[[policy]]
name = "end-date"
{more}
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]
"""
BEFORE = ('when = \'age > duration("72h")\'\nrule = "limit"', "7853757ffd7b133b")


@pytest.mark.parametrize(
    ("more", "when"),
    [
        ('match = { until_label = "passed" }', 'until_label == "passed" && power == "running"'),
        (
            'match = { gpu = true, until_label = "missing" }\nwhen = \'gpu == "L4" || age > duration("2h")\'',
            'until_label == "missing" && (gpu == "L4" || age > duration("2h"))',
        ),
    ],
)
def test_a_policy_of_an_until_label_is_a_limit_of_its_own_condition(more: str, when: str) -> None:
    (policy,) = check_settings(POLICY.format(more=more), "costguard.toml").policies
    assert (policy.rule, policy.when.text) == (LIMIT_RULE, when)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ('match = { until_label = "over" }', "until_label"),
        ('match = { until_label = "passed" }\nuntil_max = "31d"', "until_max"),
        ("when = 'until_label == \"passed\"'", "uses until_label, but match has none"),
        ('match = { until_label = "passed" }\nrule = "idle"', "is idle, and an until label is a limit"),
        ('match = { until_label = "passed" }\nwhen = \'state == "idle"\'', "asks for state, and a limit needs no evidence"),
        ('match = { until_label = "passed" }\nschedule = { off = ["20:00-08:00"] }', "cannot be combined with a schedule"),
    ],
)
def test_an_until_label_where_it_has_no_meaning_is_refused(more: str, what: str) -> None:
    with pytest.raises(InputError, match=what.replace("(", r"\(")):
        check_settings(POLICY.format(more=more), "costguard.toml")


def test_another_maximum_is_another_policy_and_one_without_until_label_keeps_its_digest() -> None:
    texts = ['match = { until_label = "passed" }\nuntil_max = "1d"', 'match = { until_label = "passed" }', BEFORE[0]]
    digests = [check_settings(POLICY.format(more=more), "costguard.toml").policies[0].digest for more in texts]
    assert len(set(digests)) == len(texts)
    assert digests[-1] == BEFORE[1]
