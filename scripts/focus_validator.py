"""The FinOps Foundation's own validator over a FOCUS 1.2 export: `make focus-validator`, or with FILE=october.csv.

    FOCUS_PYTHON=python3.12 python scripts/focus_validator.py [FILE]

focus-validator 2.2.1 needs Python 3.12, pins numpy below 2 and then takes a pyarrow that needs numpy 2, opens a file
relative to the working directory, leaves a log where it is started, and ends with 0 whatever it finds. So it gets an
environment of its own, is started from inside it, and its words are read. Without FILE it is given the month of a simulated
fleet.

One rule is known to fail on every file whose invoices are not out yet: InvoiceId-C-005-C (FOCUS_Spec issue 2394). Any other
failure ends this with 1.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".venv" / "focus-validator"
PACKAGES = ("focus-validator==2.2.1", "pyarrow<22")
KNOWN = {"InvoiceId-C-005-C"}
CRITERIA = (
    *("USAGE_MEASUREMENT_SUPPORTED", "UNIT_PRICING_SUPPORTED", "PUBLIC_PRICE_LIST_SUPPORTED", "REGION_SUPPORTED"),
    *("SUB_ACCOUNT_SUPPORTED", "TAGGING_SUPPORTED", "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED"),
    *("RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "MULTIPLE_PRICING_CATEGORIES_SUPPORTED", "NEGOTIATED_PRICING_SUPPORTED"),
    "ACCOUNT_NAMING_SUPPORTED",
)
"""What a seller of GPUs by the hour supports; `ALL` asks for reservations and commitments, too."""


def main() -> int:
    """0 where no rule failed but those that are known to."""
    with tempfile.TemporaryDirectory(prefix="costguard-focus-") as folder:
        file = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 and sys.argv[1] else _exported(Path(folder))
        said = _validated(file)
    failed = set(re.findall(r"^\S* ?(\S+): FAIL", said, re.MULTILINE))
    total = re.search(r"^Total: .*$", said, re.MULTILINE)
    if total is None:
        print(said[-2000:])
        print("focus-validator said nothing that can be read")
        return 1
    print(f"{file.name}: {total[0]}")
    print(f"failed: {', '.join(sorted(failed)) or 'none'}; known to fail: {', '.join(sorted(KNOWN))}")
    return int(bool(failed - KNOWN))


def _exported(folder: Path) -> Path:
    """The month of the demo's fleet in version 1.2, by our own commands."""
    ledger, file = folder / "demo.db", folder / "demo-1.2.csv"
    ours = str(Path(sys.executable).parent / "costguard")
    report = ("report", "--format", "focus", "--focus-version", "1.2", "--output", str(file))
    environment = os.environ | {"COSTGUARD_LEDGER__URL": f"sqlite:///{ledger}"}
    for words in (("demo", "--ledger", str(ledger)), report):
        subprocess.run([ours, *words], check=True, env=environment, capture_output=True)  # noqa: S603 - our own command
    return file


def _validated(file: Path) -> str:
    """All that focus-validator prints of `file`."""
    program = PLACE / "bin" / "focus-validator"
    if not program.exists():
        python = os.environ.get("FOCUS_PYTHON") or "python3.12"
        print(f"making an environment with {python} for focus-validator (once) ...")
        subprocess.run([python, "-m", "venv", str(PLACE)], check=True)  # noqa: S603 - as its caller names it
        install = (str(PLACE / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
        subprocess.run([*install, *PACKAGES], check=True)  # noqa: S603 - our own words
    (inside,) = PLACE.glob("lib/python3*/site-packages")
    words = ["--data-file", str(file), "--validate-version", "1.2", "--block-download"]
    words += ["--applicability-criteria", ",".join(CRITERIA)]
    ran = subprocess.run([str(program), *words], cwd=inside, capture_output=True, text=True, check=False)  # noqa: S603 - same
    return ran.stdout + ran.stderr


if __name__ == "__main__":
    sys.exit(main())
