"""What launch files share: names of GPUs with a count, durations, and machines from a total number of GPUs."""

from __future__ import annotations

import re

from costguard.formats.reading import ConfigDraft, LaunchHardware

SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|sec|m|min|h|hr|d|w)?", re.IGNORECASE)
SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400, "w": 604800}
SIZE = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
MEMORY = re.compile(rf"^{SIZE}(?:GB|G|GiB)?(\.\.)?(?:{SIZE}(?:GB|G|GiB))?$", re.IGNORECASE)
PROVIDERS = {
    **{name: name for name in ("aws", "gcp", "azure", "runpod", "lambda", "oci", "vast", "vultr", "verda", "nebius", "crusoe")},
    "vastai": "vast",
    "datacrunch": "verda",
}
"""Clouds by the names of SkyPilot and dstack, and the names they have in costguard's market."""
SMALLER_A100 = {"A100": "A100-40GB"}
"""Names of SkyPilot's catalog and of Modal, where the 80 GB card has a name of its own."""
USUAL_PER_MACHINE = 8
"""GPUs of the machines that clouds sell for training across machines."""


def parse_span(text: str) -> float | None:
    """Return the hours of `12h`, `90m`, `1d`, `3600` (seconds); None if it is not a duration."""
    match = SPAN.fullmatch(text.strip())
    return None if match is None else float(match[1]) * SECONDS[(match[2] or "s").lower()] / 3600


def parse_memory(text: str) -> tuple[float, float | None] | None:
    """Return the (least, most) GB of `80GB`, `24GB..` or `24GB..80GB`; None if it is no size."""
    match = MEMORY.match(text.strip())
    if match is None or "G" not in text.upper():
        return None
    least, most = float(match[1]), float(match[3]) if match[3] else None
    return least, most if match[2] else least


def split_machines(draft: ConfigDraft, total: int, gpu: str | None, hours: float | None = None) -> LaunchHardware:
    """Return `total` GPUs as machines of eight; fewer are one machine. What is assumed is noted."""
    per_machine = min(total, USUAL_PER_MACHINE)
    if total % per_machine:
        draft.leave("GPUs", f"{total} are not a whole number of machines: state --on GPU:COUNTxNODES")
        return LaunchHardware(gpu=gpu, hours=hours)
    if total > per_machine:
        draft.notes.append(f"{total} GPUs: {per_machine} a machine is assumed")
    return LaunchHardware(gpu=gpu, gpu_count=per_machine, nodes=total // per_machine, hours=hours)


def state_cloud(draft: ConfigDraft, key: str) -> None:
    """Restrict the market to the clouds that `key` names, as far as costguard has prices of them."""
    names = draft.take_names(key) or ()
    providers = [PROVIDERS[name.lower()] for name in names if name.lower() in PROVIDERS]
    if providers and len(providers) == len(names):
        draft.state("limits.providers", providers, key)
    elif names:
        draft.leave(key, f"{', '.join(names)}: the whole market is quoted")


def list_variables(draft: ConfigDraft, key: str) -> list[str]:
    """Return the variables under `key`, a list of NAME=VALUE or a table, as a shell sets them; those without a value not."""
    env = draft.take(key)
    pairs = [f"{name}={value}" for name, value in env.items() if value is not None] if isinstance(env, dict) else env
    return [str(pair) for pair in pairs if "=" in str(pair)] if isinstance(pairs, list) else []
