"""`python3 -m costguard_slurm prolog | epilog`: see the package."""

from __future__ import annotations

import sys

from costguard_slurm import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
