"""Columns of the FOCUS dataset "Cost and Usage" in versions 1.0 to 1.4: required or not, type, nullable or not.

From the specification's own pages of each column (FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, tags v1.2, v1.3 and v1.4 of
2026-06-04), read on 2026-11-22 and again on 2026-11-25; the version in which each was introduced is of the same pages. Version
1.1 added meters and reserved capacity, 1.2 invoices and pricing currencies, 1.3 the service provider and the host provider; 1.4
removed ProviderName and PublisherName.

Also the ISO 4217 currencies in use, without those of funds and of metals, as of 2026-11, and those withdrawn since 2023.
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
"""The versions that a file is checked against."""
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
"""The currency of a price: a virtual one ("Tokens", "Credits") is allowed in 1.2 and 1.3; of 1.4 see decision 0056."""

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

ALLOWED: Mapping[str, tuple[str, ...]] = {
    "CapacityReservationStatus": ("Used", "Unused"),
    "ChargeCategory": ("Usage", "Purchase", "Tax", "Credit", "Adjustment"),
    "ChargeClass": ("Correction",),
    "ChargeFrequency": ("One-Time", "Recurring", "Usage-Based"),
    "CommitmentDiscountCategory": ("Spend", "Usage"),
    "CommitmentDiscountStatus": ("Used", "Unused"),
    "PricingCategory": ("Standard", "Dynamic", "Committed", "Other"),
}
"""The only values of a column; that of services stands in `SUBCATEGORIES`."""

SUBCATEGORIES: Mapping[str, tuple[str, ...]] = {
    "AI and Machine Learning": ("AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing"),
    "Analytics": ("Analytics Platforms", "Business Intelligence", "Data Processing", "Search", "Streaming Analytics"),
    "Business Applications": ("Productivity and Collaboration",),
    "Compute": ("Containers", "End User Computing", "Quantum Compute", "Serverless Compute", "Virtual Machines"),
    "Databases": (
        *("Caching", "Data Warehouses", "Ledger Databases", "NoSQL Databases", "Relational Databases", "Time Series Databases"),
    ),
    "Developer Tools": (
        *("Developer Platforms", "Continuous Integration and Deployment", "Development Environments"),
        *("Source Code Management", "Quality Assurance"),
    ),
    "Identity": ("Identity and Access Management",),
    "Integration": ("API Management", "Messaging", "Workflow Orchestration"),
    "Internet of Things": ("IoT Analytics", "IoT Platforms"),
    "Management and Governance": (
        *("Architecture", "Compliance", "Cost Management", "Data Governance", "Disaster Recovery"),
        *("Endpoint Management", "Observability", "Support"),
    ),
    "Media": ("Content Creation", "Gaming", "Media Streaming", "Mixed Reality"),
    "Migration": ("Data Migration", "Resource Migration"),
    "Mobile": (),
    "Multicloud": ("Multicloud Integration",),
    "Networking": (
        *("Application Networking", "Content Delivery", "Network Connectivity", "Network Infrastructure"),
        *("Network Routing", "Network Security"),
    ),
    "Security": ("Secret Management", "Security Posture Management", "Threat Detection and Response"),
    "Storage": ("Backup Storage", "Block Storage", "File Storage", "Object Storage", "Storage Platforms"),
    "Web": ("Application Platforms",),
    "Other": (),
}
"""Service category -> its subcategories, beside "Other (CATEGORY)"."""

PRICE_KEYS = (
    *("CoreCount", "DiskMaxIops", "DiskSpace", "DiskType", "GpuCount", "InstanceType", "InstanceSeries", "MemorySize"),
    *("NetworkMaxIops", "NetworkMaxThroughput", "OperatingSystem", "Redundancy", "StorageClass"),
)
"""Keys of SkuPriceDetails; every other one begins with x_."""
PRICE_NUMBERS = (
    *("CoreCount", "DiskMaxIops", "DiskSpace", "GpuCount", "MemorySize", "NetworkMaxIops", "NetworkMaxThroughput"),
)
"""Those of them that hold a number; the others hold a text."""


def get_columns(version: str, *, among: Sequence[str] = VERSIONS) -> Mapping[str, FocusColumn]:
    """Return the columns of `version` by name, in alphabetical order; raise UnknownNameError if it is not `among` these."""
    if version not in among:
        near = find_nearest_names(version, among)
        raise UnknownNameError("version", version, field="--focus-version", nearest=near, hint=f"known: {', '.join(among)}")
    return {column.name: column for column in _list_version_columns(version) if column.since <= version <= column.until}


def get_all_columns() -> Mapping[str, FocusColumn]:
    """Return the columns of all versions, by name."""
    return {column.name: column for column in _list_version_columns(NEWEST_VERSION)}


@cache
def _list_version_columns(version: str) -> tuple[FocusColumn, ...]:
    found = []
    for line in _TABLE.strip().splitlines():
        name, level, kind, null, since, until = line.split()
        empty = null == "null" and not (version >= "1.4" and name in NEVER_NULL_SINCE_1_4)
        kind = VIRTUAL_KIND if kind == PRICED_KIND and version < "1.4" else kind
        found.append(FocusColumn(name=name, level=level, kind=kind, null=empty, since=since, until=until))
    return tuple(found)


CURRENCY_CODES = frozenset(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC
    CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR
    ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK
    MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE
    SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF
    XPF YER ZAR ZMW ZWG ANG BGN HRK SLL ZWL
    """.split()  # noqa: SIM905 - read as a table
)
