"""Reads the configs and launch files of other tools as costguard's job tables: one module a format, never executed.

    costguard quote qlora.yml                    # an Axolotl config: model, method, lengths, batch, optimizer
    costguard quote full.yaml fsdp.yaml          # a TRL config and the Accelerate config it is launched with
    costguard quote task.sky.yaml --hours 12     # a launch file: hardware, and a time limit if it states one

`FORMATS` is the table: to add one, write `formats/NAME.py` with `LABEL`, `KINDS`, `recognise` and `read`, and add its line.
A reader takes the keys it understands from a `ConfigDraft`; it names the keys that it knows to have no effect on the figures,
and everything else is reported as not read. Decision 0066 says why nothing is guessed from a key that is not understood.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from costguard.errors import InputError
from costguard.formats.loading import PYTHON, ConfigFile
from costguard.formats.reading import ConfigDraft, ConfigReading

FORMATS: tuple[str, ...] = (
    "axolotl",
    "llamafactory",
    "torchtune",
    "torchtitan",
    "litgpt",
    "nanotron",
    "accelerate",
    "deepspeed",
    "skypilot",
    "dstack",
    "kubernetes",
    "trl",
    "unsloth",
    "modal",
    "ray",
    "sbatch",
    "shell",
)
"""Modules of this package, in the order in which they are asked: a format with rare keys before one with common ones."""
SEVERAL = ("SkyPilot", "Kubernetes")
"""Formats whose files may hold several documents, all of which they read or name."""


class FormatReader(Protocol):
    """What each module of `FORMATS` offers. `LABEL`: the tool's name. `KINDS`: what its files parse as, see `ConfigFile`."""

    LABEL: str
    KINDS: tuple[str, ...]

    def recognise(self, file: ConfigFile) -> bool:
        """Return whether `file` is one of this format."""

    def read(self, draft: ConfigDraft) -> None:
        """Take what is understood from `draft.file`, and state it on `draft`."""


def read_config(file: ConfigFile) -> ConfigReading:
    """Return what a config states; raise InputError if it is of no known format, or a value of it cannot be used."""
    reader = find_format(file)
    if reader is None:
        labels = ", ".join(load_format(name).LABEL for name in FORMATS)
        hint = f"known: {labels}; or a job file (model = ..., method = ...)"
        if file.kind == PYTHON:
            hint = "of Python, literal arguments of Unsloth, Modal and Ray are read; a config that it writes: name that file"
        raise InputError("the format of the config is not known", field=str(file.path), hint=hint)
    draft = ConfigDraft(file, reader.LABEL)
    reader.read(draft)
    if file.repeated:
        draft.notes.append(f"appears twice, and the last one is used: {', '.join(file.repeated)}")
    if len(file.documents) > 1 and reader.LABEL not in SEVERAL:
        draft.leave("document 2", f"{len(file.documents)} documents: the first is read")
    return draft.finish()


def find_format(file: ConfigFile) -> FormatReader | None:
    """Return the reader of the first format that recognises `file`; None if none does."""
    readers = (load_format(name) for name in FORMATS)
    return next((one for one in readers if file.kind in one.KINDS and one.recognise(file)), None)


def load_format(name: str) -> FormatReader:
    """Import the module of a format."""
    return cast("FormatReader", import_module(f"costguard.formats.{name}"))
