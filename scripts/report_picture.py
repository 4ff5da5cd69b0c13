"""The picture of a report in the README: the demo's ledger as a page, photographed by a Chromium.

    .venv/bin/python scripts/report_picture.py docs/images/report.png

Needs chromium or chromium-headless-shell; with `--dark` in the dark theme.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

WIDTH, HEIGHT = 1000, 1180
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu", f"--window-size={WIDTH},{HEIGHT}")
DARK = "--blink-settings=preferredColorScheme=0"
MOST_BYTES = 200_000


def main(picture: Path, *, dark: bool) -> None:
    """Play the demo, write its report, photograph the top of it."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium is installed (Debian: apt install chromium-headless-shell)")
    with TemporaryDirectory() as folder:
        ledger, page = Path(folder, "demo.db"), Path(folder, "report.html")
        environment = os.environ | {"COSTGUARD_LEDGER__URL": f"sqlite:///{ledger}"}
        costguard = (sys.executable, "-m", "costguard")
        _run(*costguard, "demo", "--ledger", str(ledger), environment=environment)
        today = datetime.now(UTC).date()
        fortnight = ("--from", str(today - timedelta(days=14)), "--to", str(today))
        words = ("report", *fortnight, "--by", "owner,gpu", "--format", "html")
        page.write_text(_run(*costguard, *words, environment=environment), encoding="ascii")
        flags = (*FLAGS, *((DARK,) if dark else ()))
        _run(browser, *flags, f"--screenshot={picture.absolute()}", page.as_uri(), environment=environment)
    print(f"{picture}: {picture.stat().st_size:,} bytes, {WIDTH} x {HEIGHT}")
    if picture.stat().st_size > MOST_BYTES:
        sys.exit(f"it is larger than {MOST_BYTES:,} bytes")


def _run(*words: str, environment: Mapping[str, str]) -> str:
    """What a command printed; it must end well."""
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own words


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    main(Path(names[0] if names else "docs/images/report.png"), dark="--dark" in sys.argv[1:])
