"""What the settings file as costguard writes it says of the guard: policies, hooks, rails and notices, all switched off.

The settings file as costguard writes it: every key there is, explained in place, and switched on where a value was chosen.

`config/costguard.toml` is this text with nothing chosen; `costguard init` writes it with what it found. A line that starts with
`# ` explains; one that starts with `#` and no space is a setting that is switched off.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping

from costguard.values.provider import (
    FLAG_SETTING,
    TABLES_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
)

GUARD_EXAMPLE = """
# Policies: any number of them. `costguard plan` says what each would do now, and why not.
# arm: how far it may go. observe (nothing, and says what it would do), notify, stop, terminate. 90 days after the guard first
# saw it, it falls back to notify until `costguard policy arm NAME LEVEL`.
# match: whom it concerns; left out: everything. All of a budget's, and gpu = true, ids, and names such as "train-*".
# when: what must hold. Facts, && || ! and brackets, == != < <= > >=, in; text in quotes, 0.9, duration("45m"), usd(12.50),
# usd_per_hour(0.30). A missing fact makes it unknown, which is no reason to act.
# for: how long it must hold first. then: step by step; `after` counts from the first one. do: record, notify, ask, hook, deny,
# scale-controller, stop, terminate. A stop comes 5 minutes after a notice or later.
# needs: signals that must be measured (duty, power, cpu, io, progress, queue, people, agent); left out: all there are.
# allow_irreversible = true: it may lose data for good. priority: at a hard cap the lowest is stopped first.
# lease: how long somebody may keep a machine from it, and how often again. warmup: how long a machine may be set up.
# alone = true: each member of a group (see group_from) is judged by itself, whatever the others do.
# schedule: when it should be off; a policy that has one needs no `when`. holidays: off all day. rule: "idle" (doubt keeps it
# running) or "schedule" (a desired state); usually what fits.
#[[policy]]
#name = "idle-gpu"
#arm = "notify"
#match = { gpu = true, names = ["train-*"], ids = ["i-0abc"], providers = ["aws"] }
#when = 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
#for = "45m"
#needs = ["duty", "cpu"]
#allow_irreversible = false
#priority = 0
#lease = { max = "24h", renewals = 3 }
#warmup = "45m"
#alone = false
#rule = "idle"
#schedule = { timezone = "Europe/Berlin", off = ["mon-fri 20:00-08:00", "sat-sun"], holidays = [2026-12-25], exemptions = [] }
#then = [
#{ do = "notify", to = "owner", severity = "warning" },
#{ after = "15m", do = "hook", run = "checkpoint", timeout = "5m" },
#{ after = "15m", do = "stop" },
#{ after = "7d", do = "ask", act = "terminate" },
#]

# Hooks: what a step may run. command: a program and its arguments, without a shell; or url: asked by POST. It is told what,
# whose, why and when (JSON; COSTGUARD_* variables) and runs for at most `timeout`; the stop after it waits for its end, and for
# 5 minutes more where it fails, which people are told. env: variables of ours that a command gets; no key and no secret else.
#[[hook]]
#name = "checkpoint"
#command = ["/usr/local/bin/save-checkpoint"]
#env = ["AWS_PROFILE"]
#[[hook]]
#name = "drain"
#url = "https://example.com/drain"

# Rails hold whatever every policy says. acts: how many stops there may be in a run and in 10 minutes, which share of the fleet
# in 10 minutes and in a day (at least one), how many that lose data in an hour.
# breaker: once this share of the fleet (and so many) turns idle or unknown within the window, idle acts freeze until so long
# after it is over. first_seen: no act on what was seen for less.
#[rails]
#acts = { per_run = 1, per_10m = 3, fleet_percent = 10, fleet_percent_day = 20, irreversible_per_h = 1 }
#breaker = { percent = 25, least = 5, window = "10m", recovery = "30m" }
#first_seen = "15m"

# Notices. signed_with: where the secret is kept that webhooks are signed with. mail: where the address of the server is kept
# that mail to a person goes through (mailtos://USER:PASSWORD@HOST?from=ADDRESS), for [[report]] and `report --email`.
#[notify]
#signed_with = "env:COSTGUARD_WEBHOOK_SECRET"
#mail = "env:MAIL_URL"
# Routes: any number of them; without one the terminal is told. to: "console", the https:// address of a webhook, or where an
# address is kept that is secret: "env:NAME" or "file:PATH" of slack://..., mailto://..., ntfy://..., all that Apprise knows.
# group_by: owner, policy, topic, subject. repeat: after the first message, the last one again and again; [] never.
# min_severity: info, warning, page. match: owners, policies by their names, topics such as "budget:*", audience
# (owner, admin: the `to` of a step); left out: all. What is for nobody in particular goes everywhere.
#[[notify.route]]
#to = ["env:SLACK_URL", "console"]
#name = "team"
#group_by = ["owner", "policy"]
#repeat = ["4h", "24h", "7d"]
#min_severity = "info"
#match = { owners = ["alice"], policies = ["idle-gpu"], topics = ["budget:*"], audience = ["owner"] }

