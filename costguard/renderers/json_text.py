"""`--json`: the document's data as one JSON object with a final newline."""

from __future__ import annotations

import json

from costguard.views.document import Document


def render(document: Document) -> str:
    """Return JSON with an indent of two spaces.

    It is ASCII only, so that no name can control a terminal. NaN and infinity raise ValueError.
    """
    return json.dumps(document.data, indent=2, allow_nan=False) + "\n"
