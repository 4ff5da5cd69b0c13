"""`doctor` and `providers`: what is configured, and what works.

Every account is examined in parallel; one that hangs or fails is reported as a finding and does not affect the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from costguard.errors import CostguardError, InputError, NoAnswerError, NoLedgerError, ProviderError
from costguard.guard.overrides import ACCOUNT
from costguard.ledger.db.address import parse_ledger_address
from costguard.providers import plugins
from costguard.providers.ports import Examiner, IdentitySource, InstanceSource
from costguard.services import CommandAnswer
from costguard.services.poll.account_identity import name_key
from costguard.services.poll.concurrency import run_all
from costguard.services.poll.configured_providers import SystemClock, check_provider_tables, open_providers
from costguard.services.poll.listing_validation import check_own_scopes, describe_failure
from costguard.settings import (
    Settings,
    read_settings,
    resolve_ledger_url,
)
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    IDENTITY_CHECK,
    REACHABLE_CHECK,
    HealthCheck,
)
from costguard.values.resource import ScopeKey
from costguard.values.text_format import limit_lines
from costguard.views.setup import (
    AccountChecks,
    InstalledProvider,
    build_doctor_document,
    build_providers_document,
)


def answer_doctor(
    *,
    only: tuple[str, ...] | None = None,
    all_checks: bool = False,
    offline: bool = False,
    config: str | None = None,
    accept: str | None = None,
) -> CommandAnswer:
    """Answer `costguard doctor`: check every configured provider; if none is configured, those with found credentials.

    `all_checks`: people see a row for each check; programs always do. `accept`: the account whose key, of another account than
    before, is accepted first.
    """
    from costguard.services.guarding.route_checks import check_routes

    settings, notes = read_settings(config), list[str]()
    with open_providers(settings, only=only, found_too=not settings.providers) as every:
        clouds = [cloud for cloud in every if not isinstance(cloud.error, InputError)]  # of those found, without a table
        if not settings.providers and only is None:
            cloud_names = ", ".join(cloud.name for cloud in clouds) or "none"
            notes.append(f"No provider is configured; credentials were found for: {cloud_names}. Run costguard init.")
        accounts = [(cloud.name, source) for cloud in clouds for source in cloud.sources]
        examined = tuple(_build_offline_result(name) for name, _ in accounts) if offline else examine_accounts(accounts)
        if accept is not None:
            notes.append(accept_account(accept, examined, settings))
        examined = tuple(_check_identity(one, resolve_ledger_url(settings)) for one in examined)
    same = find_twin_accounts(examined)
    if same:
        raise InputError("; ".join(same), field="providers", hint="remove one of the two from the settings")
    unopened = [
        AccountExamination(provider=c.name, account="", checks=(build_unopened_check(c.error),)) for c in clouds if c.error
    ]
    findings = [AccountChecks(provider=one.provider, account=one.account, checks=one.checks) for one in (*examined, *unopened)]
    own, routes = _check_installation(settings), tuple(check_routes(settings))
    shown = [*notes, *_list_reach(settings)]
    clusters = () if offline or only is not None else _check_clusters(settings)
    document = build_doctor_document(
        [*findings, *clusters], own, routes=routes, notes=shown, all_checks=all_checks, file=settings.file
    )
    checks = [(one.provider, check) for one in (*findings, *clusters, own, *routes) for check in one.checks]
    bad = [f"{provider}: {check.subject}" for provider, check in checks if check.outcome == CHECK_BAD]
    refusal = NoAnswerError(f"bad: {', '.join(dict.fromkeys(bad))}", hint="apply the fixes above") if bad else None
    if not bad and not findings:
        hint = "export a provider's key, then costguard init; costguard providers lists what each needs"
        refusal = NoAnswerError("nothing was checked: no provider is configured, and no credentials were found", hint=hint)
    return CommandAnswer(document=document, warnings=tuple(notes), refusal=refusal)


def _check_clusters(settings: Settings) -> tuple[AccountChecks, ...]:
    """Return what each context of `[kubernetes]` lets costguard read."""
    from costguard.services.poll.kubernetes_view import NAME, open_kubernetes_view

    with closing(open_kubernetes_view(settings, SystemClock())) as view:
        return tuple(AccountChecks(provider=NAME, account=name, checks=checks) for name, checks in view.examine())


def _list_reach(settings: Settings) -> list[str]:
    """Return what policies can do on the listed machines; empty if the ledger is unreadable, which another check reports."""
    from costguard.services.guarding.policy import list_reach

    try:
        return list_reach(settings, settings.policies) if settings.policies else []
    except CostguardError:
        return []


def build_unopened_check(error: CostguardError) -> HealthCheck:
    """Build the check of a provider that could not be opened."""
    what = f"{error.what} ({error.status})" if isinstance(error, ProviderError) and error.status else error.what
    return HealthCheck(subject="credentials", outcome=CHECK_BAD, told=what, fix=error.hint or "")


def answer_providers(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard providers`: the matrix of abilities. No provider is asked."""
    installed = plugins.load_providers()
    tables = check_provider_tables(read_settings(config), installed)
    rows = [
        InstalledProvider(manifest=one.manifest, missing=plugins.find_missing_packages(one.manifest), configured=name in tables)
        for name, one in sorted(installed.found.items())
    ]
    document = build_providers_document(rows, installed.broken)
    return CommandAnswer(document=document, warnings=tuple(f"{name}: {why}" for name, why in sorted(installed.broken.items())))


