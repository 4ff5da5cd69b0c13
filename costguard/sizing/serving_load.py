"""The load of a server: requests per second, and the tokens of one prompt and of one answer.

Example: `requests_per_second = 5`, `prompt_len = 1000`, `output_len = 300` is 1,500 tokens written per second. All three are
stated or none, and only for models that answer prompts word by word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from costguard.errors import InputError
from costguard.sizing.architecture import Architecture
from costguard.sizing.recipe import TOKENS
from costguard.values import checks
from costguard.values.checks import declare_field, describe_value, list_checks, require

EXAMPLE_LOAD = {"requests_per_second": 5, "prompt_len": 1000, "output_len": 300}


def require_positive(value: object, field: str, most: float, hint: str) -> float:
    """Return `value` as a number above 0 and at most `most`; raise InputError otherwise."""
    number = checks.require_number(value, field, least=-checks.HUGE_NUMBER, most=checks.HUGE_NUMBER)
    require(0 < number <= most, field, f"must be above 0 and at most {most:,.0f}, not {describe_value(value)}", hint)
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLoad:
    """What is asked of a server: requests per second, and the tokens of one prompt and of one answer."""

    requests_per_second: float = declare_field(
        partial(require_positive, most=1_000_000, hint="write the average, such as 0.5 or 5")
    )
    prompt_len: int = declare_field(TOKENS)
    output_len: int = declare_field(TOKENS)

    def __post_init__(self) -> None:
        for name, check in SERVING_CHECKS.items():
            check(getattr(self, name), name)


SERVING_CHECKS = list_checks(ServingLoad)
SERVING_KEYS = tuple(SERVING_CHECKS)


def read_serving_load(table: Mapping[str, object], architecture: Architecture) -> ServingLoad | None:
    """Return the load that a server must carry; None if none is stated."""
    values = {key: table[key] for key in SERVING_KEYS if key in table}
    if not values:
        return None
    method = str(table.get("method", "full"))
    field = next(iter(values))
    require(method == "inference", field, f"applies to a server, not to method '{method}'", "write method = 'inference'")
    for key in SERVING_KEYS:
        require(
            key in values, key, "is missing", f"write {key} = {EXAMPLE_LOAD[key]}: the load is all of {', '.join(SERVING_KEYS)}"
        )
    for key in ("tokens", "dataset", "seq_len"):
        why = "is given together with requests_per_second, prompt_len and output_len"
        require(key not in table, key, why, f"leave out {key}: the load determines it")
    _check_served(architecture, field)
    load = ServingLoad(**values)  # type: ignore[arg-type]  # ServingLoad checks each value at birth
    most, total = architecture.positions or architecture.context, load.prompt_len + load.output_len
    what = f"with output_len is {total:,} tokens, and {architecture.name} reads {most or 0:,}"
    require(most is None or total <= most, "prompt_len", what, f"write {most or 0:,} or less for the sum")
    return load


def _check_served(architecture: Architecture, field: str) -> None:
    """Raise InputError unless the model answers a prompt word by word."""
    a, unit = architecture, architecture.sample_unit
    if unit is not None:
        what = f"applies to a server that answers prompts, and {a.name} is counted in {unit.replace('_', ' ')}"
        raise InputError(what, field=field, hint=f"leave out {', '.join(SERVING_KEYS)}; write {unit} = 1000000")
    if a.kind == "encoder-decoder":
        what = f"is of a server with continuous batching, and {a.name} is an encoder-decoder, which vLLM does not serve so"
        raise InputError(what, field=field, hint=f"leave out {', '.join(SERVING_KEYS)}; write tokens, seq_len and decoder_len")
    if not a.writes:
        what = f"applies to a server that generates text, and {a.name} only reads (embeddings, scores)"
        raise InputError(what, field=field, hint=f"leave out {', '.join(SERVING_KEYS)}; write tokens = 1000000")


def format_requests(rate: float) -> str:
    """Return requests per second with three significant digits: `0.123`, `4.56`, `2,030`."""
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 100 else f"{rate:.3g}"  # noqa: PLR2004 - from here on the digits are whole