# Reports that `costguard watch` sends: any number of them. every: "day", "week" (from Monday) or "month", of [defaults]
# timezone, each reported at `at` on the first day after it. to: people by their mail, routes by their names, or channels as
# above. name: usually what `every` says; under it is kept what was sent. by: as `report --by`. format: what is enclosed where
# a channel takes files; a webhook gets JSON.
#[[report]]
#name = "month"
#every = "month"
#at = "08:00"
#to = ["lead@lab.org", "team"]
#by = ["provider", "owner"]
#format = "html"
"""


FIELD_EXAMPLES: Mapping[tuple[str, str], tuple[str, str | list[str]]] = {
    ("quote", "market"): (
        "A market file instead of the shipped prices and those of `costguard prices refresh`.",
        "prices.sqlite",
    ),
    ("quote", "calibration"): (
        "Where observed runs are kept (`costguard calibrate`); usually in the platform's data folder.",
        "calibration.json",
    ),
    ("ledger", "url"): (
        "Where spending is recorded; usually ledger.db in the platform's data folder. postgresql+psycopg://... is a server.",
        "sqlite:///ledger.db",
    ),
    ("defaults", "timezone"): (
        "The IANA zone whose days and months budgets and reports go by, where they state no other.",
        "Europe/Berlin",
    ),
    ("defaults", "owner_from"): (
        "Whose a machine is: the first of these labels that it carries. A tag is a label.",
        ["label:owner", "tag:Owner"],
    ),
    ("defaults", "protect"): (
        (
            "What must never be touched: label:KEY=VALUE or label:KEY; one machine: costguard protect ID. A protection "
            "that vanishes holds for another 24 h."
        ),
        ["label:costguard=never"],
    ),
    ("defaults", "group_from"): (
        (
            "Which machines of an account work together: those with one value of the first of these labels that they carry. "
            "None of a group counts as idle while one of it works or cannot be judged. Left out: the labels of SkyPilot, Ray, "
            "ParallelCluster, EMR, EKS, Slurm on GCP, Dataproc, GKE, Dataflow and Batch, and label:cluster. [] no groups."
        ),
        ["label:cluster", "label:eks:cluster-name + label:eks:nodegroup-name"],
    ),
    ("network", "ca_file"): (
        "A PEM file of the authorities to trust instead of the system's. That certificates are checked cannot be turned off.",
        "company.pem",
    ),
    ("network", "proxy"): (
        "An http(s) proxy through which providers and chats are asked. The environment's proxies are not taken.",
        "http://proxy.example:3128",
    ),
    ("watch", "interval"): (
        "How long `costguard watch` waits between two polls of an account.",
        "60s",
    ),
    ("watch", "jitter"): (
        "By how much a poll may be late on purpose, so that not all come at once; at most half the interval.",
        "5s",
    ),
    ("watch", "heartbeat_url"): (
        (
            "Asked after each run of the guard, so that somebody outside notices when none comes. env:NAME and file:PATH "
            "say where it is kept."
        ),
        "env:HEARTBEAT_URL",
    ),
    ("watch", "claims"): (
        (
            "Whose machines without an owner may be acted on: providers, accounts or scopes. Left out, those of every account "
            "of this file; [] none: then nothing is done to what nobody owns."
        ),
        ["runpod", "aws/111122223333"],
    ),
    ("display", "currency"): (
        "In which people are shown dollars as well, by the rate below. JSON and the ledger keep each amount in its own.",
        "EUR",
    ),
    ("display", "rates"): (
        (
            "What a dollar was worth, on which day, and who says so. Of several for one currency the last one known at the end "
            "of a period counts."
        ),
        ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"],
    ),
    ("reconcile", "tolerance"): (
        "How far a provider's bill may lie from the charges: a part of it, an amount, or whichever of both is more.",
        "1%, 0.10",
    ),
    ("web", "listen"): (
        (
            "Where `costguard watch` answers agents and readers. Loopback, unless tls_cert and tls_key or behind_proxy are "
            "stated; left out: nowhere. Needs pip install 'gpu-costguard[web]'."
        ),
        "127.0.0.1:8470",
    ),
    ("web", "url"): (
        "What machines and readers call it; left out: the address of listen.",
        "https://guard.example",
    ),
    ("web", "hosts"): (
        "Further names that it may be asked by; any other Host is refused.",
        ["guard.internal"],
    ),
    ("web", "tls_cert"): ("Its certificate and those above it, a PEM file.", "guard.crt"),
    ("web", "tls_key"): ("The key of that certificate, a PEM file that only this user can read.", "guard.key"),
    ("web", "behind_proxy"): (
        "The address of a proxy that speaks TLS for it: then its X-Forwarded-For is believed, and nobody else's.",
        "127.0.0.1",
    ),
    ("web", "key_file"): (
        (
            "Where the key is kept that answers to agents are signed with; it is made where there is none. Left out: beside "
            "the ledger. Watchdogs of one ledger share it."
        ),
        "web.key",
    ),
}
"""(section, key) -> what it means, and an example. `tests/golden/test_example.py` holds it against the settings."""

HEADER_TEXT = """\
# Settings of costguard. Every key may be left out. A line that starts with `#` and no space is a setting that is switched off.
# A variable COSTGUARD_SECTION__KEY wins over this file, a flag over both. This file holds no secret: keys are read from each
# provider's own place, and a key written in here is refused.
"""

BUDGET_EXAMPLE = """
# Budgets: any number of them. `costguard status` says how each stands.
# cap: an amount and its currency. period: "day", "week" (from Monday), "month", or "rolling 7d".
# timezone: whose days and months, where not those of [defaults]. hard = true: machines may be stopped to keep it, where a
# policy is armed. warn: "pace+15%", "forecast>100%", "spent>80%", "time_to_cap<24h".
# match: what is counted; left out: everything. Of providers, accounts, regions, owners, gpus, tiers, kinds, and labels.
{off}[[budget]]
{off}name = {name}
{off}cap = {cap}
{off}period = "month"
#timezone = "Europe/Berlin"
#hard = false
#allow_irreversible = false
#warn = ["pace+15%", "forecast>100%", "time_to_cap<24h"]
#match = {{ providers = ["aws", "gcp"], labels = {{ team = ["vision"] }} }}
"""


def render_settings_file(
    manifests: Iterable[ProviderManifest], *, chosen: Collection[str] = (), cap: str | None = None, zone: str | None = None
) -> str:
    """The file. `chosen`: providers whose section is switched on. `cap`: of one monthly budget; `zone`: of [defaults]."""
    values = {("defaults", "timezone"): zone} if zone else {}
    sections = dict.fromkeys(section for section, _ in FIELD_EXAMPLES)
    parts = [HEADER_TEXT, *(_render_section(section, values) for section in sections)]
    parts.append(BUDGET_EXAMPLE.format(off="" if cap else "#", name='"everything"', cap=json.dumps(cap or "3000 USD")))
    parts.append(GUARD_EXAMPLE)
    parts += ["\n".join(_render_provider(manifest, on=manifest.name in chosen)) + "\n" for manifest in manifests]
    return "".join(parts)


def _render_section(section: str, values: Mapping[tuple[str, str], str]) -> str:
    lines = ["", f"[{section}]"]
    for (where, key), (told, example) in FIELD_EXAMPLES.items():
        if where == section:
            value = values.get((where, key))
            lines += [*_format_comment(told), f"{'' if value else '#'}{key} = {json.dumps(value or example)}"]
    return "\n".join(lines) + "\n"


def _render_provider(manifest: ProviderManifest, *, on: bool) -> Iterator[str]:
    """Its section: where its key is looked for, then its settings, tables of tables last."""
    yield ""
    yield from _format_comment(f"{manifest.title}. {_describe_key_place(manifest)}")
    if manifest.extra:
        yield from _format_comment(f"Needs its SDK: pip install 'gpu-costguard[{manifest.extra}]'")
    yield f"{'' if on else '#'}[providers.{manifest.name}]"
    for setting in sorted(manifest.settings, key=lambda setting: setting.kind == TABLES_SETTING):
        yield from _format_comment(f"{setting.told}.")
        if setting.kind == TABLES_SETTING:
            yield f"#[[providers.{manifest.name}.{setting.name}]]"
            yield from (f"#{inner.name} = {_format_value(inner)}" for inner in setting.inner)
        else:
            yield f"#{setting.name} = {_format_value(setting)}"


def _describe_key_place(manifest: ProviderManifest) -> str:
    if not manifest.credentials:
        return "It needs no key."
    made = f" Keys are made at {manifest.key_at}." if manifest.key_at else ""
    return f"Its key is looked for in: {'; '.join(manifest.credentials)}.{made}"


def _format_value(setting: ProviderSetting) -> str:
    """The example as TOML, whether or not its author wrote it so."""
    example = setting.example.strip()
    if setting.kind == WHOLE_SETTING:
        return example if example.isdigit() else "60"
    if setting.kind == FLAG_SETTING:
        return example if example in ("true", "false") else "true"
    if setting.kind == TEXTS_SETTING:
        return example if example.startswith("[") else json.dumps([example or "..."])
    return example if example.startswith('"') else json.dumps(example or "...")


def _format_comment(text: str) -> Iterator[str]:
    """`text` as comment lines of at most 118 characters."""
    from textwrap import wrap

    return (f"# {line}" for line in wrap(text, 116, break_long_words=False, break_on_hyphens=False))
