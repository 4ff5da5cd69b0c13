"""Documents about the setup: `costguard.init/1`, `costguard.doctor/1` and `costguard.providers/1`.

The first shows what `costguard init` wrote, one record per provider. The second shows the findings of `costguard doctor`, one
record per check. The third shows what costguard supports for each provider, one record per provider.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costguard.guard.alerts.alert import DeliveryResult
from costguard.values.provider import ABILITIES, CHECK_BAD, CHECK_GOOD, CREDENTIALS_CHECK, HealthCheck, ProviderManifest
from costguard.views.columns import MIDDLE, WORDS, ColumnFit
from costguard.views.document import BAD, DOUBTFUL, PLAIN, Document, TableView

INIT_SCHEMA = "costguard.init/1"


def build_init_document(
    path: str,
    providers: Sequence[str],
    looked: Mapping[str, Sequence[str]],
    unready: Mapping[str, str],
    *,
    cap: str | None,
    zone: str | None,
    usual: bool,
    guarded: str | None = None,
    policies: Sequence[str] = (),
    arms: bool = True,
    added: int = 0,
    exists: bool = False,
    checked: bool = False,
) -> Document:
    """Return the document of a settings file that was written or extended.

    - `providers`: providers in the file. `looked`: the places that were searched, for the other providers.
    - `unready`: what must be set before credentials can be searched.
    - `usual`: the file is at a place where costguard reads it without --config. `guarded`: where the warnings of the `policies`
        in it go; None: it has none. `arms`: they may stop machines once they are armed.
    - `added`: lines that were added. `exists`: the file existed before. `checked`: accounts and channel were asked already.
    """
    config = "" if usual else f" --config {path}"
    checks = ["doctor", "status", *(["notify test"] if guarded is not None else [])]
    steps = [f"costguard{config} {one}" for one in checks if not checked]
    if guarded is not None:
        steps += [f"costguard{config} policy arm {name} stop" for name in policies if arms]
        steps += [f"costguard{config} watch"]
    data = {
        "schema": INIT_SCHEMA,
        "path": path,
        "providers": list(providers),
        "not_found": {name: list(places) for name, places in sorted(looked.items()) if places},
        "unready": dict(sorted(unready.items())),
        "budget": cap,
        "timezone": zone or "UTC",
        "policies": list(policies),
        "lines_added": added,
        "next": steps,
    }
    records = tuple({"provider": name, "found": name in providers} for name in sorted({*providers, *looked, *unready}))
    missing = [
        f"{name}: no credentials in {'; '.join(places)}." for name, places in sorted(looked.items()) if places and not providers
    ]
    unready_lines = [f"{name}: not switched on. {why}" for name, why in sorted(unready.items())]
    lead = f"Wrote {path}, {added} lines: {', '.join(providers) or 'no provider'}. It holds no key."
    if exists:
        lead = f"Added {added} lines to {path}; nothing else in it was changed." if added else f"{path} lacks nothing of this."
    budget = f"Budget: {cap} a month." if cap else "No budget: see [[budget]] in costguard settings explain budget."
    guard = f"Policies {', '.join(policies)} tell {guarded}, and stop nothing until you arm them."
    quicker = (
        "With costguard's agent an idle machine is stopped after an hour, not four: agent enrol, then init --guard --agents."
    )
    agents = (quicker,) if policies and arms and "idle-gpu" not in policies else ()
    return Document(
        data=data,
        records=records,
        lead=(lead, *(() if exists and not cap else (budget,)), *((guard,) if guarded is not None else ())),
        notes=(*missing, *unready_lines, *agents, *(f"next: {step}" for step in steps)),
    )


EXAMPLE_SCHEMA = "costguard.example/1"


def build_example_document(path: str, name: str) -> Document:
    """Return the document of an example file that was written."""
    data = {"schema": EXAMPLE_SCHEMA, "path": path, "example": name, "next": ["costguard doctor"]}
    notes = ("next: add your providers to the file, then run costguard doctor",)
    return Document(
        data=data, records=({"path": path, "example": name},), lead=(f"Wrote {path}, the example {name}.",), notes=notes
    )


DOCTOR_SCHEMA = "costguard.doctor/1"
SIGNS = {CHECK_GOOD: "ok", CHECK_BAD: "BAD"}
"""How an outcome is shown in the table; the others by their own words."""
OUTCOME_TONES = {SIGNS[CHECK_GOOD]: PLAIN, SIGNS[CHECK_BAD]: BAD}
CHECK_FITS: Mapping[str, ColumnFit] = {
    "provider": ColumnFit(),
    "account": ColumnFit(least=8, how=MIDDLE),
    "check": ColumnFit(least=14, how=WORDS),
    "key": ColumnFit(rank=1, least=16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChecks:
    """The checks of one account, of costguard's own ledger (`provider` "ledger"), or of a route of messages ("route")."""

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]


