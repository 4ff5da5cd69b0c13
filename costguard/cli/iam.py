"""`costguard iam`: print a cloud's permissions for costguard's key, as the cloud's own tools take them.

Examples:
  costguard iam
  costguard iam aws-reader > reader.json
  costguard iam gcp-reader > reader.yaml

The readers can list and measure; an actor can stop, terminate or start as well.
"""

import sys
from typing import Annotated

from typer import Argument

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand
from costguard.data import read_shipped_page
from costguard.system.progress import clear_progress

COMMAND = CostguardCommand


def command(file: Annotated[o.Text, Argument(metavar="FILE", help="Name of a file (default: list them).")] = None) -> None:
    """Print the file, or the names of all files."""
    text = read_shipped_page("iam", file)
    clear_progress()
    sys.stdout.write(text)
