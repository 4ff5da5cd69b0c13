"""A team's own report: only its spending, with its budgets, by mail on its day, and what a hard cap cut off is no saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from costguard.api import report
from costguard.budgets.budget import MATCH_ALL, ResourceFilter, covers_filter, list_filter_words
from costguard.data import ShippedFacts
from costguard.errors import CostguardError
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.mcp.tools import McpContext, call_tool
from costguard.reporting.schedule import list_due_reports
from costguard.reporting.statement.period import parse_report_period
from costguard.reporting.statement.statement import Statement
from costguard.services.report import ledger_answers
from costguard.services.report.report import ReportQuestion, build_full_statement
from costguard.services.report.report_delivery import compose_report_messages
from costguard.services.serving.web_answers import answer_page_report
from costguard.services.serving.web_pages import PageServices
from costguard.settings import Settings, check_settings
from costguard.settings.budgets import parse_filter
from costguard.views.report import build_report_document
from costguard.views.report_sections import SAVED_MEANS
from tests.conftest import Command
from tests.golden.test_golden import NOON, polls
from tests.services.test_full_report import told
from tests.stories import parse_story, play_story
from tests.stories.guard_player import GuardPlayer

TEAMS = """
[[budget]]
name = "all"
cap = "90000 USD"
[[budget]]
name = "ada"
cap = "2000 USD"
match = { owners = ["ada"] }
[[budget]]
name = "vision"
cap = "4000 USD"
match = { labels = { team = ["vision"] } }
[[report]]
name = "ada"
every = "month"
to = ["console"]
match = { owners = ["ada"] }
[[report]]
name = "ben"
every = "month"
to = ["console"]
match = { owners = ["ben"] }
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The ledger of the samples: ada's machine in the team vision, ben's stopped one, and one that nobody owns."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    monkeypatch.setattr(ledger_answers, "get_now", lambda: NOON)
    text = f"{TEAMS}[ledger]\nurl = '{url}'\n"
    (tmp_path / "costguard.toml").write_text(text)
    return check_settings(text, "costguard.toml")


def letter_of(settings: Settings, name: str) -> str:
    (schedule,) = (one for one in settings.reports if one.name == name)
    (owed,) = list_due_reports(schedule, NOON - timedelta(days=9), NOON, UTC)
    (message,) = compose_report_messages(settings, schedule, owed, NOON)
    return "\n".join(line for part in message.letter for line in part)


def test_each_team_gets_its_own_letter(settings: Settings) -> None:
    ada, ben = letter_of(settings, "ada"), letter_of(settings, "ben")
    assert ada.splitlines()[1].startswith("2026-10 (UTC), only owner ada: $")
    assert "Budget ada: $1,770.73 of $2,000.00, month (UTC): 89 %." in ada
    assert "Budget vision" not in ada  # the team may be more than ada
    assert "train-1" in ada
    assert "old <b>box</b>" not in ada
    assert "Full report: costguard report --month 2026-10 --only owner=ada --by" in ada
    assert "old <b>box</b>" in ben
    assert "train-1" not in ben
    assert "Budget" not in ben
    assert "Unallocated, and not in this report: $0.00 (0.00 to 16.00) has no owner." in ada


@pytest.mark.usefixtures("settings")
def test_the_parts_of_all_owners_add_up_to_the_whole(costguard: Command) -> None:
    def total(*only: str) -> int:
        words = [word for one in only for word in ("--only", one)]
        data = costguard("report", "--month", "2026-10", *words, "--json").data
        assert sum(nano(group["usd"]["expected"]) for group in data["groups"]) == nano(data["totals"]["expected"])
        return nano(data["totals"]["expected"])

    def nano(text: str) -> int:
        whole, _, rest = text.partition(".")
        return int(whole) * 10**9 + int(rest.ljust(9, "0"))

    assert total() == total("owner=ada") + total("owner=ben")
    assert total("owner=ada", "owner=ben") == total()
    assert total("team=vision") == total("owner=ada") == total("owner=ada", "team=vision")
    assert total("owner=ben", "team=vision") == 0


def test_the_days_of_a_chart_are_those_of_the_filter(settings: Settings) -> None:
    statement = ask(settings, ResourceFilter(owners=("ada",)))
    assert statement.days is not None
    assert sum(map(sum, statement.days.parts.values())) == statement.usd.total.expected.nano
    assert statement.burn is None


