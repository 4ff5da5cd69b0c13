"""What a person stated of this machine that nothing inside it says: whether a shutdown stops or terminates it.

    /etc/costguard-shutdown-means     i-0123456789abcdef0 stop

It holds for that one instance: an image carries it, and the environment too, to machines where a shutdown means something else.
COSTGUARD_SHUTDOWN_MEANS in the environment, of the same two words, goes before it.
"""

from __future__ import annotations

from costguard_agent.diagnostics import AgentError
from costguard_agent.host import HostView, read_text
from costguard_agent.shutdown import ACTS, MachineIdentity

MEANING_FILE, MEANING_VARIABLE = "/etc/costguard-shutdown-means", "COSTGUARD_SHUTDOWN_MEANS"


def read_shutdown_meaning(place: MachineIdentity, around: HostView) -> str:
    """Stop or terminate, as stated for this machine; "" where nobody did, or for another machine."""
    for stated in (around.env.get(MEANING_VARIABLE, ""), read_text(around.rebase_path(MEANING_FILE)) or ""):
        words = stated.split()
        if len(words) == 2 and words[0] == place.id and words[1] in ACTS:  # noqa: PLR2004 - an id and a word
            return words[1]
    return ""


def save_shutdown_meaning(place: MachineIdentity, means: str, around: HostView) -> None:
    """Keep what a person stated. Raises AgentError."""
    if means not in ACTS:
        raise AgentError(f"--shutdown-means {means!r}: write stop or terminate")
    if not place.id:
        raise AgentError(f"--shutdown-means is kept with the instance's id, and that is unknown: {place.why}")
    try:
        around.rebase_path(MEANING_FILE).write_text(f"{place.id} {means}\n", "utf-8")
    except OSError as error:
        raise AgentError(
            f"cannot write {MEANING_FILE}: {error.strerror}; run this as root, or set {MEANING_VARIABLE}='{place.id} {means}'"
        ) from error