def build_doctor_document(
    findings: Sequence[AccountChecks],
    own: AccountChecks,
    *,
    routes: Sequence[AccountChecks] = (),
    notes: Sequence[str] = (),
    all_checks: bool = False,
    file: str = "",
) -> Document:
    """Return the document of all checks.

    `own`: the checks of the ledger. `file`: the settings file; "": there is none. `routes`: those of each route of messages.
    `notes`: explanations for users who expected more findings. `all_checks`: the table has a row for each check; else checks
    that are good are only counted, and those with the same finding share a row.
    """
    every = (*findings, own, *routes)
    counted = Counter(check.outcome for one in every for check in one.checks)
    data = {
        "schema": DOCTOR_SCHEMA,
        "good": bool(findings) and not counted[CHECK_BAD],
        "counts": dict(sorted(counted.items())),
        "providers": [_build_account_data(one) for one in findings],
        "settings": file or None,
        "ledger": {"path": own.account, "checks": [_build_check_data(check) for check in own.checks]},
        "routes": [{"route": one.account, "checks": [_build_check_data(check) for check in one.checks]} for one in routes],
        "notes": list(notes),
    }
    records = tuple({"provider": o.provider, "account": o.account, **_build_check_data(c)} for o in every for c in o.checks)
    if all_checks:
        rows = tuple(_list_check_rows(every))
        tones = tuple(OUTCOME_TONES.get(row[3], DOUBTFUL) for row in rows)
        columns = ("provider", "account", "check", "", "found")
        table = TableView(title="", columns=columns, rows=rows, fits=CHECK_FITS, tones=tones)
        advice: tuple[str, ...] = tuple(_list_fixes(every))
    else:
        table, advice = _build_brief_table(every), tuple(_list_findings(every))
    more = "" if all_checks else " --all shows every check."
    following = "next: costguard status" if findings else "next: export the key of a provider, then run costguard init"
    if counted[CHECK_BAD]:
        following = "next: fix each BAD line, then run costguard doctor again"
    counts = (_format_check_counts(counted) + more, following)
    places = f"Settings: {file or 'no file'}; ledger: {own.account}."
    return Document(data=data, records=records, tables=(table,), notes=(*advice, *notes, places, *counts))


def _build_account_data(one: AccountChecks) -> Mapping[str, object]:
    return {"provider": one.provider, "account": one.account, "checks": [_build_check_data(check) for check in one.checks]}


def _build_check_data(check: HealthCheck) -> Mapping[str, object]:
    return {"check": check.subject, "outcome": check.outcome, "told": check.told, "fix": check.fix}


def _list_check_rows(every: Sequence[AccountChecks]) -> Iterator[tuple[str, ...]]:
    for one in every:
        for number, check in enumerate(one.checks):
            name, account = (one.provider, one.account or "?") if number == 0 else ("", "")
            yield name, account, check.subject, SIGNS.get(check.outcome, check.outcome), check.told


def _build_brief_table(every: Sequence[AccountChecks]) -> TableView:
    """Return a table with one row per account: how many of its checks are good, how many are not, and its key."""
    rows, tones = [], []
    for one in every:
        counted = Counter(SIGNS.get(check.outcome, check.outcome) for check in one.checks)
        outcomes = ", ".join(f"{count} {sign}" for sign, count in counted.items())
        key = next(
            (check.told for check in one.checks if check.subject == CREDENTIALS_CHECK and check.outcome == CHECK_GOOD), "-"
        )
        rows.append((one.provider, one.account or "?", outcomes, key))
        tones.append(BAD if counted[SIGNS[CHECK_BAD]] else PLAIN)
    return TableView(
        title="", columns=("provider", "account", "checks", "key"), rows=tuple(rows), fits=CHECK_FITS, tones=tuple(tones)
    )


