"""A job: a model, a recipe, the amount of work, and the limits that the answer must respect.

A job comes from a file, from flags, or from both (flags take precedence). In each case it is one nested table with the keys of
`KEYS`, and only `parse_job` reads it, so an error names the same field wherever the value was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from costguard.errors import InputError, collect_errors, raise_errors
from costguard.sizing.architecture import SAMPLE_UNITS, Architecture
from costguard.sizing.memory.adapters import resolve_targets
from costguard.sizing.memory.frameworks import choose_loss
from costguard.sizing.recipe import (
    LORA_CHECKS,
    NETWORK_CHECKS,
    PARALLEL_CHECKS,
    RECIPE_CHECKS,
    USUAL_NETWORK,
    Lora,
    NetworkSpeeds,
    Parallelism,
    Recipe,
    require_bool,
    resolve_framework,
)
from costguard.sizing.serving_load import SERVING_CHECKS, ServingLoad, read_serving_load, require_positive
from costguard.values import checks
from costguard.values.checks import (
    Check,
    choose_from,
    declare_field,
    describe_value,
    list_checks,
    list_value_errors,
    permit_none,
    require,
)
from costguard.values.money import Money
from costguard.values.resource import TIERS

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.sizing.calibration import Calibration
    from costguard.sizing.preference import PreferenceTraining

DEFAULT_SEQ_LEN = 2048
LONG_CONTEXT = 32_768
"""Tokens a sequence from which the loss is named among the assumptions: its logits and gradients are 50 GB in fp32 at 128,256
words. Recipes of such lengths fuse or chunk the loss where the trainer can (ALST, arXiv 2506.13996, 2025; torchtune)."""
DEFAULT_MAX_GPUS = 64
MOST_GPUS = 1_000_000
MOST_DISK_GB = 10_000_000
"""Ten petabytes: more is a mistake of units."""
HOURS_PER_YEAR = 8760

SHAPE_KEYS = ("model", "path", "architecture")
PRICE_AGE = re.compile(r"(\d{1,4})([dw]?)", re.ASCII)
DENOISING_STEPS = 50
"""Passes of the network for one image where neither the job nor the model's release states them: the default of diffusers'
pipelines for SD and SDXL (0.42, 2026-11). Classifier-free guidance doubles them."""
AMOUNT_KEYS = ("tokens", "dataset", *SAMPLE_UNITS)
"""Keys that say how much is processed; a job has one of them."""

Table = Mapping[str, object]
FindArchitecture = Callable[[str], Architecture]


def require_model_name(value: object, field: str) -> str:
    """Return the name or path of a model."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"must be a name or a path, not {describe_value(value)}", field=field, hint="write llama-3.1-8b")
    return value


def _accept(value: object, field: str) -> None:
    """Accept a value that is looked at elsewhere."""


def _check_framework(value: object, field: str) -> None:
    RECIPE_CHECKS["framework"](resolve_framework(value)[0] if isinstance(value, str) else value, field)


