"""The models of the settings file's sections of plain fields, and the whole file as `Settings`.

A section holds each value as what it is: a duration, a zone, exchange rates. `costguard.settings.example` renders the example
file and the documentation from the descriptions here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta, tzinfo
from types import MethodType
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator

from costguard.settings.fields import read_section, read_text
from costguard.settings.model import (
    CheckFirst,
    OptionalText,
    OptionalTexts,
    ReadAs,
    SettingsModel,
    choose,
    describe_key,
    fit,
    fit_each,
    limit_duration,
    refuse,
)
from costguard.settings.section_values import (
    GROUP_PATTERN,
    INTERVAL_MAX,
    INTERVAL_MIN,
    OWNER_PATTERN,
    POD_OWNER_PATTERN,
    PROTECTED_PATTERN,
    fit_labels,
    read_dollars,
    read_endpoint,
    read_endpoints,
    read_heartbeat,
    read_ledger_url,
    read_proxy,
    read_rates,
    read_switch,
    read_tolerance,
    read_zone,
    resolve_path,
    resolve_url,
)
from costguard.settings.web import (
    HOST_PATTERN,
    check_web,
    read_claim_values,
    read_client_secret_place,
    read_issuer,
    read_listen,
    read_proxy_address,
    read_scopes,
    read_url,
)
from costguard.values.checks import require
from costguard.values.money import ExchangeRate, find_exchange_rate

if TYPE_CHECKING:  # types and no more: without a [[budget]] or a [[policy]] nobody pays for importing them
    from costguard.budgets.agreement import Agreement
    from costguard.budgets.budget import Budget
    from costguard.guard.alerts.alert import AlertRoute
    from costguard.guard.escalation import Hook
    from costguard.guard.policy import Policy, Rails
    from costguard.quoting.own_hardware import OwnCosts
    from costguard.reporting.schedule import ReportSchedule

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

FilePathText = Annotated[str | None, ReadAs(read_text, resolve_path)]
"""A path: in the settings file it starts at that file's folder, elsewhere at the working folder."""
NEVER, DAILY = REFRESHES = ("never", "daily")
"""How often `costguard watch` refreshes public prices by itself."""
ALONE, SHARE = WORKERS = ("alone", "share")
"""Whether each `costguard watch` polls every account, or several share them."""


class QuoteSettings(SettingsModel):
    """The `[quote]` section. `market`: see `scripts/build_market.py`."""

    market: FilePathText = describe_key(
        None, "Market file to use instead of the shipped prices and those of `costguard prices refresh`.", "prices.sqlite"
    )
    calibration: FilePathText = describe_key(
        None, "File of observed runs (`costguard calibrate`); default: in the platform's data folder.", "calibration.json"
    )


class PricesSettings(SettingsModel):
    """The `[prices]` section. `sources`: the endpoint of each source by its name: an address without a path."""

    only: OptionalTexts = describe_key(
        None,
        "Public sources that `costguard prices refresh --public` asks (`costguard prices sources`). Default: all.",
        ["gpuhunt", "runpod", "vast"],
    )
    refresh: Annotated[str, choose(*REFRESHES)] = describe_key(
        NEVER, "never, or daily: `costguard watch` then refreshes public prices once a day.", "daily"
    )
    sources: Annotated[Mapping[str, str], ReadAs(read_endpoints)] = describe_key(
        {},
        "Where a public source is asked instead of at its own address: a mirror. Each source has a table of its own.",
        {"gpuhunt": "https://mirror.example"},
    )


class LedgerSettings(SettingsModel):
    """The `[ledger]` section. `url`: None: see `resolve_ledger_url`."""

    url: Annotated[str | None, ReadAs(read_ledger_url, resolve_url)] = describe_key(
        None,
        "Address of the ledger; default: ledger.db in the platform's data folder. postgresql+psycopg://... names a server.",
        "sqlite:///ledger.db",
    )


