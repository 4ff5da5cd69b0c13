"""`costguard models`: list the built-in models, or those that a machine can train or serve.

Examples:
  costguard models
  costguard models qwen
  costguard models --fits RTX-4090 --method qlora
  costguard models llama --fits H100:8 --method full --seq-len 8192
"""

from typing import Annotated

from typer import Argument, Context, Option

from costguard.cli import options as o
from costguard.cli.commands import AnswerCommand, add_options
from costguard.errors import InputError
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import build_job_table

COMMAND = add_options(
    AnswerCommand, o.list_job_options("method", "precision", "optimizer", "seq_len", "checkpointing", "lora_rank")
)


def command(
    ctx: Context,
    name: Annotated[o.Text, Argument(metavar="NAME", help="Part of the models' names (default: all models).")] = None,
    fits: Annotated[
        o.Text, Option(metavar="GPU[:N]", help="List what fits there by --method, with the largest batch and length.")
    ] = None,
) -> CommandAnswer:
    """Print the answer."""
    flags = build_job_table(ctx.params)
    if fits is not None:
        from costguard.services.quote.fitting_models import answer_fitting_models

        return answer_fitting_models(name, on=fits, flags=flags)
    if flags:
        raise InputError("is for --fits alone", field=f"--{next(iter(flags))}", hint="add --fits RTX-4090, or leave it out")
    from costguard.services.guarding.explain import answer_models

    return answer_models(name)
