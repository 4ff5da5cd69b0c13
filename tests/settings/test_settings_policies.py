"""Policies, hooks, rails, routes and the watch as the settings file states them, and how slips in them are told."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from costguard.budgets.budget import ResourceFilter
from costguard.errors import InputError, SeveralInputsError
from costguard.guard.alerts.alert import AlertRoute
from costguard.guard.escalation import Hook
from costguard.guard.policy import Exemption, OffWindow, PolicyStep, PolicyTarget, Rails, Schedule
from costguard.settings.condition_syntax import check_condition
from costguard.settings.notify import resolve_address
from costguard.settings.policies import SCHEDULE_CONDITION
from tests.settings.test_settings_budgets import refused, settings

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
WHEN = """when = 'state == "idle"'\nfor = "45m"\n"""
THEN = 'then = [{ do = "notify" }, { after = "15m", do = "stop" }]\n'
HOOK = '[[hook]]\nname = "checkpoint"\ncommand = ["/bin/save", "--all"]\n'
FULL = """
[defaults]
timezone = "Europe/Berlin"
owner_from = ["label:owner", "tag:Owner"]
protect = ["label:costguard=never"]

[[hook]]
name = "checkpoint"
command = ["/bin/save", "--all"]

[[policy]]
name = "idle-gpu"
arm = "stop"
match = { gpu = true, names = ["train-*"], providers = ["aws"] }
when = 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
for = "45m"
needs = ["duty", "io"]
priority = 3
lease = { max = "4h", renewals = 1 }
warmup = "1h30m"
then = [
  { do = "notify", to = "owner" },
  { after = "15m", do = "hook", run = "checkpoint", timeout = "4m" },
  { after = "15m", do = "stop" },
  { after = "7d", do = "ask", act = "terminate" },
]

