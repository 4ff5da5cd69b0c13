"""What the settings file says of the ledger, of time zones, of budgets and of providers, and how slips in it are told."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, time
from fractions import Fraction
from pathlib import Path
from secrets import token_hex
from traceback import format_exception
from zoneinfo import ZoneInfo

import pytest

from costguard.budgets.budget import DEFAULT_THRESHOLDS, Budget, BudgetThreshold, ResourceFilter
from costguard.errors import InputError, UnknownNameError
from costguard.guard.cap_acceptance import describe_cap
from costguard.ledger.db.address import parse_ledger_address
from costguard.reporting.schedule import ReportSchedule
from costguard.reporting.statement.groups import DEFAULT_GROUP_KEYS
from costguard.settings import Settings, check_settings, read_settings, resolve_ledger_url
from costguard.values.money import Money

BERLIN = ZoneInfo("Europe/Berlin")
FULL = """
[defaults]
timezone = "Europe/Berlin"

[[budget]]
name = "all"
period = "month"
cap = "12000 USD"
hard = true

[[budget]]
name = "vision"
match = { labels = { team = "vision" } }
cap = "3000 USD"
warn = ["pace+15%", "forecast>100%", "time_to_cap<24h"]

[[budget]]
name = "trials"
cap = "99.50 EUR"
period = "rolling 7d"
timezone = "Asia/Tokyo"
warn = ["spent > 80%", "time_to_cap<0.5h"]
[budget.match]
providers = ["runpod", "vast"]
accounts = "main"
regions = []
owners = ["alice"]
gpus = ["h100 sxm"]
tiers = ["spot"]
kinds = ["instance"]
labels = { Team = ["a", "b"], project = "x" }
"""


def settings(text: str) -> Settings:
    """What the file `costguard.toml` with this text says."""
    Path("costguard.toml").write_text(text)
    return read_settings(None)


def refused(text: str) -> str:
    """What the refusal of a file with this text says, without its line."""
    with pytest.raises(InputError) as error:
        settings(text)
    assert len(str(error.value).splitlines()) <= 5
    return re.sub(r" \(at line \d+\)", "", str(error.value))


def budget(*lines: str) -> str:
    """A second budget, named vision, with these lines."""
    return "\n".join(('[[budget]]\nname = "all"\ncap = "9 USD"\n[[budget]]\nname = "vision"', *lines))


def test_budgets_come_in_their_order_as_they_are_written() -> None:
    everybody, vision, trials = settings(FULL).budgets
    assert everybody == Budget(name="all", cap=Money.parse("12000"), zone=BERLIN, hard=True)
    assert vision == Budget(
        name="vision",
        cap=Money.parse("3000"),
        zone=BERLIN,
        match=ResourceFilter(labels=(("team", ("vision",)),)),
        warn=DEFAULT_THRESHOLDS,
    )
    assert trials == Budget(
        name="trials",
        cap=Money.parse("99.5", "EUR"),
        period="rolling",
        days=7,
        zone=ZoneInfo("Asia/Tokyo"),
        warn=(
            BudgetThreshold(measure="spent", limit=Fraction(4, 5)),
            BudgetThreshold(measure="time_to_cap", limit=Fraction(1, 2)),
        ),
        match=ResourceFilter(
            providers=("runpod", "vast"),
            accounts=("main",),
            regions=(),
            owners=("alice",),
            gpus=("H100-SXM",),
            tiers=("spot",),
            kinds=("instance",),
            labels=(("team", ("a", "b")), ("project", ("x",))),
        ),
    )


def test_a_cap_an_hour_is_a_budget_of_an_hour_that_warns_of_what_runs() -> None:
    text = '[display]\nrates = ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"]\n[[budget]]\nname = "ada"\ncap = "9.20 EUR/h"'
    (ada,) = settings(text).budgets
    assert (ada.cap, ada.cap_stated) == (Money.parse("10"), Money.parse("9.20", "EUR"))
    assert (ada.period, ada.is_rate, ada.warn) == ("hour", True, (BudgetThreshold(measure="spent", limit=Fraction(1)),))
    assert ada.format_cap() == "9.20 EUR/h (10.00 USD/h at 0.92 EUR to the dollar on 2026-11-01 (ECB))"


def test_without_a_file_there_is_no_budget_and_the_ledger_lies_in_the_platforms_data_folder(tmp_path: Path) -> None:
    found = read_settings(None)
    assert found == Settings()
    assert resolve_ledger_url(found) == f"sqlite:///{tmp_path}/data/costguard/ledger.db"


@pytest.mark.parametrize(
    ("stated", "file"),
    [
        ("sqlite:///ledger.db", "elsewhere/ledger.db"),
        ("sqlite:///../ledger.db", "ledger.db"),
        ("sqlite:////srv/ledger.db", "/srv/ledger.db"),
        ("sqlite:///~/ledger.db", "home/ledger.db"),
    ],
)
def test_a_ledgers_file_starts_at_the_settings_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str, file: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = tmp_path / "elsewhere" / "settings.toml"
    config.parent.mkdir()
    config.write_text(f'[ledger]\nurl = "{stated}"')
    found = parse_ledger_address(resolve_ledger_url(read_settings(str(config)))).path
    assert found is not None
    assert Path(os.path.normpath(found)) == tmp_path / file


def test_variables_win_over_the_file_and_start_where_one_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "elsewhere" / "settings.toml"
    config.parent.mkdir()
    config.write_text('[ledger]\nurl = "sqlite:///a.db"\n[defaults]\ntimezone = "Europe/Berlin"\n')
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", "sqlite:///b.db")
    monkeypatch.setenv("COSTGUARD_DEFAULTS__TIMEZONE", "Asia/Tokyo")
    found = read_settings(str(config))
    assert resolve_ledger_url(found) == "sqlite:///b.db"
    assert found.defaults.timezone == ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        ('cap = "0 USD"', "cap", "must be more than zero, not '0 USD'"),
        ('cap = "0.000 USD"', "cap", "must be more than zero"),
        ('cap = "-5 USD"', "cap", "must be more than zero"),
        ('cap = "3000"', "cap", "must say its currency, and not '3000'"),
        ("cap = 3000", "cap", "must say its currency, and not 3000"),
        ("cap = 30.5", "cap", "must say its currency"),
        ('cap = "$3000"', "cap", "must be an amount of money"),
        ('cap = "3000USD"', "cap", "must be an amount of money"),
        ('cap = "3000 usd"', "cap", "must be an amount of money"),
        ('cap = "3000 dollars"', "cap", "must be an amount of money"),
        ('cap = "NaN USD"', "cap", "must be an amount of money"),
        ('cap = "1..2 USD"', "cap", "is not an amount of money"),
        ('cap = "1.0000000001 USD"', "cap", "is not an amount of money"),
        (f'cap = "{"9" * 400} USD"', "cap", "is not an amount of money"),
        ("cap = true", "cap", "must be an amount of money"),
        ('cap = "$3000"', "cap", 'write "3000 USD"'),
        ('cap = "200 €"', "cap", 'write "200 EUR"'),
        ('cap = "3000 usd"', "cap", 'write "3000 USD"'),
        ('cap = "200/h"', "cap", 'write "200 USD/h"'),
        ('cap = "$12 an hour"', "cap", 'write "12 USD/h"'),
        ('cap = "9 EUR/day"', "cap", 'write cap = "9 EUR" and period = "day"'),
        ('cap = "9 USD/GB"', "cap", 'write an amount and its currency, such as "3000 USD"'),
        ('cap = "0 USD/h"', "cap", "must be more than zero"),
        ('cap = "9 USD/h"\nperiod = "day"', "period", "has no meaning with a cap an hour"),
        ('cap = "9 USD/h"\nwarn = ["pace+15%"]', "warn", "needs a period, and a cap an hour has none"),
        ('cap = "9 USD"\nperiod = "hour"', "period", 'of an hour: cap = "12 USD/h"'),
        ("", "cap", "is missing"),
        ('cap = "9 USD"\nperiod = "weekly"', "period", "did you mean week"),
        ('cap = "9 USD"\nperiod = "7d"', "period", "rolling 7d"),
        ('cap = "9 USD"\nperiod = "rolling 0d"', "period", "at least 1"),
        ('cap = "9 USD"\nperiod = "rolling 99999d"', "period", "at most 3,660"),
        ('cap = "9 USD"\nperiod = 30', "period", "must be text, not 30"),
        ('cap = "9 USD"\ntimezone = "Europe/Berln"', "timezone", "did you mean Europe/Berlin"),
        ('cap = "9 USD"\nhard = "yes"', "hard", "must be true or false, not 'yes'"),
        ('cap = "9 USD"\nhard = 1', "hard", "must be true or false, not 1"),
        ('cap = "9 USD"\nwarn = "80%"', "warn", "unknown warning '80%'"),
        ('cap = "9 USD"\nwarn = ["paces+15%"]', "warn", "did you mean pace"),
        ('cap = "9 USD"\nwarn = ["pace>15%"]', "warn", "pace+15%"),
        ('cap = "9 USD"\nwarn = ["time_to_cap<24%"]', "warn", "time_to_cap<24h"),
        ('cap = "9 USD"\nwarn = ["spent>-1%"]', "warn", "unknown warning"),
        ('cap = "9 USD"\nwarn = [80]', "warn", "must be a list of texts"),
        ('cap = "9 USD"\nmatch = {}', "match", "is empty"),
        ('cap = "9 USD"\nmatch = "aws"', "match", "must be a table"),
        ('cap = "9 USD"\nmatch = { provider = ["aws"] }', "match.provider", "did you mean providers"),
        ('cap = "9 USD"\nmatch = { providers = 5 }', "match.providers", "must be a list of texts, not 5"),
        ('cap = "9 USD"\nmatch = { tiers = ["spots"] }', "match.tiers", "did you mean spot"),
        ('cap = "9 USD"\nmatch = { kinds = ["disk"] }', "match.kinds", "instance, volume, address"),
        ('cap = "9 USD"\nmatch = { gpus = ["H1000"] }', "match.gpus", "unknown GPU"),
        ('cap = "9 USD"\nmatch = { gpus = ["H100"] }', "match.gpus", 'write "H100-SXM", and any others'),
        ('cap = "9 USD"\nmatch = { labels = { tema = "x" } }', "match.labels.tema", "did you mean team"),
        ('cap = "9 USD"\nmatch = { labels = ["team"] }', "match.labels", "must be a table"),
        ('cap = "9 USD"\nmatch = { labels = { team = 5 } }', "match.labels.team", "must be a list of texts"),
        ('cap = "9 USD"\nlimit = 5', "limit", "unknown key 'limit'"),
        ('cap = "9 USD"\nwarm = []', "warm", "did you mean warn"),
    ],
)
def test_a_slip_in_a_budget_names_the_file_the_table_and_the_field(line: str, field: str, said: str) -> None:
    told = refused(budget(line))
    assert told.startswith(f"costguard.toml: budget 2 (vision).{field}: ")
    assert said in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[budget]]\ncap = "9 USD"', "costguard.toml: budget 1.name: is missing"),
        ('[[budget]]\nname = ""\ncap = "9 USD"', "costguard.toml: budget 1.name: must be a name"),
        ('[[budget]]\nname = "a\\nb"\ncap = "9 USD"', "costguard.toml: budget 1.name: must be a name"),
        ("[[budget]]\nname = 5", "costguard.toml: budget 1.name: must be text, not 5"),
        (
            budget('cap = "1 USD"').replace('"all"', '"Vision"'),
            "costguard.toml: budget 2 (vision).name: is also the name of budget 1",
        ),
        ('[budget]\nname = "all"', "costguard.toml: budget: must be a list of tables\nhint: write [[budget]]"),
        ("budget = [1]", "must be a list of tables"),
        ('[[budgets]]\nname = "all"', "did you mean budget"),
        (
            '[defaults]\ntimezone = "Berlin"',
            "costguard.toml: defaults.timezone: unknown time zone 'Berlin'\nhint: did you mean",
        ),
        ('[defaults]\ntimezone = "Mars/Olympus_Mons"', "unknown time zone"),
        ('[defaults]\ntimezone = "Europe"', "unknown time zone"),
        ('[defaults]\ntimezone = "../../etc/passwd"', "unknown time zone"),
        ('[defaults]\ntimezone = ""', "unknown time zone"),
        ("[defaults]\ntimezone = 1", "costguard.toml: defaults.timezone: must be text, not 1"),
        ('[defaults]\ntimezones = "UTC"', "did you mean timezone"),
        ("[ledger]\nurl = 5", "costguard.toml: ledger.url: must be text, not 5"),
        ('[ledger]\nuri = "x"', "did you mean url"),
        ("ledger = 5", "write a [ledger] section"),
        ('providers = ["aws"]', "costguard.toml: providers: must be tables"),
        ('[providers]\nrunpod = "sk-12345"', "costguard.toml: providers.runpod: must be a table, not a text"),
    ],
)
def test_a_slip_in_the_file_says_where(text: str, said: str) -> None:
    told = refused(text)
    assert said in told
    assert "sk-12345" not in told


@pytest.mark.parametrize("name", ["COSTGUARD_BUDGET__CAP", "COSTGUARD_LEDGER__URI", "COSTGUARD_PROVIDERS__RUNPOD"])
def test_a_variable_that_stands_for_nothing_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(UnknownNameError, match=r"(known|sections): .*(COSTGUARD_LEDGER__URL|ledger)"):
        read_settings(None)


def test_provider_tables_are_handed_on_as_they_stand() -> None:
    found = settings(
        '[providers.runpod]\nbase_url = "http://127.0.0.1:1"\ngraphql_url = "x"\n'
        '[providers.gcp]\nanonymous = true\nprojects = ["a"]\nkey_file = "k.json"\napi_key_file = "k"\n'
        'token_env = "T"\nmax_tokens = 5\n'
        "[providers.vast]\n[providers.aws.nested]\nx = 1\n"
    )
    assert found.providers == {
        "runpod": {"base_url": "http://127.0.0.1:1", "graphql_url": "x"},
        "gcp": {
            "anonymous": True,
            "projects": ["a"],
            "key_file": "k.json",
            "api_key_file": "k",
            "token_env": "T",
            "max_tokens": 5,
        },
        "vast": {},
        "aws": {"nested": {"x": 1}},
    }


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "apikey", "API_KEY", "apiKey", "api-key", "runpod_api_key", "token", "access_token", "secret"),
        *("client_secret", "aws_secret_access_key", "access_key_id", "private_key", "password", "passphrase", "Authorization"),
    ],
)
@pytest.mark.parametrize("table", ["[providers.runpod]", "[providers.runpod.deeper]", "[[providers.runpod.list]]"])
def test_a_secret_is_refused_and_never_shown(key: str, table: str) -> None:
    told = refused(f'{table}\n{key} = "sk-12345"')
    assert told.startswith("costguard.toml: providers.runpod")
    assert f"{key}: is a secret" in told
    assert "store it where runpod looks for it" in told
    assert "sk-12345" not in told


def test_a_hard_budget_may_allow_stops_that_lose_data_and_a_soft_one_has_nothing_to_allow() -> None:
    plain = '[[budget]]\nname = "all"\ncap = "10 USD"\n'
    (found,) = check_settings(plain + "hard = true\nallow_irreversible = true\n", "it").budgets
    assert found.allow_irreversible
    (usual,) = check_settings(plain + "hard = true\n", "it").budgets
    assert not usual.allow_irreversible
    with pytest.raises(InputError, match="has no effect without hard"):
        check_settings(plain + "allow_irreversible = true\n", "it")


TENANTS = '[defaults]\ntenant_labels = ["label:Team", "tag:owner"]\n'
POLICY = """[[policy]]\nname = "p"\nwhen = 'state == "idle"'\nfor = "45m"\nthen = [{ do = "notify" }]\n"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[budget]]\nname = "b"\ncap = "9 USD"\nhard = true\nmatch = { labels = { team = "b" } }', ("budget b", "label:Team")),
        ('[[budget]]\nname = "b"\ncap = "9 USD"\nhard = true\nmatch = { owners = ["bob"] }', ("budget b", "tag:owner")),
        (POLICY + 'priority = 3\nmatch = { labels = { team = "b" } }', ("policy p", "label:Team", "priority")),
    ],
)
def test_a_label_that_tenants_set_decides_over_no_machine_of_others(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as refused:
        check_settings(TENANTS + text, "costguard.toml")
    said = str(refused.value)
    assert all(word in said for word in (*words, "which tenants set (defaults.tenant_labels)", "match accounts or regions"))
    check_settings(text, "costguard.toml")
    harmless = text.replace("hard = true", "hard = false").replace("priority = 3", "priority = 0")
    check_settings(TENANTS + harmless, "costguard.toml")
    by_account = '[[budget]]\nname = "b"\ncap = "9 USD"\nhard = true\nmatch = { accounts = ["team-b"] }'
    check_settings(TENANTS + by_account, "costguard.toml")


NOTIFY = """
[notify]
mail = "env:MAIL_URL"
[[notify.route]]
name = "team"
to = ["env:SLACK_URL", "console"]
"""


def reports(text: str) -> tuple[ReportSchedule, ...]:
    return check_settings(text, "costguard.toml").reports


def test_a_report_says_how_often_and_to_whom_and_the_rest_has_defaults() -> None:
    [one] = reports(f'{NOTIFY}[[report]]\nevery = "month"\nto = "lead@lab.org"\n')
    assert one == ReportSchedule(
        name="month", every="month", at=time(8), channels=("mail:lead@lab.org",), by=DEFAULT_GROUP_KEYS, format="html"
    )


def test_it_goes_to_people_routes_and_channels_each_once() -> None:
    [one] = reports(
        f"{NOTIFY}[[report]]\n"
        'name = "lab"\nevery = "week"\nat = "17:30"\nby = ["owner", "label:run"]\nformat = "csv"\n'
        'to = ["lead@lab.org", "team", "env:HOOK", "https://example.com/hook", "console", "lead@lab.org"]\n'
    )
    assert one.channels == ("mail:lead@lab.org", "env:SLACK_URL", "console", "env:HOOK", "https://example.com/hook")
    assert (one.name, one.every, one.at, one.by, one.format) == ("lab", "week", time(17, 30), ("owner", "label:run"), "csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('every = "month"\nto = []', "report 1 (month).to: is empty\nhint: write to = "),
        ('every = "month"', "report 1 (month).to: is missing"),
        ('to = "console"', 'report 1.every: is missing\nhint: write every = "month"'),
        ('every = "year"\nto = "console"', "report 1.every: unknown value 'year'"),
        ('every = "month"\nto = "console"\nat = "8"', "report 1 (month).at: must be a time of day, not '8'"),
        ('every = "month"\nto = "console"\nat = "24:00"', "report 1 (month).at: must be a time of day, not '24:00'"),
        ('every = "month"\nto = "console"\nat = 08:00:30', "report 1 (month).at: must be a whole minute, not 08:00:30"),
        ('every = "month"\nto = "console"\nby = ["ownr"]', "report 1 (month).by: "),
        ('every = "month"\nto = "console"\nby = []', "report 1 (month).by: is empty"),
        ('every = "month"\nto = "console"\nformat = "x y"', "report 1 (month).format: 'x y' is not a name of a format"),
        ('every = "month"\nto = "console"\nform = "csv"', "report 1 (month).form: unknown key 'form'"),
        ('every = "month"\nto = "slack://TOKEN"', "report 1 (month).to: slack:// addresses hold a secret"),
        ('every = "month"\nto = "tem"', "report 1 (month).to: is not an address, and no route has this name\nhint: did"),
        ('every = "month"\nto = "a@b@c"', "report 1 (month).to: is not an address of a person's mail: 'a@b@c'"),
        ('every = "month"\nto = 7', "report 1 (month).to: must be a list of texts, not 7"),
        (
            'every = "month"\nto = "console"\n[[report]]\nevery = "month"\nto = "console"',
            "report 2 (month).name: is also the name of report 1",
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_mean_is_an_error_that_names_the_field_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(InputError) as wrong:
        reports(f"{NOTIFY}[[report]]\n{text}\n")
    assert re.sub(r" \(at line \d+\)", "", str(wrong.value)).startswith(f"costguard.toml: {says}")
    assert "hint: " in str(wrong.value)
    assert "TOKEN" not in str(wrong.value)


def test_the_address_of_the_mail_server_is_named_and_not_stated() -> None:
    secret = token_hex(8)
    with pytest.raises(InputError, match=r"notify\.mail: holds a secret; the settings file must not contain one") as wrong:
        check_settings(f'[notify]\nmail = "mailtos://me:{secret}@smtp.lab.org"\n', "costguard.toml")
    assert secret not in "".join(format_exception(wrong.value))


def test_a_total_has_the_days_of_its_project_in_its_own_zone() -> None:
    text = '[[budget]]\nname = "p"\ncap = "500 USD"\ntimezone = "Europe/Berlin"\nperiod = "{}"\n'
    (project,) = settings(text.format("total") + 'from = "2026-11-01"\nuntil = 2027-02-01\n').budgets
    assert (project.start, project.end) == (datetime(2026, 10, 31, 23, tzinfo=UTC), datetime(2027, 1, 31, 23, tzinfo=UTC))
    (credits_,) = settings(text.format("total")).budgets
    assert (credits_.start, credits_.end, credits_.has_end) == (None, None, False)
    assert [settings(text.format(one)).budgets[0].period for one in ("quarter", "year")] == ["quarter", "year"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('period = "total"\nuntil = "2026-11-31"', "budget 1 (p).until: must be a day, not '2026-11-31'"),
        ('period = "total"\nfrom = 2026-11-02\nuntil = 2026-11-02', "budget 1 (p).until: is not after from"),
        ('period = "quater"', "unknown period 'quater'"),
    ],
)
def test_slips_in_the_days_of_a_budget_are_told(more: str, says: str) -> None:
    assert says in refused(f'[[budget]]\nname = "p"\ncap = "500 USD"\n{more}\n')


RATES = """[display]
rates = ["1 USD = 0.92 EUR on 2026-11-01 (ECB)", "1 USD = 0.8 EUR on 2026-10-01", "1 USD = 150 JPY on 2026-11-02"]
"""


def test_a_cap_in_another_currency_is_its_worth_in_dollars_at_the_newest_rate() -> None:
    (one,) = settings(f'{RATES}[[budget]]\nname = "vision"\ncap = "500 EUR"\n').budgets
    assert one.cap == Money.parse("543.478260870")
    assert one.cap_stated == Money.parse("500", "EUR")
    assert one.format_cap() == "500.00 EUR (543.48 USD at 0.92 EUR to the dollar on 2026-11-01 (ECB))"


def test_a_cap_in_dollars_is_shown_in_the_currency_of_the_display_and_stays() -> None:
    text = '[[budget]]\nname = "vision"\ncap = "500 USD"\n'
    (one,) = settings(RATES + 'currency = "EUR"\n' + text).budgets
    assert (one.cap, one.cap_stated, one.format_cap()) == (Money.parse("500"), None, "500.00 USD")
    assert one.rate is not None
    assert one.rate.currency == "EUR"
    (plain,) = settings(f"{RATES}{text}").budgets
    assert plain.rate is None


def test_an_acceptance_of_a_cap_holds_while_its_worth_does_not_fall() -> None:
    """The rate is no part of what somebody accepted: only the dollars that it makes of the cap."""
    caps = [
        describe_cap(settings(f'[display]\nrates = ["1 USD = {rate} EUR on 2026-11-01"]\n[[budget]]\n{HARD}').budgets[0])
        for rate in ("0.5", "0.8")
    ]
    assert [cap.partition(" ")[0] for cap in caps] == [str(1000 * 10**9), str(625 * 10**9)]
    assert len({cap.partition(" ")[2] for cap in caps}) == 1


HARD = 'name = "vision"\ncap = "500 EUR"\nhard = true\n'
