"""All five fake clouds, served on loopback until Ctrl-C, with settings that point at them: `python -m tests.fakes FOLDER`.

    python -m tests.fakes /tmp/five &          # writes /tmp/five/costguard.toml and /tmp/five/environment
    cd /tmp/five && . ./environment && costguard doctor && costguard status && costguard offers --live

`--break NAME` breaks one of them: it answers every request with a web page and 503.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from tests.contract.rig import Rig
from tests.fakes.gcp import account_file
from tests.fakes.server import serving
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

RIGS: tuple[type[Rig], ...] = (AwsRig, GcpRig, LambdaRig, RunpodRig, VastRig)
MACHINES = 3


def main() -> None:
    """Serve until somebody interrupts."""
    words = [word for word in sys.argv[1:] if word != "--break"]
    if not words:
        sys.exit("name a folder to write the settings to")
    folder, broken = Path(words[0]), words[1:]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        rigs = [rig() for rig in RIGS]
        for rig in rigs:
            rig.clock.at = datetime.now(UTC)
            rig.put(MACHINES)
            if rig.provider in broken:
                rig.fake.fault("", "html", status=503)
        bases = {rig.provider: stack.enter_context(serving(rig.fake)) for rig in rigs}
        _write(folder, rigs, bases)
        sys.stderr.write(f"five clouds are up: cd {shlex.quote(str(folder))} && . ./environment && costguard doctor\n")
        while True:
            time.sleep(1)
            for rig in rigs:
                rig.clock.at = datetime.now(UTC)


def _write(folder: Path, rigs: list[Rig], bases: dict[str, str]) -> None:
    """The settings, the variables that hold the keys, and a ledger of their own."""
    tables = {rig.provider: {**rig.table(bases[rig.provider])} for rig in rigs}
    lines = ['[ledger]\nurl = "sqlite:///ledger.db"\n']
    lines += [
        f"[providers.{n}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()) for n, table in tables.items()
    ]
    (folder / "costguard.toml").write_text("\n".join(lines))
    key = folder / "gcp-key.json"
    key.touch(mode=0o600)  # one that others can read is refused
    key.chmod(0o600)
    key.write_text(account_file(bases["gcp"], "/token"))
    environ = {name: value for rig in rigs for name, value in rig.environ().items()}
    environ |= {"GOOGLE_APPLICATION_CREDENTIALS": str(key.absolute()), "NO_GCE_CHECK": "true"}
    (folder / "environment").write_text("".join(f"export {k}={shlex.quote(v)}\n" for k, v in sorted(environ.items())))


if __name__ == "__main__":
    main()
