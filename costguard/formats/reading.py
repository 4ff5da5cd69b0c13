"""What a config states as a job: the draft that a format's reader fills, and the reading that comes of it.

A reader takes keys from the draft (`take_text`, `take_count` ...), states fields of costguard's job table, and names keys that
have no effect. What it neither took nor named is reported as not read, so a key that nobody understood is never lost silently.

Example: of `{base_model: ..., sequence_len: 4096, wandb_project: x, neat_trick: 3}` the reader of Axolotl takes the first two
and names the third; the reading says that `neat_trick` was not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from itertools import accumulate
from pathlib import Path

from costguard.errors import InputError, shorten, to_one_line
from costguard.formats.loading import ConfigFile
from costguard.sizing.job import merge_tables
from costguard.values import checks

TEMPLATE = re.compile(r"\$[{(A-Za-z_0-9@*]|\{\{|\{%|<[A-Z_ ]+>")
"""A value that another program fills in: GitHub's `${{ }}`, Jinja's `{{ }}`, a shell's `${X}` and `$1`, `<YOUR_MODEL>`."""
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""Flags as texts; a command may have numbers (`--gradient_checkpointing 1`), as transformers' parser takes them."""
NAMED_MOST = 14
"""Keys that one message names; the rest are counted."""
MOST_MACHINES = 1_000_000
LONGEST_TEXT = 4096
"""Characters of a value that is read: a model's name, a path, a pattern of modules."""
LONGEST_COUNT = 12
"""Digits of a count; Python refuses to convert texts of thousands of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchHardware:
    """The machines that a launch file asks for. None: not stated.

    `gpu`: as written. `memory_gb`: (least, most) of one GPU; a most of None is no limit. `gpu_count`: GPUs of one machine.
    `hours`: its time limit.
    """

    gpu: str | None = None
    memory_gb: tuple[float, float | None] | None = None
    gpu_count: int | None = None
    nodes: int = 1
    hours: float | None = None

    def __post_init__(self) -> None:
        if self.gpu_count is not None:
            checks.require_whole_number(self.gpu_count, "GPUs of a machine", most=MOST_MACHINES)
        checks.require_whole_number(self.nodes, "machines", most=MOST_MACHINES)
        if self.hours is not None:
            checks.require_number(self.hours, "hours", least=1e-6, most=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """How much a run trains, where it depends on the number of GPUs.

    `accumulation`: passes of a GPU per optimizer step. `global_sequences`: sequences of a step over all GPUs. `steps`:
    optimizer steps of the run. `epochs`: passes over a dataset, whose size no config states.
    """

    accumulation: int | None = None
    global_sequences: int | None = None
    steps: int | None = None
    epochs: float | None = None

    def list_words(self) -> list[str]:
        """Return what is stated, as a message says it; epochs have a note of their own."""
        counts = {"accumulation": self.accumulation, "sequences a step": self.global_sequences, "steps": self.steps}
        return [f"{name} {value}" for name, value in counts.items() if value is not None]

    def explain_contradiction(self, micro_batch: int, ranks: int) -> str:
        """Return why the sequences of a step are not those of `ranks` data-parallel GPUs; "" if they are, or are not stated."""
        if self.global_sequences is None or self.accumulation is None:
            return ""
        each = micro_batch * self.accumulation
        if self.global_sequences == each * ranks:
            return ""
        parts = f"micro_batch {micro_batch} x accumulation {self.accumulation}"
        is_multiple = self.global_sequences % each == 0
        needs = f"needs {self.global_sequences // each} GPUs, not {ranks}" if is_multiple else "is no multiple of that"
        step = f"a step of {self.global_sequences} sequences with {parts}"
        return f"the config contradicts itself on this hardware: {step} {needs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    """What one or more configs state. `table`: costguard's job table. Each of the tuples is told to the user.

    - `stated`: (field of the job, value, key of the config). `assumed`: the format's own defaults that were taken.
    - `unread`: keys that were not understood and may change the figures. `ignored`: keys without an effect on them.
    - `templates`: keys that would have been read if another program had filled them in.
    - `masters`: whether trained weights have fp32 masters whatever their precision, as under ZeRO and accelerate's FSDP.
    - `autocast`: the 16 bits in which a launcher computes, whatever the weights are stored in: (precision, key).
    """

    label: str
    files: tuple[Path, ...]
    table: Mapping[str, object]
    stated: tuple[tuple[str, object, str], ...] = ()
    assumed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hardware: LaunchHardware | None = None
    plan: StepPlan = field(default_factory=StepPlan)
    masters: bool = False
    autocast: tuple[str, str] | None = None

    def list_notes(self, *, amount_stated: bool = False) -> tuple[str, ...]:
        """Return what was read, assumed, not read and ignored, one line each.

        `amount_stated`: whether flags say how much is trained, so that the epochs of a dataset need no words.
        """
        counted = amount_stated or self.plan.steps is not None or "tokens" in self.table or "model" not in self.table
        epochs = None if counted else self.plan.epochs
        unsized = (
            f"{epochs or 0:g} epochs of a dataset whose size is not stated: add --tokens of all epochs for hours and money"
        )
        parts = (
            (f"read as {self.label}: {self.describe()}", True),
            (f"assumed, as {self.label} does by default: {'; '.join(self.assumed)}", bool(self.assumed)),
            (f"not read, and may change the figures: {_name_some(self.unread)}", bool(self.unread)),
            (f"filled in by another program, and not read: {_name_some(self.templates)}", bool(self.templates)),
            (f"no effect on the figures: {_name_some(self.ignored)}", bool(self.ignored)),
        )
        return (*(text for text, is_shown in parts if is_shown), *self.notes, *((unsized,) if epochs else ()))

    def describe(self) -> str:
        """Return what was understood, in one line: `model llama-3.1-8b (base_model), seq_len 4096 (sequence_len)`."""
        hardware = self.hardware
        parts = [f"{name} {_format_value(value)} ({key})" for name, value, key in self.stated]
        parts += self.plan.list_words()
        if hardware is not None:
            count = "" if hardware.gpu_count is None else f" x{hardware.gpu_count}"
            nodes = "" if hardware.nodes == 1 else f" on {hardware.nodes} nodes"
            gpu = hardware.gpu or _describe_memory(hardware.memory_gb)
            parts.append(f"{to_one_line(shorten(gpu))}{count}{nodes}")
            parts += [f"at most {hardware.hours:g} h"] if hardware.hours else []
        return ", ".join(parts) or "no values for a quote"


class ConfigDraft:
    """A config while it is read. `values`: the table to take from, if it is not the file's first one."""

    def __init__(self, file: ConfigFile, label: str, values: Mapping[str, object] | None = None) -> None:
        self.file, self.label = file, label
        self.values = file.table if values is None else values
        self.table: dict[str, object] = {}
        self.hardware: LaunchHardware | None = None
        self.plan = StepPlan()
        self.masters = False
        self.autocast: tuple[str, str] | None = None
        self.notes: list[str] = []
        self._taken: set[str] = set()
        self._read: list[str] = []
        self._ignored: list[str] = []
        self._stated: list[tuple[str, object, str]] = []
        self._assumed: list[str] = []
        self._left: list[str] = []
        self._templates: list[str] = []

    def take(self, key: str) -> object | None:
        """Return the value at `key` (`train.epochs` is nested) as it is written; None if it is absent, empty or a template."""
        value: object = self.values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None or value == "":
            return None
        self._taken.add(key)
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise self.refuse(key, f"has more than {LONGEST_TEXT:,} characters")
        if isinstance(value, str) and TEMPLATE.search(value):
            self._templates.append(key)
            return None
        return value

    def take_text(self, key: str) -> str | None:
        """Return the text at `key`; raise InputError for a list or table."""
        value = self.take(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        raise self.refuse(key, f"must be text, not {checks.describe_value(value)}")

    def take_number(self, key: str) -> float | None:
        """Return the number at `key`; None for `auto`. YAML has `1e9` as text, which is a number here."""
        value = self.take(key)
        if isinstance(value, str):
            if value.lower() in ("auto", "none", "null"):
                return None
            try:
                value = float(value.replace("_", ""))
            except ValueError:
                raise self.refuse(key, f"must be a number, not {checks.describe_value(value)}") from None
        return None if value is None else checks.require_number(value, self.name(key), least=-1e18, most=1e18)

    def take_count(self, key: str, *, least: int = 1) -> int | None:
        """Return the whole number at `key`; None if it is not positive (`max_steps: -1` means no limit)."""
        value = self.take_number(key)
        if value is None or value < least:
            if value is not None and value < -1:
                self.leave(key, f"{value:g} is not a count")
            return None
        return checks.require_whole_number(value, self.name(key), least=least)

    def take_machines(self, key: str) -> int | None:
        """Return the count of GPUs or machines at `key`; None if it is absent; raise InputError unless it is positive."""
        value = self.take(key)
        return None if value is None else self.read_count(value, key)

    def read_count(self, value: object, key: str) -> int:
        """Return `value` of `key` as a count of GPUs or machines; raise InputError unless it is whole and positive."""
        if isinstance(value, str):
            text = value.strip()
            value = int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_COUNT else value
        return checks.require_whole_number(value, self.name(key), most=MOST_MACHINES)

    def read_hours(self, seconds: object, key: str) -> float:
        """Return the hours of a time limit in seconds; raise InputError unless it is positive."""
        return checks.require_number(seconds, self.name(key), least=1e-2, most=3.6e9) / 3600

    def take_flag(self, key: str) -> bool | None:
        """Return true or false at `key`; None for `auto`."""
        value = self.take(key)
        if isinstance(value, str) and value.lower() in (*FLAGS, "auto", "none"):
            return FLAGS.get(value.lower())
        if value is None or isinstance(value, bool):
            return value
        raise self.refuse(key, f"must be true or false, not {checks.describe_value(value)}")

    def take_script(self, key: str) -> str:
        """Return the shell text at `key` as it is written, variables included; "" if there is none."""
        value: object = self.values.get(key)
        if isinstance(value, str):
            self._taken.add(key)
        return value if isinstance(value, str) else ""

    def take_names(self, key: str) -> tuple[str, ...] | None:
        """Return the list of names at `key`; one name, or names joined by commas, is a list too."""
        value = self.take(key)
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            return None if value is None else tuple(map(str, value))
        raise self.refuse(key, f"must be a list of names, not {checks.describe_value(value)}")

    def state(self, name: str, value: object, key: str) -> None:
        """State the field `name` of the job (`lora.rank`), as `key` says it."""
        self._set(name, value)
        self._stated.append((name, value, key))

    def assume(self, name: str, value: object) -> None:
        """State a field that the tool sets itself where the config is silent."""
        self._set(name, value)
        self._assumed.append(f"{name} {_format_value(value)}")

    def leave(self, key: str, why: str) -> None:
        """Report the value at `key` as not read, because of `why`."""
        self._left.append(f"{key} ({why})")

    def list_left(self) -> tuple[str, ...]:
        """Return what was reported as not read so far, with why."""
        return tuple(self._left)

    def ignore(self, *patterns: str) -> None:
        """Name keys that have no effect on the figures; `eval_*` names those that begin so, `data` all below it."""
        self._ignored += patterns

    def mark_read(self, *patterns: str) -> None:
        """Name keys that were read from the file itself, not through `take`."""
        self._read += patterns

    def add_file(self, other: ConfigDraft) -> None:
        """Add what a file beside this one stated."""
        self.table = merge_tables(self.table, other.table)
        self.masters = self.masters or other.masters
        self.autocast = self.autocast or other.autocast
        name = other.file.path.name
        self._stated += [(field_, value, f"{name}: {key}") for field_, value, key in other._stated]
        self._assumed += other._assumed
        self._left += [f"{name}: {key} (computed when it runs)" for key in other._templates]
        self._left += [f"{name}: {key}" for key in (*other._left, *other.list_unread())]

    def is_computed(self, key: str) -> bool:
        """Return whether `key` was taken and another program fills it in, so that it has no default either."""
        return key in self._templates

    def get(self, name: str) -> object | None:
        """Return a field of the job as stated so far; None if it was not."""
        value: object = self.table
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def name(self, key: str) -> str:
        """Return `key` as a message names it."""
        return f"{self.file.path}: {key}"

    def refuse(self, key: str, what: str) -> InputError:
        """Return the error for a value that cannot be used, with what could be read."""
        read = ", ".join(f"{name} {_format_value(value)}" for name, value, _ in self._stated)
        hint = f"read as {self.label}: {read}" if read else f"it was taken for a config of {self.label}"
        return InputError(what, field=self.name(key), hint=hint)

    def finish(self) -> ConfigReading:
        """Return what was read."""
        return ConfigReading(
            label=self.label,
            files=(self.file.path,),
            table=self.table,
            stated=tuple(self._stated),
            assumed=tuple(dict.fromkeys(self._assumed)),
            unread=(*self._left, *self.list_unread()),
            ignored=self._list_rest(ignored=True),
            templates=tuple(self._templates),
            notes=tuple(self.notes),
            hardware=self.hardware,
            plan=self.plan,
            masters=self.masters,
            autocast=self.autocast,
        )

    def _set(self, name: str, value: object) -> None:
        table, parts = self.table, name.split(".")
        for part in parts[:-1]:
            table = table.setdefault(part, {})  # type: ignore[assignment]  # tables of tables
        table[parts[-1]] = value

    def list_unread(self) -> tuple[str, ...]:
        """Return the keys that were neither taken nor named so far."""
        return self._list_rest(ignored=False)

    def _list_rest(self, *, ignored: bool) -> tuple[str, ...]:
        """Return the keys that were not taken, and are, or are not, named as without effect."""
        read_keys, names = {*self._taken, *self._read}, set(self._ignored)
        pattern = re.compile("|".join(translate(one) for one in sorted(names) if "*" in one) or "(?!)")
        rest = [key for key in _list_leaves(self.values) if read_keys.isdisjoint(_list_prefixes(key))]
        return tuple(key for key in rest if (not names.isdisjoint(_list_prefixes(key)) or bool(pattern.match(key))) is ignored)


def _list_prefixes(key: str) -> Iterator[str]:
    """Yield `a`, `a.b` and `a.b.c` of the key `a.b.c`."""
    yield from accumulate(key.split("."), "{}.{}".format)


def _list_leaves(table: Mapping[str, object], above: str = "") -> Iterator[str]:
    """Yield the keys of every value that states something, as `train.epochs`; a list is one value."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _list_leaves(value, f"{above}{key}.")
        elif value is not None and value not in ("", []):
            yield f"{above}{key}"


def _describe_memory(memory: tuple[float, float | None] | None) -> str:
    if memory is None:
        return "GPU"
    least, most = memory
    return f"GPU of {least:g} GB" + ("" if most == least else " or more" if most is None else f" to {most:g} GB")


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_format_value, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return shorten(to_one_line(text), 50)


def _name_some(keys: tuple[str, ...]) -> str:
    keys = tuple(dict.fromkeys(keys))
    names = ", ".join(shorten(to_one_line(key), 80) for key in keys[:NAMED_MOST])
    return names if len(keys) <= NAMED_MOST else f"{names} and {len(keys) - NAMED_MOST} more"
