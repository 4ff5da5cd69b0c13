"""`costguard lake`: closed months as FOCUS Parquet in a folder or an object store, and reports over years of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from costguard.errors import InputError, NoAnswerError
from costguard.ledger.lake import Lake
from costguard.providers.plugins import load_sellers
from costguard.reporting.lake import (
    CLOSED_AFTER,
    DEFAULT_LAKE_KEYS,
    LAKE_KEYS,
    LakeChanges,
    find_last_closed_month,
    format_month,
    list_closed_months,
)
from costguard.reporting.statement import parse_month
from costguard.services import CommandAnswer
from costguard.services.audit import find_rollback_marker
from costguard.services.ledger_answers import open_books
from costguard.settings import Settings, expand_path, read_settings
from costguard.values.checks import require
from costguard.views.lake import build_lake_changes_document, build_lake_report_document

FIRST_MONTH, LAST_MONTH = "0001-01", "9999-12"


def answer_lake_write(*, url: str | None, first: str | None, last: str | None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard lake write`: bring the files of closed months to what the ledger holds now.

    `url`: None: that of the settings. `first`, `last`: months ("2026-10"); None: the ledger's first, the last that is closed.
    """
    settings, now = read_settings(config), _get_now()
    doubt = find_rollback_marker(settings).describe_doubt()
    if doubt:  # an older backup has fewer items: files that hold more would be replaced
        raise NoAnswerError(doubt, field="the ledger", hint="if this is intended: costguard audit adopt")
    lake, changes = Lake(_choose_url(url, settings)), LakeChanges()
    if last is not None:
        newest = find_last_closed_month(now)
        hint = f"a month is closed {CLOSED_AFTER.days} days after its end; the last one is {newest}"
        require(_check_month(last, "--to") <= newest, "--to", f"{last} is not closed yet", hint)
    low, high = _check_months(first, last)
    with open_books(settings) as books:
        begun, ledger = books.find_first_charge(), books.load_ledger_id()
        for month in [] if begun is None else list_closed_months(begun, now):
            if low <= format_month(month.start) <= high:
                items = books.items(month, now)
                lake.write_month(format_month(month.start), items, ledger=ledger, sellers=load_sellers(), changes=changes)
    return CommandAnswer(document=build_lake_changes_document(lake.url, changes))


def answer_lake_report(
    *, url: str | None, first: str | None, last: str | None, by: str | None, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard lake report`: sums of whole months. `first`, `last`: as above. `by`: keys with commas."""
    lake = Lake(_choose_url(url, read_settings(config)))
    keys = _parse_keys(by)
    low, high = _check_months(first, last)
    held = [month for month in lake.list_months() if low <= month <= high]
    return CommandAnswer(document=build_lake_report_document(lake.url, keys, held, lake.sum_months(low, high, keys)))


def _check_months(first: str | None, last: str | None) -> tuple[str, str]:
    """Return the stated months, or the ends of what can be stated."""
    low = FIRST_MONTH if first is None else _check_month(first, "--from")
    high = LAST_MONTH if last is None else _check_month(last, "--to")
    require(low <= high, "--from", f"{low} is after {high}", "write the earlier month in --from")
    return low, high


def _check_month(text: str, field: str) -> str:
    try:
        year, month = parse_month(text)
    except InputError as error:
        raise InputError(f"'{text}' is not a month", field=field, hint="write YYYY-MM, such as 2026-10") from error
    return f"{year:04}-{month:02}"


def _choose_url(stated: str | None, settings: Settings) -> str:
    url = stated or settings.lake.url
    require(url is not None, "lake.url", "names no lake", 'write [lake] url = "/srv/costguard-lake", or --url')
    assert url is not None  # noqa: S101 - just required
    return url if "://" in url else str(expand_path(url).absolute())


def _parse_keys(by: str | None) -> Sequence[str]:
    if by is None:
        return DEFAULT_LAKE_KEYS
    keys = tuple(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    unknown = [key for key in keys if key not in LAKE_KEYS]
    hint = f"write some of: {', '.join(LAKE_KEYS)}"
    require(bool(keys), "--by", "names nothing to group by", hint)
    require(not unknown, "--by", f"'{''.join(unknown[:1])}' is no key of the lake", hint)
    return keys


def _get_now() -> datetime:
    return datetime.now(UTC)