class DefaultSettings(SettingsModel):
    """The `[defaults]` section. `group_from`: "label:KEY + label:KEY" requires both; (): no groups."""

    timezone: Annotated[tzinfo, ReadAs(read_zone)] = describe_key(
        UTC, "Default IANA time zone for the days and months of budgets and reports.", "Europe/Berlin"
    )
    owner_from: Annotated[tuple[str, ...], fit_labels(OWNER_PATTERN, "label:owner")] = describe_key(
        ("label:owner",),
        "Labels that name a machine's owner; the first one present counts. Tags count as labels.",
        ["label:owner", "tag:Owner"],
    )
    protect: Annotated[
        tuple[str, ...],
        fit_each(
            PROTECTED_PATTERN,
            "does not say where to look",
            'write ["label:costguard=never"]; one machine: costguard protect ID',
        ),
    ] = describe_key(
        ("label:costguard=never",),
        "Machines to protect: label:KEY=VALUE or label:KEY (one machine: costguard protect ID). A protection stays in "
        "force for 24 h after its label disappears.",
        ["label:costguard=never"],
    )
    group_from: Annotated[tuple[str, ...], fit_labels(GROUP_PATTERN, "label:cluster")] = describe_key(
        GROUP_LABELS,
        "Labels that group the machines of an account (same value of the first label present). No machine of a group "
        "counts as idle while another one is active or unknown. Default: the labels of SkyPilot, Ray, "
        "ParallelCluster, EMR, EKS, Slurm on GCP, Dataproc, GKE, Dataflow and Batch, and label:cluster. []: no groups.",
        ["label:cluster", "label:eks:cluster-name + label:eks:nodegroup-name"],
    )
    tenant_labels: Annotated[tuple[str, ...], fit_labels(OWNER_PATTERN, "label:team")] = describe_key(
        (),
        "Labels that tenants of a shared account may set themselves. A hard budget, or a policy with a priority, that "
        "selects by one of them is refused: a label of one tenant must not stop machines of another. Default: none.",
        ["label:team", "label:owner"],
    )


class NetworkSettings(SettingsModel):
    """The `[network]` section."""

    ca_file: FilePathText = describe_key(
        None,
        "PEM file of the certificate authorities to trust instead of the system's. Certificate checks cannot be turned off.",
        "company.pem",
    )
    proxy: Annotated[str | None, ReadAs(read_proxy)] = describe_key(
        None,
        "HTTP(S) proxy for requests to providers and chats. Proxy variables of the environment are ignored.",
        "http://proxy.example:3128",
    )


class WatchSettings(SettingsModel):
    """The `[watch]` section."""

    interval: Annotated[timedelta, limit_duration(INTERVAL_MIN, INTERVAL_MAX)] = describe_key(
        timedelta(seconds=60), "Time between two polls of an account by `costguard watch`.", "60s"
    )
    jitter: Annotated[timedelta, limit_duration()] = describe_key(
        timedelta(seconds=5), "Maximum random delay of a poll, to spread polls; at most half the interval.", "5s"
    )
    heartbeat_url: Annotated[str | None, ReadAs(read_heartbeat)] = describe_key(
        None,
        "URL requested after each run of the guard, so that an external monitor notices missing runs: env:NAME or file:PATH.",
        "env:HEARTBEAT_URL",
    )
    claims: OptionalTexts = describe_key(
        None,
        "Providers, accounts or regions whose machines without an owner may be acted on. Default: every account of this "
        "file; []: never act on machines without an owner.",
        ["runpod", "aws/111122223333"],
    )


class AnomalySettings(SettingsModel):
    """The `[anomalies]` section."""

    enabled: Annotated[bool, ReadAs(read_switch)] = describe_key(
        default=True,
        description="Whether `costguard watch` alerts about unusual spending, prices, disks, regions, GPUs and accounts "
        "(docs/GUARD.md).",
        example=True,
    )
    floor_usd_per_day: Annotated[int, ReadAs(read_dollars)] = describe_key(
        20, "The least excess that is told, in dollars a day; and of spending at least 15 % of a usual day's.", 20
    )


class KubernetesSettings(SettingsModel):
    """The `[kubernetes]` section: clusters whose pods name the owners of machines. `contexts` None: no cluster is read."""

    contexts: OptionalTexts = describe_key(
        None,
        "Contexts of the kubeconfig whose nodes and pods are read before each poll, so that machines get the owners and "
        "namespaces of their pods (docs/KUBERNETES.md). Default: none.",
        ["prod", "lab"],
    )
    kubeconfig: FilePathText = describe_key(
        None,
        "Kubeconfig with a token for each context. Default: the first file of KUBECONFIG, or ~/.kube/config.",
        "kubeconfig",
    )
    metrics: Annotated[
        str | None,
        fit(r"[a-z0-9-]+/[a-z0-9-]+:[a-z0-9-]+", "is no service", 'write "monitoring/prometheus:9090": namespace/name:port'),
    ] = describe_key(
        None,
        "Service of a Prometheus with DCGM's metrics in each cluster, asked through the API server: duty and power of GPUs. "
        "Default: not measured.",
        "monitoring/prometheus:9090",
    )
    namespaces: OptionalTexts = describe_key(None, "Namespaces whose pods are read. Default: all.", ["vision", "nlp"])
    owner_from: Annotated[
        tuple[str, ...],
        fit_each(POD_OWNER_PATTERN, "does not say where to look", 'write ["label:owner", "namespace"]'),
    ] = describe_key(
        ("label:owner", "label:team", "namespace"),
        "What names the owner of a pod, the first one present: a label of the pod, or its namespace. An owner label of the "
        "machine itself counts before its pods.",
        ["label:owner", "label:team", "namespace"],
    )


