"""Slurm: the `#SBATCH` lines of a batch script (slurm.schedmd.com/sbatch.html, read 2026-11), and its training command.

#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:8       # of one node; also --gpus-per-node=h100:8, --gpus=16 for all nodes
#SBATCH --time=12:00:00         # minutes, M:SS, H:MM:SS, D-H, D-H:MM, D-H:MM:SS
"""

from __future__ import annotations

import re
import shlex

from costguard.formats.commands import read_commands
from costguard.formats.launch import split_machines
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import TEMPLATE, ConfigDraft, LaunchHardware

LABEL = "Slurm"
KINDS = ("shell",)

SHORT = {
    "N": "nodes",
    "t": "time",
    "G": "gpus",
    "C": "constraint",
    "n": "ntasks",
    "J": "job-name",
    "p": "partition",
    "o": "output",
    "e": "error",
    "A": "account",
    "c": "cpus-per-task",
    "q": "qos",
    "w": "nodelist",
}
NO_EFFECT = (
    *(
        "job-name",
        "output",
        "error",
        "partition",
        "account",
        "qos",
        "cpus-per-*",
        "mem*",
        "exclusive",
        "requeue",
        "mail-*",
        "wait",
    ),
    *(
        "ntasks",
        "ntasks-per-node",
        "ntasks-per-core",
        "ntasks-per-socket",
        "export",
        "open-mode",
        "signal",
        "chdir",
        "begin",
        "comment",
        "hint",
        "dependency",
        "no-requeue",
        "wrap",
    ),
    *(
        "reservation",
        "exclude",
        "nodelist",
        "tasks-per-node",
        "threads-per-core",
        "distribution",
        "gpu-bind",
        "get-user-env",
        "propagate",
    ),
)
GRES = re.compile(r"^gpu(?::([A-Za-z][\w.-]*))?(?::([0-9]+))?$")
TYPED = re.compile(r"^(?:([A-Za-z][\w.-]*):)?([0-9]+)$")
CLOCK = re.compile(r"^(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?$")


def recognise(file: ConfigFile) -> bool:
    """Return whether there is a line for sbatch."""
    return bool(re.search(r"^#SBATCH\s", file.text, re.MULTILINE))


def read(draft: ConfigDraft) -> None:
    """Take the GPUs, nodes and time limit."""
    draft.values = _read_directives(draft.file.text)
    nodes = draft.take_machines("nodes")
    limit = draft.take_text("time")
    hours = (parse_clock(limit) if limit else None) or None
    if limit and hours is None:
        draft.leave("time", f"{limit} is not a known time limit")
    gpu, count = _read_gpus(draft, nodes)
    if gpu is None:
        gpu = draft.take_text("constraint")
        if gpu is not None and not re.fullmatch(r"[A-Za-z]{1,4}\d{1,4}\w*", gpu):
            draft.leave("constraint", f"{gpu} names no GPU")
            gpu = None
    if nodes is None and count is not None:
        draft.hardware = split_machines(draft, count, gpu, hours)
    else:
        draft.hardware = LaunchHardware(gpu=gpu, gpu_count=count, nodes=nodes or 1, hours=hours)
    if draft.take_text("array") is not None:
        draft.leave("array", f"{draft.take_text('array')}: one run of the array is quoted, not all")
    read_commands(draft, draft.file.text, "the script")
    draft.ignore(*NO_EFFECT)


def parse_clock(text: str) -> float | None:
    """Return the hours of Slurm's time: `90` and `90:00` are minutes, `12:00:00` hours, `3-00:00:00` and `1-12` days."""
    match = CLOCK.match(text.strip())
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        return days * 24 + (first or 0) + (second or 0) / 60 + (third or 0) / 3600
    if third is not None:
        return (first or 0) + (second or 0) / 60 + third / 3600
    return (first or 0) / 60 + (second or 0) / 3600


def _read_directives(text: str) -> dict[str, object]:
    """Return the options of the `#SBATCH` lines, those before the first command, as sbatch reads them."""
    directives: dict[str, object] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if not stripped.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(stripped.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            continue
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                directives[name] = value if equals else True if following.startswith("-") or not following else following
            elif re.match(r"^-[A-Za-z]", word):
                directives[SHORT.get(word[1], word[1])] = word[2:].removeprefix("=") or following
    return directives


def _read_gpus(draft: ConfigDraft, nodes: int | None) -> tuple[str | None, int | None]:
    """Return the kind and the GPUs of one node, or of the run if no nodes are stated; None where no line counts them."""
    for key, pattern in (("gres", GRES), ("gpus-per-node", TYPED), ("gpus", TYPED), ("gpus-per-task", TYPED)):
        value = draft.values.get(key)
        if value is None:
            continue
        if TEMPLATE.search(str(value)):
            draft.leave(f"#SBATCH --{key}", f"{value} is computed when the script runs: --gpu NAME --count N")
            return None, None
        text = draft.take_text(key) or ""
        gpu_match = next((match for part in text.split(",") if (match := pattern.match(part))), None)
        if gpu_match is None:
            continue
        count = draft.read_count(gpu_match[2] or 1, key)
        if key == "gpus-per-task":
            return gpu_match[1], draft.read_count(count * _count_tasks(draft, nodes), key)
        if key == "gpus" and count % (nodes or 1):
            raise draft.refuse("#SBATCH --gpus", f"{count} GPUs are not divided evenly among {nodes} nodes")
        return gpu_match[1], count // (nodes or 1) if key == "gpus" else count
    draft.leave("#SBATCH --gres", "no GPUs are stated: --gpu NAME --count N")
    return None, None


def _count_tasks(draft: ConfigDraft, nodes: int | None) -> int:
    """Return the tasks of one node: as stated, else of all tasks; one if neither is."""
    tasks, per_node = draft.take_machines("ntasks"), draft.take_machines("ntasks-per-node")
    if per_node is not None or tasks is None:
        return per_node or 1
    if tasks % (nodes or 1):
        raise draft.refuse("#SBATCH --ntasks", f"{tasks} tasks are not divided evenly among {nodes} nodes")
    return tasks // (nodes or 1)
