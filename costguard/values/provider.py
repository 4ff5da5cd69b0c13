"""The manifest of a provider; results of `doctor`; responses of a provider to an act.

A manifest is plain data, so that `costguard providers`, `init`, `doctor` and the settings need no SDK. An accepted request
proves nothing: only a listing confirms an act.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from costguard.errors import (
    ConflictError,
    CredentialsError,
    ForbiddenError,
    InputError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    UnknownNameError,
    UnsentError,
    to_one_line,
)
from costguard.values.checks import describe_value, find_nearest_names, require, require_one_of

TEXT_SETTING, TEXTS_SETTING, FLAG_SETTING, WHOLE_SETTING, TABLES_SETTING = "text", "texts", "flag", "whole", "tables"
_KIND_WORDS = {
    TEXT_SETTING: 'text, such as "..."',
    TEXTS_SETTING: 'a list of texts, such as ["...", "..."]',
    FLAG_SETTING: "true or false",
    WHOLE_SETTING: "a whole number",
    TABLES_SETTING: "tables of their own: [[...]]",
}

ABILITIES = {
    "list": "instances, with what they cost",
    "volumes": "disks and addresses that bill beside or after an instance",
    "offers": "what can be rented now, at what price",
    "utilization": "measures of work",
    "balance": "money paid in advance",
    "bill": "the provider's bill",
    "stop": "stop an instance and keep its disks",
    "terminate": "delete an instance permanently",
    "start": "start an instance that is stopped",
    "permissions": "check permissions without acting",
}


SAVING_KINDS = {
    "stop": "stop",
    "deallocate": "stop",
    "archive": "stop",
    "suspend": "stop",
    "scale": "stop",
    "terminate": "terminate",
    "none": "",
}
"""What ends the compute rate of a machine at its provider -> as which act it counts for arming; "": nothing does.

deallocate: a machine that is merely powered off bills on. archive: it leaves its host. scale: its workload or pool shrinks.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingAct:
    """What ends the compute rate of a provider's machines. `kind`: of SAVING_KINDS.

    `bills_on`: what still bills afterwards. `loses`: what a machine may lose by it for good; what one does lose is its
    `Handling.stop_loses` or `terminate_loses`.
    """

    kind: str
    bills_on: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the kind."""
        require_one_of(self.kind, SAVING_KINDS, "saving_act.kind")

    @property
    def counts_as(self) -> str:
        """Return the act as which a policy arms it: stop or terminate; "" if there is none."""
        return SAVING_KINDS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetting:
    """One key of `[providers.NAME]`. `kind`: text, texts, flag, whole or tables; `inner`: the keys of each table."""

    name: str
    told: str
    kind: str = TEXT_SETTING
    example: str = ""
    inner: tuple[ProviderSetting, ...] = ()


VIRTUAL_MACHINES, CONTAINERS = "Virtual Machines", "Containers"
RENTED_AS = (VIRTUAL_MACHINES, CONTAINERS, "Serverless Compute")
"""What a provider may rent out, in FOCUS's words (ServiceSubcategory of Compute)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seller:
    """Names of a provider, its accounts and its services in exports, spelt as in its own bills and price pages.

    `account`: the kind of its account. `compute`, `storage`: its services. `runs`: one of RENTED_AS.
    """

    name: str
    account: str
    compute: str
    storage: str
    runs: str = VIRTUAL_MACHINES

    def __post_init__(self) -> None:
        for name in ("name", "account", "compute", "storage"):
            value = getattr(self, name)
            require(isinstance(value, str) and bool(value.strip()), name, f"must be text, not {describe_value(value)}")
        require_one_of(self.runs, RENTED_AS, "runs")


