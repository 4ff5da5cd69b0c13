"""Bill files of whatever kind as parts of lines: FOCUS for everybody, and what each provider's plug-in says of its own files.

Which kind a file is of, its first record says. A record that cannot be read refuses the whole file, by name and line: a bill
that is taken in in part says less than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from costguard import plugins
from costguard.app.bill_file import Place, files, records
from costguard.core.bill_files import About, BillFiles, BillFormat, Part, Record
from costguard.core.focus_rows import Export, Reader, columns_missing, provider_stated
from costguard.errors import InputError, one_line, shortened
from costguard.flows.believed import speaks_for
from costguard.ports.bills import KnowsBillFiles

FOCUS = "FOCUS"
LOOKS_LIKE_FOCUS = frozenset(("billedcost", "effectivecost", "chargeperiodstart", "chargecategory"))
MOST_SHOWN = 6

Accounts = Callable[[str], Sequence[str]]
"""The accounts of a provider that the ledger knows."""


@dataclass(slots=True, kw_only=True)
class Kinds:
    """What this installation can read. `only`: the provider that the files are of, "" for what they say themselves.

    `account`: whose the files are that do not say so. `left_out`: rows of providers that nobody here speaks for, by name.
    """

    known: Mapping[str, BillFiles]
    only: str = ""
    account: str = ""
    accounts: Accounts = lambda _: ()
    left_out: Counter[str] = field(default_factory=Counter)


def installed_kinds(only: str, account: str, accounts: Accounts) -> Kinds:
    """The kinds of every installed provider."""
    found = {
        name: (plugin.bill_files if isinstance(plugin, KnowsBillFiles) else BillFiles(), plugin.manifest.title)
        for name, plugin in sorted(plugins.providers().found.items())
    }
    return Kinds(
        known={
            name: BillFiles(formats=files.formats, called=(*files.called, title, name), resource=files.resource)
            for name, (files, title) in found.items()
        },
        only=only,
        account=account,
        accounts=accounts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One bill: a file, or the files of a folder that together are one. `kind`: its name; `sums`: see `BillFormat`."""

    kind: str
    sums: bool
    parts: Iterator[Part]
    stated_at: datetime


def opened(path: Path, kinds: Kinds, now: datetime) -> Opened:
    """The bill in `path`, of which nothing but the first record has been read yet."""
    stated_at = min(now, max((_made(one) for one in files(path)), default=now))
    places = records(path)
    first = next(places, None)
    if first is None:
        hint = "a month without charges needs no file"
        raise InputError("holds a header and no line", field=str(path), hint=hint)
    about = About(account="", as_of=stated_at)
    every = _again(first, places)
    if LOOKS_LIKE_FOCUS & {name.lower().replace("_", "") for name in first[1]} and not _own(first[1], kinds):
        return Opened(kind=FOCUS, sums=True, parts=_focus(path, every, kinds, stated_at), stated_at=stated_at)
    provider, one = _format(path, first[1], kinds)
    if not one.says_whose:
        about = About(account=_account(path, provider, kinds), as_of=stated_at)
    parts = _parts(every, lambda record: one.read(record, about))
    return Opened(kind=one.name, sums=one.sums, parts=parts, stated_at=stated_at)


def _made(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        raise InputError(
            "cannot be opened: no such file, or not allowed", field=str(path), hint="name a file or folder"
        ) from None


def _again(first: Place, rest: Iterator[Place]) -> Iterator[Place]:
    yield first
    yield from rest


def _parts(places: Iterable[Place], read: Callable[[Record], Iterable[Part]]) -> Iterator[Part]:
    for here, record in places:
        try:
            yield from read(record)
        except InputError as odd:
            told = f"{odd.field} {odd.what}" if odd.field else odd.what
            raise InputError(told, field=here, hint=odd.hint or "nothing of the file was taken in") from None


def _own(record: Record, kinds: Kinds) -> list[tuple[str, BillFormat]]:
    """The providers' own formats that a record is of."""
    return [
        (name, one)
        for name, files in kinds.known.items()
        if kinds.only in ("", name)
        for one in files.formats
        if one.known(record)
    ]


def _format(path: Path, record: Record, kinds: Kinds) -> tuple[str, BillFormat]:
    found = _own(record, kinds)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(name for name, _ in found))
        raise InputError(f"may be a bill of {names}", field=str(path), hint="say whose with --provider")
    keys = ", ".join(shortened(one_line(str(key)), 24) for key in list(record)[:MOST_SHOWN])
    readable = [one.name for name, files in kinds.known.items() if kinds.only in ("", name) for one in files.formats]
    what = f"is no bill that can be read: it has {keys}" + (" ..." if len(record) > MOST_SHOWN else "")
    raise InputError(what, field=str(path), hint=f"known are: {', '.join((FOCUS, *readable))}")


def _account(path: Path, provider: str, kinds: Kinds) -> str:
    """Whose a file is that does not say so: as stated, or the only account of its provider."""
    if kinds.account:
        return kinds.account
    known = kinds.accounts(provider)
    if len(known) == 1:
        return known[0]
    told = f"the ledger knows {', '.join(map(one_line, known[:MOST_SHOWN]))}" if known else "the ledger knows none"
    hint = f"say whose with --account NAME ({told})"
    raise InputError(f"does not say which account of {provider} it is of", field=str(path), hint=hint)


def _focus(path: Path, places: Iterable[Place], kinds: Kinds, as_of: datetime) -> Iterator[Part]:
    """Rows of a FOCUS file, each of the provider that it names."""
    called = {name.casefold(): plugin for plugin, files in kinds.known.items() for name in files.called}
    readers = dict[str, Reader]()
    seen: tuple[str, ...] = ()
    for here, record in places:
        if not seen:
            seen = tuple(record)
            missing = columns_missing(seen)
            if missing:
                hint = "export it with all columns that FOCUS demands"
                raise InputError(f"lacks the columns {', '.join(missing)}", field=str(path), hint=hint)
        name = provider_stated(record)
        plugin = kinds.only or called.get(name.casefold()) or next((own for own in kinds.known if speaks_for(own, name)), "")
        if not plugin:
            kinds.left_out[name or "nobody"] += 1
            continue
        provider = name if speaks_for(plugin, name) else plugin
        if provider not in readers:
            own = Export(provider=provider, source="FOCUS file", as_of=as_of, resource=kinds.known[plugin].resource)
            readers[provider] = Reader(own)
        try:
            yield readers[provider].line(record)
        except InputError as odd:
            told = f"{odd.field} {odd.what}" if odd.field else odd.what
            raise InputError(told, field=here, hint=odd.hint or "nothing of the file was taken in") from None
