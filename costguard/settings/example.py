"""Renders the settings file: every key with an explanation, enabled where a value was chosen.

`config/costguard.toml` is this text with nothing chosen; `costguard init` writes it with the values that it found. Policies,
hooks, rails and notifications are always disabled. A line that starts with `# ` is an explanation; a line that starts with `#`
and no space is a disabled setting.
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
# arm: the strongest act allowed: observe (record only), notify, stop, terminate. More than notify counts once somebody accepted
# what the policy means (`costguard policy accept DIGEST`, which `costguard policy lint` prints), for 90 days. A policy that is
# edited only observes until it is accepted again.
# match: the machines it applies to (default: all). A budget's keys, and gpu = true, ids, and names such as "train-*".
# when: the condition. Facts, && || ! and brackets, == != < <= > >=, in; text in quotes, 0.9, duration("45m"), usd(12.50),
# usd_per_hour(0.30). A missing fact makes it unknown; then the policy does not act.
# for: how long it must hold first. then: the steps; `after` counts from the first one. do: record, notify, ask, hook, deny,
# scale-controller, stop, terminate. A stop comes 5 minutes after a notice or later.
# needs: signals that must be measured (duty, power, cpu, io, progress, queue, people, agent); default: all available.
# allow_irreversible = true: it may lose data permanently. priority: at a hard cap the lowest is stopped first.
# lease: maximum length and renewals of a lease against it. warmup: how long a machine may be set up.
# alone = true: each machine of a group (see group_from) is evaluated on its own.
# schedule: when it should be off; a policy that has one needs no `when`. holidays: off all day. rule: "idle" (keeps running
# if unsure) or "schedule" (a desired state); default: derived. start = true: start at the end of the off period what the policy
# stopped in it, if nobody else touched it; start = { within = "2h", price_rise = "10%" } says how late and how much dearer.
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
#schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00", "sat-sun"], holidays = [2026-12-25], start = false }
#then = [
#{ do = "notify", to = "owner", severity = "warning" },
#{ after = "15m", do = "hook", run = "checkpoint", timeout = "5m" },
#{ after = "15m", do = "stop" },
#{ after = "7d", do = "ask", act = "terminate" },
#]

# Hooks: what a step may run. command: a program and its arguments, without a shell; or url: called by POST. It receives what,
# whose, why and when (JSON; COSTGUARD_* variables) and runs for at most `timeout`; the stop after it waits for its end, and for
# 5 minutes more if it fails, with a message. env: environment variables passed to a command; no other key or secret is passed.
#[[hook]]
#name = "checkpoint"
#command = ["/usr/local/bin/save-checkpoint"]
#env = ["AWS_PROFILE"]
#[[hook]]
#name = "drain"
#url = "https://example.com/drain"

# Rails limit all policies. acts: maximum number of stops in a run and in 10 minutes, maximum share of the fleet
# in 10 minutes and in a day (at least one), how many that lose data in an hour. caps: the same keys, none of them 0, for hard
# caps that somebody accepted (costguard plan --accept); default: as many stops as a cap needs. A hard cap that nobody accepted
# acts within acts. starts: maximum number of machines that schedules start in a run and in an hour.
# breaker: once this share of the fleet (and so many) turns idle or unknown within the window, idle acts are suspended until
# that long after it ends. first_seen: no act on machines observed for less.
#[rails]
#acts = { per_run = 1, per_10m = 3, fleet_percent = 100, fleet_percent_day = 50, least_per_day = 20, irreversible_per_h = 1 }
#caps = {per_run = 99, per_10m = 99, fleet_percent = 100, fleet_percent_day = 100, least_per_day = 99, irreversible_per_h = 99}
#starts = { per_run = 2, per_h = 20 }
#breaker = { percent = 25, least = 5, window = "10m", recovery = "30m", asks = "1h", lasts = "24h" }
#first_seen = "15m"

# Notifications. signed_with: source of the secret that signs webhooks. mail: source of the mail server's address
# (mailtos://USER:PASSWORD@HOST?from=ADDRESS), for [[report]] and `report --email`.
# console_is_delivery: true where somebody reads the terminal or the journal all the time. The grace before a stop begins when a
# notice was delivered; without a route that takes every warning to a person, nothing beyond notify is armed.
#[notify]
#signed_with = "env:COSTGUARD_WEBHOOK_SECRET"
#mail = "env:MAIL_URL"
#console_is_delivery = false
# Routes: any number of them; without one, messages go to the terminal. to: "console", the https:// address of a webhook, or the
# source of a secret address: "env:NAME" or "file:PATH" of slack://..., mailto://..., ntfy://..., all that Apprise supports.
# group_by: owner, policy, topic, subject. repeat: after the first message, the last value repeatedly; []: never.
# min_severity: info, warning, page. match: owners, policies by their names, topics such as "budget:*", audience
# (owner, admin: the `to` of a step); default: all. A message without an owner goes to every route.
#[[notify.route]]
#to = ["env:SLACK_URL", "console"]
#name = "team"
#group_by = ["owner", "policy"]
#repeat = ["4h", "24h", "7d"]
#min_severity = "info"
#match = { owners = ["alice"], policies = ["idle-gpu"], topics = ["budget:*"], audience = ["owner"] }

# Reports that `costguard watch` sends: any number of them. every: "day", "week" (from Monday) or "month", of [defaults]
# timezone, each reported at `at` on the first day after it. to: mail addresses, names of routes, or channels as
# above. name: identifies the report (default: `every`). by: as `report --by`. format: of the attachment where
# a channel takes files; a webhook gets JSON.
#[[report]]
#name = "month"
#every = "month"
#at = "08:00"
#to = ["lead@lab.org", "team"]
#by = ["provider", "owner"]
#format = "html"
"""


