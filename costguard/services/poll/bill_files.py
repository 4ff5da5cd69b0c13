"""Convert bill files to bill lines: FOCUS for every provider, and each plug-in's own formats.

The first record determines the format. An unreadable record causes the whole file to be
refused, with its name and line, because a partial bill would be misleading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from costguard.bills.bill_files import (
    BillFileFacts,
    BillFileRecord,
    BillFiles,
    BillFormat,
    BillLinePart,
    BillTally,
    FocusSource,
    find_missing_columns,
    fold_column,
    get_focus_provider,
    parse_focus_lines,
)
from costguard.errors import InputError, shorten, to_one_line
from costguard.files.records import LocatedRecord, list_pieces, parse_json, read_records
from costguard.files.table import looks_like_json
from costguard.providers import plugins
from costguard.providers.context import BillFilePiece, BillFilePlugin
from costguard.services.poll.listing_validation import may_speak_for
from costguard.values.checks import find_nearest_names

FOCUS_KIND = "FOCUS"
FOCUS_COLUMN_HINTS = frozenset(("billedcost", "effectivecost", "chargeperiodstart", "chargecategory"))
STRUCT_COLUMNS = frozenset(("xproject", "xcredits"))
NAMES_SHOWN_MAX = 6

ListAccounts = Callable[[str], Sequence[str]]
"""The accounts of a provider that the ledger knows."""


@dataclass(slots=True, kw_only=True)
class BillFileKinds:
    """The formats that this installation reads. `only`: the provider of the files; "" if each file states it.

    `account`: the account of files that do not name one. `left_out`: rows of providers without a plug-in, by name.
    """

    known: Mapping[str, BillFiles]
    only: str = ""
    account: str = ""
    accounts: ListAccounts = lambda _: ()
    left_out: Counter[str] = field(default_factory=Counter)


def list_installed_kinds(only: str, account: str, accounts: ListAccounts) -> BillFileKinds:
    """Return the formats of every installed provider."""
    bill_providers = {
        name: (plugin.bill_files if isinstance(plugin, BillFilePlugin) else BillFiles(), plugin.manifest)
        for name, plugin in sorted(plugins.load_providers().found.items())
    }
    return BillFileKinds(
        known={
            name: BillFiles(
                formats=files.formats,
                called=(*files.called, manifest.title, *((manifest.seller.name,) if manifest.seller else ()), name),
                resource=files.resource,
                account=files.account,
            )
            for name, (files, manifest) in bill_providers.items()
        },
        only=only,
        account=account,
        accounts=accounts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBill:
    """One bill: a file, or the files of a folder that form one bill. `kind`: its name; `sums`: see `BillFormat`.

    `tally` is complete, and `stated_at` final, once `parts` were read to their end.
    """

    kind: str
    sums: bool
    parts: Iterator[BillLinePart]
    made_at: datetime
    tally: BillTally

    @property
    def stated_at(self) -> datetime:
        """When the newest row was written, or the file: a copy made later of an older export is still the older one."""
        return min(self.made_at, self.tally.exported_at or self.made_at)


def open_bill(path: Path, kinds: BillFileKinds, now: datetime) -> OpenedBill:
    """Open the bill in the file or folder `path`; only the first record is read."""
    return open_bill_pieces(str(path), list_pieces(path), kinds, now)


def open_bill_pieces(path: str, pieces: Sequence[BillFilePiece], kinds: BillFileKinds, now: datetime) -> OpenedBill:
    """Open a bill as `open_bill` does, from pieces in any place. `path`: the name of the whole bill."""
    stated_at = min(now, max((one.made_at for one in pieces if one.made_at is not None), default=now))
    pages, tally = list[BillFileRecord](), BillTally()
    places = read_records(pieces, pages)
    first = next(places, None)
    if first is None:
        hint = "a month without charges needs no file"
        raise InputError("has a header and no rows", field=path, hint=hint)
    every = _restore_first(first, places)
    if FOCUS_COLUMN_HINTS & set(map(fold_column, first[1])) and not _match_formats(first[1], kinds):
        parts = _check_lines(_read_focus_parts(path, every, kinds, FocusSource(as_of=stated_at, tally=tally)), kinds)
        return OpenedBill(kind=FOCUS_KIND, sums=True, parts=parts, made_at=stated_at, tally=tally)
    provider, one = _choose_format(path, first[1], kinds)
    about = BillFileFacts(account="", as_of=stated_at, tally=tally)
    if not one.says_whose:
        about = replace(about, account=_find_bill_account(path, provider, kinds))
    if one.survey is not None:
        records = list(every)
        with _add_place_to_errors(path):
            about, every = replace(about, bucket=one.survey(record for _, record in records)), iter(records)
    parts = _check_lines(_read_parts(path, every, one, about, pages), kinds)
    return OpenedBill(kind=one.name, sums=one.sums, parts=parts, made_at=stated_at, tally=tally)


def _restore_first(first: LocatedRecord, rest: Iterator[LocatedRecord]) -> Iterator[LocatedRecord]:
    yield first
    yield from rest


def _read_parts(
    path: str, places: Iterable[LocatedRecord], one: BillFormat, about: BillFileFacts, pages: Sequence[BillFileRecord]
) -> Iterator[tuple[str, BillLinePart]]:
    """Parse every record in the format of the first one; a record of another format is refused."""
    columns: frozenset[str] = frozenset()
    for place, record in places:
        if record.keys() != columns:
            columns = frozenset(record)
            if not one.known(record):
                hint = f"the first one of the bill is of {one.name}: name files of other formats one by one"
                raise InputError("is of another format", field=place, hint=hint)
        with _add_place_to_errors(place):
            parts = list(one.read(record, about))
        about.tally.records += 1
        if not parts:
            about.tally.left_out[one.omits] += 1
        yield from ((place, part) for part in parts)
    if one.finish is not None:
        with _add_place_to_errors(path):
            one.finish(pages, about.tally)


def _check_lines(located_parts: Iterable[tuple[str, BillLinePart]], kinds: BillFileKinds) -> Iterator[BillLinePart]:
    """Yield the parts; raise InputError where a bill changes its currency, or at the end if it is of somebody else.

    It is if the ledger has accounts of the provider, and the file names other ones only.
    """
    currencies, accounts = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for place, (line, amount) in located_parts:
        currency = currencies.setdefault((line.provider, line.bill), line.amount.currency)
        if currency != line.amount.currency:
            what = f"is in {line.amount.currency}, and the lines of its bill before it are in {currency}"
            raise InputError(what, field=place, hint="a bill has one currency: export it again")
        accounts.setdefault((line.provider, line.account), place)
        yield line, amount
    for provider in sorted({provider for provider, _ in accounts}):
        known_accounts = set(kinds.accounts(provider))
        if known_accounts and all(account not in known_accounts for name, account in accounts if name == provider):
            (account, place) = next((account, place) for (name, account), place in accounts.items() if name == provider)
            names = ", ".join(map(to_one_line, sorted(known_accounts)[:NAMES_SHOWN_MAX]))
            hint = f"the ledger has {names}: poll a new account before its bill is read (costguard status)"
            what = f"is of account '{to_one_line(account)}' of {provider}, and no line is of an account in the ledger"
            raise InputError(what, field=place, hint=hint)


@contextmanager
def _add_place_to_errors(place: str) -> Iterator[None]:
    """Add the file and line to an InputError."""
    try:
        yield
    except InputError as odd:
        what = f"{odd.field} {odd.what}" if odd.field else odd.what
        raise InputError(what, field=place, hint=odd.hint or "nothing of the file was imported") from None


def _match_formats(record: BillFileRecord, kinds: BillFileKinds) -> list[tuple[str, BillFormat]]:
    """Return the providers' own formats that match a record."""
    return [
        (name, one)
        for name, files in kinds.known.items()
        if kinds.only in ("", name)
        for one in files.formats
        if one.known(record)
    ]


