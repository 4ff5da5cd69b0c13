"""`--json`: the document's data as one JSON object, ending in a newline."""

from __future__ import annotations

import json

from costguard.views.document import Document


def render(document: Document) -> str:
    """JSON with two spaces of indent, in ASCII, so that no name can act on a terminal; NaN and infinity are refused."""
    return json.dumps(document.data, indent=2, allow_nan=False) + "\n"