FIELD_EXAMPLES: Mapping[tuple[str, str], tuple[str, str | list[str] | dict[str, str]]] = {
    ("quote", "market"): (
        "Market file to use instead of the shipped prices and those of `costguard prices refresh`.",
        "prices.sqlite",
    ),
    ("quote", "calibration"): (
        "File of observed runs (`costguard calibrate`); default: in the platform's data folder.",
        "calibration.json",
    ),
    ("prices", "only"): (
        "Public sources that `costguard prices refresh --public` asks (`costguard prices sources`). Default: all.",
        ["gpuhunt", "runpod", "vast"],
    ),
    ("prices", "refresh"): (
        "never, or daily: `costguard watch` then refreshes public prices once a day.",
        "daily",
    ),
    ("prices", "sources"): (
        "Where a public source is asked instead of at its own address: a mirror. Each source has a table of its own.",
        {"gpuhunt": "https://mirror.example"},
    ),
    ("ledger", "url"): (
        "Address of the ledger; default: ledger.db in the platform's data folder. postgresql+psycopg://... names a server.",
        "sqlite:///ledger.db",
    ),
    ("defaults", "timezone"): (
        "Default IANA time zone for the days and months of budgets and reports.",
        "Europe/Berlin",
    ),
    ("defaults", "owner_from"): (
        "Labels that name a machine's owner; the first one present counts. Tags count as labels.",
        ["label:owner", "tag:Owner"],
    ),
    ("defaults", "protect"): (
        (
            "Machines to protect: label:KEY=VALUE or label:KEY (one machine: costguard protect ID). A protection stays in "
            "force for 24 h after its label disappears."
        ),
        ["label:costguard=never"],
    ),
    ("defaults", "group_from"): (
        (
            "Labels that group the machines of an account (same value of the first label present). No machine of a group "
            "counts as idle while another one is active or unknown. Default: the labels of SkyPilot, Ray, "
            "ParallelCluster, EMR, EKS, Slurm on GCP, Dataproc, GKE, Dataflow and Batch, and label:cluster. []: no groups."
        ),
        ["label:cluster", "label:eks:cluster-name + label:eks:nodegroup-name"],
    ),
    ("defaults", "tenant_labels"): (
        (
            "Labels that tenants of a shared account may set themselves. A hard budget, or a policy with a priority, that "
            "selects by one of them is refused: a label of one tenant must not stop machines of another. Default: none."
        ),
        ["label:team", "label:owner"],
    ),
    ("network", "ca_file"): (
        "PEM file of the certificate authorities to trust instead of the system's. Certificate checks cannot be turned off.",
        "company.pem",
    ),
    ("network", "proxy"): (
        "HTTP(S) proxy for requests to providers and chats. Proxy variables of the environment are ignored.",
        "http://proxy.example:3128",
    ),
    ("watch", "interval"): (
        "Time between two polls of an account by `costguard watch`.",
        "60s",
    ),
    ("watch", "jitter"): (
        "Maximum random delay of a poll, to spread polls; at most half the interval.",
        "5s",
    ),
    ("watch", "heartbeat_url"): (
        ("URL requested after each run of the guard, so that an external monitor notices missing runs: env:NAME or file:PATH."),
        "env:HEARTBEAT_URL",
    ),
    ("watch", "claims"): (
        (
            "Providers, accounts or regions whose machines without an owner may be acted on. Default: every account of this "
            "file; []: never act on machines without an owner."
        ),
        ["runpod", "aws/111122223333"],
    ),
    ("scale", "workers"): (
        "alone: each `costguard watch` polls every account; share: several share them, on PostgreSQL (docs/SCALE.md).",
        "alone",
    ),
    ("display", "currency"): (
        "Currency in which dollar amounts are also shown, at the rate below. JSON and the ledger keep the original currency.",
        "EUR",
    ),
    ("display", "rates"): (
        ("Exchange rates with day and source. Of several for one currency, the latest one at the end of a period is used."),
        ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"],
    ),
    ("reconcile", "tolerance"): (
        "Allowed difference between a provider's bill and the charges: a percentage, an amount, or the larger of both.",
        "1%, 0.10",
    ),
    ("web", "listen"): (
        (
            "Address at which `costguard watch` serves agents and readers; loopback unless tls_cert and tls_key or "
            "behind_proxy are set. Default: not served. Needs pip install 'gpu-costguard[web]'."
        ),
        "127.0.0.1:8470",
    ),
    ("web", "url"): (
        "URL that machines and readers use; default: the address of listen.",
        "https://guard.example",
    ),
    ("web", "hosts"): (
        "Further accepted host names; requests for other hosts are refused.",
        ["guard.internal"],
    ),
    ("web", "tls_cert"): ("Certificate chain, a PEM file.", "guard.crt"),
    ("web", "tls_key"): ("Private key of that certificate, a PEM file that only this user can read.", "guard.key"),
    ("web", "process"): (
        "Who starts the HTTP server: child (`costguard watch` does) or none (you start `costguard serve`).",
        "none",
    ),
    ("web", "links"): (
        (
            "Links that messages carry where url is set: answer (default: to the page of the machine, and to approve or deny "
            "what is asked, once and within a day; whoever reads the message can do that), page (to the page alone) or none."
        ),
        "page",
    ),
    ("web", "behind_proxy"): (
        "Address of the proxy that terminates TLS: only its X-Forwarded-For header is trusted.",
        "127.0.0.1",
    ),
    ("web", "key_file"): (
        (
            "File of the key that signs answers to agents; created if missing. Default: next to the ledger. Watchdogs with "
            "the same ledger share it."
        ),
        "web.key",
    ),
    ("web.oidc", "issuer"): (
        (
            "People log in to the pages at this identity provider (OpenID Connect), beside one-time links. Register there "
            "the redirect URL https://guard.example/oidc/callback: web.url and /oidc/callback."
        ),
        "https://login.example",
    ),
    ("web.oidc", "client_id"): ("costguard's client id there.", "costguard"),
    ("web.oidc", "client_secret"): (
        "Source of the client's secret: a variable that begins with COSTGUARD_, or file:PATH. Default: none (PKCE alone).",
        "env:COSTGUARD_OIDC_SECRET",
    ),
    ("web.oidc", "scopes"): (
        'Scopes that are asked for; some providers need one more for groups. Default: ["openid", "profile", "email"].',
        ["openid", "profile", "email", "groups"],
    ),
    ("web.oidc", "role_claim"): (
        "Claim of the ID token that decides the role; a dot goes into an object (realm_access.roles). Default: groups.",
        "groups",
    ),
    ("web.oidc", "viewer"): ("Values of that claim that give the role viewer; who has none of any role is refused.", ["ml"]),
    ("web.oidc", "operator"): ("The same for operators.", ["ml-leads"]),
    ("web.oidc", "admin"): ("The same for admins.", ["platform"]),
    ("telemetry", "traces"): (
        (
            "OTLP/HTTP address that traces of polls, guard runs and acts are sent to; read at the start. Default: none. "
            "Needs pip install 'gpu-costguard[otel]'. Headers: OTEL_EXPORTER_OTLP_HEADERS in the environment."
        ),
        "http://127.0.0.1:4318/v1/traces",
    ),
}
"""(section, key) -> what it means, and an example. `tests/golden/test_example.py` holds it against the settings."""

