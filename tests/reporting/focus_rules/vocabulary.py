"""The values that FOCUS allows, and the columns of all its versions, from the pages that `reporting.focus.columns` names.

Also the ISO 4217 currencies in use, without those of funds and of metals, as of 2026-11, and those withdrawn since 2023.
"""

from __future__ import annotations

from collections.abc import Mapping

from costguard.reporting.focus.columns import CHECKED_VERSIONS, FocusColumn, get_columns

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


def get_all_columns() -> Mapping[str, FocusColumn]:
    """Return the columns of all versions, by name."""
    return {
        name: column for version in CHECKED_VERSIONS for name, column in get_columns(version, among=CHECKED_VERSIONS).items()
    }


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
