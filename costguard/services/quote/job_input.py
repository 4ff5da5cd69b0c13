"""Convert user input, from a job file, flags or both, to the values that services use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import ShippedFacts
from costguard.errors import InputError, UnknownNameError, collect_errors, raise_errors
from costguard.quoting.quote import Rental
from costguard.services.quote.file_limit import INSIDE, NO_FOLDER, require_files_inside
from costguard.services.quote.hardware import match_gpus, refuse_accelerator
from costguard.settings import expand_path, read_table
from costguard.settings.files import YAML_ENDINGS, parse_table, read_text
from costguard.settings.lines import StatedFile, place_in_files
from costguard.sizing.architecture import Architecture
from costguard.sizing.job import (
    AMOUNT_KEYS,
    KEYS,
    SHAPE_KEYS,
    Job,
    Table,
    list_job_errors,
    merge_flags,
    merge_tables,
    parse_job,
    parse_job_limits,
    read_subtable,
    require_model_name,
)
from costguard.sizing.job_flags import read_amounts
from costguard.sizing.placement import Hardware
from costguard.sizing.recipe import resolve_framework
from costguard.values import checks
from costguard.values.gpu import GIB, SIZE_TOLERANCE, Gpu

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.formats.loading import ConfigFile
    from costguard.formats.reading import ConfigReading, LaunchHardware
    from costguard.quoting.template import WorkloadTemplate
    from costguard.sizing.observed_runs import ObservedRun

SHIPPED_MODEL_HINT = "name a shipped model; costguard models lists them"
GPUS_MOST = 200
"""Names of GPUs that are looked up: more than there are kinds, so a longer list has names of none among the first."""

CONFIG_ENDINGS = (*YAML_ENDINGS, ".py", ".ipynb", ".sh", ".slurm", ".sbatch", ".bin", ".pt", ".pth", ".pkl")
"""Endings of files that are another tool's, unless YAML has a job's keys; TOML and JSON are told by their keys, and others by
their first line."""
JOB_FILE_KEYS = frozenset((*KEYS, "template"))
OWN_LIKENESS = 0.75
"""How much of a key of YAML (`difflib`, 0 to 1) must agree with one of a job's for it to be that one, mistyped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInput:
    """The user input from files, flags and a template: the table, and notes on names that were resolved.

    `config`: what another tool's configs state; None if there are none. `gpus`: GPUs of the whole run; None if not stated.
    `count`: GPUs of a machine, as a name of `limits.gpus` states them (`8xH100`). `families`: a short name there is all that it
    may mean (`A100`: 40 and 80 GB, SXM and PCIe), not the usual one.
    `files`: job files of costguard's own. `flags`: what is stated outside of files.
    """

    table: Table
    folder: Path
    notes: tuple[str, ...]
    template: WorkloadTemplate | None = None
    config: ConfigReading | None = None
    gpus: int | None = None
    count: int | None = None
    families: bool = False
    files: tuple[StatedFile, ...] = ()
    flags: Table = field(default_factory=dict)

    @contextmanager
    def name_files(self) -> Iterator[None]:
        """Within the block, let errors of values that a job file states name the file and the line, all of them at once."""
        errors: list[InputError] = []
        with collect_errors(errors):
            yield
        for error in errors:
            key = (error.field or "").partition(".")[0]
            missing = self.config is None and key in KEYS and key not in self.table
            place_in_files(error, self.files, self.flags, missing=missing)
        raise_errors(errors)


