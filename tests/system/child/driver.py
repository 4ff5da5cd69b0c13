"""Attends to the command it is given, and to nothing else: `python -m tests.system.child.driver [--outlive] COMMAND`."""

from __future__ import annotations

import os
import sys

from costguard.errors import CostguardError
from costguard.system.child.process import ChildSupervisor, block_signals, start_child
from costguard.system.child.terminal import write_message


def TICK() -> None:  # noqa: N802 - a test puts another in its place
    """Look at nothing."""


def main() -> int:
    """The exit code of the command."""
    command = sys.argv[1:]
    outlives = command[0] == "--outlive"
    try:
        with block_signals() as heard:
            child = start_child(command[outlives:], os.environ, blocked=heard.before, outlives=outlives)
            return ChildSupervisor(child, heard, TICK, write_message).wait_until_ended()
    except CostguardError as error:
        write_message(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
