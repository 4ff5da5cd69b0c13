"""A page of a long EC2 list, cut into its items before it is parsed.

A page of 1,000 instances is 3 to 5 MB of text and would be a tree of 130,000 elements, 25 MB, of which a poll each minute finds
nothing new. Cut, each item is a piece of text by which it is recognised (`item_memory`), and only new pieces are parsed, a
hundred at a time.

Example: `<R><volumeSet><item>a</item><item>b</item></volumeSet></R>` becomes two pieces and the frame
`<R><volumeSet><cut/><cut/></volumeSet></R>`, which is parsed at once. Where frame and pieces are well-formed, so is the page;
where a piece is not, the page is lost as before. That holds because a `<` can stand in no text and no attribute. A page with
comments, CDATA, processing instructions, another encoding or tags with prefixes or attributes is not cut but parsed as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from xml.etree.ElementTree import Element

from costguard.errors import InvalidAnswerError
from costguard_aws.ec2_xml import AWS, find_rows, parse_tree

AT_ONCE = 100
"""Pieces that are parsed together: as fast as a whole page, and a tree of 3 MB."""
_HOLE = "cut"
_DECLARATION = re.compile(rb"\s*<\?xml[^?]{0,100}\?>")
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")


class CutShortError(Exception):
    """A list ended before its stated end; the part that was read is valid.

    `str()` gives the reason.
    """


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Page `number` of `action`: `pieces` of text, in order, or `elements` where the page could not be cut."""

    action: str
    number: int
    pieces: list[bytes] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pieces) or len(self.elements)

    def clear(self) -> None:
        """Let go of all items."""
        self.pieces.clear()
        self.elements.clear()

    def parse_pieces(self, pieces: Sequence[bytes]) -> Iterator[list[Element]]:
        """Yield `pieces` as trees, `AT_ONCE` at a time, each list to be let go of before the next.

        Raises InvalidAnswerError for a piece that is not well-formed; CutShortError if it is not on the first page.
        """
        for first in range(0, len(pieces), AT_ONCE):
            lot = pieces[first : first + AT_ONCE]
            try:
                parsed = _parse_lot(lot, self.action)
            except InvalidAnswerError as broken:
                if self.number == 1:
                    raise
                raise explain_lost_page(self.number, self.action, broken.what) from None
            yield parsed


def _parse_lot(pieces: Sequence[bytes], action: str) -> list[Element]:
    tag = f"{action}Response".encode()
    parsed = list(parse_tree(b"".join((b"<", tag, b">", *pieces, b"</", tag, b">")), action))
    if len(parsed) != len(pieces):
        raise InvalidAnswerError(f"{action} returned incomplete XML", provider=AWS)
    return parsed


def explain_lost_page(number: int, action: str, what: str) -> CutShortError:
    """Return the error for a page after the first that could not be read."""
    return CutShortError(f"page {number} of {action} was lost: {what}")


def read_page(
    body: bytes, action: str, name: str, number: int, *, within: str, unpack: Callable[[Element], list[Element]]
) -> tuple[Element, ItemPage]:
    """Return the answer, and its items, which `unpack` finds in the list `name`.

    `within`: the elements in which they stand, so that the page can be cut and the answer is without them; "": not to be cut.

    Raises InvalidAnswerError like `parse_tree` and `find_rows`; for an item that is not well-formed only `parse_pieces` does.
    """
    cut = _cut_items(body, within) if within and _is_plain(body) else None
    if cut is not None:
        frame, pieces = cut
        with suppress(InvalidAnswerError):  # what the whole page is refused for is said below
            root = parse_tree(frame, action)
            holes = unpack(find_rows(root, name, action))
            if len(holes) == len(pieces) and all(hole.tag == _HOLE for hole in holes):
                return root, ItemPage(action, number, pieces=pieces)
    root = parse_tree(body, action)
    return root, ItemPage(action, number, elements=unpack(find_rows(root, name, action)))


def _is_plain(body: bytes) -> bool:
    """Return whether a tag is a tag wherever it stands: nothing comments, quotes or renames it."""
    head = _DECLARATION.match(body)
    stated = _ENCODING.search(head[0]) if head else None
    utf8 = stated is None or stated[1].lower() == b"utf-8"
    more = body.find(b"<!") >= 0 or body.find(b"<?", head.end() if head else 0) >= 0
    return utf8 and not more and body.count(b"xmlns") <= 1


def _cut_items(body: bytes, within: str) -> tuple[bytes, list[bytes]] | None:
    """Return the page with a hole for each item, and the items; None if its tags do not tell where they stand."""
    frame, pieces, kept, begun = list[bytes](), list[bytes](), 0, 0
    depth, inside = 0, False
    for found in _find_tags(within)(body):
        tag = found[0]
        if not inside:
            inside = tag not in (b"<item>", b"</item>") and tag[1:2] != b"/"
        elif tag == b"<item>":
            if not depth:
                begun = found.start()
            depth += 1
        elif tag == b"</item>":
            depth -= 1
            if depth < 0:
                return None
            if not depth:
                pieces.append(body[begun : found.end()])
                frame.append(body[kept:begun])
                kept = found.end()
        elif not depth:
            inside = tag[1:2] != b"/"
    if not pieces or depth:
        return None
    frame.append(body[kept:])
    return b"<cut/>".join(frame), pieces


@cache
def _find_tags(within: str) -> Callable[[bytes], Iterator[re.Match[bytes]]]:
    return re.compile(rb"</?(?:item|%s)>" % within.encode()).finditer
