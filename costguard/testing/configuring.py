"""Short lines for policies and budgets, written out as the TOML that costguard reads.

A policy is a name and, between commas, what it asks for and what it does; a budget is a name, a cap and a period:

    idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop, +7d ask terminate
    hung-job  arm notify, when hung, for 20m, notify page
    all       $500 month, hard
"""

from __future__ import annotations

from costguard.testing.story_setup import parse_labels
from costguard.testing.story_tokens import (
    build_line_error,
    format_amount_plainly,
    parse_amount,
    parse_duration,
    split_at_commas,
    split_tokens,
)

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
        elif words[0] == "match" and len(words) > 2:  # noqa: PLR2004 - a key and a value
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
    if len(words) != 3:  # noqa: PLR2004 - a name, a cap and a period
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
        elif said[0] == "match" and len(said) > 2:  # noqa: PLR2004
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
            raise build_line_error(line, f"'{' '.join(words)}' is no step", f"write one of: {', '.join(STEPS)}")
    return f"{{ {', '.join(row)} }}"


def _build_match(key: str, values: list[str], line: int) -> str:
    if key == "labels":
        pairs = [f'{name} = "{value}"' for name, value in parse_labels(values, line)]
        return f"labels = {{ {', '.join(pairs)} }}"
    return f"{key} = [{_format_list(values)}]"


def _format_list(values: list[str]) -> str:
    return ", ".join(f'"{value}"' for value in values)