def get_seller(sellers: Mapping[str, Seller], provider: str) -> Seller:
    """Return the seller for the ledger's name of a provider; without a stated one, that name is used."""
    seller = sellers.get(provider)
    if seller is not None:
        return seller
    return Seller(name=provider, account="Account", compute=f"{provider} Instances", storage=f"{provider} Storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTraits:
    """How a program detects that it runs on a machine of this provider, and how spot machines are reclaimed.

    `variables`: environment variables that only its machines have. `firmware`: prefixes of the vendor, board or product name of
    the firmware (/sys/class/dmi/id). `sigterm_grace`: time between the provider's SIGTERM and the end of the machine; None: it
    sends none. `metadata_url`: the metadata service that states spot notices; "": there is none, and the plug-in has no
    `fetch_spot_notice`. `metadata_variable`: the variable with which the provider's own tools override that address.
    `notice_ahead`: how long before the end of the machine the notice comes, with a margin of some seconds.
    """

    variables: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sigterm_grace: timedelta | None = None
    metadata_url: str = ""
    metadata_variable: str = ""
    notice_ahead: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderManifest:
    """The static description of a provider.

    `name`: its name in the ledger, the settings and the market. `credentials`: where its key is looked for, in that order.
    `abilities`: of ABILITIES, each with its method and its limits; a missing one is not supported. `extra`: what to install for
    it, as `pip install '.[EXTRA]'` in a clone; "" for nothing. `key_at`: where a key is created. `measures_late`: the least
    age of the newest activity measurement, if measurements are fetched apart from the listing. `measures_every`: the interval
    of such measurements; 0 if each listing contains one. `seller`: its names in exports; None: its `name`. `measures`: families
    of signals that it measures without costguard's agent (of `SIGNAL_FAMILIES`), with nothing installed on the machine.
    `names_owners`: its machines have labels, or it reports who started them; False: on an account shared by several people, the
    owner of a machine is unknown. `machine`: how its machines are detected from inside; None: they are not. `saving_act`: what
    ends the compute rate; the act `stop` of a provider does that and nothing weaker.
    """

    name: str
    title: str
    credentials: tuple[str, ...]
    abilities: Mapping[str, str]
    settings: tuple[ProviderSetting, ...] = ()
    extra: str = ""
    key_at: str = ""
    measures_late: timedelta = timedelta()
    measures_every: timedelta = timedelta()
    measures: tuple[str, ...] = ()
    names_owners: bool = True
    seller: Seller | None = None
    machine: MachineTraits | None = None
    saving_act: SavingAct = SavingAct(kind="none")
    not_seen: tuple[str, ...] = field(default=())
    """What of its bill no listing shows, a sentence each (SageMaker, serverless workers)."""


def check_provider_table(table: Mapping[str, object], settings: tuple[ProviderSetting, ...], where: str) -> dict[str, object]:
    """Return `table` if every key is known and of its kind; otherwise raise an error for the key.

    `where`: the path in the settings, "providers.aws".
    """
    by_name = {setting.name: setting for setting in settings}
    checked = dict[str, object]()
    for key, value in table.items():
        setting = by_name.get(key)
        if setting is None:
            near = find_nearest_names(key, by_name)
            raise UnknownNameError("key", key, field=where, nearest=near, hint=f"known: {', '.join(by_name) or 'none'}")
        checked[key] = _check_setting(value, setting, f"{where}.{key}")
    return checked


def _check_setting(value: object, setting: ProviderSetting, where: str) -> object:
    if setting.kind == TABLES_SETTING and isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return [check_provider_table(one, setting.inner, f"{where}[{i}]") for i, one in enumerate(value)]
    if setting.kind == TEXT_SETTING and isinstance(value, str) and value.strip():
        return value
    if setting.kind == FLAG_SETTING and isinstance(value, bool):
        return value
    if setting.kind == WHOLE_SETTING and isinstance(value, int) and not isinstance(value, bool):
        return value
    if setting.kind == TEXTS_SETTING and isinstance(value, list) and all(isinstance(one, str) and one.strip() for one in value):
        return list(value)
    raise InputError(f"must be {_KIND_WORDS[setting.kind]}, not {describe_value(value)}", field=where, hint=setting.told)


CHECK_GOOD, CHECK_BAD, CHECK_UNSURE, CHECK_SKIPPED = "good", "bad", "unsure", "skipped"
CHECK_OUTCOMES = (CHECK_GOOD, CHECK_BAD, CHECK_UNSURE, CHECK_SKIPPED)
"""unsure: it could not be proven without acting, or it limits what costguard can tell; skipped: something before it failed."""

CREDENTIALS_CHECK, REACHABLE_CHECK, IDENTITY_CHECK, PERMISSION_CHECK, CLOCK_CHECK, UTILIZATION_CHECK = (
    "credentials",
    "reachable",
    "identity",
    "permission",
    "clock",
    "utilization",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The result of one check.

    `subject`: one of the names of checks, with its object ("permission: list pods"). `told`: what was found, without secrets.
    `fix`: the exact command or setting that repairs it, "" if nothing needs repair.
    """

    subject: str
    outcome: str
    told: str
    fix: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.outcome, CHECK_OUTCOMES, f"check {self.subject}")


ACCEPTED, ALREADY, REFUSED, MISSING, UNCLEAR, POSTPONED = "accepted", "already", "refused", "missing", "unclear", "postponed"
ACTION_RESPONSES = {
    ACCEPTED: "the provider took the request",
    ALREADY: "it is in that state or changing to it",
    REFUSED: "the provider refused; nothing was done",
    MISSING: "the provider does not know the instance",
    UNCLEAR: "no valid answer: the act may or may not have happened; check the state first",
    POSTPONED: "the provider took no request now (too many, or no connection); nothing was done, and it may be sent again soon",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResponse:
    """The response to an act. `said`: one of ACTION_RESPONSES. `why`: the provider's reason, without secrets; "" if none."""

    said: str
    why: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.said, ACTION_RESPONSES, "reception")


def interpret_act_error(broken: ProviderError, *, sent: bool = True, why: str = "") -> ActionResponse:
    """Return the response that `broken` is. `sent`: False for the check before the request. `why`: other words for it."""
    why = why or to_one_line(broken.what)
    if isinstance(broken, MissingError):
        return ActionResponse(said=MISSING, why=why)
    if isinstance(broken, ConflictError | CredentialsError | ForbiddenError | RefusedError):
        return ActionResponse(said=REFUSED, why=why if sent else f"{why}; nothing was sent")
    if not sent:
        return ActionResponse(said=POSTPONED, why=f"its state could not be checked, so nothing was sent: {why}")
    return ActionResponse(said=POSTPONED if isinstance(broken, ThrottledError | UnsentError) else UNCLEAR, why=why)
