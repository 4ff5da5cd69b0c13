"""Reads the machines and the clouds of a story.

A name, a provider, what of it and at what price; then what else, between commas:

    box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels team=vision, controller "auto-scaling group train"
    pod  runpod H100-SXM $2.99, disk 200 GB $0.10/$0.20 volume, measures duty cpu, loses "data outside the volume"
    lambda  no stop            runpod  paid $41.20            aws  acts take 30s/2m
"""

from __future__ import annotations

import re
from dataclasses import replace

from costguard.guard.work import SIGNAL_FAMILIES
from costguard.metering.observation import Handling
from costguard.testing.machine import SimulatedDisk
from costguard.testing.story import StoryCloud, StoryMachine
from costguard.testing.story_tokens import (
    build_line_error,
    format_amount_plainly,
    parse_amount,
    parse_duration,
    split_at_commas,
    split_tokens,
)
from costguard.values.checks import find_nearest_names

_GPU = re.compile(r"(?:(\d+)x)?([A-Za-z][\w.-]*)")
_DISK = re.compile(r"(\d+) GB(?: (\$[\d.]+)(?:/(\$[\d.]+))?)?(?: (\S+))?")
MACHINE_WORDS = (
    "disk", "owner", "labels", "region", "account", "tier", "age", "cores", "measures", "controller", "protected", "loses",
    "ends-loses", "stops-in", "stopped", "later", "no-stop",
)  # fmt: skip


def parse_machine(text: str, line: int) -> StoryMachine:
    """A machine. InputError that names the line."""
    first, *options = split_at_commas(text)
    words = split_tokens(first)
    if len(words) < 2:  # noqa: PLR2004 - a name and a provider
        raise build_line_error(line, "a machine needs a name and a provider", "write: box aws 8xA100-80GB-SXM $32.77")
    cast = StoryMachine(name=words[0], provider=words[1], line=line, handling=Handling(stops=True, terminates=True))
    for word in words[2:]:
        if word.startswith("$"):
            cast = replace(cast, rate=format_amount_plainly(parse_amount(word, line)))
        elif found := _GPU.fullmatch(word):
            cast = replace(cast, gpu=found[2], gpus=int(found[1] or 1))
        else:
            raise build_line_error(line, f"'{word}' is neither a GPU nor a rate", "write 8xA100-80GB-SXM or $32.77")
    for option in options:
        cast = _apply_option(cast, option, line)
    return cast


def parse_cloud(text: str, line: int) -> StoryCloud:
    """What is special of a provider."""
    words = split_tokens(text)
    match words:
        case [name, "no", "stop"]:
            return StoryCloud(provider=name, line=line, can_stop=False)
        case [name, "paid", amount]:
            return StoryCloud(provider=name, line=line, paid=parse_amount(amount, line))
        case [name, "acts", "take", times]:
            half, _, p95 = times.partition("/")
            return StoryCloud(provider=name, line=line, half=parse_duration(half, line), p95=parse_duration(p95 or half, line))
        case _:
            raise build_line_error(
                line, f"'{text}' says nothing of a cloud", "write: NAME no stop, NAME paid $41.20, NAME acts take 30s/2m"
            )


def parse_labels(words: list[str], line: int) -> tuple[tuple[str, str], ...]:
    """`team=vision kind=train`."""
    pairs = [word.partition("=") for word in words]
    if not pairs or not all(mark for _, mark, _ in pairs):
        raise build_line_error(line, "a label is no pair", "write team=vision")
    return tuple((key, value) for key, _, value in pairs)


def _apply_option(cast: StoryMachine, option: str, line: int) -> StoryMachine:  # noqa: C901, PLR0911, PLR0912 - a table of words
    word, *rest = split_tokens(option)
    said, handling = " ".join(rest), cast.handling or Handling()
    if word not in MACHINE_WORDS:
        near = ", ".join(find_nearest_names(word, MACHINE_WORDS)) or ", ".join(MACHINE_WORDS)
        raise build_line_error(line, f"'{word}' says nothing of a machine", f"did you mean {near}?")
    if not rest and word not in ("stopped", "later", "no-stop"):
        raise build_line_error(line, f"'{word}' says nothing more", f"write {word} and what it is")
    match word:
        case "disk":
            return replace(cast, stores=(*cast.stores, _parse_disk(said, line)))
        case "labels":
            return replace(cast, labels=parse_labels(rest, line))
        case "owner" | "region" | "account" | "tier":
            return replace(cast, **{word: said})  # type: ignore[arg-type] # four texts
        case "age":
            return replace(cast, age=parse_duration(said, line))
        case "stops-in":
            return replace(cast, stops_in=parse_duration(said, line))
        case "cores":
            return replace(cast, cores=float(said))
        case "measures":
            unknown = [one for one in rest if one not in SIGNAL_FAMILIES]
            if unknown:
                raise build_line_error(
                    line, f"'{unknown[0]}' is no family of signals", f"write some of: {', '.join(SIGNAL_FAMILIES)}"
                )
            return replace(cast, families=tuple(rest))
        case "controller":
            return replace(cast, handling=replace(handling, controller=said))
        case "protected":
            return replace(cast, handling=replace(handling, protected=tuple(rest)))
        case "loses":
            return replace(cast, handling=replace(handling, stop_loses=(said,)))
        case "ends-loses":
            return replace(cast, handling=replace(handling, terminate_loses=(said,)))
        case "no-stop":
            return replace(cast, handling=replace(handling, stops=False))
        case _:
            return replace(cast, stopped=cast.stopped or word == "stopped", later=cast.later or word == "later")


def _parse_disk(said: str, line: int) -> SimulatedDisk:
    found = _DISK.fullmatch(said)
    if not found:
        raise build_line_error(
            line, f"'{said}' is no disk", "write: disk 500 GB $0.08, or with a price when stopped: $0.10/$0.20"
        )
    running = parse_amount(found[2], line).nano if found[2] else 0
    return SimulatedDisk(int(found[1]), running, parse_amount(found[3], line).nano if found[3] else None, found[4] or "disk")
