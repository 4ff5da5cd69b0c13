"""Colours of the page: read by everybody, in both themes, and told apart by people who see fewer of them.

Contrast as WCAG 2.2 works it out (1.4.3 text 4.5, 1.4.11 shapes 3). Colour blindness: Machado, Oliveira and Fernandes 2009
at full strength; distance in CIELAB, of which 10 is plainly another colour. Patterns stand over the colours besides.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import pytest

CSS = "".join((files("costguard.renderers.html") / name).read_text() for name in ("page.css", "charts.css"))
THEME, COLOUR = re.compile(r":root \{(.*?)\}", re.DOTALL), re.compile(r"--([a-z0-9-]+): (#[0-9a-f]{6});")
THEMES_FOUND = [dict(COLOUR.findall(theme)) for theme in THEME.findall(CSS)]
LIGHT, DARK = (THEMES_FOUND[n] | THEMES_FOUND[n + 2] for n in (0, 1))  # each file has both
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
PARTS = ("p1", "p2", "p3", "p4", "p5", "p6")
SIGHT = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def contrast(one: str, other: str) -> float:
    dark, light = sorted(times(TO_XYZ, linear(colour))[1] for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    seen = [min(1.0, max(0.0, part)) for part in times(SIGHT[sight], linear(colour))]
    x, y, z = (part / white for part, white in zip(times(TO_XYZ, seen), WHITE, strict=True))
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: str, other: str, sight: str) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(lab(one, sight), lab(other, sight), strict=True)) ** 0.5)


@THEMES
def test_every_text_is_read(theme: dict[str, str]) -> None:
    texts = [(ink, ground) for ink in ("ink", "soft", "mark") for ground in ("page", "card")]
    texts += [(f"h{n}-ink", f"h{n}") for n in range(1, 7)]
    ratios = {(ink, ground): contrast(theme[ink], theme[ground]) for ink, ground in texts}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


@THEMES
def test_every_part_and_what_is_not_known_stands_out_from_its_ground(theme: dict[str, str]) -> None:
    shapes = (*PARTS, "p0", "unknown", "soft")
    assert {name: contrast(theme[name], theme["card"]) for name in shapes if contrast(theme[name], theme["card"]) < 3} == {}


@pytest.mark.parametrize("sight", SIGHT)
@THEMES
def test_parts_are_of_other_colours_to_everybody(theme: dict[str, str], sight: str) -> None:
    near = {pair: distance(theme[pair[0]], theme[pair[1]], sight) for pair in combinations(PARTS, 2)}
    assert min(near.values()) > 14, min(near.items(), key=lambda one: one[1])
