"""A plain shell script that starts a training: the literal arguments of its one training command (`formats/commands.py`).

accelerate launch --config_file fsdp.yaml scripts/run_sft.py --model_name_or_path gpt2 --per_device_train_batch_size 8
"""

from __future__ import annotations

import re

from costguard.formats.commands import MARKS, read_commands
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "shell script"
KINDS = ("shell",)

PROCESSES = re.compile(r"--(?:nproc[_-]per[_-]node|num[_-]gpus)[ =](\d+)\b")
"""GPUs of one machine, as torchrun and deepspeed are told."""


def recognise(file: ConfigFile) -> bool:
    """Return whether a line has the arguments of a training, or starts one with a config."""
    words = "|".join(sorted(MARKS))
    starts = r"(?:axolotl|llamafactory-cli|tune run|litgpt|accelerate launch|torchrun)\b.*\.(?:ya?ml|toml|json)\b"
    return bool(re.search(rf"--(?:{words})\b", file.text) or re.search(starts, file.text))


def read(draft: ConfigDraft) -> None:
    """Take the training command, and the number of its processes."""
    counted = PROCESSES.search(draft.file.text)
    if counted is not None:
        draft.hardware = LaunchHardware(gpu_count=int(counted[1]))
    read_commands(draft, draft.file.text, "the script")
    if not draft.table:
        raise draft.refuse("the script", "has no training command whose arguments are literal")
