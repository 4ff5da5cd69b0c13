"""A plain shell script that starts a training: the literal arguments of its one training command (`formats/commands.py`).

torchrun --nnodes 2 --nproc_per_node 8 train.py --model_name_or_path gpt2 --max_steps 100
accelerate launch --config_file fsdp.yaml scripts/run_sft.py --model_name_or_path gpt2 --per_device_train_batch_size 8
"""

from __future__ import annotations

import re

from costguard.formats.command_lines import recognise_command
from costguard.formats.commands import CONTINUED, MARKS, expand_variables, list_commands, read_arguments, read_commands
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "shell script"
KINDS = ("shell",)

STARTS = re.compile(r"(?:axolotl|llamafactory-cli|tune run|litgpt|accelerate launch|torchrun|deepspeed)\b")
CONFIG = re.compile(r"\.(?:ya?ml|toml|json)\b")
PROCESSES = ("nproc_per_node", "num_gpus")
"""GPUs of one machine, as torchrun and deepspeed are told."""
TOTAL = "num_processes"
"""GPUs of all machines, as accelerate is told."""
MACHINES = ("nnodes", "num_nodes", "num_machines")
VISIBLE = re.compile(r"(?:CUDA_VISIBLE_DEVICES=|(?:--include=)?localhost:)([0-9]+(?:,[0-9]+)*)")
"""GPUs of one machine by their numbers, where no launcher counts them; deepspeed's `--include` counts them so."""
PER_NODE = re.compile(r"NPROC_PER_NODE=([0-9]+)")
"""GPUs of one machine, as swift is told."""


def recognise(file: ConfigFile) -> bool:
    """Return whether a line has the arguments of a training, or starts one with a config."""
    lines = CONTINUED.sub(" ", file.text).splitlines()
    if any((start := STARTS.search(line)) is not None and CONFIG.search(line, start.end()) for line in lines):
        return True
    text, marks = expand_variables(file.text), "|".join(sorted(MARKS))
    commands = ((words, read_arguments(words)) for words in list_commands(text))
    return bool(re.search(rf"--(?:{marks})\b", text)) or any(recognise_command(*command) for command in commands)


def read(draft: ConfigDraft) -> None:
    """Take the training command, the number of its processes, and that of its machines if there is one."""
    commands = list_commands(expand_variables(draft.file.text))
    arguments = {key: value for words in reversed(commands) for key, value in read_arguments(words).items()}
    numbers = {key: str(value) for key, value in arguments.items() if str(value).isdigit()}
    counted = next((key for key in (*PROCESSES, TOTAL) if key in numbers), None)
    machines = next((key for key in MACHINES if key in numbers), None)
    words = [word for command in commands for word in command]
    read = [key for key in (counted, machines) if key is not None and counted is not None]
    if counted is not None:
        nodes = 1 if machines is None else draft.read_count(numbers[machines], f"--{machines}")
        gpus = draft.read_count(numbers[counted], f"--{counted}")
        if counted == TOTAL and gpus % nodes:
            raise draft.refuse(f"--{counted}", f"{gpus} processes are not divided evenly among {nodes} machines")
        draft.hardware = LaunchHardware(gpu_count=gpus // nodes if counted == TOTAL else gpus, nodes=nodes)
    elif per_node := next(filter(None, map(PER_NODE.fullmatch, words)), None):
        draft.hardware = LaunchHardware(gpu_count=draft.read_count(per_node[1], "NPROC_PER_NODE"))
    elif visible := next(filter(None, map(VISIBLE.fullmatch, words)), None):
        draft.hardware = LaunchHardware(gpu_count=len(visible[1].split(",")))
    read_commands(draft, draft.file.text, "the script", read=read)
    if not draft.table and (draft.hardware is None or not draft.notes):
        several = next((why for why in draft.list_left() if "training commands" in why), None)
        raise draft.refuse("the script", several or "has no training command whose arguments are literal")