def _build_offline_result(name: str) -> AccountExamination:
    checks = (
        HealthCheck(subject="credentials", outcome=CHECK_GOOD, told="found"),
        HealthCheck(subject="reachable", outcome=CHECK_SKIPPED, told="offline: it was not queried"),
    )
    return AccountExamination(provider=name, account="", checks=checks)


def _check_installation(settings: Settings) -> AccountChecks:
    """Check the ledger, its disk and database library, the proxy, and for settings that never take effect."""
    from costguard.ledger.db.disk import describe_disk_risk
    from costguard.ledger.db.maintenance import describe_ledger_path, has_wal_fix, read_sqlite_version
    from costguard.services.guarding.void_settings import list_void_settings

    url, version = resolve_ledger_url(settings), read_sqlite_version()
    checks = [_check_ledger(url), *_check_proxy_variables(settings)]
    risk, fix, refused = describe_disk_risk(parse_ledger_address(url))
    if risk:
        checks.append(HealthCheck(subject="disk", outcome=CHECK_BAD if refused else CHECK_UNSURE, told=risk, fix=fix))
    if checks[0].outcome == CHECK_GOOD:
        checks += _check_agents(url)
        checks += _check_watchdogs(url)
    if url.startswith("sqlite:"):
        if has_wal_fix(version):
            checks.append(HealthCheck(subject="sqlite", outcome=CHECK_GOOD, told=f"SQLite {version}"))
        else:
            text = (
                f"SQLite {version} has the WAL-reset bug (fixed in 3.51.3, 3.50.7 and 3.44.6); costguard's writers take "
                "turns, so it can only occur if another program writes to the ledger"
            )
            fix = "let no other program write to it, run costguard db backup on a timer, or use a Python with a newer SQLite"
            checks.append(HealthCheck(subject="sqlite", outcome=CHECK_UNSURE, told=text, fix=fix))
    for one in list_void_settings(settings):
        checks.append(HealthCheck(subject="settings", outcome=CHECK_BAD if one.certain else CHECK_UNSURE, told=one.says))
    return AccountChecks(provider="ledger", account=describe_ledger_path(url), checks=tuple(checks))


def _check_proxy_variables(settings: Settings) -> list[HealthCheck]:
    """Check for proxies in the environment, which other programs use and costguard does not: [network] proxy names its one."""
    ignored = ("no_proxy",) if settings.network.proxy else ("https_proxy", "http_proxy", "all_proxy")
    names = ", ".join(name for name in sorted(os.environ) if name.lower() in ignored and os.environ[name])
    fix = 'set [network] proxy = "http://HOST:PORT" (COSTGUARD_NETWORK__PROXY if it has a password) if clouds need one'
    if settings.network.proxy:
        fix = "all providers and chats are reached through [network] proxy: remove it if they need none"
    text = f"set in the environment, and not used by costguard: {names}"
    return [HealthCheck(subject="proxy", outcome=CHECK_UNSURE, told=text, fix=fix)] if names else []


def _check_ledger(url: str) -> HealthCheck:
    from costguard.ledger.spans.books import SpendingReader

    try:
        with SpendingReader(url, rules={}) as books:
            count = len(books.list_scopes())
    except NoLedgerError:
        return HealthCheck(subject="ledger", outcome=CHECK_GOOD, told="none yet: the first poll creates it")
    except CostguardError as broken:
        return HealthCheck(subject="ledger", outcome=CHECK_BAD, told=broken.what, fix=broken.hint or "")
    return HealthCheck(subject="ledger", outcome=CHECK_GOOD, told=f"it can be read and has {count} accounts")


