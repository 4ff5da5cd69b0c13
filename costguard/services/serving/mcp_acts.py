"""What an agent may do to a machine over MCP: keep it, and stop it while a person has armed that.

    costguard mcp arm --why TEXT -> the ledger -> looked up at every call -> `act_on_resource` (looks, sends once, proves)

An arming ends after 90 days or with `costguard mcp disarm`, at once for servers that run, and stands in the audit log. An agent
is not a person: a name on a machine may have talked it into the act, so `[rails] acts per_10m` holds for its stops as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from threading import Lock

from costguard.errors import NoAnswerError, NoLedgerError
from costguard.guard.action_intents import Intent
from costguard.guard.machine_reference import require_resource_key
from costguard.guard.overrides import ARM, ARMED_FOR, Override, is_override_open
from costguard.guard.policy import STOP, Rails
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.services import CommandAnswer
from costguard.services.guarding import overrides
from costguard.settings import Settings, get_data_path, read_settings, resolve_ledger_url
from costguard.system.atomic_file import hold_file_lock, make_folder
from costguard.values.text_format import format_local_time
from costguard.views.policy import build_override_document

SUBJECT, LEVEL = "costguard mcp", "mcp stop"
"""What stands in the arming where that of a policy has the policy's name, and its level."""
MARK = " (mcp)"
"""Behind the user's name in everything that is recorded for an agent."""
RATE_WINDOW = timedelta(minutes=10)
PROVE_WITHIN_S = 20.0
"""How long a stop waits for its proof: clients of MCP give up after 30 to 60 s. The watchdog goes on proving it."""
_one_stop = Lock()
"""One stop at a time, so that the limit is counted between them: within a server, and by a file among all of this user's."""
STOP_LOCK = "mcp-stop.lock"
LOCK_WAIT_S = 60.0


def arm_mcp(*, why: str | None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard mcp arm`: agents may stop machines over MCP for 90 days. Raises InputError without a reason."""
    settings, now = read_settings(config), overrides.get_now()
    reason = overrides.require_reason(why, "costguard mcp arm")
    until = now.replace(microsecond=0) + ARMED_FOR
    override = overrides.make_override(ARM, reason, now, until=until, subject=SUBJECT, value=LEVEL)
    with overrides.open_guard_store(settings) as book:
        book.add_override(override)
    lead = f"Agents that use costguard mcp on this ledger may stop machines until {format_local_time(until)}."
    notes = (
        "Protections, leases, freezes and [rails] acts per_10m still apply.",
        "next: costguard mcp disarm ends it at once",
    )
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(lead,), notes=notes))


def disarm_mcp(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard mcp disarm`: no agent stops anything any more."""
    settings, now = read_settings(config), overrides.get_now()
    armings = [override for override in _load_overrides(settings, now) if _is_arming(override, now)]
    with overrides.open_guard_store(settings) as book:
        lifts = [book.lift_override(override.id, who=overrides.describe_user(), now=now) for override in armings]
    lead = "Agents may no longer stop machines over MCP." if lifts else "Agents could not stop machines: nothing to lift."
    return CommandAnswer(document=build_override_document("lifted" if lifts else "none", lifts, lead=(lead,)))


def is_mcp_armed(settings: Settings) -> bool:
    """Return whether agents may stop machines now; no, where there is no ledger."""
    now = overrides.get_now()
    return any(_is_arming(override, now) for override in _load_overrides(settings, now))


def keep_for_agent(key: str, *, length: str | None, why: str | None, config: str | None = None) -> CommandAnswer:
    """Make the lease that `costguard keep` makes, recorded as an agent's. Raises InputError for a `key` that is no full key."""
    with overrides.act_for(f"{overrides.describe_user()}{MARK}"):
        return overrides.keep_resource(require_resource_key(key), length=length, why=why, config=config)


def set_end_date_for_agent(key: str, time: str, *, why: str | None, renter: str, config: str | None = None) -> CommandAnswer:
    """Record the date of a machine that `renter` rented, as `costguard until set` does, as an agent's."""
    from costguard.services.guarding.until import set_end_date

    if not renter:
        raise NoAnswerError("this server has no token of its own", field="until", hint="a person runs costguard until set")
    with overrides.act_for(f"{overrides.describe_user()}{MARK}"):
        return set_end_date(require_resource_key(key), time, why=why, config=config, renter=renter)


def stop_for_agent(key: str, *, why: str | None, config: str | None = None) -> CommandAnswer:
    """Stop one machine as `costguard stop --yes` does, recorded as an agent's.

    `key`: provider/account/region/id, as status lists it; no name, because whoever names a machine would choose the target.
    Raises InputError without a reason, and NoAnswerError while it is not armed or at the limit of [rails].
    """
    from costguard.services.guarding.act.by_hand import act_on_resource

    settings = read_settings(config)
    reason, resource_key = overrides.require_reason(why, "why"), require_resource_key(key)
    with _one_stop, _hold_stop_lock():
        if not is_mcp_armed(settings):
            hint = 'a person arms it: costguard mcp arm --why "..."'
            raise NoAnswerError("stops over MCP are not armed; nothing was sent", field="stop", hint=hint)
        _check_rate(settings)
        with overrides.act_for(f"{overrides.describe_user()}{MARK}"):
            return act_on_resource(resource_key, STOP, yes=True, why=reason, config=config, prove_within_s=PROVE_WITHIN_S)


def _hold_stop_lock() -> AbstractContextManager[None]:
    """Hold the lock among servers of this user. Raises LedgerError if another stop takes longer than a minute."""
    file = get_data_path(STOP_LOCK)
    make_folder(file.parent)
    return hold_file_lock(file, patience_s=LOCK_WAIT_S)


def _check_rate(settings: Settings) -> None:
    """Raise NoAnswerError if agents have sent as many stops in 10 minutes as the rails allow."""
    most = (settings.rails or Rails()).limit_unaccepted().acts_per_10m
    with overrides.open_guard_store(settings) as book:
        sent = count_agent_sends(book.load_sends_since(overrides.get_now() - RATE_WINDOW))
    if sent >= most:
        hint = "wait, or ask a person to stop it: costguard stop"
        raise NoAnswerError(f"{sent} stops of agents in 10 minutes; [rails] allows {most}", field="stop", hint=hint)


def count_agent_sends(sends: Iterable[Intent]) -> int:
    """Return how many of `sends` were an agent's: the reason of an act by hand begins with who did it."""
    return sum(f"{MARK}: " in one.why for one in sends)


def _is_arming(override: Override, now: datetime) -> bool:
    return override.what == ARM and override.subject == SUBJECT and override.value == LEVEL and is_override_open(override, now)


def _load_overrides(settings: Settings, now: datetime) -> list[Override]:
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            return load_overrides_since(ask, now - ARMED_FOR)
    except NoLedgerError:
        return []