def read_job_input(
    flags: Table, job_files: str | Sequence[str] | None, facts: ShippedFacts, *, families: bool = False
) -> JobInput:
    """Merge flags over the job file, both over a template, with every GPU name made canonical. `families`: as in JobInput.

    `job_files`: one job file, or configs and launch files of other tools (`costguard.formats`), which are merged.
    """
    named_files = [job_files] if isinstance(job_files, str) else list(job_files or ())
    if "" in named_files:
        raise InputError("is empty", field="FILE", hint="write the name of a file, or leave it out")
    if named_files and INSIDE.get() is NO_FOLDER:
        raise InputError("is a file, which a request may not contain", field="FILE", hint="state the job in the request")
    if "model" not in flags and len(named_files) == 1 and _is_model_name(named_files[0], facts):
        flags, named_files = {**flags, "model": named_files[0]}, []
    paths = [expand_path(name) for name in named_files]
    require_files_inside(paths)
    files, config = _read_files(paths)
    own: Table = {}
    for file in files:
        own = merge_tables(own, file.table)
    own = own if config is None else merge_flags(config.table, own)
    table = _settle_precision(merge_flags(own, flags) if paths else dict(flags), config, flags)
    in_file = bool(paths) and config is None and "model" not in flags
    folder = paths[0].parent if in_file else Path()
    families = families and (config is None or config.hardware is None)  # a launch file's machines are of one kind
    job_input = JobInput(table=table, folder=folder, notes=(), config=config, files=files, flags=flags, families=families)
    with job_input.name_files():
        return _resolve_names(job_input, facts)


def _is_model_name(word: str, facts: ShippedFacts) -> bool:
    """Return whether `word`, which stands where files do, names a known model: `costguard quote llama-3.1-8b`.

    What exists as a file is a file, and what looks like one is missing. Raises InputError for what names nothing.
    """
    path = expand_path(word)
    try:
        if path.exists():
            return False
    except OSError:  # a name of 5,000 letters: whoever opens it says so
        return False
    if path.suffix in (*CONFIG_ENDINGS, ".toml", ".json") or word.startswith((".", "/", "~")):
        return False
    try:
        facts.get_architecture(word)
    except UnknownNameError as unknown:
        gpu = None
        with suppress(InputError):
            gpu = facts.get_gpu_names().resolve(word, field="FILE")
        what = "is no file and no known model" if gpu is None else "is a GPU, not a file"
        near = f"did you mean the model {unknown.nearest[0]}? " if unknown.nearest else ""
        hint = f"{near}costguard models lists them, and --help the flags; looked from {Path.cwd()}"
        hint = hint if gpu is None else f"write --on {word} for a job, or --gpu {word} --hours 12"
        raise InputError(what, field=word, hint=hint) from None
    return True


def _resolve_names(job_input: JobInput, facts: ShippedFacts) -> JobInput:
    """Return the input over its template, with every GPU name made canonical; raise all that is wrong with single values."""
    table, errors, template = read_amounts(job_input.table), list[InputError](), None
    if "template" in table:
        from costguard.quoting.template import find_template

        with collect_errors(errors):
            template = find_template(table.pop("template"), facts.templates())
    errors += list_job_errors(table, {"template": lambda value, _: value})  # found above
    table = merge_flags(template.job, table) if template else table
    counted = any(key in job_input.flags for key in AMOUNT_KEYS)
    notes = () if job_input.config is None else job_input.config.list_notes(amount_stated=counted)
    gpu_names, gpus = tuple[str, ...](), list[str]()
    with suppress(InputError):  # it is among `errors`
        gpu_names = parse_job_limits({"gpus": read_subtable(table, "limits").get("gpus")}).gpus or ()
    stated_counts = set[int]()
    for gpu_name in list(dict.fromkeys(gpu_names))[:GPUS_MOST]:
        with collect_errors(errors):
            matches, count, note = match_gpus(gpu_name, facts, field="limits.gpus", family=job_input.families)
            notes = (*notes, note) if note else notes
            gpus += matches
            stated_counts |= set() if count is None else {count}
    with collect_errors(errors):
        hint = "state one count: --gpu H100 --count 8"
        what = f"name machines of {' and '.join(map(str, sorted(stated_counts)))} GPUs"
        checks.require(len(stated_counts) <= 1, "limits.gpus", what, hint)
    named_models = [key for key in SHAPE_KEYS if key in table]
    if errors and named_models in (["model"], ["path"]) and all(error.field != named_models[0] for error in errors):
        with collect_errors(errors):
            _read_architecture(replace(job_input, table=table), facts)
    raise_errors(errors)
    if gpus:
        table = merge_tables(table, {"limits": {"gpus": tuple(dict.fromkeys(gpus))}})
    framework = table.get("framework")
    if isinstance(framework, str):
        framework_name, why = resolve_framework(framework)
        notes = (*notes, f"framework {framework} was taken as {framework_name}: {why}") if why else notes
    stated_count = next(iter(stated_counts), None)
    return replace(job_input, table=table, notes=notes, template=template, count=stated_count)


