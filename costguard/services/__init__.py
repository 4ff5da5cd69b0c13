"""The one place that knows every room and wires them: each function answers one command with a Document.

Nothing is decided here; `flows/` says what happens, `core/` decides, and these files hand each what it needs: `asking` for
what is asked before a run, `spending` for what the ledger answers, `showing` for the demo.

The product's table of contents: each file is one thing costguard does, its main function first.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.errors import CostguardError
from costguard.views.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """A document to print, and, where the answer is no, the refusal that ends the command after it."""

    document: Document
    warnings: tuple[str, ...] = ()
    refusal: CostguardError | None = None
