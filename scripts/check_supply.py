"""What the image installs (requirements.txt): the licence of each package, and its published vulnerabilities.

Exit 1 for a licence that is not in `ALLOWED` or is not stated, and for a vulnerability. `--list` prints each package's licence.
Where the registry has no advisory data (a mirror, no network) this is said, and it is no fault.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements.txt"
ALLOWED = re.compile(r"\b(0BSD|Apache|BSD|ISC|LGPL|Lesser|MIT|MPL|PSF|Python|Unlicense|Zlib)", re.IGNORECASE)
"""Licences that a program under Apache-2.0 can be shipped beside, with the packages unchanged and in files of their own."""
REFUSED = re.compile(r"\bA?GPL|\bGNU (Affero )?General|SSPL|BUSL|Commons Clause|Proprietary", re.IGNORECASE)
AUDIT = (
    "--requirement",
    str(REQUIREMENTS),
    "--disable-pip",
    "--require-hashes",
    "--progress-spinner",
    "off",
    "--format",
    "json",
)
AUDIT_SECONDS = 120


def list_pins(text: str) -> dict[str, str]:
    """Version by name of each pin of a requirements file."""
    return {match[1]: match[2] for match in re.finditer(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE)}


def read_licence(package: Distribution) -> str:
    """Its SPDX expression, else its classifiers, else the field of old metadata, in one line; "" if it states none."""
    meta = package.metadata
    expression, text = ("".join(meta.get_all(name) or ()).split("\n")[0] for name in ("License-Expression", "License"))
    classifiers = [one.split(" :: ")[-1] for one in meta.get_all("Classifier") or () if one.startswith("License :: OSI")]
    return (expression or " OR ".join(classifiers) or text).strip()


def is_allowed(licence: str) -> bool:
    """Whether one side of an OR is allowed in each part of its ANDs."""
    return any(
        all(ALLOWED.search(part) and not REFUSED.search(part) for part in re.split(r"\bAND\b", side))
        for side in re.split(r"\bOR\b", licence)
    )


def list_licences() -> dict[str, str]:
    """Licence of each package of requirements.txt that is installed here; others are for another system or Python."""
    licences = {}
    for name in list_pins(REQUIREMENTS.read_text()):
        try:
            licences[name] = read_licence(distribution(name))
        except PackageNotFoundError:
            continue
    return licences


def audit() -> tuple[list[str], str]:
    """Vulnerabilities that pip-audit names, and what it could not audit in one sentence ("" for nothing)."""
    words = (sys.executable, "-m", "pip_audit", *AUDIT)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=AUDIT_SECONDS, check=False)  # noqa: S603 - our own words
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [], "not audited: pip-audit got no answer"
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    named = [
        f"{package['name']} {package['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version'}"
        for package in packages
        for one in package.get("vulns", ())
    ]
    return named, f"{len(skipped)} of {len(packages)} not audited: no advisory data here" if skipped else ""


def main() -> int:
    """Print what was checked, and each fault."""
    licences = list_licences()
    if "--list" in sys.argv[1:]:
        print("\n".join(f"{name}\t{licence}" for name, licence in sorted(licences.items())))
    refused = [
        f"{name}: licence {licence or 'not stated'!r} is not allowed"
        for name, licence in licences.items()
        if not is_allowed(licence)
    ]
    vulnerable, unaudited = audit()
    print(f"supply: {len(licences)} licences, {len(vulnerable)} vulnerabilities" + (f" ({unaudited})" if unaudited else ""))
    faults = refused + vulnerable
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
