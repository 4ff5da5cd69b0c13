"""Providers that say what a test tells them to, behind the real command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from costguard.errors import CredentialsError, ProviderError
from costguard.metering.inventory import Complete, Inventory, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.plugins import DiscoveredProvider, ProviderRegistry
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.money import Rate
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_UNSURE,
    WHOLE_SETTING,
    HealthCheck,
    ProviderManifest,
    ProviderSetting,
    check_provider_table,
)
from costguard.values.resource import ResourceKey, ScopeKey

GOOD_CHECKS = (
    HealthCheck(subject="credentials", outcome=CHECK_GOOD, told="ACME_KEY, which ends in ...wxyz"),
    HealthCheck(subject="reachable", outcome=CHECK_GOOD, told="it answers"),
    HealthCheck(subject="permission: stop", outcome=CHECK_UNSURE, told="cannot be tested without acting"),
)
BAD_CHECKS = (
    GOOD_CHECKS[0],
    HealthCheck(
        subject="reachable",
        outcome=CHECK_BAD,
        told="401: it does not know the key",
        fix="export ACME_KEY=... (keys: https://a.example)",
    ),
)


def machine(provider: str, name: str = "m-1", usd: str = "2.5") -> Observation:
    return Observation(
        key=ResourceKey(provider, "lab", "here", name),
        state="running",
        gpu="H100-SXM",
        gpu_count=1,
        started_at=datetime(2026, 11, 1, tzinfo=UTC),
        prices=(Price(Rate.parse(usd)),),
    )


@dataclass
class Account:
    """One account. `asked`: how often it was polled."""

    name: str
    says: Inventory | Exception | None = None
    offers: Sequence[Offer] | Exception = ()
    checks: Sequence[HealthCheck] | Exception = GOOD_CHECKS
    who: str = ""
    account: str = "lab"
    notes: tuple[str, ...] = ()
    partly: str = ""
    asked: int = 0

    @property
    def providers(self) -> Sequence[str]:
        return (self.name,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        return (ScopeKey(self.name, self.account, "here"),)

    def poll(self, scope: ScopeKey) -> Poll:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return Poll(scope=scope, at=datetime.now(UTC), inventory=self.says or Complete((machine(self.name),)), notes=self.notes)

    def fetch_identity(self) -> str | None:
        return self.who or None

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        if isinstance(self.offers, Exception):
            raise self.offers
        return OfferListing(offers=tuple(o for o in self.offers if gpus is None or o.gpu in gpus), why=self.partly)

    def examine(self) -> Sequence[HealthCheck]:
        if isinstance(self.checks, Exception):
            raise self.checks
        return self.checks


@dataclass
class Acme:
    """A plug-in. `accounts`: what `open` gives, or raises."""

    name: str = "acme"
    accounts: Sequence[Account] | Exception = ()
    extra: str = ""
    tables: list[Mapping[str, object]] = field(default_factory=list)

    @property
    def manifest(self) -> ProviderManifest:
        return ProviderManifest(
            name=self.name,
            title=self.name.title(),
            credentials=(f"{self.name.upper()}_KEY", f"~/.{self.name}/key"),
            abilities={"list": "one call a poll", "offers": "what is free now"},
            settings=(
                ProviderSetting(name="base_url", told="where it is asked", example="https://acme.example"),
                ProviderSetting(name="size", told="a number", kind=WHOLE_SETTING, example="3"),
            ),
            extra=self.extra,
            key_at=f"https://{self.name}.example/keys",
            not_seen=("its coffee machine",),
        )

    def open(self, table: Mapping[str, object], around: Any) -> Sequence[Account]:  # noqa: ANN401, ARG002
        check_provider_table(table, self.manifest.settings, f"providers.{self.name}")
        self.tables.append(table)
        if isinstance(self.accounts, Exception):
            raise self.accounts
        return self.accounts or (Account(self.name),)


def no_key(name: str) -> CredentialsError:
    return CredentialsError("there is no key", provider=name, hint=f"export {name.upper()}_KEY=...")


def unreachable(name: str) -> ProviderError:
    return ProviderError("no connection", provider=name)


def installed(*plugins: Acme, **broken: str) -> Callable[[], ProviderRegistry]:
    found: dict[str, DiscoveredProvider] = {plugin.name: plugin for plugin in plugins}
    return lambda: ProviderRegistry(found=found, broken=broken)


def aside(checks: Sequence[HealthCheck], told: str) -> tuple[HealthCheck, ...]:
    return tuple(replace(check, told=told) for check in checks)