def _list_findings(every: Sequence[AccountChecks]) -> Iterator[str]:
    """Yield a line for each finding that is not good, with all that it is about and its fix; bad ones come first."""
    findings: dict[tuple[str, str, str, str], list[str]] = {}
    for one in every:
        for check in one.checks:
            if check.outcome != CHECK_GOOD:
                sign = SIGNS.get(check.outcome, check.outcome)
                findings.setdefault((sign, one.provider, check.told, check.fix), []).append(check.subject)
    for (sign, provider, problem, fix), subjects in sorted(findings.items(), key=lambda item: item[0][0] != SIGNS[CHECK_BAD]):
        yield f"{sign} {provider}, {_join_subjects(subjects)}: {problem}.{f' Fix: {fix}' if fix else ''}"


def _join_subjects(subjects: Sequence[str]) -> str:
    """Return `permission: stop, terminate` for two checks of one kind."""
    kind, colon, _ = subjects[0].partition(": ")
    if colon and all(subject.startswith(f"{kind}: ") for subject in subjects):
        return f"{kind}: {', '.join(subject.removeprefix(f'{kind}: ') for subject in subjects)}"
    return ", ".join(subjects)


def _list_fixes(every: Sequence[AccountChecks]) -> Iterator[str]:
    """Yield the fixes as lines below the table, where a line can be as long as a command."""
    for one in every:
        for check in one.checks:
            if check.fix and check.outcome != CHECK_GOOD:
                yield f"{one.provider}, {check.subject}: {check.fix}"


def _format_check_counts(counted: Counter[str]) -> str:
    rest = ", ".join(f"{count} {word}" for word, count in sorted(counted.items()) if word not in (CHECK_GOOD, CHECK_BAD))
    return f"{counted[CHECK_GOOD]} good, {counted[CHECK_BAD]} bad{f', {rest}' if rest else ''}."


NOTIFY_TEST_SCHEMA = "costguard.notify_test/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTest:
    """What came back from one channel of a route."""

    route: str
    channel: str
    result: DeliveryResult

    @property
    def outcome(self) -> str:
        """Return "delivered", "cut" (accepted without its end) or "not delivered"."""
        if any(part.is_cut for part in self.result.parts):
            return "cut"
        return "delivered" if self.result.sent else "not delivered"

    @property
    def answer(self) -> str:
        """Return why it was not sent, and what the service answered."""
        answers = dict.fromkeys(one.answer for one in self.result.parts if one.answer and one.answer not in self.result.why)
        return "; ".join(filter(None, (self.result.why, *answers)))


def build_route_test_document(tests: Sequence[RouteTest]) -> Document:
    """Return the document of `costguard notify test`, one record a channel."""
    records = tuple(
        {"route": one.route, "channel": one.channel, "outcome": one.outcome, "answer": one.answer or None} for one in tests
    )
    rows = tuple((one.route, one.channel, one.outcome, one.answer or "-") for one in tests)
    table = TableView(title="", columns=("route", "channel", "outcome", "answer"), rows=rows, fits=ROUTE_TEST_FITS)
    data = {"schema": NOTIFY_TEST_SCHEMA, "tests": list(records)}
    return Document(data=data, records=records, tables=(table,))


ROUTE_TEST_FITS = {"answer": ColumnFit(least=20, how=WORDS)}
SHORT_ABILITIES = {"configured": "set", "volumes": "vols", "offers": "offer", "utilization": "util", "balance": "bal"} | {
    "terminate": "term",
    "permissions": "perms",
}
"""Headings on a terminal that is too narrow for the whole ones."""
PROVIDERS_SCHEMA = "costguard.providers/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProvider:
    """One provider.

    `missing`: packages of its SDK that are not installed. `configured`: whether it has a table in the settings.
    """

    manifest: ProviderManifest
    missing: tuple[str, ...]
    configured: bool