CONSOLE = "console"
HEADER_TEXT = """\
# Settings of costguard. Every key is optional. A line that starts with `#` without a space is a disabled setting.
# A variable COSTGUARD_SECTION__KEY overrides this file; a flag overrides both. This file holds no secrets: keys are read from
# each provider's usual place, and a key in this file is refused.
"""

BUDGET_EXAMPLE = """
# Budgets: any number of them. `costguard status` shows their status.
# cap: an amount and its currency. period: "day", "week" (from Monday), "month", or "rolling 7d".
# timezone: of days and months, if not that of [defaults]. hard = true: machines may be stopped to keep it, where a
# policy is armed. warn: "pace+15%", "forecast>100%", "spent>80%", "time_to_cap<24h".
# match: what is counted (default: everything), by providers, accounts, regions, owners, gpus, tiers, kinds, and labels.
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


GUARD_START = """
# What `costguard init --guard` put here: a policy that tells of idle GPUs, and may stop them once somebody has armed it with
# `costguard policy arm idle-gpu stop`. Where a stop would lose data, a person is asked.
[[policy]]
name = "idle-gpu"
arm = "stop"
match = {{ gpu = true }}
when = 'state == "idle" && confidence >= 0.9'
for = "45m"
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]

[notify]
{delivery}console_is_delivery = true
[[notify.route]]
to = {to}
"""


def render_settings_file(
    manifests: Iterable[ProviderManifest],
    *,
    chosen: Collection[str] = (),
    cap: str | None = None,
    zone: str | None = None,
    notices: str | None = None,
) -> str:
    """Return the text of the settings file; only sections with a chosen value are enabled.

    `chosen`: providers whose section is enabled. `cap`: cap of one monthly budget. `zone`: time zone of [defaults]. `notices`:
    where the warnings of an idle policy go, "console" or the source of an address; None: no policy.
    """
    values = {("defaults", "timezone"): zone} if zone else {}
    sections = dict.fromkeys(section for section, _ in FIELD_EXAMPLES)
    parts = [HEADER_TEXT, *(_render_section(section, values) for section in sections)]
    parts.append(BUDGET_EXAMPLE.format(off="" if cap else "#", name='"everything"', cap=json.dumps(cap or "3000 USD")))
    if notices is not None:
        parts.append(GUARD_START.format(to=json.dumps([notices]), delivery="" if notices == CONSOLE else "#"))
    parts.append(GUARD_EXAMPLE)
    parts += ["\n".join(_render_provider(manifest, on=manifest.name in chosen)) + "\n" for manifest in manifests]
    return "".join(parts)


def _render_section(section: str, values: Mapping[tuple[str, str], str]) -> str:
    used = any(where == section and value for (where, _), value in values.items())
    lines = ["", f"{'' if used else '#'}[{section}]"]
    for (where, key), (told, example) in FIELD_EXAMPLES.items():
        if where == section:
            if isinstance(example, dict):
                lines += [*_format_comment(told), *_format_endpoints(f"{section}.{key}", example)]
                continue
            value = values.get((where, key))
            lines += [*_format_comment(told), f"{'' if value else '#'}{key} = {json.dumps(value or example)}"]
    return "\n".join(lines) + "\n"


def _format_endpoints(table: str, example: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of tables by name, each with an endpoint. They end their section."""
    for name, endpoint in example.items():
        yield f"#[{table}.{name}]"
        yield f"#endpoint = {json.dumps(endpoint)}"


def _render_provider(manifest: ProviderManifest, *, on: bool) -> Iterator[str]:
    """Yield the lines of a provider's section: the source of its key, then its settings, with tables of tables last."""
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
    """Return the setting's example as valid TOML, even if the manifest does not write it so."""
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