def _read_names(value: object, field: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise InputError(f"must be a list of names, not {describe_value(names)}", field=field, hint='write ["a", "b"]')
    return tuple(names)


def _read_tiers(value: object, field: str) -> tuple[str, ...]:
    return tuple(checks.require_one_of(tier, TIERS, field) for tier in _read_names(value, field))


def _read_usd_cap(value: object, field: str) -> Money:
    """Return the cap as Money; a TOML float is taken by its shortest decimal text."""
    text = repr(value) if isinstance(value, float) else value
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise InputError(f"must be an amount, not {describe_value(value)}", field=field, hint="write max_usd = 50")
    cap = Money.parse(text, field=field)
    require(cap.nano > 0, field, f"must be more than zero, not {describe_value(value)}", "write 50, or '$50' in quotes")
    return cap


def _read_price_age(value: object, field: str) -> timedelta:
    """Return the age that prices may have at most: a number of days, or text such as 7d or 2w."""
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = PRICE_AGE.fullmatch(text)
    if match is None:
        what = f"must be days or weeks, not {describe_value(value)}"
        raise InputError(what, field=field, hint="write 7d, 2w, or a number of days")
    return timedelta(days=int(match[1]) * (7 if match[2] == "w" else 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Limits of an answer. None: no limit. An empty tuple selects nothing.

    `fit`: "yes" refuses hardware on which the job only may fit.
    `exclude`: providers to leave out. `regions`: also continents and countries. `secure_only`: no machines in private hands.
    """

    max_usd: Money | None = declare_field(_read_usd_cap, default=None)
    max_hours: float | None = declare_field(partial(checks.require_number, least=1e-6, most=1e9), default=None)
    providers: tuple[str, ...] | None = declare_field(_read_names, default=None)
    exclude: tuple[str, ...] | None = declare_field(_read_names, default=None)
    regions: tuple[str, ...] | None = declare_field(_read_names, default=None)
    tiers: tuple[str, ...] | None = declare_field(_read_tiers, default=None)
    gpus: tuple[str, ...] | None = declare_field(_read_names, default=None)
    max_gpus: int = declare_field(partial(checks.require_whole_number, most=MOST_GPUS), default=DEFAULT_MAX_GPUS)
    max_price_age: timedelta | None = declare_field(_read_price_age, default=None)
    secure_only: bool = declare_field(require_bool, default=False)
    fit: str = declare_field(choose_from(("maybe", "yes")), default="maybe")


LIMIT_CHECKS = list_checks(JobLimits)


def _check_units(value: object, field: str) -> float:
    return require_positive(value, field, checks.LARGEST_COUNT, f"write {field} = 1000000")


_COUNT = permit_none(checks.require_whole_number)
VALUE_CHECKS: Mapping[str, Check] = {
    "model": require_model_name,
    "path": require_model_name,
    "architecture": _accept,
    **{name: check for name, check in RECIPE_CHECKS.items() if name not in ("gradient_accumulation", "autocast_rules")},
    "framework": _check_framework,
    "tokens": _COUNT,
    **dict.fromkeys(SAMPLE_UNITS, permit_none(_check_units)),
    "denoising_steps": permit_none(partial(checks.require_whole_number, most=100_000)),
    "global_batch_tokens": _COUNT,
    "disk_gb": permit_none(partial(checks.require_whole_number, most=MOST_DISK_GB)),
    "checkpoint_every_hours": partial(checks.require_number, least=0.01, most=HOURS_PER_YEAR),
    **SERVING_CHECKS,
    **dict.fromkeys(("dataset", "lora", "parallel", "network", "limits", "preference"), _accept),
}
"""The keys of a job, each with what a value by itself must be."""
RECIPE_KEYS = tuple(key for key in VALUE_CHECKS if key in RECIPE_CHECKS)
KEYS = tuple(VALUE_CHECKS)
TABLE_CHECKS: Mapping[str, Mapping[str, Check]] = {
    "dataset": {
        "examples": checks.require_whole_number,
        "tokens_per_example": checks.require_whole_number,
        "epochs": partial(checks.require_number, least=1e-6, most=1e6),
    },
    "lora": LORA_CHECKS,
    "parallel": PARALLEL_CHECKS,
    "network": NETWORK_CHECKS,
    "limits": LIMIT_CHECKS,
}
"""The tables of a job, with the keys of each; [preference] and [architecture] import more."""


def list_job_errors(table: Table, more: Mapping[str, Check] | None = None) -> list[InputError]:
    """Return what is wrong with each key that a job states: unknown keys, wrong values. `more`: checks of further keys."""
    table_checks, errors = {**TABLE_CHECKS}, list_value_errors(table, {**VALUE_CHECKS, **(more or {})}, "")
    if "preference" in table:
        from costguard.sizing.preference import PREFERENCE_CHECKS

        table_checks["preference"] = PREFERENCE_CHECKS
    if "architecture" in table:
        from costguard.sizing.architecture_table import ARCHITECTURE_CHECKS

        table_checks["architecture"] = ARCHITECTURE_CHECKS
    for key in (key for key in table_checks if key in table):
        with collect_errors(errors):
            errors += list_value_errors(read_subtable(table, key), table_checks[key], key)
    return errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model to train or serve.

    - `parallel`: None chooses the lightest sharding that fits for each kind of GPU.
    - `tokens`: None means that the amount is not stated, so no hours are computed. For inference: generated tokens.
    - `denoising_steps`: passes of a diffusion model's network for each image or clip that it makes; 1 where it is trained.
    - `serving`: the load that a server must carry; None: no load is stated.
    - `beside`: the other models of preference training; None if there are none.
    - `assumed`: (field, value) of everything that affects the answer and was not stated.
    - `batch_open`: no micro_batch is stated, so each hardware gets the largest that fits it (`Placer`).
    - `calibration`: corrections from observed runs; None if there are no observed runs.
    """

    architecture: Architecture
    recipe: Recipe
    beside: PreferenceTraining | None = None
    parallel: Parallelism | None = None
    network: NetworkSpeeds = USUAL_NETWORK
    tokens: int | None = None
    denoising_steps: int = 1
    serving: ServingLoad | None = None
    global_batch_tokens: int | None = None
    disk_gb: int | None = None
    checkpoint_every_hours: float = 1.0
    limits: JobLimits = JobLimits()
    assumed: tuple[tuple[str, str], ...] = ()
    batch_open: bool = False
    calibration: Calibration | None = None

    @property
    def example_sequences(self) -> int:
        """Return the sequences of one example that are in the same pass: 2 if a pair is compared, else 1."""
        return self.beside.sequences if self.beside else 1

    @property
    def computed_tokens(self) -> int | None:
        """Return the tokens that pass the model: those of the job, as often as a diffusion model's network is run."""
        return None if self.tokens is None else self.tokens * self.denoising_steps

    @property
    def units(self) -> float | None:
        """Return the images, seconds of sound or frames of the run; None if it is counted in tokens, or not stated."""
        a = self.architecture
        if self.tokens is None or a.sample_unit is None or a.sample_tokens is None:
            return None
        return self.tokens / a.sample_tokens * a.units_per_sample


def parse_job(table: Table, architecture: Architecture, find: FindArchitecture | None = None) -> Job:
    """Return the job that `table` states for `architecture`, already found by `model`, `path` or `[architecture]`.

    `find`: returns the shape of another shipped model that `[preference]` names.
    """
    raise_errors(list_job_errors(table))
    assumed: list[tuple[str, str]] = []
    serving = read_serving_load(table, architecture)
    recipe = _read_recipe(table, architecture, assumed)
    preference = _read_preference_table(table, architecture, recipe, assumed, find)
    parallel = read_subtable(table, "parallel")
    return Job(
        architecture=architecture,
        recipe=recipe,
        beside=preference,
        parallel=Parallelism(**parallel) if parallel else None,  # type: ignore[arg-type]  # it checks each value at birth
        network=NetworkSpeeds(**read_subtable(table, "network")),  # type: ignore[arg-type]  # as above
        serving=serving,
        denoising_steps=_read_denoising_steps(table, architecture, recipe, assumed),
        tokens=_read_units(table, architecture)
        or _read_tokens(table, preference.example_tokens if preference else architecture.sample_tokens),
        global_batch_tokens=_read_global_batch(table, recipe),
        disk_gb=_read_count(table, "disk_gb"),
        checkpoint_every_hours=checks.require_number(table.get("checkpoint_every_hours", 1.0), "checkpoint_every_hours"),
        limits=parse_job_limits(read_subtable(table, "limits")),
        assumed=tuple(assumed),
        batch_open="micro_batch" in dict(assumed) and recipe.trains and preference is None,
    )


def list_assumption_warnings(job: Job, effects: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return one line that lists every assumed value; empty if all values were stated.

    `effects`: by field, the effect of another value.
    """
    if not job.assumed:
        return ()
    others = {field: f" ({text})" for field, text in (effects or {}).items()}
    assumptions = ", ".join(f"{field} {value}{others.get(field, '')}" for field, value in job.assumed)
    return (f"assumed, because not given: {assumptions}",)


def parse_job_limits(table: Table) -> JobLimits:
    """Return the limits of `[limits]`: caps, and lists that restrict the market.

    GPU names are not resolved here.
    """
    raise_errors(list_value_errors(table, LIMIT_CHECKS, "limits"))
    limits = {key: LIMIT_CHECKS[key](value, f"limits.{key}") for key, value in table.items()}
    return JobLimits(**limits)  # type: ignore[arg-type]  # each was read by its own check


def merge_tables(under: Table, over: Table) -> dict[str, object]:
    """Return `under` with the values of `over` replacing its own, table by table (flags over a job file)."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge_tables(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def merge_flags(file: Table, flags: Table) -> dict[str, object]:
    """Return the job file with flags applied.

    A flag also replaces file keys that state the same fact in another form (the model, the number of tokens).
    """
    other_shape = any(key in flags for key in SHAPE_KEYS)
    other_amount = any(key in flags for key in AMOUNT_KEYS)
    replaced = {*(SHAPE_KEYS if other_shape else ()), *(AMOUNT_KEYS if other_amount else ())}
    return merge_tables({key: value for key, value in file.items() if key not in replaced}, flags)


def read_subtable(table: Table, key: str) -> Table:
    """Return the table `table[key]`; {} if it is absent."""
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        raise InputError(f"must be a table, not {describe_value(inner)}", field=key, hint=f"write it as a [{key}] section")
    return inner


def _read_recipe(table: Table, architecture: Architecture, assumed: list[tuple[str, str]]) -> Recipe:
    fields = _list_stated_keys(table)
    method = str(fields.get("method", "full"))
    if "method" not in fields:
        assumed.append(("method", method))
    precision = _start_from_release(fields, architecture, method, assumed)
    if method == "qlora":
        fields.setdefault("quant", "nf4")
    if architecture.sample_tokens is not None:
        fields.setdefault("seq_len", architecture.sample_tokens)
    elif "prompt_len" in table:
        fields["seq_len"] = sum(checks.require_whole_number(table[key], key) for key in ("prompt_len", "output_len"))
    elif "seq_len" not in fields and not _take_stated_lengths(table, fields):
        fields["seq_len"] = min(DEFAULT_SEQ_LEN, architecture.positions or DEFAULT_SEQ_LEN)
        assumed.append(("seq_len", str(fields["seq_len"])))
    _check_decoder_len(fields, architecture)
    lora = read_subtable(table, "lora")
    if method == "pretrain":  # small updates are lost in 16-bit weights; ALTERNATIVES says what pure bf16 would save
        precision = "bf16-amp"
    usual = {"micro_batch": "1", "precision": precision or "bf16", "checkpointing": "full", "optimizer": "adamw"}
    for field, value in usual.items():
        served = field == "micro_batch" and "requests_per_second" in table  # the load says how many run at a time
        if field not in fields and not served and (method != "inference" or field in ("micro_batch", "precision")):
            assumed.append((field, value))
    if precision:
        fields.setdefault("precision", precision)
    # Each value is checked at birth by Recipe and Lora, which know the field's name: no type survives unchecked.
    recipe = Recipe(**fields, lora=Lora(**_read_lora(lora, architecture)))  # type: ignore[arg-type]
    assumed += _list_assumed_loss(table, recipe, architecture)
    return recipe


def _list_stated_keys(table: Table) -> dict[str, object]:
    """Return the keys of the recipe that `table` states, its framework by the name it has here."""
    fields = {k: table[k] for k in RECIPE_KEYS if k in table}
    if isinstance(fields.get("framework"), str):
        fields["framework"] = resolve_framework(str(fields["framework"]))[0]
    return fields


def _list_assumed_loss(table: Table, recipe: Recipe, architecture: Architecture) -> list[tuple[str, str]]:
    """Return the loss of a long sequence where none is stated: what the framework does, however much memory that takes."""
    is_stated = "fused_loss" in table or "loss" in table or "preference" in table
    predicts = recipe.trains and architecture.has_head and architecture.vocab
    return [] if is_stated or not predicts or recipe.seq_len < LONG_CONTEXT else [("loss", choose_loss(recipe))]


def _check_decoder_len(fields: Table, architecture: Architecture) -> None:
    """Raise InputError if `decoder_len` is of a model without a decoder beside its encoder, or beyond its positions."""
    if fields.get("decoder_len") is None:
        return
    has_decoder = architecture.kind == "encoder-decoder"
    what = f"applies to an encoder-decoder, and {architecture.name} is a model of kind '{architecture.kind}'"
    require(has_decoder, "decoder_len", what, "leave it out, and state seq_len")
    length, most = checks.require_whole_number(fields["decoder_len"], "decoder_len"), architecture.positions
    require(
        most is None or length <= most,
        "decoder_len",
        f"is {length}, and {architecture.name} has learned positions for {most} tokens",
        f"write {most} or less",
    )


def _start_from_release(
    fields: dict[str, object], architecture: Architecture, method: str, assumed: list[tuple[str, str]]
) -> str | None:
    """Return the precision of a served model stored in fp8 or NVFP4, else None; other quantised weights set `quant`."""
    assumed += [("model", architecture.shape_of)] if architecture.shape_of else []
    released = architecture.released_precision
    packed = method == "qlora" or (method == "inference" and "precision" not in fields)
    if released in ("mxfp4", "nf4", "int4", "int8") and packed and "quant" not in fields:
        fields["quant"] = released
        assumed.append(("quant", released))
    served = {"fp8": "fp8", "nvfp4": "fp4"}.get(str(released))
    return served if method == "inference" and "quant" not in fields else None


def _read_preference_table(
    table: Table, architecture: Architecture, recipe: Recipe, assumed: list[tuple[str, str]], find: FindArchitecture | None
) -> PreferenceTraining | None:
    """Return the preference training that `[preference]` states; None if the table is absent."""
    if "preference" not in table:
        return None
    from costguard.sizing.preference import read_preference

    return read_preference(read_subtable(table, "preference"), architecture, recipe, assumed, find or _refuse_model)


def _take_stated_lengths(table: Table, fields: dict[str, object]) -> bool:
    """Return whether `[preference]` states both lengths; if so, set `seq_len` in `fields` to their sum."""
    lengths = [read_subtable(table, "preference").get(key) for key in ("prompt_len", "completion_len")]
    if any(length is None for length in lengths):
        return False
    fields["seq_len"] = sum(checks.require_whole_number(length, "preference.prompt_len") for length in lengths)
    return True


def _refuse_model(name: str) -> Architecture:
    raise InputError(f"'{name}' cannot be looked up here", field="preference", hint='write "same" or "none"')


def _read_lora(table: Table, architecture: Architecture) -> dict[str, object]:
    targets = table.get("targets")
    return (
        {**table, "targets": resolve_targets(architecture, tuple(targets))} if isinstance(targets, list | tuple) else {**table}
    )


def _read_denoising_steps(table: Table, architecture: Architecture, recipe: Recipe, assumed: list[tuple[str, str]]) -> int:
    """Return the passes of a diffusion model's network for each image; 1 for other jobs."""
    makes = architecture.denoises and not recipe.trains
    steps = _read_count(table, "denoising_steps")
    what = f"applies to a diffusion model that makes images, not to method '{recipe.method}' on {architecture.name}"
    require(makes or steps is None, "denoising_steps", what, "leave it out")
    usual = architecture.denoising_steps or DENOISING_STEPS
    if makes and steps is None:
        assumed.append(("denoising_steps", str(usual)))
    return (steps or usual) if makes else 1


def _read_units(table: Table, architecture: Architecture) -> int | None:
    """Return the tokens of the images, seconds of sound or frames that the job states; None if it states none."""
    amount_keys = [key for key in AMOUNT_KEYS if table.get(key) is not None]
    counted = next((key for key in amount_keys if key in SAMPLE_UNITS), None)
    if counted is None:
        return None
    others = [key for key in amount_keys if key != counted]
    require(
        not others,
        counted,
        f"cannot be given together with {others[0] if others else ''}",
        f"keep {architecture.sample_unit or 'tokens'}",
    )
    unit = architecture.sample_unit
    what = f"is not what {architecture.name} is counted in: it reads {'text' if unit is None else unit.replace('_', ' ')}"
    require(unit == counted, counted, what, f"write {unit or 'tokens'} = 1000000")
    number = _check_units(table[counted], counted)
    tokens = number / architecture.units_per_sample * (architecture.sample_tokens or 1)
    return checks.require_whole_number(max(1, round(tokens)), counted)


def _read_tokens(table: Table, example_tokens: int | None) -> int | None:
    """Return the tokens of the run.

    `example_tokens`: tokens of one example if the job fixes them: an image, a pair, a prompt's group.
    """
    if "dataset" not in table:
        return _read_count(table, "tokens")
    require("tokens" not in table, "tokens", "cannot be given together with [dataset]", "keep one of them")
    dataset = read_subtable(table, "dataset")
    if example_tokens is not None:
        dataset = {"tokens_per_example": example_tokens, **dataset}
    for key in ("examples", "tokens_per_example"):
        require(key in dataset, f"dataset.{key}", "is missing", f"write {key} = 1000, or tokens = ... instead of [dataset]")
    examples, each = (checks.require_whole_number(dataset[key], f"dataset.{key}") for key in ("examples", "tokens_per_example"))
    epochs = checks.require_number(dataset.get("epochs", 1), "dataset.epochs")
    return checks.require_whole_number(round(examples * each * epochs), "dataset")


def _read_global_batch(table: Table, recipe: Recipe) -> int | None:
    tokens = _read_count(table, "global_batch_tokens")
    least = recipe.micro_tokens
    require(
        tokens is None or tokens >= least,
        "global_batch_tokens",
        f"is less than one pass of one GPU: micro_batch x seq_len = {recipe.micro_batch} x {recipe.seq_len} = {least:,}",
        f"write {least} or more, or a smaller micro_batch",
    )
    return tokens


def _read_count(table: Table, key: str) -> int | None:
    return checks.require_whole_number(table[key], key, least=0) if table.get(key) is not None else None
