"""Reads the training command of a launch file: its literal arguments, and the config that it names beside the file.

    torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 4
    accelerate launch --config_file fsdp.yaml -m axolotl.cli.train qlora.yml

Words are split as a shell splits them. Of variables those are replaced that the script sets once, to plain words (`RANK=32`);
any other value with `$` in it is computed when the script runs. A command with arguments of LLaMA-Factory is read as such.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import groupby, takewhile

from costguard.formats import llamafactory, training_arguments, trl
from costguard.formats.command_lines import list_unread, read_known_command, recognise_command
from costguard.formats.loading import ConfigFile
from costguard.formats.merging import merge_plans
from costguard.formats.reading import ConfigDraft

CONTINUED = re.compile(r"\\\n\s*")
COMMENT = re.compile(r"^[ \t]*#(?!SBATCH|!).*\n?", re.MULTILINE)
"""A line of comment, which a backslash at its end does not continue."""
PLAIN = r"[\w./:,@%+-]"
SET = re.compile(
    rf"^(?:export[ \t]+)?([A-Za-z_]\w*)=(\"(?:{PLAIN}| )*\"|'(?:{PLAIN}| )*'|{PLAIN}+)[ \t]*(?:#.*)?$", re.ASCII | re.MULTILINE
)
"""A variable that is set to plain words, on a line of its own and in no block."""
ASSIGNED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)\+?=", re.ASCII)
CHANGING = re.compile(r"(?:^|[;&|(]|\bdo|\bthen|\bwhile)\s*(?:for|read|getopts|select|mapfile|unset)\b")
"""A line that may give a variable another value."""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", re.ASCII)
WRITES, END_WORD = re.compile(r"\b(?:cat|tee)\b"), re.compile(r"-?[ \t]*([\"']?)(\w+)\1")
"""The start of a file that the script writes, before `<<`, and the word that ends it, behind."""
LONGEST_LINE = 10_000
"""Characters of a command: `shlex` takes a time in proportion to the square of a word's length."""
LONGEST_VALUE, LONGEST_EXPANDED = 300, 400_000
"""Characters of a variable that is replaced, and of the script with all replaced."""
OPERATOR = re.compile(r"^(?:\|\|?|&&?|;|<|[0-9&]?>>?(?:&[0-9])?|[0-9&]?>>?[\w./$-].*)$")
"""A word that ends a command's arguments."""
CONFIG_NAME = re.compile(r"^[^-$`*?{}][^$`*?{}]*\.(?:ya?ml|json|toml)$")
CONFIGS_MOST = 8
"""Configs of a script that are read."""
MARKS = frozenset(("model_name_or_path", "per_device_train_batch_size"))
"""Arguments that only a command with the Trainer's arguments has; those of another script mean what that script says."""
VALUES_MOST = 100
LISTS = ("lora_target_modules",)
"""Arguments that take several words."""
FLAGS_WORTH = frozenset(
    "model_name_or_path model_name per_device_train_batch_size gradient_accumulation_steps max_steps num_train_epochs "  # noqa: SIM905
    "bf16 fp16 optim "
    "gradient_checkpointing max_seq_length max_length model_max_length block_size lora_r use_peft load_in_4bit load_in_8bit "
    "torch_dtype dtype attn_implementation deepspeed fsdp torch_compile use_liger_kernel beta num_generations "
    "max_prompt_length max_completion_length lora_target_modules packing use_vllm "
    "use_dora use_bnb_nested_quant use_liger use_flash_attention_2 activation_offloading max_source_length".split()
)
"""Arguments of a training command that are read; the rest are the launcher's and the script's own."""

HARMLESS = (
    *training_arguments.NO_EFFECT,
    *(
        "master_addr",
        "master_port",
        "include",
        "rdzv_*",
        "node_rank",
        "machine_rank",
        "main_process_*",
        "max_restarts",
        "standalone",
    ),
    *("dataset*", "lora_alpha", "lora_dropout"),
)
"""Arguments of the Trainer and of the launcher that have no effect on the figures."""


def read_commands(draft: ConfigDraft, text: str, key: str, folder: str = "", *, read: Collection[str] = ()) -> None:
    """Add to `draft` what the one training command in the shell text `text` states.

    `key`: where the text stands. `folder`: the folder beside the file in which it runs.
    `read`: arguments that were read already.
    """
    words_of_commands = list_commands(expand_variables(text))
    pairs = [(words, read_arguments(words)) for words in words_of_commands]
    servers = [one for words, arguments in pairs if (one := recognise_command(words, arguments))]
    commands = [one for words, one in pairs if MARKS & one.keys() and not recognise_command(words, one)]
    if len(commands) + len(servers) > 1:
        draft.leave(key, f"{len(commands) + len(servers)} training commands: state the job by its config or by flags")
    elif servers:
        inner = ConfigDraft(draft.file, servers[0].tool)
        read_known_command(inner, servers[0])
        inner.ignore("*")
        _add(draft, inner)
        draft.hardware = draft.hardware or inner.hardware
        _leave_arguments(draft, list_unread(servers[0]))
    elif commands:
        arguments = {name: value for name, value in commands[0].items() if name not in read}
        if "model_name_or_path" in arguments and llamafactory.OWN & arguments.keys():
            inner = ConfigDraft(draft.file, llamafactory.LABEL, values=arguments)
            llamafactory.read(inner)
            unread = inner.list_unread()
        else:
            flags = {name: value for name, value in arguments.items() if name in FLAGS_WORTH}
            inner = ConfigDraft(draft.file, trl.LABEL, values=flags)
            trl.state_named_model(inner)
            trl.read_arguments(inner, trains_fully=False)  # what a script does without arguments only it knows
            unread = tuple(sorted(arguments.keys() - FLAGS_WORTH))
        inner.ignore("*")
        _add(draft, inner)
        _leave_arguments(draft, unread)
    else:
        launched = {name for words in words_of_commands if _is_launched(words) for name in read_arguments(words)}
        for name in sorted(launched & FLAGS_WORTH - set(read)):
            draft.leave(f"--{name}", "of a script whose other arguments are its own")
    for name in _list_config_names(words_of_commands):
        _read_config(draft, name, key, folder)