def _choose_format(path: str, record: BillFileRecord, kinds: BillFileKinds) -> tuple[str, BillFormat]:
    matches = _match_formats(record, kinds)
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(sorted(name for name, _ in matches))
        raise InputError(f"may be a bill of {names}", field=path, hint="name its provider with --provider")
    keys = ", ".join(shorten(to_one_line(str(key)), 24) for key in list(record)[:NAMES_SHOWN_MAX])
    readable = [one.name for name, files in kinds.known.items() if kinds.only in ("", name) for one in files.formats]
    what = f"is not a bill that can be read: it has {keys}" + (" ..." if len(record) > NAMES_SHOWN_MAX else "")
    raise InputError(what, field=path, hint=f"known are: {', '.join((FOCUS_KIND, *readable))}")


def _find_bill_account(path: str, provider: str, kinds: BillFileKinds) -> str:
    """Return the account of a file that does not name one: as stated, or the only account of its provider.

    An import cannot be moved to another account, so a stated account that the ledger does not know is refused if it knows
    others.
    """
    accounts = kinds.accounts(provider)
    if kinds.account and accounts and kinds.account not in accounts:
        near = find_nearest_names(kinds.account, accounts) or accounts[:NAMES_SHOWN_MAX]
        hint = f"did you mean {', '.join(map(to_one_line, near))}? Poll a new account first: costguard status"
        raise InputError(
            f"'{to_one_line(kinds.account)}' is not an account of {provider} in the ledger", field="--account", hint=hint
        )
    if kinds.account:
        return kinds.account
    if len(accounts) == 1:
        return accounts[0]
    names = f"the ledger has {', '.join(map(to_one_line, accounts[:NAMES_SHOWN_MAX]))}" if accounts else "the ledger has none"
    hint = f"name the account with --account NAME ({names})"
    raise InputError(f"does not name its account of {provider}", field=path, hint=hint)