def _read_files(paths: Sequence[Path]) -> tuple[tuple[StatedFile, ...], ConfigReading | None]:
    """Return the files of costguard's own keys, and the reading of those that are another tool's."""
    loaded = [_load_file(path) for path in paths]
    own = tuple(file for file in loaded if isinstance(file, StatedFile))
    foreign = [file for file in loaded if not isinstance(file, StatedFile)]
    if not foreign:
        return own, None
    from costguard.formats import read_config
    from costguard.formats.merging import merge_readings

    config = merge_readings(read_config(file) for file in foreign)
    if config.templates and config.hardware is None:
        raise InputError(
            f"{', '.join(config.templates[:4])}: filled in by another program, and not read",
            field=str(config.files[0]),
            hint=f"render the template first. Read as {config.label}: {config.describe()}",
        )
    return own, config


def _settle_precision(table: dict[str, object], config: ConfigReading | None, flags: Table) -> dict[str, object]:
    """Return `table` with the precision that a config means for the method, where that stands in flags or a job file.

    A launcher's autocast is the precision of adapters; weights that are all trained in 16 bits may have fp32 masters.
    """
    if config is None or flags.get("precision") is not None or table.get("precision") != config.table.get("precision"):
        return table
    from costguard.formats.merging import has_masters, is_from_autocast

    method = table.get("method")
    if has_masters(config, method):
        return {**table, "precision": f"{table['precision']}-amp"}
    if config.autocast is None or method not in ("lora", "qlora") or not is_from_autocast(config):
        return table
    return {**table, "precision": config.autocast[0]}


def _load_file(path: Path) -> StatedFile | ConfigFile:
    """Return a job file of costguard's own keys, or another tool's file. A file is read once: it may be a pipe."""
    ending = path.suffix.lower()
    text = "" if ending in CONFIG_ENDINGS else read_text(path)
    if ending in CONFIG_ENDINGS or (ending not in (".toml", ".json") and text.startswith("#!")):
        from costguard.formats import find_format
        from costguard.formats.loading import load_config_file, load_yaml_job

        loaded = load_config_file(path, text)
        own = len(loaded.documents) == 1 and (loaded.table.keys() <= JOB_FILE_KEYS or find_format(loaded) is None)
        return StatedFile(path, loaded.text, load_yaml_job(loaded)) if own and _looks_own(loaded.table) else loaded
    try:
        table = parse_table(text, path)
    except InputError as error:
        if ending in (".toml", ".json"):
            raise
        hint = "a job file ends in .toml, .json or .yaml; .yaml, .json, .py, .ipynb, .sh and .sbatch are read of other tools"
        raise InputError("is of no known format", field=str(path), hint=hint) from error
    if table.keys() <= JOB_FILE_KEYS:
        return StatedFile(path, text, table)
    from costguard.formats import find_format
    from costguard.formats.loading import build_table_file

    file = build_table_file(table, text, path)
    return StatedFile(path, text, table) if find_format(file) is None else file


def _looks_own(table: Table) -> bool:
    """Return whether at least half of a table's keys are those of a job file, or one of them with a slip of the pen."""
    if len(table) > 3 * len(JOB_FILE_KEYS):
        return False
    near = [key for key in table if key in JOB_FILE_KEYS or checks.find_nearest_names(key, JOB_FILE_KEYS, cutoff=OWN_LIKENESS)]
    return 2 * len(near) >= len(table)


def apply_hardware_flag(job_input: JobInput, flags: Table, *, count: float | None, hours: float | None) -> JobInput:
    """Return the input for `--on`, which names the hardware. Raises InputError for other flags that name hardware."""
    flag_values = {"--count": count, "--hours": hours, "--gpu": read_subtable(flags, "limits").get("gpus")}
    if _is_rental(job_input):
        flag_values.pop("--hours")
    twice = [flag for flag, value in flag_values.items() if value is not None]
    if twice:
        hint = "leave out --on" if hours is not None else f"leave out {twice[0]}: --on H100:8 gives the GPU and the count"
        raise InputError("is given together with --on, which names the hardware", field=twice[0], hint=hint)
    return _restrict_gpus(job_input, None) if "limits" in job_input.table else job_input


