"""A wrong name of a time zone is answered by what it means: its offset, never by zones with the same letters."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from costguard.errors import InputError
from costguard.settings.section_values import load_zone
from costguard.settings.time_zones import describe_fixed_zone

WORDS = """
UTC+2 2; UTC-3 -3; GMT+5:30 5.5; +02:00 2; -0330 -3.5; UTC+5.75 5.75; GMT-7 -7; UTC+14 14; Z 0; utc 0; UTC+0 0
EDT -4; PDT -7; MDT -6; AKST -9; ET -5; CT -6; MT -7; PT -8; Pacific -8; Eastern Time -5; Mountain Standard Time -7
Central America Standard Time -6; Newfoundland -3.5; BRT -3; ART -3; COT -5; PET -5; CLT -4; SA Pacific Standard Time -5
CEST 2; MEZ 1; MESZ 2; OEZ 2; MSK 3; W. Europe Standard Time 1; Romance Standard Time 1; TRT 3; Berlin 1; Wien 1; Moskau 3
Mitteleuropäische Sommerzeit 2; Germany 1; Österreich 1; WAT 1; CAT 2; EAT 3; SAST 2; Kairo 2; Nairobi 3
IDT 3; IRST 3.5; PKT 5; NPT 5.75; ICT 7; WIB 7; SGT 8; HKT 8; JST 9; KST 9; Tokio 9; India Standard Time 5.5; Mumbai 5.5
Peking 8; AEST 10; AEDT 11; ACST 9.5; ACDT 10.5; AWST 8; NZST 12; NZDT 13; Sydney 10; CHAST 12.75; new_york -5; europe/berlin 1
"""
SEVERAL = {
    "IST": (1, 2, 5.5),
    "CST": (-6, -5, 8),
    "BST": (1, 6, 11),
    "AST": (-4, 3),
    "GST": (-2, 4),
    "AMT": (-4, 4),
}


def refuse(word: str) -> str:
    with pytest.raises(InputError) as refused:
        load_zone(word, "timezone")
    return str(refused.value.hint)


def list_zones(hint: str) -> list[str]:
    """The IANA names in a hint, in their order."""
    return [name for name in re.findall(r"[A-Za-z_]+(?:/[A-Za-z_]+)+|\bUTC\b(?![+-])", hint) if name in available_timezones()]


def has_offset(zone: str, hours: float) -> bool:
    year = datetime.now(UTC).year
    times = (datetime(year, month, 15, tzinfo=ZoneInfo(zone)) for month in range(1, 13))
    return any(at.utcoffset() == timedelta(hours=hours) for at in times)


@pytest.mark.parametrize("row", re.split(r";\s*|\n", WORDS.strip()))
def test_the_first_hint_of_a_word_has_its_offset_at_some_time_of_the_year(row: str) -> None:
    word, _, hours = row.strip().rpartition(" ")
    zones = list_zones(refuse(word))
    assert zones, refuse(word)
    assert has_offset(zones[0], float(hours)), refuse(word)


@pytest.mark.parametrize("word", SEVERAL)
def test_a_word_with_several_meanings_lists_them_and_chooses_none(word: str) -> None:
    hint = refuse(word)
    assert "can mean" in hint
    assert "did you mean" not in hint
    zones = list_zones(hint)
    assert len(zones) == len(SEVERAL[word])
    assert all(any(has_offset(zone, hours) for zone in zones) for hours in SEVERAL[word])


@pytest.mark.parametrize("word", ["XYZ", "QST", "UTC+20", "local", "Europe"])
def test_a_word_without_a_meaning_gets_no_zone_of_similar_letters(word: str) -> None:
    assert list_zones(refuse(word)) == ["Europe/Berlin"]  # the example of a name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("EST", "EST is always UTC-5, without daylight saving time: write America/New_York"),
        ("HST", "HST is always UTC-10, without daylight saving time: write Pacific/Honolulu"),
        ("Etc/GMT+5", "Etc/GMT+5 is always UTC-5 (the sign in its name is the opposite), without daylight saving time"),
        ("GMT", "GMT is always UTC+0, without daylight saving time: write Europe/London"),
        *((name, "") for name in ("Europe/Berlin", "Asia/Tokyo", "Japan", "UTC", "Etc/UTC", "EST5EDT", "PRC")),
    ],
)
def test_an_offset_that_looks_like_the_zone_of_a_place_is_described(name: str, says: str) -> None:
    found = describe_fixed_zone(load_zone(name, "timezone"))
    assert found.startswith(says)
    assert bool(found) == bool(says)
