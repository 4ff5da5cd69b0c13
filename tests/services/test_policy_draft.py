"""A change of a policy on the page: read as the settings file is read, replayed over the same history, and compared."""

from __future__ import annotations

import tomllib
from datetime import timedelta

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from costguard.budgets.budget import list_filter_words
from costguard.errors import InputError
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.policy_draft import TEXT_CHARS_MAX, read_policy_draft, simulate_policy_change, write_policy_text
from costguard.services.serving.web_answers import build_budget_draft
from costguard.services.serving.web_pages import PageServices
from costguard.settings.budgets import read_budgets
from costguard.web.pages import build_page_router
from tests.services.test_simulate import QUIET, played
from tests.web.logins import invite

POLICY = """
[[policy]]
name = "idle-gpu"
arm = "stop"
match = { gpu = true }
when = 'state == "idle" && confidence >= 0.9'
for = "20m"
then = [{ do = "notify" }, { after = "10m", do = "stop" }]
"""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> PageServices:
    folder = tmp_path_factory.mktemp("draft")
    outcome = played(folder, QUIET)
    config = folder / "costguard.toml"
    config.write_text(f'[ledger]\nurl = "{outcome.stage.ledger_url}"\n{POLICY}')
    now = outcome.stage.story.end + timedelta(minutes=1)
    return PageServices(config=str(config), clock=lambda: now)


def figures(services: PageServices, text: str) -> dict[str, tuple[str, str, str]]:
    change, _, _ = simulate_policy_change(services, "idle-gpu", text, "1d")
    return {str(one["name"]): (str(one["before"]), str(one["after"]), str(one["difference"])) for one in change.records}


def test_the_policy_of_the_file_is_shown_as_toml_that_reads_as_itself(services: PageServices) -> None:
    text = write_policy_text(services, "idle-gpu")
    (policy,) = services.settings.policies
    assert read_policy_draft(services.settings, text, "idle-gpu") == policy
    assert text.splitlines()[0] == "[[policy]]"
    assert write_policy_text(services, "another") == ""


@pytest.mark.parametrize(
    ("old", "new", "machines", "difference"),
    [
        ('for = "20m"', 'for = "30m"', "1", ""),
        ('state == "idle" && confidence >= 0.9', 'state == "idle" && rate > usd_per_hour(100)', "0", "-1"),
        ("match = { gpu = true }", 'match = { owners = ["nobody"] }', "0", "-1"),
        ('{ after = "10m", do = "stop" }', '{ after = "90m", do = "notify", to = "admin" }', "0", "-1"),
    ],
    ids=["wait", "condition", "selector", "steps"],
)
def test_any_change_that_a_file_can_say_is_compared(
    services: PageServices, old: str, new: str, machines: str, difference: str
) -> None:
    assert old in POLICY
    found = figures(services, POLICY.replace(old, new))
    assert found["machines"] == ("1", machines, difference)
    if new == 'for = "30m"':  # ten minutes later: 100 of 110 minutes at $32.77, less the disk
        assert found["machine-hours stopped"] == ("1.8", "1.7", "-0.2")
        assert found["saved, USD"][2] == "-$5.45"
    else:
        assert found["saved, USD"][2].startswith("-$59.9")


def test_the_machines_that_only_one_of_them_stops_are_named(services: PageServices) -> None:
    change, before, after = simulate_policy_change(services, "idle-gpu", POLICY.replace('"idle"', '"hung"'), "1d")
    assert change.lead == ("The change would have stopped 0 more and 1 fewer machines.",)
    assert change.notes[0] == "Stopped only before the change: box of ada (A100-80GB-SXM)"
    assert ("1 would-be stops" in before.lead[0], "none would have been stopped" in after.lead[0]) == (True, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (POLICY.replace("state ==", "stat =="), "stat"),
        (POLICY.replace("arm", "arms"), "unknown key 'arms'"),
        (POLICY.replace('"idle-gpu"', '"other"'), "keep the name idle-gpu"),
        (POLICY * 2, "is not one policy"),
        (f'{POLICY}\n[ledger]\nurl = "sqlite:////etc/passwd"', "is not one policy"),
        ('policy = "x"\n[[policy]]', "is not valid TOML"),
        ("name = ", "is not valid TOML"),
        ("a = " + "[" * 900, "is not valid TOML"),
        (POLICY.replace('do = "stop"', 'do = "hook", run = "rm"'), "rm"),
        (POLICY.replace('for = "20m"', ""), "is missing"),
        ("#" * (TEXT_CHARS_MAX + 1), "has more than"),
    ],
)
def test_a_change_that_a_file_may_not_say_is_refused_with_its_place(services: PageServices, text: str, told: str) -> None:
    with pytest.raises(InputError, match="the change") as error:
        figures(services, text)
    assert told in str(error.value)


def test_the_page_shows_the_text_compares_it_and_says_what_is_wrong(services: PageServices) -> None:
    app = FastAPI()
    app.include_router(build_page_router(services))
    client = TestClient(app, base_url="http://localhost")
    client.post(invite(str(services.settings.ledger.url), "ada", "viewer"), follow_redirects=False)
    services.clock = get_now
    page = client.get("/policies?policy=idle-gpu").text
    assert "confidence &gt;= 0.9" in page
    assert "Before and after" not in page
    changed = client.get("/policies", params={"policy": "idle-gpu", "text": POLICY.replace("20m", "30m"), "since": "60d"}).text
    assert "Before and after" in changed
    wrong = client.get("/policies", params={"policy": "idle-gpu", "text": POLICY.replace("arm", "arms")}).text
    assert "unknown key &#39;arms&#39;" in wrong
    assert "arms = &#34;stop&#34;" in wrong


def test_a_budget_is_tried_on_the_ledger_and_comes_as_toml_that_reads_as_itself(services: PageServices) -> None:
    query = {"name": "try", "cap": "1 USD", "period": "total", "only": "provider=aws,team=cv", "hard": "yes"}
    document, text = build_budget_draft(services, {**query, "only": ""})
    (row,) = document.tables[0].rows
    cells = dict(zip((name.rstrip(">") for name in document.tables[0].columns), row, strict=True))
    assert cells["budget"] == "try"
    assert float(cells["spent"].partition(" ")[0].replace(",", "")) > 1
    assert "may be stopped" in document.notes[-1]
    _, narrowed = build_budget_draft(services, query)
    settings = services.settings
    (budget,) = read_budgets(tomllib.loads(narrowed)["budget"], "text", settings.defaults.timezone, settings.display)
    assert (budget.hard, list_filter_words(budget.match)) == (True, ("provider=aws", "team=cv"))
    assert "match" not in tomllib.loads(text)["budget"][0]
    with pytest.raises(InputError, match='write "200 USD"'):
        build_budget_draft(services, {"name": "try", "cap": "$200"})
