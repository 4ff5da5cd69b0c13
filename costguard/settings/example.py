"""The settings file as costguard writes it: every key there is, explained in place, and switched on where a value was chosen.

`config/costguard.toml` is this text with nothing chosen; `costguard init` writes it with what it found. A line that starts with
`# ` explains; one that starts with `#` and no space is a setting that is switched off.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping

from costguard.settings.example_guard import GUARD_EXAMPLE
from costguard.values.provider import (
    FLAG_SETTING,
    TABLES_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
)

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
