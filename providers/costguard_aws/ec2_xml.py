"""Read EC2's XML with the standard library's C parser; botocore's parser takes five times as long.

botocore's parser walks its model of 4,000 shapes for every element; here a page is a tree, and only the fields in use are read.
tests/providers/aws/test_fast_xml.py checks, field by field on the same bytes, that both read the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, XMLParser

from costguard.errors import InvalidAnswerError
from costguard.providers.transport import pause_gc

AWS = "aws"
_NAMESPACE = re.compile(rb"\sxmlns=(?:\"[^\"<]{0,200}\"|'[^'<]{0,200}')")
_HEAD = 1024
"""Bytes in which the root element stands, and with it the one namespace."""


def parse_tree(body: bytes, action: str) -> Element:
    """Parse the answer to `action`, without namespaces.

    Raises InvalidAnswerError if it is another document, incomplete, or defines its own entities.
    """
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        page = b"<html" in body[:_HEAD].lower() or b"doctype html" in body[:_HEAD].lower()
        raise InvalidAnswerError(f"{action} {'is a web page, not XML' if page else 'defines entities'}", provider=AWS)
    parser = XMLParser()  # noqa: S314 - expat bounds what entities may come to, and a document that defines any was refused
    try:
        with pause_gc():
            parser.feed(_NAMESPACE.sub(b"", body[:_HEAD], count=1))
            parser.feed(body[_HEAD:])
            root = parser.close()
    except (ParseError, ValueError, LookupError):
        raise InvalidAnswerError(f"{action} returned incomplete XML", provider=AWS) from None
    if root.tag.startswith("{"):  # a namespace with a prefix, which EC2 itself does not write
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
    if root.tag != f"{action}Response":
        raise InvalidAnswerError(f"{action} returned another document", provider=AWS)
    return root


def find_rows(root: Element, name: str, action: str) -> Element:
    """Return the list `name`; raises InvalidAnswerError if it is missing: a missing list is not an empty one."""
    found = root.find(name)
    if found is None:
        raise InvalidAnswerError(f"{action} answered without its {name}", provider=AWS)
    return found


def read_text(element: Element | None, path: str = "") -> str:
    """Return the text at `path`, "" if there is none."""
    if path and element is not None:
        element = element.find(path)
    return (element.text or "").strip() if element is not None else ""


def read_flag(element: Element | None, path: str) -> bool:
    """Return whether a flag is present and true."""
    return read_text(element, path).lower() == "true"


def read_whole_number(element: Element | None, path: str) -> int | None:
    """Return a non-negative whole number; None if there is none."""
    text = read_text(element, path)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - fits 64 bits


def list_tags(element: Element | None) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a tagSet."""
    for item in element if element is not None else ():
        key = item.findtext("key")
        if key:
            yield key, item.findtext("value") or ""
