"""Ray: jobs of the cluster whose head is this machine, from its dashboard on loopback.

`ray job list` and `ray status` give the same and take seconds of a core each time, so their address is queried directly: GET
/api/jobs/ (ray 2.60, dashboard/modules/job: a list of JobDetails with `status` PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED).
Scripts that call ray.init() are in it as type DRIVER. Demands of `ray status` belong to one of them. The dashboard is found by
its command line (_private/services.py: `.../dashboard/dashboard.py --host=... --port=...`). SkyPilot runs a Ray of its own
(--temp-dir=/tmp/ray_skypilot); its jobs are counted as SkyPilot's.
"""

from __future__ import annotations

from costguard_agent.host import HostView, list_command_lines
from costguard_agent.http_client import LOOPBACK_HOSTS, UnansweredError, send_request

NAME = "Ray"
DASHBOARD, SKYPILOTS = "/dashboard/dashboard.py", "ray_skypilot"
DAEMONS = ("raylet", "gcs_server")
ACTIVE, ENDED = frozenset(("PENDING", "RUNNING")), frozenset(("STOPPED", "SUCCEEDED", "FAILED"))
EVERYWHERE = "0.0.0.0"  # noqa: S104 - recognised, not bound to
OK = 200


def is_present(around: HostView) -> bool:
    """Return whether a daemon of Ray runs here."""
    return any(_is_daemon(words) for words in _list_ray_command_lines(around))


def count_jobs(around: HostView) -> int:
    """Return the number of pending and running jobs of all dashboards here; raises UnansweredError."""
    addresses = [
        _parse_address(words) for words in _list_ray_command_lines(around) if any(word.endswith(DASHBOARD) for word in words)
    ]
    if not addresses:
        raise UnansweredError("no dashboard runs on this machine, and only the dashboard knows the jobs")
    return sum(_count_dashboard_jobs(one) for one in addresses)


def _list_ray_command_lines(around: HostView) -> list[list[str]]:
    """Return the command lines of Ray, without those of SkyPilot's Ray."""
    every = [words for _, words in list_command_lines(around) if any("/ray/" in word for word in words[:3])]
    return [words for words in every if not any(SKYPILOTS in word for word in words)]


def _is_daemon(words: list[str]) -> bool:
    return words[0].rpartition("/")[2] in DAEMONS or any(word.endswith(DASHBOARD) for word in words)


def _parse_address(words: list[str]) -> str:
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    host, port = options.get("host", ""), options.get("port", "")
    if not port.isdigit():
        raise UnansweredError("its dashboard does not show its port")
    if host not in (*LOOPBACK_HOSTS, EVERYWHERE, "::"):
        raise UnansweredError("its dashboard does not listen on loopback")
    return f"http://127.0.0.1:{port}"


def _count_dashboard_jobs(address: str) -> int:
    reply = send_request(f"{address}/api/jobs/")
    if reply.status in (401, 403):
        raise UnansweredError("its dashboard requires a token")
    jobs = reply.parse_json()
    if reply.status != OK or not isinstance(jobs, list):
        raise UnansweredError(f"its dashboard answered {reply.status} without a list of jobs")
    states = [one.get("status") if isinstance(one, dict) else None for one in jobs]
    strange = next((state for state in states if state not in ACTIVE | ENDED), None)
    if strange is not None or None in states:
        raise UnansweredError("its dashboard returned an unknown state")
    return sum(state in ACTIVE for state in states)