class ScaleSettings(SettingsModel):
    """The `[scale]` section. "share" needs a ledger on PostgreSQL."""

    workers: Annotated[str, choose(*WORKERS)] = describe_key(
        ALONE,
        "alone: each `costguard watch` polls every account; share: several share them, on PostgreSQL (docs/SCALE.md).",
        "alone",
    )


class DisplaySettings(SettingsModel):
    """The `[display]` section. `currency`: None: dollars only."""

    currency: OptionalText = describe_key(
        None,
        "Currency in which dollar amounts are also shown, at the rate below. JSON and the ledger keep the original currency.",
        "EUR",
    )
    rates: Annotated[tuple[ExchangeRate, ...], ReadAs(read_rates)] = describe_key(
        (),
        "Exchange rates with day and source. Of several for one currency, the latest one at the end of a period is used.",
        ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"],
    )

    def find_exchange(self, at: datetime) -> ExchangeRate | None:
        """Return the exchange rate for dollars at `at`; None: dollars are shown unconverted."""
        return None if self.currency is None else find_exchange_rate(self.rates, self.currency, at)


class ReconcileSettings(SettingsModel):
    """The `[reconcile]` section. `tolerance`: None: the default of `bills.drift`."""

    tolerance: Annotated[str | None, ReadAs(read_tolerance)] = describe_key(
        None,
        "Allowed difference between a provider's bill and the charges: a percentage, an amount, or the larger of both.",
        "1%, 0.10",
    )


ClaimValues = Annotated[tuple[str, ...], ReadAs(read_claim_values)]
HostNames = Annotated[
    tuple[str, ...], fit_each(HOST_PATTERN, "is not a name of a host", 'write ["guard.internal"], without a port')
]
ClientId = Annotated[str, fit("[ -~]+", "is not plain text", "write the client id that the provider shows")]


class OidcSettings(SettingsModel):
    """The `[web.oidc]` section: people log in to the pages at an identity provider (OpenID Connect)."""

    issuer: Annotated[str, ReadAs(read_issuer)] = describe_key(
        ...,
        "People log in to the pages at this identity provider (OpenID Connect), beside one-time links. Register there "
        "the redirect URL https://guard.example/oidc/callback: web.url and /oidc/callback.",
        "https://login.example",
    )
    client_id: ClientId = describe_key(..., "costguard's client id there.", "costguard")
    client_secret: Annotated[str, ReadAs(read_client_secret_place)] = describe_key(
        "",
        "Source of the client's secret: a variable that begins with COSTGUARD_, or file:PATH. Default: none (PKCE alone).",
        "env:COSTGUARD_OIDC_SECRET",
    )
    scopes: Annotated[tuple[str, ...], ReadAs(read_scopes)] = describe_key(
        ("openid", "profile", "email"),
        'Scopes that are asked for; some providers need one more for groups. Default: ["openid", "profile", "email"].',
        ["openid", "profile", "email", "groups"],
    )
    role_claim: Annotated[str, fit(".+", "is no name of a claim", 'write "groups"')] = describe_key(
        "groups",
        "Claim of the ID token that decides the role; a dot goes into an object (realm_access.roles). Default: groups.",
        "groups",
    )
    viewer: ClaimValues = describe_key(
        (), "Values of that claim that give the role viewer; who has none of any role is refused.", ["ml"]
    )
    operator: ClaimValues = describe_key((), "The same for operators.", ["ml-leads"])
    admin: ClaimValues = describe_key((), "The same for admins.", ["platform"])

    @model_validator(mode="after")
    def _check(self) -> Self:
        has_roles = bool(self.viewer or self.operator or self.admin)
        hint = 'write operator = ["ml-leads"], a value of the claim that decides'
        refuse(require, has_roles, "", "gives no role, so every login would be refused", hint)
        return self


def _check_oidc_table(value: object, field: str) -> object:
    return read_section(value, field, "a [web.oidc] section")


CHILD_PROCESS, NO_PROCESS = "child", "none"
ANSWER_LINKS, PAGE_LINKS, NO_LINKS = "answer", "page", "none"