def build_providers_document(installed: Sequence[InstalledProvider], broken: Mapping[str, str]) -> Document:
    """Return the document of the installed providers.

    `broken`: plug-ins that cannot be used, with the reason.
    """
    warnings = tuple(f"the plug-in {name} cannot be used: {why}" for name, why in sorted(broken.items()))
    data = {
        "schema": PROVIDERS_SCHEMA,
        "abilities": dict(ABILITIES),
        "providers": [_build_provider_data(one) for one in installed],
        "broken": [{"name": name, "why": why} for name, why in sorted(broken.items())],
        "warnings": list(warnings),
    }
    return Document(
        data=data,
        records=tuple(_build_provider_record(one) for one in installed),
        lead=tuple(f"WARNING: {warning}" for warning in warnings),
        tables=(_build_ability_table(installed), _build_saving_table(installed), _build_detail_table(installed)),
        notes=tuple(f"Not visible: {sentence}." for one in installed for sentence in _list_unseen_kinds(one.manifest)),
    )


def _build_provider_data(one: InstalledProvider) -> Mapping[str, object]:
    manifest = one.manifest
    return {
        "name": manifest.name,
        "title": manifest.title,
        "configured": one.configured,
        "sdk": _format_sdk(one),
        "install": f"pip install '.[{manifest.extra}]'" if manifest.extra else None,
        "credentials": list(manifest.credentials),
        "key_at": manifest.key_at or None,
        "abilities": dict(manifest.abilities),
        "saving_act": {
            "kind": manifest.saving_act.kind,
            "counts_as": manifest.saving_act.counts_as or None,
            "bills_on": list(manifest.saving_act.bills_on),
            "loses": list(manifest.saving_act.loses),
        },
        "not_seen": list(manifest.not_seen),
        "settings": [{"name": setting.name, "kind": setting.kind, "told": setting.told} for setting in manifest.settings],
    }


def _build_provider_record(one: InstalledProvider) -> Mapping[str, object]:
    can = {ability: ability in one.manifest.abilities for ability in ABILITIES}
    return {"name": one.manifest.name, "configured": one.configured, "sdk": _format_sdk(one), **can}


def _format_sdk(one: InstalledProvider) -> str:
    """Return `none` if no SDK is needed, `missing` if it is not installed (see `install`), else `installed`."""
    return "none" if not one.manifest.extra else "missing" if one.missing else "installed"


def _build_ability_table(installed: Sequence[InstalledProvider]) -> TableView:
    rows = tuple(
        (
            one.manifest.name,
            "yes" if one.configured else "-",
            _format_sdk(one),
            *("yes" if ability in one.manifest.abilities else "-" for ability in ABILITIES),
        )
        for one in installed
    )
    sdk = tuple({"installed": "yes", "missing": "no"}.get(_format_sdk(one), "-") for one in installed)
    fits = {name: ColumnFit(heading=short) for name, short in SHORT_ABILITIES.items()}
    columns = ("provider", "configured", "SDK", *ABILITIES)
    return TableView(title="", columns=columns, rows=rows, short={"SDK": sdk}, fits=fits)


def _build_saving_table(installed: Sequence[InstalledProvider]) -> TableView:
    acts = tuple((one.manifest.name, one.manifest.saving_act) for one in installed)
    rows = tuple((name, act.kind, ", ".join(act.bills_on) or "-", ", ".join(act.loses) or "-") for name, act in acts)
    columns = ("provider", "act", "what bills on", "what may be lost")
    return TableView(title="What ends the compute rate", columns=columns, rows=rows)


def _build_detail_table(installed: Sequence[InstalledProvider]) -> TableView:
    rows = tuple((one.manifest.name, ability, how) for one in installed for ability, how in one.manifest.abilities.items())
    return TableView(title="Method and limits", columns=("provider", "ability", "how"), rows=rows)


def _list_unseen_kinds(manifest: ProviderManifest) -> tuple[str, ...]:
    """Return each sentence about resources that are not seen, with the provider's name before it exactly once."""
    prefix = f"{manifest.title}: "
    return tuple(f"{prefix}{s.removeprefix(prefix).removesuffix('.')}" for s in manifest.not_seen)
