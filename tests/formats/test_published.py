"""Published configs are read without a wrong value: each field is the one that a person reads, and there is no other."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from costguard.formats import FORMATS, load_format, read_config
from costguard.formats.loading import load_config_file
from costguard.formats.merging import merge_readings
from costguard.formats.reading import ConfigReading
from tests.formats.published import PUBLISHED, Published


def flatten(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def read(one: Published, folder: Path) -> ConfigReading:
    path = folder / one.name
    path.write_text(one.text)
    return merge_readings([read_config(load_config_file(path))])


def list_wrong(one: Published, found: ConfigReading) -> list[str]:
    """The fields that differ from what a person reads, as `field: read, expected`."""
    got = dict(flatten(found.table))
    if found.hardware is not None:
        got["on"] = (found.hardware.gpu, found.hardware.gpu_count, found.hardware.nodes)
        got |= {"hours": found.hardware.hours} if found.hardware.hours else {}
        got |= {"memory": found.hardware.memory_gb} if found.hardware.memory_gb else {}
    keys = sorted(got.keys() | one.expected.keys())
    return [f"{key}: {got.get(key)!r}, {one.expected.get(key)!r}" for key in keys if got.get(key) != one.expected.get(key)]


@pytest.mark.parametrize("one", PUBLISHED, ids=[one.source for one in PUBLISHED])
def test_a_published_config_is_read_as_a_person_reads_it(one: Published, tmp_path: Path) -> None:
    assert list_wrong(one, read(one, tmp_path)) == []


def test_there_are_sixty_published_configs_of_twelve_formats_and_nine_in_ten_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings = [(one, read(one, tmp_path)) for one in PUBLISHED]
    right = sum(not list_wrong(one, found) for one, found in readings)
    formats = Counter(found.label for _, found in readings)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{right} of {len(readings)} published configs are read without a wrong value; {len(formats)} formats\n"
        )
    assert len(readings) >= 60
    assert len(formats) >= 12
    assert right >= 0.9 * len(readings)


def test_every_module_of_the_folder_with_a_label_stands_in_the_table() -> None:
    folder = Path(load_format("trl").__file__ or "").parent  # type: ignore[attr-defined]  # a module
    made = {path.stem for path in folder.glob("*.py") if "\nLABEL = " in path.read_text()}
    assert made == set(FORMATS)
