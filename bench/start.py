"""Start-up: `costguard --help` against a bare typer + rich "hello --help", as a ratio of user CPU in one interleaved run.

    python -m bench.start [RUNS]        needs: make test (once): the extra `dev` brings typer and rich

Target: at most 1.1. Both run from the same environment, with bytecode compiled for both, one warm-up not counted.
"""

from __future__ import annotations

import sys

from bench.interleaved import HELLO, compiled, costguard, report, timed

TARGET = 1.1


def main() -> int:
    """0 where the target is met."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    compiled()
    commands = {"costguard --help": [*costguard(), "--help"], "typer + rich hello --help": [sys.executable, HELLO, "--help"]}
    return report(timed(commands, runs), TARGET)


if __name__ == "__main__":
    sys.exit(main())
