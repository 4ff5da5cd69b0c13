"""What FOCUS calls the services of each provider: a fact about their bills, not about costguard.

Spelt as in the providers' own FOCUS exports and price pages, 2026-11 (AWS writes "AWS", Google "Google Cloud"). A provider that
stands nowhere is called what the ledger calls it. A service has one category, so that disks are a service of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.core.metering.meter import ADDRESS_CHARGE, COMPUTE, STORAGE

MACHINES, CONTAINERS = "Virtual Machines", "Containers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seller:
    """A provider. `account`: what kind of thing its account is. `runs`: how it rents machines out."""

    name: str
    account: str
    compute: str
    storage: str
    runs: str = MACHINES


SELLERS: Mapping[str, Seller] = {
    "aws": Seller(name="AWS", account="AWS account", compute="Amazon EC2", storage="Amazon EBS"),
    "gcp": Seller(name="Google Cloud", account="GCP project", compute="Compute Engine", storage="Persistent Disk"),
    "lambda": Seller(name="Lambda", account="Lambda account", compute="Lambda On-Demand Cloud", storage="Lambda Storage"),
    "runpod": Seller(name="RunPod", account="RunPod account", compute="RunPod Pods", storage="RunPod Storage", runs=CONTAINERS),
    "vast": Seller(
        name="Vast.ai", account="Vast.ai account", compute="Vast.ai Instances", storage="Vast.ai Storage", runs=CONTAINERS
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What was used, in FOCUS's words. `meter`: what of it is counted."""

    name: str
    category: str
    subcategory: str
    meter: str


def seller_of(provider: str) -> Seller:
    """Who sells, for the ledger's name of a provider."""
    made = Seller(name=provider, account="Account", compute=f"{provider} Instances", storage=f"{provider} Storage")
    return SELLERS.get(provider, made)


def service_of(seller: Seller, charge: str) -> Service:
    """The service that a line of kind `charge` is of; what is neither computing, a disk nor an address is traffic."""
    if charge == COMPUTE:
        return Service(name=seller.compute, category="Compute", subcategory=seller.runs, meter="Instance Hours")
    if charge == STORAGE:
        return Service(name=seller.storage, category="Storage", subcategory="Block Storage", meter="Block Volume Usage")
    name, meter = ("IP Addresses", "IP Address Hours") if charge == ADDRESS_CHARGE else ("Data Transfer", "Data Transfer")
    return Service(name=f"{seller.name} {name}", category="Networking", subcategory="Network Connectivity", meter=meter)