def _check_agents(url: str) -> list[HealthCheck]:
    """Check which machines have an agent, and which agents are silent; empty if none has joined."""
    from costguard.guard.alerts.blind import find_silent_agents, index_agents
    from costguard.ledger.agents.records import load_agents
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.spans.books import SpendingReader
    from costguard.services.guarding.overrides import get_now

    try:
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            agents = index_agents(load_agents(ask))
        with SpendingReader(url, rules={}) as books:
            live = books.load_live(get_now()) if agents else []
    except (CostguardError, InputError):  # there is none yet, or it is older: that is said above
        return []
    if not agents:
        return []
    silent = find_silent_agents(agents.values(), live, get_now())
    names = {one.observation.key: one.observation.name or one.observation.key.id for one in live}
    having = limit_lines(sorted(names.get(key, key.id) for key in agents), "machines")
    text = f"{len(agents)} machines have one: {', '.join(having)}"
    if not silent:
        return [HealthCheck(subject="agents", outcome=CHECK_GOOD, told=text)]
    blind = limit_lines(sorted(f"{names.get(key, key.id)}: {says}" for key, says in silent.items()), "of them")
    fix = "on the machine: costguard-agent status shows why; costguard agent revoke ID if it needs no agent"
    return [HealthCheck(subject="agents", outcome=CHECK_UNSURE, told=f"{text}; blind: {'; '.join(blind)}", fix=fix)]


def _check_watchdogs(url: str) -> list[HealthCheck]:
    """Check this machine's clock against the ledger server's, and who polls which account; empty where that is one process."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.duty_records import CLOCK_OFF_MAX, build_clock_error, measure_clock
    from costguard.services.guarding.overrides import get_now
    from costguard.services.report.watchdog_shares import load_watchdog_shares
    from costguard.views.watchdogs import format_shares, list_share_warnings

    if url.startswith("sqlite:"):
        return []
    try:
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            off, shares = measure_clock(ask, get_now), load_watchdog_shares(ask, get_now())
    except (CostguardError, InputError):  # there is none yet, or it is older: that is said above
        return []
    wrong = build_clock_error(off)
    clock = HealthCheck(subject="clock", outcome=CHECK_GOOD, told="this machine's and the ledger server's agree")
    if abs(off) > CLOCK_OFF_MAX:
        clock = HealthCheck(subject="clock", outcome=CHECK_BAD, told=f"{wrong.field} {wrong.what}", fix=wrong.hint or "")
    if not shares:
        return [clock]
    text, warnings = f"accounts: {format_shares(shares)}", limit_lines(list_share_warnings(shares), "of them")
    orphaned = any(not one.name and one.accounts for one in shares)
    if not warnings and not orphaned:
        return [clock, HealthCheck(subject="watchdogs", outcome=CHECK_GOOD, told=text)]
    fix = "see the watchdogs' logs (polls_paused, clock_off, job_failed); start costguard watch where none runs"
    outcome = CHECK_BAD if warnings else CHECK_UNSURE  # what nobody polls is polled with the next interval
    return [clock, HealthCheck(subject="watchdogs", outcome=outcome, told="; ".join((text, *warnings)), fix=fix)]


EXAMINATION_LIMIT_S = 60.0
"""How long all examinations may take together: somebody waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountExamination:
    """One account with its checks. `account` "": not known. `identity`: the provider's name of it.

    `key_name`: what the settings call its key.
    """

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]
    identity: str = ""
    scopes: tuple[ScopeKey, ...] = ()
    key_name: str = ""


def examine_accounts(
    sources: Sequence[tuple[str, InstanceSource]], *, limit_s: float = EXAMINATION_LIMIT_S
) -> tuple[AccountExamination, ...]:
    """Examine each of `sources`, given with its provider's name, and return the results in their order."""
    names = [name for name, _ in sources]
    questions: Mapping[int, Callable[[], AccountExamination]] = {
        number: _build_question(name, source, alone=names.count(name) == 1) for number, (name, source) in enumerate(sources)
    }
    answers = run_all(questions, limit_s=limit_s, doing="checking accounts")
    return tuple(_to_examination(sources[number][0], answer) for number, answer in answers.items())


def _check_identity(one: AccountExamination, url: str) -> AccountExamination:
    """Return `one` with a bad check where its key is of another account than the ledger's. Without a ledger it stays."""
    from costguard.ledger.spans.account_identities import read_other_account

    try:
        why = read_other_account(url, (one.provider, one.key_name), one.identity)
    except CostguardError:  # there is none yet, or it is older: that is said elsewhere
        return one
    fix = "give the key of that account, or the account another name, or accept it with --accept-account"
    check = HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_BAD, told=why, fix=fix)
    return replace(one, checks=(*one.checks, check)) if why else one


