"""The services: each module answers commands, or is one stage of a poll or a guard run.

The pure packages decide, the ledger and the providers read and write; a service passes each its inputs. Begin with `quote.py`,
then `guard.py`. `CommandAnswer` is the output of a command: a Document and an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.errors import CostguardError
from costguard.views.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """A document to print and, for a negative result, the refusal that ends the command after it.

    `value`: what the document shows, for `costguard.api`: a Quote, SizeAnswer, FleetStatus, Statement or Override; None where
    the document is all there is.
    """

    document: Document
    warnings: tuple[str, ...] = ()
    refusal: CostguardError | None = None
    value: object = None
