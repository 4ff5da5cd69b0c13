"""`costguard quote`: the expected cost and duration of a job on each offer."""

from __future__ import annotations

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import add_output_options, find_format, write_answer
from costguard.cli.options import Text

EXAMPLES = """Examples:

\b
  costguard quote --model llama-3.1-8b --method qlora --tokens 50e6
  costguard quote job.toml --max-usd 200 --provider aws --provider runpod
  costguard quote --model mistral-7b --method full --tokens 1B --on H100:8
  costguard quote --model llama-3.1-70b --method inference --requests-per-second 5 --prompt-len 1000 --output-len 300
  costguard quote --model sdxl --method lora --images 10000
  costguard quote qlora.yml task.sky.yaml --tokens 50e6      # configs and launch files of other tools
  costguard quote --gpu H100 --count 8 --hours 12
  costguard quote --gpu H100 --hours 12 --region eu --tier on-demand --tier secure --exclude vast
  costguard quote --template lora-7b
"""


@add_output_options
def command(
    ctx: Context,
    job: o.JobFiles = None,
    template: o.Template = None,
    model: o.Model = None,
    method: o.Method = None,
    tokens: o.Tokens = None,
    images: o.Images = None,
    audio_seconds: o.AudioSeconds = None,
    frames: o.Frames = None,
    denoising_steps: o.DenoisingSteps = None,
    preference: o.Preference = None,
    precision: o.Precision = None,
    quant: o.Quant = None,
    optimizer: o.Optimizer = None,
    seq_len: o.SeqLen = None,
    decoder_len: o.DecoderLen = None,
    requests_per_second: o.RequestsPerSecond = None,
    prompt_len: o.PromptLen = None,
    output_len: o.OutputLen = None,
    kv_cache: o.KvCache = None,
    micro_batch: o.MicroBatch = None,
    global_batch_tokens: o.GlobalBatch = None,
    checkpointing: o.Checkpointing = None,
    attention: o.Attention = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    zero: o.Zero = None,
    fsdp: o.Fsdp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    offload: o.Offload = None,
    on: o.On = None,
    gpu: o.GpuName = None,
    count: Annotated[Text, Option(metavar="N", help="Number of GPUs per instance.")] = None,
    hours: Annotated[Text, Option(metavar="N", help="Without a model: hours to rent --count of --gpu.")] = None,
    framework: o.Framework = None,
    fused_loss: o.FusedLoss = False,
    compile: o.Compile = False,  # noqa: A002 - the flag's name
    provider: o.Provider = None,
    exclude: o.Exclude = None,
    region: o.Region = None,
    tier: o.Tier = None,
    secure_only: o.SecureOnly = False,
    max_price_age: o.MaxPriceAge = None,
    max_usd: o.MaxUsd = None,
    max_hours: o.MaxHours = None,
    max_gpus: o.MaxGpus = None,
    disk_gb: o.DiskGb = None,
    checkpoint_every_hours: o.CheckpointEveryHours = None,
    top: Annotated[Text, Option(metavar="N", help="Rows to show (default: five that differ).")] = None,
    all_options: Annotated[bool, Option("--all", help="Show every option, refusal and subscription.")] = False,
    sort: Annotated[Text, Option(metavar="NAME", help="usd | hours | usd_per_hour | provider")] = None,
    market: o.Market = None,
    calibration: o.Calibration = None,
    explain: o.Explain = False,
    strict: o.Strict = False,
    json: o.Json = False,
    csv: o.Csv = False,
    markdown: o.Markdown = False,
    format: o.Format = None,  # noqa: A002 - the option's name
) -> None:
    """Read the options and print the quote."""
    from costguard.services.quote import quote_commands

    if template == o.LIST:
        write_answer(quote_commands.answer_templates(), ctx)
        return
    answer = quote_commands.answer_quote(
        job_file=job,
        flags=o.build_job_table(ctx.params),
        on=on,
        count=None if count is None else o.parse_number(count, "count"),
        hours=None if hours is None else o.parse_number(hours, "hours"),
        top=None if top is None else o.parse_number(top, "top"),
        sort=sort or "usd",
        market=market,
        explain=explain,
        strict=strict,
        calibration=calibration,
        every=all_options or find_format(ctx).name in ("json", "csv"),
        config=ctx.obj.config,
    )
    write_answer(answer, ctx)