def settle_count(job_input: JobInput, count: float | None) -> float | None:
    """Return the GPUs of a machine: `count` of a flag, or as a name states them (`8xH100`). They may not disagree."""
    if count is not None and job_input.count is not None and count != job_input.count:
        raise InputError(f"is {count:g}, and the GPU's name says {job_input.count}", field="--count", hint="state one of them")
    return job_input.count if count is None else count


def read_job(job_input: JobInput, facts: ShippedFacts) -> Job:
    """Return the job, which must have exactly one model."""
    table, config = job_input.table, job_input.config
    shape_keys = [k for k in SHAPE_KEYS if k in table]
    if len(shape_keys) != 1:
        what = "no model was given" if not shape_keys else f"{' and '.join(shape_keys)} cannot be given together"
        hint = "name one shipped model (--model llama-3.1-8b), one path, or one [architecture] table"
        if not shape_keys and "gpus" in read_subtable(table, "limits"):
            hint = f"{hint}; a rental without a job needs --hours 12"
        hint = hint if config is None else f"{hint}\nread as {config.label}: {config.describe()}"
        raise InputError(what, field="model", hint=hint)
    try:
        job = parse_job(table, _read_architecture(job_input, facts), facts.get_architecture)
    except UnknownNameError as unknown:
        if config is None or unknown.field != "model":
            raise
        hint = f"{unknown.hint or ''}\nread as {config.label}: {config.describe()}"
        raise InputError(unknown.what, field=f"{config.files[0]}: model", hint=hint) from None
    return job if config is None else apply_step_plan(job, config, job_input.gpus)


