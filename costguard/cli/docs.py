"""`costguard docs`: print a page of the documentation that was installed with costguard.

Examples:
  costguard docs
  costguard docs start
  costguard docs guard | less
"""

import sys
from typing import Annotated

from typer import Argument

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand
from costguard.data import read_shipped_page
from costguard.system.progress import clear_progress

COMMAND = CostguardCommand


def command(page: Annotated[o.Text, Argument(metavar="PAGE", help="Name of a page (default: list them).")] = None) -> None:
    """Print the page, or the names of all pages."""
    text = read_shipped_page("docs", page)
    clear_progress()
    sys.stdout.write(text)
