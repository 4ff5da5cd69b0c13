"""Looking at the set-up: doctor, and what each provider can do."""

from __future__ import annotations

from costguard.errors import CostguardError, InputError, NoAnswerError, ProviderError
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.services.configured_providers import check_provider_tables, open_providers
from costguard.services.doctor import AccountExamination, find_twin_accounts
from costguard.services.doctor import examine_accounts as flow
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.values.health import CHECK_BAD, CHECK_GOOD, CHECK_SKIPPED, CHECK_UNSURE, HealthCheck
from costguard.values.text_format import limit_lines
from costguard.views.doctor import AccountChecks, build_doctor_document
from costguard.views.providers import InstalledProvider, build_providers_document


def answer_doctor(*, only: tuple[str, ...] | None = None, offline: bool = False, config: str | None = None) -> CommandAnswer:
    """`costguard doctor`: every configured provider, or those for which credentials are found where none is configured."""
    settings, notes = read_settings(config), list[str]()
    with open_providers(settings, only=only, found_too=not settings.providers) as every:
        clouds = [cloud for cloud in every if not isinstance(cloud.error, InputError)]  # of those found, without a table
        if not settings.providers and only is None:
            found = ", ".join(cloud.name for cloud in clouds) or "none"
            notes.append(f"No provider is configured; credentials were found of: {found}. costguard init writes them down.")
        accounts = [(cloud.name, source) for cloud in clouds for source in cloud.sources]
        examined = tuple(_build_offline_result(name) for name, _ in accounts) if offline else flow(accounts)
    same = find_twin_accounts(examined)
    if same:
        raise InputError("; ".join(same), field="providers", hint="take one of the two out of the settings")
    unopened = [
        AccountExamination(provider=c.name, account="", checks=(build_unopened_check(c.error),)) for c in clouds if c.error
    ]
    findings = [AccountChecks(provider=one.provider, account=one.account, checks=one.checks) for one in (*examined, *unopened)]
    own = _check_installation(settings)
    document = build_doctor_document(findings, own, notes=notes)
    bad = [f"{one.provider}: {check.subject}" for one in (*findings, own) for check in one.checks if check.outcome == CHECK_BAD]
    refusal = NoAnswerError(f"bad: {', '.join(bad)}", hint="the fixes stand above") if bad else None
    return CommandAnswer(document=document, warnings=tuple(notes), refusal=refusal)


def build_unopened_check(error: CostguardError) -> HealthCheck:
    """What to say of a provider that could not even be opened."""
    what = f"{error.what} ({error.status})" if isinstance(error, ProviderError) and error.status else error.what
    return HealthCheck(subject="credentials", outcome=CHECK_BAD, told=what, fix=error.hint or "")


def answer_providers(*, config: str | None = None) -> CommandAnswer:
    """`costguard providers`: the matrix of abilities. It asks nobody."""
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
        HealthCheck(subject="reachable", outcome=CHECK_SKIPPED, told="offline: it was not asked"),
    )
    return AccountExamination(provider=name, account="", checks=checks)


def _check_installation(settings: Settings) -> AccountChecks:
    """The ledger and what it stands on."""
    from costguard.ledger.db.maintenance import describe_ledger_path
    from costguard.ledger.db.sqlite_version import has_wal_fix, read_sqlite_version

    url, version = resolve_ledger_url(settings), read_sqlite_version()
    checks = [_check_ledger(url)]
    if checks[0].outcome == CHECK_GOOD:
        checks += _check_agents(url)
    if url.startswith("sqlite:"):
        if has_wal_fix(version):
            checks.append(HealthCheck(subject="sqlite", outcome=CHECK_GOOD, told=f"SQLite {version}"))
        else:
            told = (
                f"SQLite {version} has the WAL-reset fault (mended in 3.51.3, 3.50.7 and 3.44.6); costguard's writers take "
                "turns, so only another program that writes to the ledger could meet it"
            )
            fix = (
                "let nothing else write to the ledger, keep costguard db backup in a timer, or use a Python with a newer SQLite"
            )
            checks.append(HealthCheck(subject="sqlite", outcome=CHECK_UNSURE, told=told, fix=fix))
    return AccountChecks(provider="ledger", account=describe_ledger_path(url), checks=tuple(checks))


def _check_ledger(url: str) -> HealthCheck:
    from costguard.ledger.spans.books import SpendingReader

    try:
        with SpendingReader(url, rules={}) as books:
            count = len(books.list_scopes())
    except InputError as none_yet:
        if "no ledger here yet" in none_yet.what:
            return HealthCheck(subject="ledger", outcome=CHECK_GOOD, told="none yet: the first poll makes it")
        return HealthCheck(subject="ledger", outcome=CHECK_BAD, told=none_yet.what, fix=none_yet.hint or "")
    except CostguardError as broken:
        return HealthCheck(subject="ledger", outcome=CHECK_BAD, told=broken.what, fix=broken.hint or "")
    return HealthCheck(subject="ledger", outcome=CHECK_GOOD, told=f"it can be read, and knows of {count} scopes")


def _check_agents(url: str) -> list[HealthCheck]:
    """Which machines have an agent, and whose says nothing; nothing where none has joined."""
    from costguard.guard.alerts.silence import find_silent_agents, index_agents
    from costguard.ledger.agents.records import load_agents
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.spans.books import SpendingReader
    from costguard.services.overrides import get_now

    try:
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            found = index_agents(load_agents(ask))
        with SpendingReader(url, rules={}) as books:
            live = books.load_live(get_now()) if found else []
    except (CostguardError, InputError):  # there is none yet, or it is older: that is said above
        return []
    if not found:
        return []
    silent = find_silent_agents(found.values(), live, get_now())
    names = {one.observation.key: one.observation.name or one.observation.key.id for one in live}
    having = limit_lines(sorted(names.get(key, key.id) for key in found), "machines")
    told = f"{len(found)} machines have one: {', '.join(having)}"
    if not silent:
        return [HealthCheck(subject="agents", outcome=CHECK_GOOD, told=told)]
    blind = limit_lines(sorted(f"{names.get(key, key.id)}: {says}" for key, says in silent.items()), "of them")
    fix = "on the machine: costguard-agent status says why; costguard agent revoke ID where it is meant to be without one"
    return [HealthCheck(subject="agents", outcome=CHECK_UNSURE, told=f"{told}; blind: {'; '.join(blind)}", fix=fix)]
