"""dstack: the tasks that its daemon (dstack-shim) runs on this host, queried on loopback.

`dstack ps` runs on a user's machine, with a token for the whole project; on the host there is the shim: GET /api/tasks on port
10998 (dstack 0.22.5, server/schemas/runner.py TaskListResponse: tasks with id and status pending, preparing, pulling, creating,
running or terminated; before 0.19.26 only ids). A dev environment is a task, too: whether it is in use cannot be determined
here (dstack's own `inactivity_duration` can).
"""

from __future__ import annotations

from costguard_agent.host import HostView, list_command_lines
from costguard_agent.http_client import UnansweredError, send_request

NAME = "dstack"
DAEMON, PORT, PORT_VARIABLE = "dstack-shim", 10998, "DSTACK_SHIM_HTTP_PORT"
ACTIVE, ENDED = frozenset(("pending", "preparing", "pulling", "creating", "running")), "terminated"
OK = 200


def is_present(around: HostView) -> bool:
    """Return whether its daemon runs here."""
    return any(words[0].rpartition("/")[2] == DAEMON for _, words in list_command_lines(around))


def count_jobs(around: HostView) -> int:
    """Return the number of tasks that have not ended; raises UnansweredError."""
    port_text = around.env.get(PORT_VARIABLE, "")
    reply = send_request(f"http://127.0.0.1:{port_text if port_text.isdigit() else PORT}/api/tasks")
    answer = reply.parse_json()
    tasks = answer.get("tasks") if isinstance(answer, dict) else None
    if reply.status != OK or not isinstance(tasks, list):
        raise UnansweredError(f"dstack-shim answered {reply.status} without a list of tasks with states (0.19.26 and newer do)")
    states = [one.get("status") if isinstance(one, dict) else None for one in tasks]
    if any(state not in ACTIVE and state != ENDED for state in states):
        raise UnansweredError("dstack-shim returned an unknown state")
    return sum(state in ACTIVE for state in states)