def ask(settings: Settings, match: ResourceFilter) -> Statement:
    asked = parse_report_period({"month": "2026-10"}, NOON, UTC)
    question = ReportQuestion(
        asked=asked, by=("charge",), zone=UTC, as_of=NOON, pause=timedelta(minutes=5), drawn=True, match=match
    )
    with ledger_answers.open_books(settings, ReportReader) as books:
        return build_full_statement(accounts=books, question=question, rules=ShippedFacts().get_billing_rules())


@pytest.mark.usefixtures("settings")
def test_a_name_that_selects_nothing_is_said(costguard: Command) -> None:
    out = costguard("report", "--month", "2026-10", "--only", "owner=adda").out
    assert "It selects no charge of this period: costguard report --by owner,team,project lists the names." in out


@pytest.mark.usefixtures("settings")
def test_what_is_not_counted_is_one_line_and_all_lists_it(costguard: Command) -> None:
    folded, full = (costguard("report", "--month", "2026-10", *more).out for more in ((), ("--all",)))
    assert folded.count("Not counted") == 1
    assert "Not counted in full: 1 resource without a price; 1 group at an estimated price; " in folded
    assert "; 9 kinds of cost of aws, vast. costguard report --all lists them." in folded
    assert full.count("Not counted: ") > 5


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (("owner",), "is not KEY=VALUE"),
        (("owner=",), "is not KEY=VALUE"),
        (("ownr=ada",), "unknown key 'ownr'"),
        (("gpu=A100",), "matches several GPUs"),
        (("tier=spott",), "spott"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(texts: tuple[str, ...], what: str) -> None:
    with pytest.raises(CostguardError, match=what):
        parse_filter(texts, "--only")


def test_a_filter_is_written_as_it_is_read() -> None:
    texts = ("owner=ada", "owner=ben", "tier=spot", "project=x", "team=cv")
    match = parse_filter(texts, "--only")
    assert parse_filter(list_filter_words(match), "--only") == match
    assert parse_filter((), "--only") == MATCH_ALL


def test_a_budget_belongs_to_the_report_that_selects_all_of_it() -> None:
    ada, team = ResourceFilter(owners=("ada",)), ResourceFilter(labels=(("team", ("cv",)),))
    assert covers_filter(MATCH_ALL, ada)
    assert covers_filter(ada, ResourceFilter(owners=("ada",), gpus=("L4",)))
    assert covers_filter(team, ResourceFilter(labels=(("project", ("x",)), ("team", ("cv",)))))
    assert not covers_filter(ada, MATCH_ALL)
    assert not covers_filter(ada, ResourceFilter(owners=("ada", "ben")))
    assert not covers_filter(team, ada)


CAPPED = """
title: A cap ends work
hazard: GUARD 9
start: 2026-11-06 16:00
end: 19:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, stops-in 2m
budgets
  all  $50 month, hard
events
  16:00  box busy
"""


def test_work_that_a_hard_cap_ended_is_no_saving(tmp_path: Path) -> None:
    outcome = play_story(parse_story(CAPPED.lstrip()), GuardPlayer, tmp_path)
    day = datetime(2026, 11, 6, tzinfo=UTC)
    found = told(outcome, day, day + timedelta(days=2), at=day + timedelta(days=3))
    (saving,) = found.saved.savings
    assert (saving.act.policy, saving.act.cut, found.saved.counted) == ("budget:all", True, ())
    assert found.saved.get_net("USD").high.nano == 0
    lead = build_report_document(found).lead
    assert "Saved by the guard: $0.00, by 0 acts; 1 stop of work by a hard cap not counted." in lead
    assert "hard cap" in SAVED_MEANS


def test_python_agents_and_pages_select_by_the_same_words_as_the_command(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_answers, "get_now", lambda: NOON)
    config, month, words = str(tmp_path / "costguard.toml"), "2026-10", ("owner=ada", "team=vision")
    totals = ledger_answers.answer_report(period={"month": month}, only=words, config=config).document.data["totals"]
    assert totals != report(month=month, config=config).data["totals"]
    assert totals == report(month=month, only=words, config=config).data["totals"]
    assert totals == report(month=month, only="owner=ada", config=config).data["totals"]  # ada is all of vision
    reply = call_tool("report", {"month": month, "only": list(words)}, McpContext(config=config))
    assert totals == (reply.data or {})["totals"]
    pages = cast("PageServices", SimpleNamespace(settings=settings, clock=lambda: NOON))
    assert totals == answer_page_report(pages, {"month": month, "only": ",".join(words)}).data["totals"]
    with pytest.raises(CostguardError, match="ovner"):
        answer_page_report(pages, {"only": "ovner=ada"})
