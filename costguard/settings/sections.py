"""The dataclasses of the settings file's sections, time zones by name, and settings from the environment.

A section of plain fields holds texts and lists of texts as written. `COSTGUARD_SECTION__FIELD` in the environment overrides the
file; a mistyped variable is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.errors import InputError, UnknownNameError
from costguard.settings.files import expand_path
from costguard.values.checks import find_nearest_names

if TYPE_CHECKING:  # types and no more: without a [[budget]] or a [[policy]] nobody pays for importing them
    from costguard.budgets.budget import Budget
    from costguard.guard.alerts.alert import AlertRoute
    from costguard.guard.escalation import Hook
    from costguard.guard.policy import Policy, Rails
    from costguard.reporting.schedule import ReportSchedule
    from costguard.values.money import ExchangeRate


def load_zone(name: str, field: str) -> tzinfo:
    """Return the IANA zone `name`, such as "Europe/Berlin".

    Raise UnknownNameError for `field`, with the nearest names, if there is none.
    """
    if name == "UTC":
        return UTC  # also where the machine carries no data of zones
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; no name at all ("../x"); a folder ("Europe")
        raise _make_unknown_zone_error(name, field) from None


def _make_unknown_zone_error(name: str, field: str) -> InputError:
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    if not known:
        what = "cannot be looked up: this machine has no data of time zones"
        return InputError(what, field=field, hint="pip install tzdata, or write UTC")
    near = find_nearest_names(name, known) or tuple(
        zone for zone in known if zone.rpartition("/")[2].casefold() == name.casefold()
    )
    return UnknownNameError("time zone", name, field=field, nearest=near, hint='write an IANA name such as "Europe/Berlin"')


SQLITE_PREFIX = "sqlite:///"
GROUP_LABELS = (
    "label:skypilot-cluster-name",  # SkyPilot, "tag uniquely identifying all nodes of a cluster": sky/provision/constants.py
    "label:ray-cluster-name",  # Ray's cluster launcher, and SkyPilot before 0.5
    "label:parallelcluster:cluster-name",  # AWS: aws.md, section 7
    "label:aws:elasticmapreduce:job-flow-id",
    "label:eks:cluster-name + label:eks:nodegroup-name",  # one node group: a cluster's system nodes never rest
    "label:ghpc_deployment",  # GCP: gcp.md, section 7
    "label:goog-dataproc-cluster-name",
    "label:goog-k8s-cluster-name + label:goog-k8s-node-pool-name",
    "label:goog-dataflow-job-id",
    "label:batch-job-id",
    "label:cluster",
)
"""Labels by which tools mark the machines that work together, as their vendors name them (providers/*.md, 2026-11)."""


def _resolve_path(text: str, folder: Path) -> str:
    return str(folder / expand_path(text))


def _resolve_url(text: str, folder: Path) -> str:
    """Return a file's URL resolved against `folder`; a server's URL and an in-memory database are unchanged."""
    name = text.removeprefix(SQLITE_PREFIX)
    return text if name in (text, "", ":memory:") else SQLITE_PREFIX + _resolve_path(name, folder)


PlaceFunction = Callable[[str, Path], str]
TABLES_FIELD = {"tables": True}
"""Marks a field that holds tables by name; it has no variable in the environment."""
LIST_FIELD = {"list": True}
"""Marks a field that holds a list of texts; in the environment they stand with commas between them."""
PATH_FIELD: dict[str, PlaceFunction] = {"place": _resolve_path}
"""Marks a field that names a file: in the settings file it starts at that file's folder, elsewhere at the working folder."""
URL_FIELD: dict[str, PlaceFunction] = {"place": _resolve_url}
"""Marks a field that holds a URL which may name a file."""
NESTED = "nested"
"""Marks a field that holds a section within its section, such as [web.oidc]; it has no variable in the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSettings:
    """The `[quote]` section.

    `market`: a market file to use instead of the shipped snapshot (see `scripts/build_market.py`). `calibration`: the file of
    observed runs (`costguard calibrate`); None: `calibration.json` in the platform's data folder.
    """

    market: str | None = field(default=None, metadata=PATH_FIELD)
    calibration: str | None = field(default=None, metadata=PATH_FIELD)


NEVER, DAILY = REFRESHES = ("never", "daily")
"""How often `costguard watch` refreshes public prices by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesSettings:
    """The `[prices]` section.

    - `only`: names of the public sources that `prices refresh` asks; None: all installed ones.
    - `refresh`: one of REFRESHES.
    - `sources`: the tables `[prices.sources.NAME]`, as the endpoint of each source NAME: an address without a path (a mirror).
    """

    only: tuple[str, ...] | None = field(default=None, metadata=LIST_FIELD)
    refresh: str = NEVER
    sources: Mapping[str, str] = field(default_factory=dict, metadata=TABLES_FIELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """The `[ledger]` section.

    `url`: `sqlite:///PATH`, or `postgresql+psycopg://...` for a server; None: see `resolve_ledger_url`.
    """

    url: str | None = field(default=None, metadata=URL_FIELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSettings:
    """The `[defaults]` section.

    - `timezone`: the IANA zone for the days and months of budgets and reports that state no zone.
    - `owner_from`: labels that name a machine's owner; the first label present counts ("label:owner"; a tag is a
        label).
    - `protect`: labels of machines that must never be touched: "label:KEY=VALUE" or "label:KEY".
    - `group_from`: labels that group the machines of an account: those with the same value of the first label present;
        "label:KEY + label:KEY" requires both; (): no groups.
    - `tenant_labels`: labels that tenants of a shared account may set themselves; no hard budget may select by them.
    """

    timezone: str = "UTC"
    owner_from: tuple[str, ...] = field(default=("label:owner",), metadata=LIST_FIELD)
    protect: tuple[str, ...] = field(default=("label:costguard=never",), metadata=LIST_FIELD)
    group_from: tuple[str, ...] = field(default=GROUP_LABELS, metadata=LIST_FIELD)
    tenant_labels: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)

    @property
    def zone(self) -> tzinfo:
        """The zone that `timezone` names."""
        return load_zone(self.timezone, "defaults.timezone")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The `[network]` section.

    `ca_file`: a PEM file of the certificate authorities to trust; None: the system's. `proxy`: http(s)://HOST:PORT for requests
    to providers and chats; None: direct requests. Certificate checks cannot be turned off.
    """

    ca_file: str | None = field(default=None, metadata=PATH_FIELD)
    proxy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The `[watch]` section.

    - `interval`: time between two polls of an account ("60s"). `jitter`: maximum intended delay of a poll.
    - `heartbeat_url`: requested after each guard run, so that an external monitor notices missing runs; `env:NAME` and
        `file:PATH` name its source. None: no request.
    - `claims`: accounts whose machines without an owner may be acted on ("runpod", "aws/111122223333",
        "aws/111122223333/us-east-1"); None: every account of this file.
    """

    interval: str = "60s"
    jitter: str = "5s"
    heartbeat_url: str | None = None
    claims: tuple[str, ...] | None = field(default=None, metadata=LIST_FIELD)

    @property
    def every(self) -> timedelta:
        """Return `interval` as a timedelta."""
        return _parse_duration(self.interval, "watch.interval")

    @property
    def spread(self) -> timedelta:
        """Return `jitter` as a timedelta, at most half of `every`."""
        return min(_parse_duration(self.jitter, "watch.jitter"), self.every / 2)


ALONE, SHARE = WORKERS = ("alone", "share")
"""Whether each `costguard watch` polls every account, or several share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """The `[scale]` section. `workers`: one of WORKERS; "share" needs a ledger on PostgreSQL."""

    workers: str = ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplaySettings:
    """The `[display]` section.

    `currency`: the currency in which dollar amounts are also shown; None: dollars only. JSON and the ledger are not changed.
    `rates`: exchange rates with their day ("1 USD = 0.92 EUR on 2026-11-01 (ECB)"); the last one known at the time counts.
    """

    currency: str | None = None
    rates: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)

    def find_exchange(self, at: datetime) -> ExchangeRate | None:
        """Return the exchange rate for dollars at `at`; None: dollars are shown unconverted."""
        if self.currency is None:
            return None
        from costguard.values.money import find_exchange_rate, parse_exchange_rate

        return find_exchange_rate([parse_exchange_rate(text, "display.rates") for text in self.rates], self.currency, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """The `[reconcile]` section.

    `tolerance`: allowed difference between a bill and the charges ("1%, 0.10"); None: the default of `bills.drift`.
    """

    tolerance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """The `[telemetry]` section.

    `traces`: the OTLP/HTTP address that spans of polls, guard runs and acts are sent to; None: no traces.
    """

    traces: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The `[web.oidc]` section: people log in to the pages at an identity provider (OpenID Connect).

    - `issuer`: its address, as its ID tokens state it. `client_id`: costguard's name there.
    - `client_secret`: source of the secret (`env:COSTGUARD_...`, `file:PATH`); "": a public client, PKCE alone.
    - `scopes`: what is asked for. `role_claim`: the claim that decides the role ("groups", "realm_access.roles").
    - `viewer`, `operator`, `admin`: values of that claim that give the role; who has none is refused.
    """

    issuer: str = ""
    client_id: str = ""
    client_secret: str = ""
    scopes: tuple[str, ...] = field(default=("openid", "profile", "email"), metadata=LIST_FIELD)
    role_claim: str = "groups"
    viewer: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)
    operator: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)
    admin: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The `[web]` section.

    - `listen`: address at which `costguard watch` serves agents and readers ("127.0.0.1:8470"); None: not served.
    - `url`: the URL that others use; None: that of `listen`. `hosts`: further accepted host names.
    - `tls_cert`, `tls_key`: PEM files. `behind_proxy`: the address of the proxy that terminates TLS.
    - `key_file`: file of the key that signs answers to agents; None: next to the ledger.
    - `links`: what messages carry where `url` is set: "answer": a link to the page of a machine, and to an answer where they
      ask; "page": the first alone; "none".
    - `process`: "child": `costguard watch` starts the server; "none": `costguard serve` is started by somebody else.
    - `oidc`: logins at an identity provider; None: by one-time links alone.
    """

    listen: str | None = None
    url: str | None = None
    hosts: tuple[str, ...] = field(default=(), metadata=LIST_FIELD)
    tls_cert: str | None = field(default=None, metadata=PATH_FIELD)
    tls_key: str | None = field(default=None, metadata=PATH_FIELD)
    behind_proxy: str | None = None
    key_file: str | None = field(default=None, metadata=PATH_FIELD)
    process: str = "child"
    links: str = "answer"
    oidc: OidcSettings | None = field(default=None, metadata={NESTED: OidcSettings})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole settings file.

    - `budgets`, `policies`, `hooks`, `routes`, `reports`: the tables of each kind in their order.
    - `rails`: None: the values in GUARD section 6.
    - `signed_with`: source of the secret that signs webhooks (`env:NAME`, `file:PATH`); "": none.
    - `mail`: source of the mail server's address for mail to people.
    - `console_is_delivery`: a notice on the console or in a journal counts as delivered.
    - `providers`: the table `[providers.NAME]` by name; each provider defines its keys.
    """

    quote: QuoteSettings = field(default_factory=QuoteSettings)
    prices: PricesSettings = field(default_factory=PricesSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    defaults: DefaultSettings = field(default_factory=DefaultSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    scale: ScaleSettings = field(default_factory=ScaleSettings)
    display: DisplaySettings = field(default_factory=DisplaySettings)
    reconcile: ReconcileSettings = field(default_factory=ReconcileSettings)
    web: WebSettings = field(default_factory=WebSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    budgets: tuple[Budget, ...] = ()
    policies: tuple[Policy, ...] = ()
    hooks: tuple[Hook, ...] = ()
    routes: tuple[AlertRoute, ...] = ()
    rails: Rails | None = None
    signed_with: str = ""
    mail: str = ""
    console_is_delivery: bool = False
    reports: tuple[ReportSchedule, ...] = ()
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


SECTIONS = {f.name: f.default_factory for f in fields(Settings) if is_dataclass(f.default_factory)}
"""The sections of plain fields, each with the dataclass it makes."""
GONE_SECTIONS = {"lake": "delete it; costguard report --format focus writes a month (docs/EXPORTS.md, Years of months)"}
"""Sections of earlier versions, each with what to do instead."""


def refuse_gone_section(section: str, field: str) -> None:
    """Raise InputError if `section` belongs to a feature that costguard no longer has. `field`: where it is stated."""
    if section in GONE_SECTIONS:
        raise InputError(f"[{section}] is gone, with the feature it belonged to", field=field, hint=GONE_SECTIONS[section])


def list_sections() -> dict[str, object]:
    """Return the dataclass of each section by its name in the file, those within others too ("web.oidc")."""
    nested = {
        f"{name}.{one.name}": one.metadata[NESTED]
        for name, make in SECTIONS.items()
        for one in list_fields(make)
        if NESTED in one.metadata
    }
    return {**SECTIONS, **nested}


def list_fields(make: object) -> tuple[Field[object], ...]:
    """Return the fields of the section dataclass `make`."""
    assert is_dataclass(make)  # noqa: S101 - true of every value of SECTIONS, seen by the type checker
    return fields(make)


def _parse_duration(text: str, field: str) -> timedelta:
    from costguard.settings.fields import parse_duration

    return parse_duration(text, field)


VARIABLE_PREFIX = "COSTGUARD_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"
OTHER_VARIABLES = (f"{VARIABLE_PREFIX}API_KEY", f"{VARIABLE_PREFIX}API_URL", CONFIG_VARIABLE)
"""Another product's two variables, and the one that names the file itself."""

SIMILARITY_MIN = 0.8
"""How much of two names must agree (`difflib`, 0 to 1) for one to be the other mistyped: COSTGUARD__URL just is."""


def overlay_environment(table: dict[str, object]) -> dict[str, object]:
    """Return `table` with the values of COSTGUARD_SECTION__FIELD variables replacing its own."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in table.items()}
    for name, value in sorted(os.environ.items()):
        section, separator, key = name.removeprefix(VARIABLE_PREFIX).lower().partition("__")
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        if not separator:
            _require_no_typo(name)
        else:
            _require_known_field(name, section, key)
            inner = merged.setdefault(section, {})
            if isinstance(inner, dict):
                listed = "list" in _map_fields()[section, key]
                inner[key] = [part.strip() for part in value.split(",") if part.strip()] if listed else value
    return merged


def _require_known_field(name: str, section: str, key: str) -> None:
    """Raise UnknownNameError that names the variable, unless it belongs to a field."""
    refuse_gone_section(section, f"the environment: {name}")
    if (section, key) not in _map_fields():
        known = _list_variables()
        near, ours = (
            find_nearest_names(name, known),
            [one for one in known if one.startswith(f"{VARIABLE_PREFIX}{section}__".upper())],
        )
        hint = f"known: {', '.join(ours)}" if ours else f"{VARIABLE_PREFIX}SECTION__KEY; sections: {', '.join(SECTIONS)}"
        raise UnknownNameError("variable", name, field="the environment", nearest=near, hint=hint)


def _require_no_typo(name: str) -> None:
    """Raise UnknownNameError for a variable similar to one of costguard's: COSTGUARD_LEDGER_URL, with one `_`.

    Variables that are not similar belong to other programs and are ignored.
    """
    from difflib import SequenceMatcher

    near = {known: SequenceMatcher(None, name.upper(), known).ratio() for known in (*_list_variables(), CONFIG_VARIABLE)}
    best = max(near, key=near.__getitem__)
    if near[best] >= SIMILARITY_MIN:
        raise UnknownNameError("variable", name, field="the environment", nearest=(best,))


def _map_fields() -> dict[tuple[str, str], Mapping[str, object]]:
    """Return the metadata of every field by (section, key)."""
    return {
        (section, inner.name): inner.metadata
        for section, make in SECTIONS.items()
        for inner in list_fields(make)
        if not {"tables", NESTED} & set(inner.metadata)
    }


def _list_variables() -> list[str]:
    """Return the environment variable of every field."""
    return [format_variable(section, key) for section, key in _map_fields()]


def describe_origin(section: str, key: str, where: str) -> str:
    """Return the name of a field for messages: the variable if it is set, else its place in the file."""
    variable = format_variable(section, key)
    return variable if variable in os.environ else f"{where}: {section}.{key}"


def format_variable(section: str, key: str) -> str:
    """Return the environment variable of a field."""
    return f"{VARIABLE_PREFIX}{section}__{key}".upper()