class WebSettings(SettingsModel):
    """The `[web]` section."""

    listen: Annotated[str | None, ReadAs(read_listen)] = describe_key(
        None,
        "Address at which `costguard watch` serves agents and readers; loopback unless tls_cert and tls_key or "
        "behind_proxy are set. Default: not served. Needs, in a clone of costguard, pip install '.[web]'.",
        "127.0.0.1:8470",
    )
    url: Annotated[str | None, ReadAs(read_url)] = describe_key(
        None, "URL that machines and readers use; default: the address of listen.", "https://guard.example"
    )
    hosts: HostNames = describe_key(
        (), "Further accepted host names; requests for other hosts are refused.", ["guard.internal"]
    )
    tls_cert: FilePathText = describe_key(None, "Certificate chain, a PEM file.", "guard.crt")
    tls_key: FilePathText = describe_key(
        None, "Private key of that certificate, a PEM file that only this user can read.", "guard.key"
    )
    behind_proxy: Annotated[str | None, ReadAs(read_proxy_address)] = describe_key(
        None, "Address of the proxy that terminates TLS: only its X-Forwarded-For header is trusted.", "127.0.0.1"
    )
    key_file: FilePathText = describe_key(
        None,
        "File of the key that signs answers to agents; created if missing. Default: next to the ledger. Watchdogs with "
        "the same ledger share it.",
        "web.key",
    )
    process: Annotated[str, choose(CHILD_PROCESS, NO_PROCESS)] = describe_key(
        CHILD_PROCESS,
        "Who starts the HTTP server: child (`costguard watch` does) or none (you start `costguard serve`).",
        "none",
    )
    links: Annotated[str, choose(ANSWER_LINKS, PAGE_LINKS, NO_LINKS)] = describe_key(
        ANSWER_LINKS,
        "Links that messages carry where url is set: answer (default: to the page of the machine, and to approve or deny "
        "what is asked, once and within a day; whoever reads the message can do that), page (to the page alone) or none.",
        "page",
    )
    oidc: Annotated[OidcSettings | None, CheckFirst(_check_oidc_table)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(check_web, self)
        return self


class TelemetrySettings(SettingsModel):
    """The `[telemetry]` section; None: no traces."""

    traces: Annotated[str | None, ReadAs(read_endpoint)] = describe_key(
        None,
        "OTLP/HTTP address that traces of polls, guard runs and acts are sent to; read at the start. Default: none. "
        "Needs, in a clone of costguard, pip install '.[otel]'. Headers: OTEL_EXPORTER_OTLP_HEADERS in the environment.",
        "http://127.0.0.1:4318/v1/traces",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole settings file.

    - `budgets`, `agreements`, `policies`, `hooks`, `routes`, `reports`: the tables of each kind in their order.
    - `rails`: None: the values in GUARD section 6.
    - `signed_with`: source of the secret that signs webhooks (`env:NAME`, `file:PATH`); "": none.
    - `mail`: source of the mail server's address for mail to people.
    - `console_is_delivery`: a notice on the console or in a journal counts as delivered.
    - `providers`: the table `[providers.NAME]` by name; each provider defines its keys.
    - `local`: `[providers.local]`, the costs of hardware of one's own; None: not stated.
    - `file`: the path of the file that was read; "": none was.
    """

    quote: QuoteSettings = field(default_factory=QuoteSettings.model_construct)
    prices: PricesSettings = field(default_factory=PricesSettings.model_construct)
    ledger: LedgerSettings = field(default_factory=LedgerSettings.model_construct)
    defaults: DefaultSettings = field(default_factory=DefaultSettings.model_construct)
    network: NetworkSettings = field(default_factory=NetworkSettings.model_construct)
    watch: WatchSettings = field(default_factory=WatchSettings.model_construct)
    anomalies: AnomalySettings = field(default_factory=AnomalySettings.model_construct)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings.model_construct)
    scale: ScaleSettings = field(default_factory=ScaleSettings.model_construct)
    display: DisplaySettings = field(default_factory=DisplaySettings.model_construct)
    reconcile: ReconcileSettings = field(default_factory=ReconcileSettings.model_construct)
    web: WebSettings = field(default_factory=WebSettings.model_construct)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings.model_construct)
    budgets: tuple[Budget, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    policies: tuple[Policy, ...] = ()
    hooks: tuple[Hook, ...] = ()
    routes: tuple[AlertRoute, ...] = ()
    rails: Rails | None = None
    signed_with: str = ""
    mail: str = ""
    console_is_delivery: bool = False
    reports: tuple[ReportSchedule, ...] = ()
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    local: OwnCosts | None = None
    file: str = field(default="", compare=False)


SECTIONS: Mapping[str, type[SettingsModel]] = {
    one.name: factory.__self__  # type: ignore[misc]  # a class: `model_construct` is of the model itself
    for one in fields(Settings)
    if isinstance(factory := one.default_factory, MethodType)
}
"""The sections of plain fields by name."""