def _read_focus_parts(
    path: str, places: Iterable[LocatedRecord], kinds: BillFileKinds, source: FocusSource
) -> Iterator[tuple[str, BillLinePart]]:
    """Yield the rows of a FOCUS file, each for the provider that it names. Raises InputError if none is wanted."""
    called = {name.casefold(): plugin for plugin, files in kinds.known.items() for name in files.called}
    exports = dict[str, FocusSource]()
    columns: frozenset[str] = frozenset()
    for place, record in places:
        source.tally.records += 1
        if record.keys() != columns:
            columns = frozenset(record)
            _check_columns(path if not exports else place, record)
        name = get_focus_provider(record)
        plugin = _find_plugin(name, called, kinds)
        if not plugin:
            if not name:
                raise InputError("names no provider", field=place, hint="--provider NAME names their provider")
            kinds.left_out[name] += 1
            continue
        provider = name if may_speak_for(plugin, name) else plugin
        if provider not in exports:
            files = kinds.known[plugin]
            exports[provider] = replace(source, provider=provider, resource=files.resource, account=files.account)
        with _add_place_to_errors(place):
            parts = list(parse_focus_lines(_parse_structs(record), exports[provider]))
        yield from ((place, part) for part in parts)
    if not exports:
        names = ", ".join(shorten(to_one_line(name), 40) for name, _ in kinds.left_out.most_common(NAMES_SHOWN_MAX))
        what = f"has no row of {kinds.only or 'an installed provider'}: its rows are of {names}"
        raise InputError(what, field=path, hint=f"installed are {', '.join(kinds.known)}; --provider names their provider")


def _parse_structs(record: BillFileRecord) -> BillFileRecord:
    """Return a record with the structs parsed that a CSV has as JSON text (Google's project and credits)."""
    texts = {name: value for name, value in record.items() if fold_column(name) in STRUCT_COLUMNS and isinstance(value, str)}
    structs = {name: parse_json(text) for name, text in texts.items() if looks_like_json(text)}
    return {**record, **{name: its for name, its in structs.items() if its is not None}} if structs else record


def _check_columns(where: str, record: BillFileRecord) -> None:
    """Raise InputError if a record lacks a required column."""
    missing = find_missing_columns(record)
    if missing:
        hint = "export it with all columns that FOCUS demands"
        raise InputError(f"lacks the columns {', '.join(missing)}", field=where, hint=hint)


def _find_plugin(name: str, called: Mapping[str, str], kinds: BillFileKinds) -> str:
    """Return the plug-in for rows of provider `name`; `only` for unknown names if it is set; "" if they are left out."""
    plugin = called.get(name.casefold()) or next((own for own in kinds.known if may_speak_for(own, name)), "")
    if not kinds.only:
        return plugin
    return kinds.only if plugin in ("", kinds.only) else ""
