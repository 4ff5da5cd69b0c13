"""A plain shell script that starts a training: the literal arguments of its one training command (`formats/commands.py`).

torchrun --nnodes 2 --nproc_per_node 8 train.py --model_name_or_path gpt2 --max_steps 100
accelerate launch --config_file fsdp.yaml scripts/run_sft.py --model_name_or_path gpt2 --per_device_train_batch_size 8
"""

from __future__ import annotations

import re

from costguard.formats.commands import CONTINUED, MARKS, expand_variables, read_commands
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "shell script"
KINDS = ("shell",)

STARTS = re.compile(r"(?:axolotl|llamafactory-cli|tune run|litgpt|accelerate launch|torchrun|deepspeed)\b")
CONFIG = re.compile(r"\.(?:ya?ml|toml|json)\b")
PROCESSES = re.compile(r"--(nproc[_-]per[_-]node|num[_-]gpus)[ =]([0-9]+)(?=\s|$)")
"""GPUs of one machine, as torchrun and deepspeed are told."""
TOTAL = re.compile(r"--(num[_-]processes)[ =]([0-9]+)(?=\s|$)")
"""GPUs of all machines, as accelerate is told."""
MACHINES = re.compile(r"--(nnodes|num[_-]nodes|num[_-]machines)[ =]([0-9]+)(?=\s|$)")
VISIBLE = re.compile(r"(?:(?:^|\s)CUDA_VISIBLE_DEVICES=|--include[ =]localhost:)[\"']?([0-9]+(?:,[0-9]+)*)[\"']?(?=\s|$)")
"""GPUs of one machine by their numbers, where no launcher counts them; deepspeed's `--include` counts them so."""


def recognise(file: ConfigFile) -> bool:
    """Return whether a line has the arguments of a training, or starts one with a config."""
    words = "|".join(sorted(MARKS))
    lines = CONTINUED.sub(" ", file.text).splitlines()
    has_config = any((start := STARTS.search(line)) is not None and CONFIG.search(line, start.end()) for line in lines)
    return has_config or bool(re.search(rf"--(?:{words})\b", file.text))


def read(draft: ConfigDraft) -> None:
    """Take the training command, the number of its processes, and that of its machines if there is one."""
    text = expand_variables(draft.file.text)
    counted, machines = PROCESSES.search(text) or TOTAL.search(text), MACHINES.search(text)
    read = [match[1].replace("-", "_") for match in (counted, machines) if match is not None and counted is not None]
    if counted is not None:
        nodes = 1 if machines is None else draft.read_count(machines[2], f"--{machines[1]}")
        gpus = draft.read_count(counted[2], f"--{counted[1]}")
        total = TOTAL.fullmatch(counted[0]) is not None
        if total and gpus % nodes:
            raise draft.refuse(f"--{counted[1]}", f"{gpus} processes are not divided evenly among {nodes} machines")
        draft.hardware = LaunchHardware(gpu_count=gpus // nodes if total else gpus, nodes=nodes)
    elif visible := VISIBLE.search(text):
        draft.hardware = LaunchHardware(gpu_count=len(visible[1].split(",")))
    read_commands(draft, draft.file.text, "the script", read=read)
    if not draft.table and (draft.hardware is None or not draft.notes):
        several = next((why for why in draft.list_left() if "training commands" in why), None)
        raise draft.refuse("the script", several or "has no training command whose arguments are literal")
