"""`focus_export` of both clouds reads what `reconcile --file` reads, refuses what it refuses, and in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from costguard_aws.cost_exports import FocusExport

from costguard.bills.bill_files import sum_bill_lines
from costguard.bills.bill_line import BillLines
from costguard.errors import InputError
from costguard.providers.ports import ChargeSource
from costguard.services.poll.bill_files import list_installed_kinds, open_bill
from costguard.values.calendar import Period
from tests.cli.test_bill_parts import FORMS, PERIOD, WRONG, Bill, parquet
from tests.cli.test_reconcile_files import BAD, CSV, HOUR, KINDS, ROWS, START, row, text
from tests.contract.rig import BILLS
from tests.fakes.server import Hands
from tests.providers.aws.services import Services
from tests.providers.gcp.rig import GcpRig

MONTH = Period(start=START, end=START + timedelta(days=31))
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Way(NamedTuple):
    """The cloud whose `focus_export` is `folder`, and who reads it."""

    cloud: str
    source: ChargeSource
    folder: Path

    def read(self, bill: Bill) -> BillLines:
        """The lines of `bill`, laid there."""
        laid(self.folder, bill)
        return self.source.fetch_bill_lines(MONTH)


def laid(folder: Path, bill: Bill) -> Path:
    """`bill` as files of a folder, of nobody in particular: rows that name no provider are whoever's they are asked for."""
    folder.mkdir(exist_ok=True)
    for name, data in (bill if isinstance(bill, Mapping) else {"one.csv": bill}).items():
        (folder / name).write_bytes(data.replace("AWS", "").encode() if isinstance(data, str) else data)
    return folder


@pytest.fixture(params=["aws", "gcp"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    folder = tmp_path / "bill"
    if request.param == "gcp":
        rig = GcpRig()
        rig.clock.at = NOW
        with rig.opened(tmp_path, focus_export=str(folder)) as account:
            assert isinstance(account, ChargeSource)
            yield Way("gcp", account, folder)
        return
    yield Way("aws", FocusExport(str(folder), BILLS, Hands(NOW)), folder)


def outcome(read: Callable[[], BillLines]) -> object:
    """The lines, or the words of the refusal without the folder in which the files lie."""
    try:
        return [(line.id, line.amount, line.end, line.charge, line.resource_id, line.account) for line in read().lines]
    except InputError as refused:
        return refused.what


def filed(way: Way, bill: Bill) -> object:
    """What `reconcile --provider CLOUD --file` makes of the same files."""

    def read() -> BillLines:
        one = open_bill(laid(way.folder, bill), list_installed_kinds(way.cloud, "", lambda _: ()), NOW)
        return sum_bill_lines(one.parts, MONTH, sums=one.sums)

    return outcome(read)


EVERY: Mapping[str, Bill] = {
    **{f"bad: {name}": data for name, (data, _) in BAD.items()},
    **{f"wrong: {name}": bill for name, (bill, _) in WRONG.items()},
    **{f"kind: {name}": {f"one{Path(name).suffix}": data} for name, (data, _, _) in KINDS.items() if not name.endswith(".gz")},
    "kind: gz": {"one.csv.gz": KINDS["bill.csv.gz"][0]},
    **{
        f"times of {name}": text([one | {p: form(datetime.fromisoformat(one[p])) for p in PERIOD} for one in ROWS])
        for name, form in FORMS.items()
    },
    **{f"null {null!r}": text([row(SubAccountId=null, EffectiveCost=null, BilledCost="2")]) for null in ("NULL", "", "  ")},
    "an exponent": text([row(EffectiveCost="1.006E0"), row(1, EffectiveCost="2.5e-7")]),
    "the end is the beginning": text([row(ChargeCategory="Tax", ChargePeriodEnd=row()["ChargePeriodStart"])]),
    "rows of others": text([row(), row(1, ProviderName="Microsoft"), row(2, ProviderName="Google Cloud")]),
}


@pytest.mark.parametrize("name", EVERY)
def test_an_export_is_read_as_the_same_files_are(way: Way, name: str) -> None:
    bill = EVERY[name]
    found = outcome(lambda: way.read(bill))
    assert found == filed(way, bill)
    assert isinstance(found, str) or not name.startswith("bad")
    assert found if isinstance(found, list) else not name.startswith(("times", "null", "an ", "the "))


def test_what_is_wrong_in_a_bucket_is_named_with_its_address_and_line(tmp_path: Path) -> None:
    services = Services()
    with services.session(tmp_path) as session:
        export = FocusExport("s3://bills/x/", BILLS, Hands(NOW), session)
        for name in ("cut gzip", "latin-1", "a zip", "no amount", "decimal comma", "nobody's"):
            data, _ = BAD[name]
            services.s3.objects = {("bills", "x/one.csv"): data.encode() if isinstance(data, str) else data}
            with pytest.raises(InputError, match=r"^s3://bills/x/one\.csv"):
                export.fetch_bill_lines(MONTH)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_parquet_is_the_same_bill(way: Way, unit: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    per = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    rows = [
        one | {name: int(datetime.fromisoformat(one[name]).timestamp()) * per for name in PERIOD} | {"ProviderName": None}
        for one in ROWS
    ]
    data = parquet(rows, **dict.fromkeys(PERIOD, arrow.timestamp(unit)), ProviderName=arrow.string())
    found = outcome(lambda: way.read({"one.parquet": data}))
    (way.folder / "one.parquet").unlink()
    assert found == filed(way, CSV)
    assert len(ROWS) == 20


def test_only_the_lines_of_the_period_are_given_and_when_the_files_were_made(way: Way) -> None:
    found = way.read(text([row(), row(24 * 31), row(24 * 31 - 1, ChargePeriodEnd=(MONTH.end + HOUR).isoformat())]))
    assert [line.start for line in found.lines] == [START, MONTH.end - HOUR]
    assert found.made_at is not None
    assert found.made_at <= NOW


def test_rows_of_others_are_counted(way: Way) -> None:
    others = {"aws": "Google Cloud", "gcp": "Amazon"}
    found = way.read(text([row(), row(1, ProviderName=others[way.cloud])]))
    assert (len(found.lines), found.left_out) == (1, ((others[way.cloud], 1),))