[[policy]]
name = "nights"
then = [{ do = "notify", to = "admin", severity = "page" }, { after = "5m", do = "terminate" }]
allow_irreversible = true
[policy.schedule]
off = ["mon-fri 20:00-08:00", "sat-sun", "wed,fri-sat 12:30-24:00"]
holidays = [2026-12-25]
exemptions = [{ start = 2026-11-24T18:00:00, end = 2026-11-26, why = "release" }]
"""


def policy(*lines: str) -> str:
    return "\n".join(('[[policy]]\nname = "p"', *lines))


def test_a_policy_is_read_as_it_is_written() -> None:
    idle, _ = settings(FULL).policies
    assert (idle.name, idle.arm, idle.rule, idle.hold) == ("idle-gpu", "stop", "idle", 45 * MINUTE)
    assert idle.when.text == 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
    assert idle.when.names == {"state", "confidence", "rate"}
    assert idle.target == PolicyTarget(gpu=True, names=("train-*",), match=ResourceFilter(providers=("aws",)))
    assert (idle.needs, idle.priority, idle.lease_max, idle.renewals_max) == (("duty", "io"), 3, 4 * HOUR, 1)
    assert idle.warmup_max == 90 * MINUTE
    assert idle.then == (
        PolicyStep(do="notify"),
        PolicyStep(do="hook", after=15 * MINUTE, run="checkpoint", timeout=4 * MINUTE),
        PolicyStep(do="stop", after=15 * MINUTE),
        PolicyStep(do="ask", after=7 * DAY, act="terminate"),
    )


def test_a_schedule_needs_no_condition_and_goes_by_the_zone_of_the_defaults() -> None:
    _, nights = settings(FULL).policies
    assert (nights.when.text, nights.rule, nights.hold, nights.allow_irreversible) == (
        SCHEDULE_CONDITION,
        "schedule",
        timedelta(),
        True,
    )
    assert nights.schedule == Schedule(
        zone=BERLIN,
        off=(
            OffWindow(start=time(20), end=time(8), days=frozenset(range(5))),
            OffWindow(start=time(), end=time(), days=frozenset((5, 6))),
            OffWindow(start=time(12, 30), end=time(), days=frozenset((2, 4, 5))),
        ),
        holidays=frozenset((date(2026, 12, 25),)),
        exemptions=(
            Exemption(start=datetime(2026, 11, 24, 17, tzinfo=UTC), end=datetime(2026, 11, 26, 23, tzinfo=UTC), why="release"),
        ),
    )


def test_hooks_rails_routes_and_the_watch_are_read() -> None:
    found = settings(
        HOOK + 'env = ["AWS_PROFILE"]\n[[hook]]\nname = "drain"\nurl = "https://example.com/drain"\n'
        '[rails]\nacts = { per_10m = 2, fleet_percent = 12.5 }\nbreaker = { least = 3, window = "5m" }\nfirst_seen = "30m"\n'
        '[watch]\ninterval = "2m"\njitter = "10s"\nheartbeat_url = "env:BEAT"\n'
        '[notify]\nsigned_with = "env:SECRET"\n[[notify.route]]\nto = ["env:SLACK_URL", "console:"]\nrepeat = ["1h", "1d"]\n'
        'group_by = []\nmin_severity = "page"\nmatch = { owners = ["alice"], topics = ["budget:*"] }\n'
        '[[notify.route]]\nto = "https://example.com/costs"\n'
    )
    assert found.hooks == (
        Hook(name="checkpoint", command=("/bin/save", "--all"), env=("AWS_PROFILE",)),
        Hook(name="drain", url="https://example.com/drain"),
    )
    assert found.rails == Rails(
        acts_per_10m=2, fleet_share_10m=Fraction(1, 8), breaker_least=3, breaker_window=5 * MINUTE, first_seen=30 * MINUTE
    )
    assert (found.watch.interval, found.watch.jitter, found.watch.heartbeat_url) == (
        2 * MINUTE,
        timedelta(seconds=10),
        "env:BEAT",
    )
    assert found.signed_with == "env:SECRET"
    assert found.routes == (
        AlertRoute(
            name="env:SLACK_URL, console",
            channels=("env:SLACK_URL", "console"),
            group_by=(),
            repeat=(HOUR, DAY),
            min_severity="page",
            owners=("alice",),
            topics=("budget:*",),
        ),
        AlertRoute(name="https://example.com/costs", channels=("https://example.com/costs",)),
    )


def test_the_environment_wins_and_lists_stand_in_it_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGUARD_WATCH__INTERVAL", "90s")
    monkeypatch.setenv("COSTGUARD_DEFAULTS__PROTECT", "label:env=prod, label:keep")
    found = settings('[watch]\ninterval = "60s"\n')
    assert found.watch.interval == timedelta(seconds=90)
    assert found.defaults.protect == ("label:env=prod", "label:keep")
    monkeypatch.setenv("COSTGUARD_WATCH__INTERVAL", "90")
    assert refused("").startswith("COSTGUARD_WATCH__INTERVAL: must have a unit, not '90'")


def test_an_address_is_read_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_URL", " slack://a/b/c\n")
    (tmp_path / "slack").write_text("slack://d\n")
    assert resolve_address("env:SLACK_URL", "x") == "slack://a/b/c"
    assert resolve_address("file:slack", "x", tmp_path) == "slack://d"
    assert resolve_address("console", "x") == "console"
    for stated in ("env:NOT_THERE", "file:not-there", "file:/"):
        with pytest.raises(InputError, match=r"^x: "):
            resolve_address(stated, "x")


CONDITIONS = [
    ('state == "idel" && cluster == 3', (10, 20)),
    ('(state == "idel" || gpu > 3) && cluster == 3 || confidence > 90', (11, 27, 33, 62)),
    ('state == "idle" && (confidence > 90) && duration("x") > 3', (34, 41)),
    ('labels["a" == 3 && state == "idel"', (12, 29)),
    ('state == "idel" and cluster == 3', (10,)),
]


@pytest.mark.parametrize(("condition", "places"), CONDITIONS)
def test_a_condition_says_all_that_is_wrong_with_it_each_with_a_caret(condition: str, places: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as raised:
        check_condition(condition, "when")
    errors = raised.value.errors if isinstance(raised.value, SeveralInputsError) else (raised.value,)
    assert tuple(int((one.field or "").rpartition(" ")[2]) for one in errors) == places
    marks = [one.excerpt[0][one.excerpt[1].index("^")] for one in errors]
    assert marks == [condition[place - 1] for place in places]


LADDERS = [
    ("then = []", "then", "has no steps"),
    ("", "then", "is missing"),
    ('then = "stop"', "then", "must be a list of steps"),
    ('then = [{ after = "15m" }]', "then 1.do", "is missing"),
    ('then = [{ do = "notfy" }]', "then 1.do", "did you mean notify"),
    ('then = [{ do = "kill" }]', "then 1.do", "terminate"),
    ('then = [{ do = "stop" }]', "then 1", "stop has no notification before it"),
    ('then = [{ do = "record" }, { after = "1h", do = "stop" }]', "then 2", "has no notification before it"),
    ('then = [{ do = "notify" }, { do = "stop" }]', "then 2.after", "within the grace of 5m"),
    ('then = [{ do = "notify" }, { after = "299s", do = "stop" }]', "then 2.after", 'write after = "5m" or more'),
    (
        'then = [{ do = "record" }, { after = "1h", do = "notify" }, { after = "1h4m", do = "stop" }]',
        "then 3.after",
        'write after = "1h5m" or more',
    ),
    ('then = [{ do = "notify" }, { after = "4m", do = "scale-controller" }]', "then 2.after", "is within the grace of"),
    ('then = [{ after = "15m", do = "notify" }]', "then 1.after", "the first step cannot wait"),
    ('then = [{ do = "notify" }, { after = "1h", do = "stop" }, { after = "30m", do = "notify" }]', "then 3.after", "at 1h"),
    ('then = [{ do = "notify" }, { after = "15m", do = "terminate" }]', "then 2.do", "allow_irreversible = true"),
    ('then = [{ do = "notify" }, { after = 15, do = "stop" }]', "then 2.after", "must have a unit, not 15"),
    ('then = [{ do = "notify" }, { after = "-5m", do = "stop" }]', "then 2.after", "must be a duration"),
    ('then = [{ do = "notify" }, { after = "15m", do = "hook" }]', "then 2.run", "is missing"),
    ('then = [{ do = "notify" }, { do = "hook", run = "chekpoint" }]', "then 2.run", "did you mean checkpoint"),
    ('then = [{ do = "notify", run = "checkpoint" }]', "then 1.run", "belongs to hook"),
    ('then = [{ do = "stop", to = "owner" }]', "then 1.to", "belongs to notify and ask"),
    ('then = [{ do = "ask" }]', "then 1.act", "is missing"),
    ('then = [{ do = "ask", act = "notify" }]', "then 1.act", "stop, terminate"),
    ('then = [{ do = "notify", lose = true }]', "then 1.lose", "unknown key 'lose'"),
    ('then = [{ do = "notify", to = "everybody" }]', "then 1.to", "owner, admin"),
    ('then = [{ do = "notify", severity = "pager" }]', "then 1.severity", "did you mean page"),
    ('then = [{ do = "hook", run = "checkpoint", timeout = "2h" }]', "then 1.timeout", "must be at most 1h"),
]
POLICIES = [
    ('arm = "kill"', "arm", "observe, notify, stop, terminate"),
    ('arm = "stopp"', "arm", "did you mean stop"),
    ("match = {}", "match", "is empty"),
    ('match = "aws"', "match", "must be a table"),
    ('match = { gpu = "yes" }', "match.gpu", "must be true or false, not 'yes'"),
    ('match = { provider = ["aws"] }', "match.provider", "did you mean providers"),
    ('match = { gpus = ["H100"] }', "match.gpus", "matches several GPUs"),
    ('match = { labels = { env = "dev" } }', "match.labels.env", "project, team"),
    ("match = { ids = [5] }", "match.ids", "must be a list of texts"),
    ('needs = ["gpu"]', "needs", "duty, power, cpu"),
    ('allow_irreversible = "true"', "allow_irreversible", "must be true or false"),
    ("priority = 1.5", "priority", "must be a whole number"),
    ("lease = {}", "lease", "is empty"),
    ('lease = { max = "0s" }', "lease.max", "must be at least 1m"),
    ("lease = { renewals = -1 }", "lease.renewals", "must be at least 0"),
    ('lease = { longest = "4h" }', "lease.longest", "known keys: max, renewals"),
    ('warmup = "2d"', "warmup", "must be at most 1d"),
    ('rule = "cap"', "rule", "write hard = true in a [[budget]]"),
    ('rule = "schedule"', "rule", "needs a schedule"),
    ('grace = "5m"', "grace", "unknown key 'grace'"),
    ("schedule = {}", "schedule", "is empty"),
    ("schedule = { holidays = [] }", "schedule.off", "is missing"),
    ('schedule = { off = ["8pm-8am"] }', "schedule.off", "has no time:"),
    ('schedule = { off = ["20:00-20:00"] }', "schedule.off", "ends at its start:"),
    ('schedule = { off = ["20:00-25:00"] }', "schedule.off", "there is no 25:00"),
    ('schedule = { off = ["20:60-21:00"] }', "schedule.off", "there is no 20:60"),
    ('schedule = { off = ["mo-fr 20:00-21:00"] }', "schedule.off", "unknown day 'mo'"),
    ('schedule = { off = [""] }', "schedule.off", "has no time:"),
    ('schedule = { off = "sat", start = "08:00" }', "schedule.start", "must be true, false or a table"),
    ('schedule = { off = "sat", start = { price_rise = 10 } }', "schedule.start.price_rise", "must be a percentage"),
    ('schedule = { off = "sat", start = { within = "2d" } }', "schedule.start.within", "1d"),
    ('schedule = { off = "sat", start = { at = "08:00" } }', "schedule.start.at", "unknown key"),
    ('schedule = { off = "sat", start = true }\nrule = "idle"', "schedule.start", "belongs to a schedule"),
    ('schedule = { off = "sat", timezone = "Europe/Berln" }', "schedule.timezone", "did you mean Europe/Berlin"),
    ('schedule = { off = "sat", holidays = ["25.12."] }', "schedule.holidays", "must be a day"),
    ('schedule = { off = "sat", holidays = [2026-12-25T10:00:00] }', "schedule.holidays", "must be a day"),
    ('schedule = { off = "sat", exemptions = [{ start = 2026-01-02 }] }', "schedule.exemptions 1.end", "is missing"),
    (
        'schedule = { off = "sat", exemptions = [{ start = 2026-01-02, end = 2026-01-01 }] }',
        "schedule.exemptions 1.end",
        "must be after its start",
    ),
    (
        'schedule = { off = "sat", exemptions = [{ start = "soon", end = 2026-01-01 }] }',
        "schedule.exemptions 1.start",
        "must be a time, not 'soon'",
    ),
]
HOLDS = [
    (f'for = "30s"\n{THEN}', "for", "is shorter than the interval between two polls, 1m"),
    (f'for = "45"\n{THEN}', "for", "must have a unit, not"),
    (f"for = 45\n{THEN}", "for", "must have a unit, not"),
    (f'for = "soon"\n{THEN}', "for", "must be a duration"),
    (f'for = ""\n{THEN}', "for", "must be a duration"),
    (f'for = "1y"\n{THEN}', "for", "must be a duration"),
    (f'for = "91d"\n{THEN}', "for", "must be at most 90d"),
    (THEN, "for", "is missing, and a stop by state needs it"),
]


@pytest.mark.parametrize(("line", "field", "said"), LADDERS)
def test_a_slip_in_a_ladder_says_which_step(line: str, field: str, said: str) -> None:
    told = refused(HOOK + policy(WHEN, line))
    assert told.startswith(f"costguard.toml: policy 1 (p).{field}: ")
    assert said in told


@pytest.mark.parametrize(("line", "field", "said"), POLICIES)
def test_a_slip_in_a_policy_says_where(line: str, field: str, said: str) -> None:
    told = refused(policy(WHEN, THEN, line))
    assert told.startswith(f"costguard.toml: policy 1 (p).{field}: ")
    assert said in told


@pytest.mark.parametrize(("lines", "field", "said"), HOLDS)
def test_a_condition_holds_for_as_long_as_can_be_seen(lines: str, field: str, said: str) -> None:
    told = refused(policy("""when = 'state == "idle"'""", lines))
    assert told.startswith(f"costguard.toml: policy 1 (p).{field}: ")
    assert said in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[policy]\nname = "p"', "policy: must be a list of tables\nhint: write [[policy]]"),
        ('[[policies]]\nname = "p"', "did you mean prices, policy"),
        (policy(THEN), "policy 1 (p).when: is missing"),
        (policy("when = 5", THEN), "policy 1 (p).when: must be text, not 5"),
        (policy("when = 'scheduled_on == false'", THEN), "uses scheduled_on, but the policy has no schedule"),
        (policy("when = 'stat == \"idle\"'", THEN), "policy 1 (p).when, character 1: unknown name 'stat'"),
        (policy("when = 'stat == \"idle\"'", THEN), "unknown name 'stat'\n  stat == \"idle\"\n  ^\nhint: did you mean state"),
        (policy("when = 'gpu_util < 0.5 &&  wat'", THEN), "\n  gpu_util < 0.5 &&  wat\n                     ^"),
        ("[[policy]]\narm = 'stop'", "policy 1.name: is missing"),
        (policy(WHEN, THEN) + policy(WHEN, THEN).replace('"p"', '"P"'), "policy 2 (P).name: is also the name of policy 1"),
        (policy(WHEN, 'then = [{ do = "hook", run = "save" }]'), "write a [[hook]] with name"),
        ('[[hook]]\nname = "a"', "hook 1 (a): needs a command or a url, and not both"),
        ('[[hook]]\nname = "a"\ncommand = "save --all"', "hook 1 (a).command: must be a list of texts, not one text"),
        ('[[hook]]\nname = "a"\ncommand = []', "names no program"),
        ('[[hook]]\nname = "a"\nurl = "http://example.com/x"', "hook 1 (a).url: is http:// to another machine"),
        ('[[hook]]\nname = "a"\nurl = "https://example.com/x"\ncommand = ["x"]', "and not both"),
        (HOOK + 'env = ["A B"]', "hook 1 (checkpoint).env: 'A B' is not a name of a variable"),
        ('[[hook]]\nname = "a"\nurl = "https://example.com/x"\nenv = ["A"]', "hook 1 (a).env: belongs to a command"),
        (HOOK + HOOK, "hook 2 (checkpoint).name: is also the name of hook 1"),
        ("rails = 5", "rails: must be a table"),
        ("[rails]\nacts = {}", "rails.acts: is empty"),
        ("[rails]\nacts = { per_hour = 3 }", "rails.acts.per_hour: unknown key"),
        ('[rails]\nacts = { per_10m = "3" }', "rails.acts.per_10m: must be a whole number"),
        ("[rails]\nacts = { per_10m = -1 }", "must be at least 0"),
        ("[rails]\nacts = { fleet_percent = 0 }", "rails.acts.fleet_percent: must be between 1 and 100"),
        ("[rails]\nacts = { fleet_percent = 101 }", "must be between 1 and 100"),
        ('[rails]\nacts = { fleet_percent = "10%" }', "hint: write 10 for 10 %"),
        ("[rails]\ncaps = { per_10m = 0 }", "rails.caps.per_10m: must be at least 1"),
        ("[rails]\ncaps = { per_h = 3 }", "rails.caps.per_h: unknown key"),
        ("[rails]\nfirst_seen = 15", "rails.first_seen: must have a unit"),
        ("[rails]\nbreaker = { recovery = '0s' }", "rails.breaker.recovery: must be at least 1m"),
        ("[rails]\nbrake = {}", "did you mean breaker"),
        ("notify = 5", "notify: must be a table"),
        ("[notify]\nroutes = []", "did you mean route"),
        ("[[notify.route]]\nname = 'a'", "notify.route 1.to: is missing"),
        ("[[notify.route]]\nto = []", "notify.route 1.to: is empty"),
        ("[[notify.route]]\nto = 'slakc'", "notify.route 1.to: is not an address"),
        ("[[notify.route]]\nto = 'console'\ngroup_by = ['onwer']", "did you mean owner"),
        ("[[notify.route]]\nto = 'console'\nrepeat = ['24h', '4h']", "must increase"),
        ("[[notify.route]]\nto = 'console'\nrepeat = ['1s']", "must be at least 15m"),
        ("[[notify.route]]\nto = 'console'\nmin_severity = 'high'", "info, warning, page"),
        ("[[notify.route]]\nto = 'console'\nmatch = {}", "notify.route 1.match: is empty"),
        ("[[notify.route]]\nto = 'console'\nevery = '4h'", "unknown key 'every'"),
        ("[[notify.route]]\nto = 'console'\n[[notify.route]]\nto = 'console'", "is also the name of notify.route 1"),
        ("[watch]\ninterval = '0s'", "watch.interval: must be at least 1s"),
        ("[watch]\ninterval = '2h'", "watch.interval: must be at most 1h"),
        ("[watch]\ninterval = 60", "watch.interval: must have a unit, not 60"),
        ("[watch]\njitter = '5'", "watch.jitter: must have a unit"),
        ("[watch]\nintervall = '60s'", "did you mean interval"),
        ("[watch]\nheartbeat_url = 'example.com'", "watch.heartbeat_url: is not an address"),
        ("[defaults]\nowner_from = 'owner'", "defaults.owner_from: 'owner' does not say where to look"),
        ("[defaults]\nowner_from = [5]", "defaults.owner_from: must be a list of texts"),
        ("[defaults]\ngroup_from = ['cluster']", 'hint: write ["label:cluster"]'),
        ("[defaults]\ngroup_from = ['label:a + b']", "defaults.group_from: 'label:a + b' does not say where to look"),
        ("[defaults]\nprotect = ['id:i-0abc']", "one machine: costguard protect ID"),
        ("[defaults]\nprotect = ['never']", 'hint: write ["label:costguard=never"]'),
    ],
)
def test_a_slip_anywhere_else_says_where(text: str, said: str) -> None:
    told = refused(text)
    assert told.startswith("costguard.toml: ")
    assert said in told


@pytest.mark.parametrize(
    "address",
    [
        *("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "mailto://user:pass@gmail.com"),
        *("ntfy://topic", "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"),
        *("https://user:pass@example.com/x", "https://example.com/x?token=abc"),
        "https://discord.com/api/webhooks/123456789012345678/abcDEF-1_2",
        "https://hc-ping.com/0b2c1a9e-7f3d-4a55-9e0f-0123456789ab",
    ],
)
@pytest.mark.parametrize(
    "place", ["[[notify.route]]\nto = '{}'", "[[hook]]\nname = 'a'\nurl = '{}'", "[watch]\nheartbeat_url = '{}'"]
)
def test_an_address_that_holds_a_secret_is_refused_with_the_cure_and_not_shown(address: str, place: str) -> None:
    told = refused(place.format(address))
    assert 'write "env:' in told
    assert "; the settings file must not contain one" in told
    assert address.partition("://")[2] not in told