def apply_step_plan(job: Job, config: ConfigReading, gpus: int | None) -> Job:
    """Return `job` with the passes per step that `config` states, and with the tokens of its steps if `gpus` are known.

    Example: 2 sequences of 4,096 tokens a pass, 4 passes a step and 500 steps on 8 GPUs are 131,072,000 tokens.
    """
    plan, recipe = config.plan, job.recipe
    per_sequence = recipe.seq_len * job.example_sequences
    if plan.global_sequences is not None and job.global_batch_tokens is None:
        job = replace(job, global_batch_tokens=plan.global_sequences * per_sequence)
    elif plan.accumulation is not None and job.global_batch_tokens is None:
        job = replace(job, recipe=replace(recipe, gradient_accumulation=plan.accumulation))
    if job.tokens is not None or plan.steps is None:
        return job
    ranks = None if gpus is None else max(1, gpus // (job.parallel.model_ranks if job.parallel else 1))
    sequences = plan.global_sequences or (ranks and ranks * recipe.micro_batch * (plan.accumulation or 1))
    return job if not sequences else replace(job, tokens=plan.steps * sequences * per_sequence)


def place_on_launch(
    job_input: JobInput, facts: ShippedFacts, *, count: float | None = None
) -> tuple[JobInput, Hardware | None, float | None]:
    """Return the input, hardware and GPUs of a machine that the launch file states; a flag's GPU and `count` win over its own.

    A GPU without a name restricts the market to machines of that many GPUs, and to GPUs of its memory if that is stated.
    """
    launch = job_input.config.hardware if job_input.config is not None else None
    if launch is None:
        return job_input, None, count
    gpu_names = parse_job_limits(read_subtable(job_input.table, "limits")).gpus
    if gpu_names is not None:
        launch = replace(launch, gpu=gpu_names[0] if len(gpu_names) == 1 else None, memory_gb=None)
    if count is not None:
        launch = replace(launch, gpu_count=checks.require_whole_number(count, "--count", most=100_000))
    total = None if launch.gpu_count is None else launch.gpu_count * launch.nodes
    job_input = replace(job_input, gpus=total)
    if launch.gpu is not None:
        return _place_on_gpu(_restrict_gpus(job_input, None) if gpu_names else job_input, launch, launch.gpu, facts)
    if launch.memory_gb is not None:
        alike = tuple(gpu.name for gpu in facts.get_gpus().values() if _has_memory(gpu, *launch.memory_gb))
        job_input = _restrict_gpus(job_input, alike)
    if launch.nodes > 1:
        note = f"{launch.nodes} machines are stated and no kind of GPU: as many as each kind needs are quoted; state --on"
        job_input = replace(job_input, notes=(*job_input.notes, f"{note} H100:{launch.gpu_count or 8}x{launch.nodes}"))
    return job_input, None, launch.gpu_count


def _place_on_gpu(
    job_input: JobInput, launch: LaunchHardware, gpu_name: str, facts: ShippedFacts
) -> tuple[JobInput, Hardware | None, None]:
    """Return the input and the hardware of `launch` with the GPU `gpu_name`; no hardware if its GPUs are not counted."""
    field = f"{job_input.config.files[-1]}: GPU" if job_input.config is not None else "GPU"
    exact = launch.memory_gb[0] if launch.memory_gb and launch.memory_gb[0] == launch.memory_gb[1] else None
    gpu_match = facts.get_gpu_names().resolve(gpu_name, vram_gb=exact, field=field)
    gpu = facts.get_gpus()[gpu_match.canonical]
    if launch.gpu_count is None:
        return _restrict_gpus(job_input, (gpu.name,)), None, None
    if not gpu.runs_pytorch:
        raise refuse_accelerator(gpu, launch.gpu_count * launch.nodes, facts, "--on")
    if gpu_match.taken_as_short:
        job_input = replace(job_input, notes=(*job_input.notes, f"{gpu_name} was taken as {gpu.name}"))
    return job_input, Hardware(gpu=gpu, gpu_count=launch.gpu_count, nodes=launch.nodes), None


def _has_memory(gpu: Gpu, least: float, most: float | None) -> bool:
    """Return whether a GPU has `least` to `most` GB, as far as advertised sizes differ from the datasheet's."""
    has = gpu.memory_gib * GIB / 1e9
    return has > least * (1 - SIZE_TOLERANCE) and (most is None or has < most * (1 + SIZE_TOLERANCE))


def _restrict_gpus(job_input: JobInput, names: tuple[str, ...] | None) -> JobInput:
    return replace(job_input, table=merge_tables(job_input.table, {"limits": {"gpus": names}}))


def read_launch_rental(job_input: JobInput, hardware: Hardware | None, hours: float | None) -> Rental | None:
    """Return the rental of the machines of a launch file that states no job; None if there is a job, or no launch file.

    `hours`: as a flag states them; None: the file's time limit.
    """
    config = job_input.config
    if config is None or config.hardware is None or not _is_rental(job_input):
        return None
    hours = config.hardware.hours if hours is None else hours
    read = f"read as {config.label}: {config.describe()}"
    if hours is None:
        hint = f"state --hours N for the machines alone, or the job: --model NAME --method NAME --tokens N\n{read}"
        raise InputError("names no model and no time limit", field=str(config.files[0]), hint=hint)
    if hardware is None:
        hint = f"state --on H100:8, or --gpu H100 --count 8\n{read}"
        raise InputError("names no single kind of GPU", field=str(config.files[0]), hint=hint)
    return _build_rental(job_input, hardware.gpu.name, hours, hardware.gpu_count, hardware.nodes)


def _build_rental(job_input: JobInput, gpu: str, hours: float | None, count: float | None, nodes: int = 1) -> Rental:
    return Rental(
        gpu=gpu,
        gpu_count=checks.require_whole_number(1 if count is None else count, "--count", most=100_000),
        nodes=nodes,
        hours=checks.require_number(hours, "--hours", least=1e-3, most=1e6),
        disk_gb=checks.require_whole_number(job_input.table.get("disk_gb", 0), "disk_gb", least=0),
        limits=parse_job_limits(read_subtable(job_input.table, "limits")),
    )


def _is_rental(job_input: JobInput) -> bool:
    """Return whether a launch file states machines and nothing states a job."""
    return bool(job_input.config and job_input.config.hardware) and not any(key in job_input.table for key in SHAPE_KEYS)


def _read_architecture(job_input: JobInput, facts: ShippedFacts) -> Architecture:
    """Return the model by shipped name, from a config.json, or from its numbers."""
    if "architecture" in job_input.table:
        from costguard.sizing.architecture_table import build_architecture_from_table

        return build_architecture_from_table(read_subtable(job_input.table, "architecture"))
    file = _find_config_file(job_input)
    if file is None:
        return facts.get_architecture(str(job_input.table["model"]))
    from costguard.sizing.huggingface import build_architecture_from_config

    return build_architecture_from_config(read_table(file), name=file.parent.name or file.stem)


def read_model_config(job_input: JobInput, facts: ShippedFacts) -> Table:
    """Return the model's config.json, from which `--exact` builds it."""
    if "architecture" in job_input.table:
        hint = "name a shipped model, or write path = 'config.json'"
        raise InputError("holds numbers, and --exact builds a model from its config.json", field="architecture", hint=hint)
    file = _find_config_file(job_input)
    return facts.config(str(job_input.table["model"])) if file is None else read_table(file)


def _find_config_file(job_input: JobInput) -> Path | None:
    """Return the path of the named config.json; None if a shipped model is named."""
    key = "path" if "path" in job_input.table else "model"
    name = require_model_name(job_input.table[key], key)
    if key == "model" and not name.endswith(".json") and not name.startswith((".", "/", "~")):
        return None
    if key == "model" and job_input.config is not None and job_input.config.table.get("model") == name:
        return None  # another tool's config names no file outside of its folder: those inside it are stated as `path`
    folder = INSIDE.get()
    if folder is NO_FOLDER:
        raise InputError("names a file, which a request may not contain", field=key, hint=SHIPPED_MODEL_HINT)
    path = expand_path(name)
    path = path if path.is_absolute() else job_input.folder / path
    if folder is not None and (not path.resolve().is_relative_to(folder.resolve()) or ".git" in path.resolve().parts):
        raise InputError("names a file outside of the allowed folder", field=key, hint="name a file of the repository")
    return path


def read_rental(job_input: JobInput, count: float | None, hours: float | None) -> Rental:
    """Return the plain rental of `count` GPUs for `hours`."""
    gpus = parse_job_limits(read_subtable(job_input.table, "limits")).gpus or ()
    unsuited = [k for k in job_input.table if k not in ("limits", "disk_gb")]
    if unsuited:
        raise InputError(
            f"is computed from the tokens of a job ('{unsuited[0]}')",
            field="--hours",
            hint="leave out --hours, or quote a plain rental: --gpu H100 --count 8 --hours 12",
        )
    if not gpus or (len(gpus) > 1 and not job_input.families):
        raise InputError("must name one GPU when --hours is given", field="--gpu", hint="write --gpu H100 --count 8 --hours 12")
    return _build_rental(job_input, gpus[0], hours, count)


def read_observed_runs(rows: Iterable[tuple[str, Table]], folder: Path, facts: ShippedFacts) -> tuple[ObservedRun, ...]:
    """Return the runs that `rows` (file and line, table) state.

    A config.json is looked for from `folder`, and its absolute path is stored.
    """
    from costguard.sizing.observed_runs import read_observed_run

    def job_of(table: Table) -> Job:
        return read_job(JobInput(table=table, folder=folder, notes=()), facts)

    gpus = facts.get_gpus()
    return tuple(
        read_observed_run(_make_path_absolute(row, folder), where=where, gpus=gpus, job_of=job_of) for where, row in rows
    )


def _make_path_absolute(row: Table, folder: Path) -> Table:
    """Return `row` with an absolute path, so that it can be read again from any folder."""
    if not isinstance(row.get("path", row.get("model")), str):
        return row
    file = _find_config_file(JobInput(table=row, folder=folder, notes=()))
    return row if file is None else {**{k: v for k, v in row.items() if k != "model"}, "path": str(file.absolute())}
