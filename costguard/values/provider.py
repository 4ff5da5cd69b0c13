"""What a provider says of itself before it is asked anything: its name, its settings, its credentials, what it can do.

A manifest is plain data, so that `costguard providers`, `init`, `doctor` and the settings file can be served without
importing the provider's SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import described, nearest_names, one_of, require

TEXT, TEXTS, FLAG, WHOLE, TABLES = "text", "texts", "flag", "whole", "tables"
_WORDS = {
    TEXT: 'text, such as "..."',
    TEXTS: 'a list of texts, such as ["...", "..."]',
    FLAG: "true or false",
    WHOLE: "a whole number",
    TABLES: "tables of their own: [[...]]",
}

ABILITIES = {
    "list": "instances, with what they cost",
    "volumes": "disks and addresses that bill beside or after an instance",
    "offers": "what can be rented now, at what price",
    "utilization": "measures of work",
    "balance": "money paid in advance",
    "bill": "what the provider says it charged",
    "stop": "stop an instance and keep its disks",
    "terminate": "end an instance for good",
    "permissions": "prove rights without acting",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of `[providers.NAME]`. `kind`: text, texts, flag, whole or tables; of tables, `inner` are the keys of each."""

    name: str
    told: str
    kind: str = TEXT
    example: str = ""
    inner: tuple[Setting, ...] = ()


MACHINES, CONTAINERS = "Virtual Machines", "Containers"
RENTED_AS = (MACHINES, CONTAINERS, "Serverless Compute")
"""What a provider may rent out, in FOCUS's words (ServiceSubcategory of Compute)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seller:
    """What a provider, its accounts and its services are called in exports: spelt as in its own bills and price pages.

    `account`: what kind of thing its account is. `compute`, `storage`: its services. `runs`: of RENTED_AS.
    """

    name: str
    account: str
    compute: str
    storage: str
    runs: str = MACHINES

    def __post_init__(self) -> None:
        for name in ("name", "account", "compute", "storage"):
            stated = getattr(self, name)
            require(isinstance(stated, str) and bool(stated.strip()), name, f"must be text, not {described(stated)}")
        one_of(self.runs, RENTED_AS, "runs")


def seller_of(sellers: Mapping[str, Seller], provider: str) -> Seller:
    """Who sells, for the ledger's name of a provider; one that says nothing of itself is called by that name."""
    found = sellers.get(provider)
    if found is not None:
        return found
    return Seller(name=provider, account="Account", compute=f"{provider} Instances", storage=f"{provider} Storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One provider, before it is asked anything.

    `name` is what the ledger, the settings and the market call it. `credentials`: where its key is looked for, in that
    order. `abilities`: of ABILITIES, each with how it is done and where it ends; one that is left out it cannot.
    `extra`: what to install for it, as `pip install 'gpu-costguard[EXTRA]'`; "" for nothing. `key_at`: where a key is made.
    `measures_late`: how old the newest measure of work is at best, where it is asked for measures apart from its listing.
    `measures_every`: how often such a measure comes; 0 where each listing has one. `seller`: what exports call it, or its name.
    """

    name: str
    title: str
    credentials: tuple[str, ...]
    abilities: Mapping[str, str]
    settings: tuple[Setting, ...] = ()
    extra: str = ""
    key_at: str = ""
    measures_late: timedelta = timedelta()
    measures_every: timedelta = timedelta()
    seller: Seller | None = None
    not_seen: tuple[str, ...] = field(default=())
    """What of its bill no listing shows, a sentence each (SageMaker, serverless workers)."""


def checked_table(table: Mapping[str, object], known: tuple[Setting, ...], where: str) -> dict[str, object]:
    """`table` if every key is known and of its kind; otherwise an error that names the key. `where`: "providers.aws"."""
    by_name = {setting.name: setting for setting in known}
    checked = dict[str, object]()
    for key, value in table.items():
        setting = by_name.get(key)
        if setting is None:
            near = nearest_names(key, by_name)
            raise UnknownNameError("key", key, field=where, nearest=near, hint=f"known: {', '.join(by_name) or 'none'}")
        checked[key] = _checked(value, setting, f"{where}.{key}")
    return checked


def _checked(value: object, setting: Setting, where: str) -> object:
    if setting.kind == TABLES and isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return [checked_table(one, setting.inner, f"{where}[{i}]") for i, one in enumerate(value)]
    if setting.kind == TEXT and isinstance(value, str) and value.strip():
        return value
    if setting.kind == FLAG and isinstance(value, bool):
        return value
    if setting.kind == WHOLE and isinstance(value, int) and not isinstance(value, bool):
        return value
    if setting.kind == TEXTS and isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value):
        return list(value)
    raise InputError(f"must be {_WORDS[setting.kind]}, not {described(value)}", field=where, hint=setting.told)