def accept_account(name: str, examined: Sequence[AccountExamination], settings: Settings) -> str:
    """Record that the key of the account `name` ("runpod/default", "default" or "runpod") is its own from now on.

    Returns a sentence. Raises InputError for a name of none or of several, or where nobody says whose its key is.
    """
    from costguard.services.guarding.overrides import get_now, make_override, open_guard_store

    matches = [one for one in examined if name in (one.provider, one.account, one.key_name, f"{one.provider}/{one.key_name}")]
    if len(matches) != 1:
        names = ", ".join(sorted(f"{one.provider}/{one.key_name or one.account}" for one in examined)) or "none"
        what = "is several accounts" if matches else "is no configured account"
        raise InputError(what, field=f"--accept-account {name}", hint=f"the accounts are: {names}")
    (accepted,) = matches
    if not accepted.identity:
        what = f"{accepted.provider} does not say whose key it is, so there is nothing to accept"
        raise InputError(what, field=f"--accept-account {name}", hint="its fourth listing is believed")
    subject = f"{accepted.provider}/{accepted.key_name}"
    override = make_override(ACCOUNT, "accepted", get_now(), subject=subject, value=accepted.identity)
    with open_guard_store(settings) as book:
        book.add_override(override)
    return (
        f"Accepted: {subject} is {accepted.identity} from now on. What was listed of an account before it under that name "
        "counts as ended with the next listings; what still bills there is not seen."
    )


def find_twin_accounts(examined: Sequence[AccountExamination]) -> tuple[str, ...]:
    """Return a sentence for each duplicate account: one with the same identity, or with a scope that both list."""
    sentences = list[str]()
    for number, one in enumerate(examined):
        for other in examined[:number]:
            same = bool(one.identity) and (one.provider, one.identity) == (other.provider, other.identity)
            shared = sorted(set(one.scopes) & set(other.scopes))
            if same or shared:
                what = one.identity if same else "/".join(shared[0])
                names = f"'{other.account or '?'}' and '{one.account or '?'}' of {one.provider}"
                sentences.append(f"the accounts {names} are the same account: both are {what}")
    return tuple(sentences)


def _build_question(name: str, source: InstanceSource, *, alone: bool) -> Callable[[], AccountExamination]:
    return lambda: _examine_account(name, source, alone=alone)


def _examine_account(name: str, source: InstanceSource, *, alone: bool) -> AccountExamination:
    if isinstance(source, Examiner):
        checks = tuple(source.examine()) or (
            HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_UNSURE, told="no checks were run"),
        )
    else:
        checks = (HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_UNSURE, told="this provider has no checks"),)
    scopes: tuple[ScopeKey, ...] = ()
    identity = ""
    if not any(check.outcome == CHECK_BAD for check in checks):
        try:
            scopes = check_own_scopes(source.list_scopes(), source.providers)
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            checks = (
                *checks,
                HealthCheck(
                    subject=IDENTITY_CHECK, outcome=CHECK_BAD, told=f"its accounts cannot be listed: {describe_failure(broken)}"
                ),
            )
        is_asked = not alone or bool(name_key(source, scopes))
        try:
            identity = (source.fetch_identity() or "") if isinstance(source, IdentitySource) and is_asked else ""
        except Exception as broken:  # noqa: BLE001 - a plug-in may raise anything
            text = f"whether the key is of the same account as before is unknown: {describe_failure(broken)}"
            if not alone:
                text = f"duplicate accounts cannot be detected today: {describe_failure(broken)}"
            checks = (*checks, HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_UNSURE, told=text))
    return AccountExamination(
        provider=name,
        account=_name_account(source, scopes),
        checks=checks,
        identity=identity,
        scopes=scopes,
        key_name=name_key(source, scopes),
    )


def _name_account(source: InstanceSource, scopes: tuple[ScopeKey, ...]) -> str:
    """Return the account's name in the ledger: as the source states it, else from its scopes."""
    account = getattr(source, "account", "")
    accounts = sorted({scope.account for scope in scopes})
    return account if isinstance(account, str) and account else ", ".join(accounts)


def _to_examination(name: str, answer: AccountExamination | BaseException) -> AccountExamination:
    if isinstance(answer, AccountExamination):
        return answer
    why = str(answer) if isinstance(answer, TimeoutError) else describe_failure(answer)
    return AccountExamination(
        provider=name, account="", checks=(HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=why),)
    )
