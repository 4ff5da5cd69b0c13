"""What is to be run: a model, a recipe, how much of it, and what the answer may not exceed.

A job comes from a file, from flags, or from both (flags win); either way it is one nested table with the keys of
`KEYS`, and `job_from` is the only reader of it, so an error names the same field wherever the value was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from costguard.core import checks
from costguard.core.architecture import Architecture
from costguard.core.checks import described, nearest_names, require
from costguard.core.money import Money
from costguard.core.offer import TIERS
from costguard.core.recipe import Lora, Parallel, Recipe
from costguard.errors import InputError, UnknownNameError

DEFAULT_SEQ_LEN = 2048
DEFAULT_MAX_GPUS = 64
MOST_GPUS = 1_000_000

SHAPE_KEYS = ("model", "path", "architecture")
RECIPE_KEYS = tuple(f.name for f in fields(Recipe) if f.name not in ("lora", "gradient_accumulation"))
DATASET_KEYS = ("examples", "tokens_per_example", "epochs")
LIMIT_KEYS = ("max_usd", "max_hours", "providers", "regions", "tiers", "gpus", "max_gpus")
RUN_KEYS = ("tokens", "global_batch_tokens", "disk_gb", "checkpoint_every_hours")
TABLE_KEYS = ("dataset", "lora", "parallel", "limits")
KEYS = (*SHAPE_KEYS, *RECIPE_KEYS, *RUN_KEYS, *TABLE_KEYS)

Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an answer may not exceed. None: no limit. An empty tuple selects nothing."""

    max_usd: Money | None = None
    max_hours: float | None = None
    providers: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    tiers: tuple[str, ...] | None = None
    gpus: tuple[str, ...] | None = None
    max_gpus: int = DEFAULT_MAX_GPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model to train or serve.

    `parallel` None: the lightest sharding that fits is chosen for each kind of GPU.
    `tokens` None: nobody said how much, so there are no hours. For inference they are the tokens generated.
    `assumed`: (field, value) of everything that matters and was not stated.
    """

    architecture: Architecture
    recipe: Recipe
    parallel: Parallel | None = None
    tokens: int | None = None
    global_batch_tokens: int | None = None
    disk_gb: int | None = None
    checkpoint_every_hours: float = 1.0
    limits: Limits = Limits()
    assumed: tuple[tuple[str, str], ...] = ()


def job_from(table: Table, architecture: Architecture) -> Job:
    """The job that `table` states for `architecture` (already found by `model`, `path` or `[architecture]`)."""
    known_keys(table, KEYS, "")
    assumed: list[tuple[str, str]] = []
    recipe = _recipe(table, architecture, assumed)
    return Job(
        architecture=architecture,
        recipe=recipe,
        parallel=_parallel(table),
        tokens=_tokens(table),
        global_batch_tokens=_optional_whole(table, "global_batch_tokens"),
        disk_gb=_optional_whole(table, "disk_gb"),
        checkpoint_every_hours=checks.number(table.get("checkpoint_every_hours", 1.0), "checkpoint_every_hours", least=0.01),
        limits=limits_from(subtable(table, "limits")),
        assumed=tuple(assumed),
    )


def assumption_warnings(job: Job) -> tuple[str, ...]:
    """One line that names everything assumed because nobody stated it; none where all was stated."""
    return (
        (f"assumed, because not stated: {', '.join(f'{field} {value}' for field, value in job.assumed)}",)
        if job.assumed
        else ()
    )


def limits_from(table: Table) -> Limits:
    """`[limits]`: caps, and lists that narrow the market. GPU names are resolved by whoever knows the GPUs."""
    known_keys(table, LIMIT_KEYS, "limits")
    usd = table.get("max_usd")
    tiers = _names(table, "tiers")
    for tier in tiers or ():
        checks.one_of(tier, TIERS, "limits.tiers")
    return Limits(
        max_usd=None if usd is None else _usd_cap(usd),
        max_hours=None
        if table.get("max_hours") is None
        else checks.number(table["max_hours"], "limits.max_hours", least=1e-6, most=1e9),
        providers=_names(table, "providers"),
        regions=_names(table, "regions"),
        tiers=tiers,
        gpus=_names(table, "gpus"),
        max_gpus=checks.whole(table.get("max_gpus", DEFAULT_MAX_GPUS), "limits.max_gpus", most=MOST_GPUS),
    )


def laid_over(under: Table, over: Table) -> dict[str, object]:
    """`under` with `over` on top, table by table: flags over a job file."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def known_keys(table: Table, known: tuple[str, ...], where: str) -> None:
    """UnknownNameError for the first key of `table` that is not in `known`."""
    for key in table:
        if key not in known:
            field = f"{where}.{key}" if where else str(key)
            raise UnknownNameError(
                "key", str(key), field=field, nearest=nearest_names(str(key), known), hint=f"known keys: {', '.join(known)}"
            )


