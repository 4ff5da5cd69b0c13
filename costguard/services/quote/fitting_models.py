"""Answer `models --fits`: which shipped models a machine can train or serve."""

from __future__ import annotations

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError
from costguard.services import CommandAnswer
from costguard.services.quote.hardware import parse_hardware
from costguard.sizing.fitting_models import FittingModel, fit_model
from costguard.sizing.job import Table, parse_job
from costguard.values.checks import fold_name
from costguard.views.fitting_models import build_fitting_models_document


def answer_fitting_models(text: str | None, *, on: str, flags: Table) -> CommandAnswer:
    """Answer `costguard models --fits`: the shipped models, with `text` in their name, that `on` holds, the largest first.

    `flags`: the job without its model; it needs a method. A model that cannot run so (QLoRA of a ResNet) is counted.
    """
    if "method" not in flags:
        raise InputError("is needed beside --fits", field="--method", hint="write --method qlora, or full, lora, inference")
    facts = ShippedFacts()
    hardware, notes = parse_hardware(on, facts, field="--fits")
    if hardware is None:
        raise InputError("names no hardware", field="--fits", hint="write --fits RTX-4090, or --fits H100:8")
    fitting, too_large, unable = list[FittingModel](), 0, 0
    for name, aliases in facts.list_models().items():
        if text is not None and not any(fold_name(text) in fold_name(spelling) for spelling in (name, *aliases)):
            continue
        try:
            job = parse_job({"micro_batch": 1, **flags, "model": name}, facts.get_architecture(name), facts.get_architecture)
            found_fit = fit_model(job, hardware)
        except InputError:
            unable += 1
            continue
        if found_fit is None:
            too_large += 1
        else:
            fitting.append(found_fit)
    fitting.sort(key=lambda one: (-one.job.architecture.parameters, one.job.architecture.name))
    document = build_fitting_models_document(fitting, hardware, method=str(flags["method"]), too_large=too_large, unable=unable)
    hint = "a smaller method: qlora instead of lora or full; or more GPUs: --fits H100:8"
    refusal = None if fitting else NoAnswerError(f"none of {too_large + unable} models fits", hint=hint)
    return CommandAnswer(document=document, warnings=notes, refusal=refusal)
