"""What FOCUS calls the service that a charge is of. A service has one category, so that disks are a service of their own."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.metering.meter import ADDRESS_CHARGE, COMPUTE, STORAGE
from costguard.values.provider import Seller


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusService:
    """What was used, in FOCUS's words. `meter`: what of it is counted."""

    name: str
    category: str
    subcategory: str
    meter: str


def get_focus_service(seller: Seller, charge: str) -> FocusService:
    """The service that a line of kind `charge` is of; what is neither computing, a disk nor an address is traffic."""
    if charge == COMPUTE:
        return FocusService(name=seller.compute, category="Compute", subcategory=seller.runs, meter="Instance Hours")
    if charge == STORAGE:
        return FocusService(name=seller.storage, category="Storage", subcategory="Block Storage", meter="Block Volume Usage")
    name, meter = ("IP Addresses", "IP Address Hours") if charge == ADDRESS_CHARGE else ("Data Transfer", "Data Transfer")
    return FocusService(name=f"{seller.name} {name}", category="Networking", subcategory="Network Connectivity", meter=meter)