def subtable(table: Table, key: str) -> Table:
    """`table[key]` where it is a table; {} where it is absent."""
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise InputError(f"must be a table, not {described(inner)}", field=key, hint=f"write it as a [{key}] section")
    return inner


def _recipe(table: Table, architecture: Architecture, assumed: list[tuple[str, str]]) -> Recipe:
    stated = {k: table[k] for k in RECIPE_KEYS if k in table}
    method = str(stated.get("method", "full"))
    if "method" not in stated:
        assumed.append(("method", method))
    if method == "qlora":
        stated.setdefault("quant", "nf4")
    if architecture.sample_tokens is not None:
        stated.setdefault("seq_len", architecture.sample_tokens)
    elif "seq_len" not in stated:
        stated["seq_len"] = min(DEFAULT_SEQ_LEN, architecture.positions or DEFAULT_SEQ_LEN)
        assumed.append(("seq_len", str(stated["seq_len"])))
    lora = subtable(table, "lora")
    known_keys(lora, ("rank", "targets"), "lora")
    for field, value in (("micro_batch", "1"), ("precision", "bf16"), ("checkpointing", "full"), ("optimizer", "adamw")):
        if field not in stated and (method != "inference" or field in ("micro_batch", "precision")):
            assumed.append((field, value))
    # Each value is checked at birth by Recipe and Lora, which know the field's name: no type survives unchecked.
    return Recipe(**stated, lora=Lora(**_lora(lora)))  # type: ignore[arg-type]


def _lora(table: Table) -> dict[str, object]:
    stated = dict(table)
    if isinstance(stated.get("targets"), list):
        targets = stated["targets"]
        require(
            all(isinstance(t, str) for t in targets),  # type: ignore[attr-defined]  # just seen to be a list
            "lora.targets",
            "must be a list of names",
            "write ['q_proj', 'v_proj'], 'attention' or 'all-linear'",
        )
        stated["targets"] = tuple(targets)  # type: ignore[arg-type]  # just seen to be a list of str
    return stated


def _parallel(table: Table) -> Parallel | None:
    stated = subtable(table, "parallel")
    if not stated:
        return None
    known_keys(stated, tuple(f.name for f in fields(Parallel)), "parallel")
    fsdp = stated.get("fsdp", False)
    require(isinstance(fsdp, bool), "parallel.fsdp", f"must be true or false, not {described(fsdp)}", "write fsdp = true")
    return Parallel(**stated)  # type: ignore[arg-type]  # Parallel checks each value at birth


def _tokens(table: Table) -> int | None:
    if "dataset" not in table:
        return _optional_whole(table, "tokens")
    require("tokens" not in table, "tokens", "is stated beside [dataset]", "keep one of the two")
    dataset = subtable(table, "dataset")
    known_keys(dataset, DATASET_KEYS, "dataset")
    for key in ("examples", "tokens_per_example"):
        require(key in dataset, f"dataset.{key}", "is missing", f"write {key} = 1000, or tokens = ... instead of [dataset]")
    examples = checks.whole(dataset["examples"], "dataset.examples")
    each = checks.whole(dataset["tokens_per_example"], "dataset.tokens_per_example")
    epochs = checks.number(dataset.get("epochs", 1), "dataset.epochs", least=1e-6, most=1e6)
    return checks.whole(round(examples * each * epochs), "dataset")


def _optional_whole(table: Table, key: str) -> int | None:
    return checks.whole(table[key], key) if table.get(key) is not None else None


def _names(table: Table, key: str) -> tuple[str, ...] | None:
    names = table.get(key)
    if names is None:
        return None
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise InputError(f"must be a list of names, not {described(names)}", field=f"limits.{key}", hint='write ["a", "b"]')
    return tuple(names)


def _usd_cap(value: object) -> Money:
    """A cap may be written as a number in TOML; its shortest decimal text is what was meant."""
    text = repr(value) if isinstance(value, float) else value
    if not isinstance(text, str | int):
        raise InputError(f"must be an amount, not {described(value)}", field="limits.max_usd", hint="write max_usd = 50")
    cap = Money.parse(text, field="limits.max_usd")
    require(cap.nano > 0, "limits.max_usd", f"must be more than zero, not {described(value)}", "write max_usd = 50")
    return cap
