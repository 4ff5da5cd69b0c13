"""Reads the machines and the clouds of a story.

A name, a provider, what of it and at what price; then what else, between commas:

    box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada, labels team=vision, controller "auto-scaling group train"
    pod  runpod H100-SXM $2.99, disk 200 GB $0.10/$0.20 volume, measures duty cpu, loses "data outside the volume"
    lambda  no stop            runpod  paid $41.20            aws  acts take 30s/2m

Short lines for policies and budgets, written out as the TOML that costguard reads.

A policy is a name and, between commas, what it asks for and what it does; a budget is a name, a cap and a period:

    idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop, +7d ask terminate
    hung-job  arm notify, when hung, for 20m, notify page
    all       $500 month, hard
"""

from __future__ import annotations

import re
from dataclasses import replace

from costguard.guard.signals import SIGNAL_FAMILIES
from costguard.metering.observation import Handling
from costguard.testing.machine import SimulatedDisk
from costguard.values.checks import find_nearest_names
from tests.stories.story import StoryCloud, StoryMachine
from tests.stories.tokens import (
    build_line_error,
    format_amount_plainly,
    parse_amount,
    parse_duration,
    split_at_commas,
    split_tokens,
)

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
    if len(words) < 2:
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
        raise build_line_error(line, "a label is not a pair", "write team=vision")
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
                    line, f"'{unknown[0]}' is not a family of signals", f"write some of: {', '.join(SIGNAL_FAMILIES)}"
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
            line, f"'{said}' is not a disk", "write: disk 500 GB $0.08, or with a price when stopped: $0.10/$0.20"
        )
    running = parse_amount(found[2], line).nano if found[2] else 0
    return SimulatedDisk(int(found[1]), running, parse_amount(found[3], line).nano if found[3] else None, found[4] or "disk")


IDLE_CONDITION = "state == 'idle' && confidence >= 0.9"
STEPS = ("notify", "ask", "hook", "stop", "terminate", "record", "deny", "scale-controller")
POLICY_WORDS = (
    "arm",
    "gpu",
    "match",
    "when",
    "for",
    "needs",
    "irreversible",
    "priority",
    "lease",
    "warmup",
    "rule",
    "off",
    "alone",
)


def build_policy_toml(text: str, line: int) -> str:
    """One policy as a TOML table."""
    first, *options = split_at_commas(text)
    name, *more = split_tokens(first)
    rows, match, steps = [f'name = "{name}"'], list[str](), list[str]()
    for option in ([first[len(name) :].strip()] if more else []) + options:
        words = split_tokens(option)
        if words[0].startswith("+") or words[0] in STEPS:
            steps.append(_build_step(words, line))
        elif words == ["gpu"]:
            match.append("gpu = true")
        elif words[0] == "match" and len(words) > 2:
            match.append(_build_match(words[1], words[2:], line))
        else:
            rows.append(_build_row(words, line))
    if not steps:
        raise build_line_error(line, f"the policy '{name}' does nothing", "give it a step: notify")
    if match:
        rows.append(f"match = {{ {', '.join(match)} }}")
    rows.append(f"then = [{', '.join(steps)}]")
    return "\n".join(["[[policy]]", *rows, ""])


def build_budget_toml(text: str, line: int) -> str:
    """One budget as a TOML table: `NAME $500 month, hard, match labels team=vision`."""
    first, *options = split_at_commas(text)
    words = split_tokens(first)
    if len(words) != 3:
        raise build_line_error(line, "a budget needs a name, a cap and a period", "write: all $500 month, hard")
    rows = [
        f'name = "{words[0]}"',
        f'cap = "{format_amount_plainly(parse_amount(words[1], line))} USD"',
        f'period = "{words[2]}"',
    ]
    for option in options:
        said = split_tokens(option)
        if said == ["hard"]:
            rows.append("hard = true")
        elif said[0] == "match" and len(said) > 2:
            rows.append(f"match = {{ {_build_match(said[1], said[2:], line)} }}")
        elif said[0] == "warn":
            rows.append(f"warn = [{_format_list(said[1:])}]")
        else:
            raise build_line_error(line, f"'{option}' says nothing of a budget", "write hard, match or warn")
    return "\n".join(["[[budget]]", *rows, ""])


def _build_row(words: list[str], line: int) -> str:  # noqa: C901, PLR0911, PLR0912 - a table of words
    match words:
        case ["arm", level]:
            return f'arm = "{level}"'
        case ["when", state] if state.isalpha():
            return f'when = "{IDLE_CONDITION}"' if state == "idle" else f"when = \"state == '{state}'\""
        case ["when", condition]:
            return f"when = '''{condition}'''"
        case ["for", hold]:
            parse_duration(hold, line)
            return f'for = "{hold}"'
        case ["needs", *families] if families:
            return f"needs = [{_format_list(families)}]"
        case ["alone"]:
            return "alone = true"
        case ["irreversible"]:
            return "allow_irreversible = true"
        case ["priority", number]:
            return f"priority = {int(number)}"
        case ["lease", most, "x", times]:
            parse_duration(most, line)
            return f'lease = {{ max = "{most}", renewals = {int(times)} }}'
        case ["warmup", most]:
            return f'warmup = "{most}"'
        case ["rule", rule]:
            return f'rule = "{rule}"'
        case ["off", hours, zone]:
            return f'rule = "schedule"\nschedule = {{ timezone = "{zone}", off = ["{hours}"] }}'
        case _:
            raise build_line_error(
                line, f"'{' '.join(words)}' says nothing of a policy", f"it knows {', '.join(POLICY_WORDS)} and steps"
            )


def _build_step(words: list[str], line: int) -> str:
    row = list[str]()
    if words[0].startswith("+"):
        parse_duration(words[0][1:], line)
        row.append(f'after = "{words[0][1:]}"')
        words = words[1:]
    match words:
        case ["notify"]:
            row.append('do = "notify"')
        case ["notify", "page" | "warning" | "info" as severity]:
            row.append(f'do = "notify", severity = "{severity}"')
        case ["notify", "to", whom]:
            row.append(f'do = "notify", to = "{whom}"')
        case ["ask", act]:
            row.append(f'do = "ask", act = "{act}"')
        case ["hook", name]:
            row.append(f'do = "hook", run = "{name}"')
        case [deed] if deed in STEPS:
            row.append(f'do = "{deed}"')
        case _:
            raise build_line_error(line, f"'{' '.join(words)}' is not a step", f"write one of: {', '.join(STEPS)}")
    return f"{{ {', '.join(row)} }}"


def _build_match(key: str, values: list[str], line: int) -> str:
    if key == "labels":
        pairs = [f'{name} = "{value}"' for name, value in parse_labels(values, line)]
        return f"labels = {{ {', '.join(pairs)} }}"
    return f"{key} = [{_format_list(values)}]"


def _format_list(values: list[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)
