"""Columns of the FOCUS dataset "Cost and Usage" in versions 1.0 to 1.4: required or not, type, nullable or not.

From the specification's own pages of each column (FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, tags v1.2, v1.3 and v1.4 of
2026-06-04), read on 2026-11-22 and again on 2026-11-25; the version in which each was introduced is of the same pages. Version
1.1 added meters and reserved capacity, 1.2 invoices and pricing currencies, 1.3 the service provider and the host provider; 1.4
removed ProviderName and PublisherName.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from costguard.errors import UnknownNameError
from costguard.values.checks import find_nearest_names

VERSIONS = ("1.2", "1.3", "1.4")
"""The versions that are exported."""
CHECKED_VERSIONS = ("1.0", "1.1", *VERSIONS)
"""The versions that are known: tests check exports by the rules of each (`tests/reporting/focus_rules`)."""
NEWEST_VERSION = VERSIONS[-1]
CUSTOM_PREFIX = "x_"
"""How the name of a column begins that is not of the standard."""

TEXT_KIND, DECIMAL_KIND, TIME_KIND, CURRENCY_KIND, UNIT_KIND, PAIRS_KIND, JSON_KIND = (
    "text",
    "decimal",
    "time",
    "currency",
    "unit",
    "pairs",
    "json",
)
VIRTUAL_KIND, PRICED_KIND = "virtual", "priced"
"""The currency of a price: a virtual one ("Tokens", "Credits") is allowed in 1.2 and 1.3; 1.4 names ISO 4217 alone."""

REQUIRED, CONDITIONAL, RECOMMENDED = "required", "conditional", "recommended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusColumn:
    """A column. `level`: whether a dataset must have it. `kind`: type of its cells. `null`: whether a cell may be empty."""

    name: str
    level: str
    kind: str
    null: bool
    since: str
    until: str


_TABLE = """
AllocatedMethodDetails               recommended json     null 1.3 1.4
AllocatedMethodId                    conditional text     null 1.3 1.4
AllocatedResourceId                  conditional text     null 1.3 1.4
AllocatedResourceName                conditional text     null 1.3 1.4
AllocatedTags                        conditional pairs    null 1.3 1.4
AvailabilityZone                     recommended text     null 1.0 1.4
BilledCost                           required    decimal  full 1.0 1.4
BillingAccountId                     required    text     full 1.0 1.4
BillingAccountName                   required    text     null 1.0 1.4
BillingAccountType                   conditional text     full 1.2 1.4
BillingCurrency                      required    currency full 1.0 1.4
BillingPeriodEnd                     required    time     full 1.0 1.4
BillingPeriodStart                   required    time     full 1.0 1.4
CapacityReservationId                conditional text     null 1.1 1.4
CapacityReservationStatus            conditional text     null 1.1 1.4
ChargeCategory                       required    text     full 1.0 1.4
ChargeClass                          required    text     null 1.0 1.4
ChargeDescription                    required    text     null 1.0 1.4
ChargeFrequency                      recommended text     full 1.0 1.4
ChargePeriodEnd                      required    time     full 1.0 1.4
ChargePeriodStart                    required    time     full 1.0 1.4
CommitmentDiscountCategory           conditional text     null 1.0 1.4
CommitmentDiscountId                 conditional text     null 1.0 1.4
CommitmentDiscountName               conditional text     null 1.0 1.4
CommitmentDiscountQuantity           conditional decimal  null 1.1 1.4
CommitmentDiscountStatus             conditional text     null 1.0 1.4
CommitmentDiscountType               conditional text     null 1.0 1.4
CommitmentDiscountUnit               conditional unit     null 1.1 1.4
CommitmentProgramEligibilityDetails  conditional json     null 1.4 1.4
ConsumedQuantity                     conditional decimal  null 1.0 1.4
ConsumedUnit                         conditional unit     null 1.0 1.4
ContractApplied                      conditional json     null 1.3 1.4
ContractedCost                       required    decimal  full 1.0 1.4
ContractedUnitPrice                  conditional decimal  null 1.0 1.4
EffectiveCost                        required    decimal  full 1.0 1.4
HostProviderName                     required    text     null 1.3 1.4
InvoiceDetailId                      conditional text     null 1.4 1.4
InvoiceId                            conditional text     null 1.2 1.4
InvoiceIssuerName                    required    text     full 1.0 1.4
ListCost                             required    decimal  full 1.0 1.4
ListUnitPrice                        conditional decimal  null 1.0 1.4
PricingCategory                      conditional text     null 1.0 1.4
PricingCurrency                      conditional priced   null 1.2 1.4
PricingCurrencyContractedUnitPrice   conditional decimal  null 1.2 1.4
PricingCurrencyEffectiveCost         conditional decimal  null 1.2 1.4
PricingCurrencyListUnitPrice         conditional decimal  null 1.2 1.4
PricingQuantity                      required    decimal  null 1.0 1.4
PricingUnit                          required    unit     null 1.0 1.4
ProviderName                         required    text     full 1.0 1.3
PublisherName                        required    text     full 1.0 1.3
RegionId                             conditional text     null 1.0 1.4
RegionName                           conditional text     null 1.0 1.4
ResourceId                           conditional text     null 1.0 1.4
ResourceName                         conditional text     null 1.0 1.4
ResourceType                         conditional text     null 1.0 1.4
ServiceCategory                      required    text     full 1.0 1.4
ServiceName                          required    text     full 1.0 1.4
ServiceProviderName                  required    text     full 1.3 1.4
ServiceSubcategory                   recommended text     full 1.1 1.4
SkuId                                conditional text     null 1.0 1.4
SkuMeter                             conditional text     null 1.1 1.4
SkuPriceDetails                      conditional pairs    null 1.1 1.4
SkuPriceId                           conditional text     null 1.0 1.4
SubAccountId                         conditional text     null 1.0 1.4
SubAccountName                       conditional text     null 1.0 1.4
SubAccountType                       conditional text     null 1.2 1.4
Tags                                 conditional pairs    null 1.0 1.4
"""

NEVER_NULL_SINCE_1_4 = ("PricingCurrency", "PricingCurrencyEffectiveCost")


def get_columns(version: str, *, among: Sequence[str] = VERSIONS) -> Mapping[str, FocusColumn]:
    """Return the columns of `version` by name, in alphabetical order; raise UnknownNameError if it is not `among` these."""
    if version not in among:
        near = find_nearest_names(version, among)
        raise UnknownNameError("version", version, field="--focus-version", nearest=near, hint=f"known: {', '.join(among)}")
    return {column.name: column for column in _list_version_columns(version) if column.since <= version <= column.until}


@cache
def _list_version_columns(version: str) -> tuple[FocusColumn, ...]:
    columns = []
    for line in _TABLE.strip().splitlines():
        name, level, kind, null, since, until = line.split()
        empty = null == "null" and not (version >= "1.4" and name in NEVER_NULL_SINCE_1_4)
        kind = VIRTUAL_KIND if kind == PRICED_KIND and version < "1.4" else kind
        columns.append(FocusColumn(name=name, level=level, kind=kind, null=empty, since=since, until=until))
    return tuple(columns)
