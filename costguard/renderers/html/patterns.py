"""Patterns that tell the parts of a chart from each other without colour, and what is not known from all of them.

The first part is plain; lines, dots and squares over the others are in the colour of the page (page.css).
"""

from __future__ import annotations

from costguard.renderers.html.markup import Markup, make_element

PATTERN_SIZE = 8
PATTERN_PATHS = {
    "p2": "M-2 2l4-4M0 8l8-8M6 10l4-4",
    "p3": "M2 2h2v2h-2zM6 6h2v2h-2z",
    "p4": "M0 2h8M0 6h8",
    "p5": "M-2 6l4 4M0 0l8 8M6-2l4 4",
    "p6": "M2 0v8M6 0v8",
    "p0": "M0 0l8 8M0 8l8-8",
    "unknown": "M-2 2l4-4M0 8l8-8M6 10l4-4",
}
"""Name of a part -> what is drawn over its colour, in a square of 8 by 8 pixels."""


def _build_pattern(name: str, path: str) -> Markup:
    ground = make_element("rect", width=PATTERN_SIZE, height=PATTERN_SIZE, class_=f"{name}-ground")
    over = make_element("path", d=path, class_=f"{name}-over")
    return make_element(
        "pattern", ground, over, id=name, width=PATTERN_SIZE, height=PATTERN_SIZE, patternUnits="userSpaceOnUse"
    )


PATTERN_DEFINITIONS = make_element(
    "svg", *(_build_pattern(name, path) for name, path in PATTERN_PATHS.items()), class_="patterns", aria_hidden="true"
)
"""What page.css fills rectangles with. It takes no room on the page."""