def _leave_arguments(draft: ConfigDraft, names: Iterable[str]) -> None:
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in HARMLESS):
            draft.leave(name if "." in name else f"--{name}", "of the command")


def expand_variables(text: str) -> str:
    """Return shell text without the files that it writes, and with each variable replaced that is set once, to plain words."""
    text = COMMENT.sub("", "".join(_drop_written_files(text.splitlines(keepends=True))))
    assigned = Counter(ASSIGNED.findall(text))
    changed = {word for line in text.splitlines() if CHANGING.search(line) for word in re.findall(r"\w+", line)}
    once = {name: value.strip("\"'") for name, value in SET.findall(text) if assigned[name] == 1 and name not in changed}
    values = {name: value for name, value in once.items() if len(value) <= LONGEST_VALUE}
    longer = sum(len(values.get(match[1] or match[2], "")) for match in VARIABLE.finditer(text))
    if len(text) + longer > LONGEST_EXPANDED:
        return text
    return VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), text)


def _drop_written_files(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are the script's own, without those of `cat > FILE <<END`: they are no commands of it."""
    end: str | None = None
    for line in lines:
        if end is None:
            start, _, rest = line.partition("<<")
            end_word = END_WORD.match(rest) if WRITES.search(start) else None
            end = end_word[2] if end_word else None
            yield line
        elif line.strip() == end:
            end = None


def list_commands(text: str) -> list[list[str]]:
    """Return the words of each command, up to a pipe or redirection; a line that is no plain command is passed by."""
    commands = list[list[str]]()
    for line in CONTINUED.sub(" ", COMMENT.sub("", text)).splitlines():
        try:
            words = shlex.split(line, comments=True) if len(line) <= LONGEST_LINE else []
        except ValueError:
            continue
        for is_operator, command in groupby(words, lambda word: bool(OPERATOR.match(word))):
            if not is_operator:
                commands.append(list(command))
    return commands


def read_arguments(words: list[str]) -> dict[str, object]:
    """Return `--name value` and `--name=value` as a table; a name without a value is true."""
    arguments: dict[str, object] = {}
    for index, word in enumerate(words):
        if not word.startswith("--") or len(word) == len("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = list(takewhile(lambda one: not one.startswith("-"), words[index + 1 : index + 1 + VALUES_MOST]))
        several = following if name.replace("-", "_") in LISTS else following[:1]
        arguments[name.replace("-", "_")] = value if equals else ",".join(several) or True
    return arguments


def _is_launched(words: list[str]) -> bool:
    """Return whether a launcher of PyTorch starts the command."""
    return any(word.rpartition("/")[2] in ("torchrun", "deepspeed", "accelerate") for word in words)


def _list_config_names(commands: list[list[str]]) -> list[str]:
    """Return the literal names of configs in the commands that start a training, in their order."""
    starts = ("axolotl", "llamafactory-cli", "accelerate", "tune", "litgpt", "torchrun", "deepspeed", "trl")
    names: dict[str, None] = {}
    for words in commands:
        if any(word.rpartition("/")[2] in starts or word.startswith(("axolotl.", "torchtitan.")) for word in words):
            values = [word.rpartition("=")[2] if word.startswith("--") else word for word in words]
            names |= dict.fromkeys(value for value in values if CONFIG_NAME.match(value))
    return list(names)[:CONFIGS_MOST]


def _read_config(draft: ConfigDraft, name: str, key: str, folder: str) -> None:
    from costguard.formats import find_format

    file: ConfigFile | None = draft.file.load_beside(f"{folder}/{name}" if folder else name)
    reader = None if file is None else find_format(file)
    if file is None or reader is None:
        draft.notes.append(f"{key} names {name}, which is not read: name it too, costguard quote {name} {draft.file.path.name}")
        return
    inner = ConfigDraft(file, reader.LABEL)
    reader.read(inner)
    _add(draft, inner)
    draft.hardware = draft.hardware or inner.hardware


def _add(draft: ConfigDraft, inner: ConfigDraft) -> None:
    """Add what a command, or a config that it names, states: its plan too, but what it leaves open stays as it is."""
    draft.plan, notes = merge_plans(draft.finish(), inner.finish())
    draft.add_file(inner)
    draft.notes += [*inner.notes, *notes]
