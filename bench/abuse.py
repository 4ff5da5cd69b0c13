"""What strangers and viewers can cost the web: `python -m bench.abuse [NAME ...]`; without a name, every attack.

A real `costguard watch` with a simulated cloud, 90 days of history and its web process; all over loopback, each attack bounded
in requests and seconds. `proxy` puts nginx with config/nginx.conf in front (Debian's package; skipped without it). Others come
from another address of loopback than the attack; each line states the CPU and the peak memory of each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import abuse_attacks as attacks
from bench.abuse_site import Site, open_site
from bench.measured import Measured
from tests.web.proxies import NGINX

ATTACKS: dict[str, Callable[[Site], Iterator[Measured]]] = {
    "request": attacks.send_costly_requests,
    "viewer": attacks.send_viewer_requests,
    "streams": attacks.take_every_stream,
    "backtests": attacks.start_backtests,
    "readers": attacks.read_slowly,
    "unfinished": attacks.leave_requests_unfinished,
    "chunks": attacks.leave_chunks_unfinished,
    "proxy": attacks.flood_through_proxy,
}

DAYS = {"viewer": 90, "backtests": 90}
"""Of history that an attack needs; of others 2."""


def main() -> int:
    """0 where every attack stays within its target."""
    missed, memory = 0, Path("/dev/shm")  # noqa: S108 - the history is written there, where there is one
    for name in sys.argv[1:] or ATTACKS:
        if name == "proxy" and NGINX is None:
            print("proxy: skipped: nginx is not installed (apt-get install nginx-light)")
            continue
        with (
            TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
            open_site(Path(folder), DAYS.get(name, 2)) as site,
        ):
            for one in ATTACKS[name](site):
                missed += one.met is False
                target = f" (target {one.target})" if one.target else ""
                print(f"{name}: {one.what}: {one.reached}{target}{' MISSED' if one.met is False else ''}", flush=True)
            print(f"{name}: {site.describe_processes()}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
