"""The tools that an agent sees: one `McpTool` each, answered by the service of the command with the same name.

The structured content of an answer is the JSON of the command, with every text made one clean line: a machine's name, a label
or a reason was written by somebody else, and a model that reads it must find data. To add a tool, append it to `TOOLS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from costguard.errors import CostguardError, InputError, NoAnswerError, shorten, to_one_line
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import FIELD_TYPES, Names, Number, build_job_table, parse_number
from costguard.values.checks import find_nearest_names
from costguard.values.money import Money

TEXT_CHARS_MAX, MESSAGE_CHARS_MAX = 300, 2000
"""Of a text in an answer, which may be a name of a machine, and of a line of a message, where names are cut already."""

Arguments = Mapping[str, object]
Schema = Mapping[str, object]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "string"]}
SWITCH: Schema = {"type": "boolean"}
NAMES: Schema = {"type": "array", "items": {"type": "string"}}
PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpContext:
    """What every call has: the settings file (None: the one that applies), and whether the network may be used.

    `renter`: the name by which the server's token marks what it rents; "" where there is none.
    """

    config: str | None = None
    offline: bool = False
    renter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """One tool. `parameters`: the JSON schema of each argument. `answer_schema`: the `schema` of its answer's JSON.

    `reads`: it changes nothing. `destroys`: it may end something. `asks_clouds`: it may make requests to providers.
    """

    name: str
    title: str
    description: str
    answer_schema: str
    parameters: Mapping[str, Schema]
    answer: Callable[[Arguments, McpContext], CommandAnswer]
    required: tuple[str, ...] = ()
    reads: bool = True
    destroys: bool = False
    asks_clouds: bool = False
    is_offered: Callable[[McpContext], bool] = field(default=lambda _: True)

    def build_input_schema(self) -> dict[str, object]:
        """Return the JSON schema of the arguments."""
        schema: dict[str, object] = {"type": "object", "properties": dict(self.parameters), "additionalProperties": False}
        return {**schema, "required": list(self.required)} if self.required else schema

    def build_output_schema(self) -> dict[str, object]:
        """Return the JSON schema of the answer: an object whose `schema` names the contract of the command's --json."""
        return {"type": "object", "properties": {"schema": {"const": self.answer_schema}}, "required": ["schema"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """The reply to a call. `data`: the command's JSON, None after an error. `more`: what the command says beside its answer."""

    data: dict[str, object] | None
    more: dict[str, object]
    is_error: bool = False

    def list_texts(self) -> list[str]:
        """Return the reply as texts for clients that read no structured content: JSON in ASCII, so that names stay quoted."""
        return [json.dumps(part, allow_nan=False, separators=(",", ":")) for part in (self.data, self.more) if part]


def call_tool(name: str, arguments: Arguments, context: McpContext) -> ToolReply:
    """Call the tool `name`. An expected failure is a reply with its message and exit code."""
    try:
        tool = find_tool(name)
        answer = tool.answer(read_arguments(tool, arguments), context)
    except CostguardError as error:
        return ToolReply(data=None, more={"error": _clean_message(error), "exit": error.exit_code}, is_error=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, the agent gets a line and the server goes on
        what = _clean_text(f"unexpected {type(error).__name__}: {error}; this is a bug in costguard", MESSAGE_CHARS_MAX)
        return ToolReply(data=None, more={"error": [what], "exit": CostguardError.exit_code}, is_error=True)
    more: dict[str, object] = {}
    if answer.warnings:
        more["warnings"] = [_clean_text(one, MESSAGE_CHARS_MAX) for one in answer.warnings]
    if answer.refusal is not None:
        more |= {"refused": _clean_message(answer.refusal), "exit": answer.refusal.exit_code}
    data = clean_value(answer.document.data)
    return ToolReply(data=data if isinstance(data, dict) else None, more=more)


def find_tool(name: str) -> McpTool:
    """Return the tool `name`; raises InputError if there is none."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    hint = f"one of: {', '.join(tool.name for tool in TOOLS)}"
    raise InputError("is not a tool of this server", field=shorten(to_one_line(name)), hint=hint)


def clean_value(value: object) -> object:
    """Return JSON data in which every text is one printable line of at most TEXT_CHARS_MAX characters."""
    if isinstance(value, str):
        return _clean_text(value, TEXT_CHARS_MAX)
    if isinstance(value, Mapping):
        return {str(clean_value(str(key))): clean_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(one) for one in value]
    return value


def _clean_text(text: str, longest: int) -> str:
    return shorten(to_one_line(text), longest)


def _clean_message(error: CostguardError) -> list[str]:
    """Return the lines of a message; a line break within a name was replaced where the message was made."""
    return [_clean_text(line, MESSAGE_CHARS_MAX) for line in str(error).splitlines() if line]


def read_arguments(tool: McpTool, arguments: Arguments) -> Arguments:
    """Return `arguments`, checked against the tool's parameters. Raises InputError that names the argument."""
    for name, value in arguments.items():
        if name not in tool.parameters:
            near = find_nearest_names(name, tool.parameters)
            hint = f"did you mean {near[0]}?" if near else f"it takes: {', '.join(tool.parameters)}"
            raise InputError(f"is not an argument of {tool.name}", field=shorten(to_one_line(name)), hint=hint)
        kind = tool.parameters[name]["type"]
        kinds = [kind] if isinstance(kind, str) else list(kind) if isinstance(kind, list) else []
        fits = any(isinstance(value, PYTHON_TYPES[one]) and (one == "boolean" or not isinstance(value, bool)) for one in kinds)
        if not fits or (isinstance(value, list) and not all(isinstance(one, str) for one in value)) or value == "":
            raise InputError(f"must be: {' or '.join(kinds)}", field=name, hint="leave it out if it has no value")
    missing = [name for name in tool.required if name not in arguments]
    if missing:
        raise InputError(f"is missing: {tool.name} needs it", field=missing[0], hint="state it")
    return arguments


# Each service is imported when its tool is called, as commands are: listing the tools costs no market and no ledger.


def _answer_quote(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.quote.quote_commands import answer_quote

    return answer_quote(
        flags=build_job_table(arguments),
        job_file=_get_text(arguments, "job_file"),
        on=_get_text(arguments, "on"),
        count=_get_number(arguments, "count"),
        hours=_get_number(arguments, "hours"),
        top=_get_number(arguments, "top"),
        sort=_get_text(arguments, "sort") or "usd",
        config=context.config,
    )


def _answer_admit(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.runs.admission import AdmitRequest
    from costguard.services.run_jobs.admit import answer_admit

    money = _get_text(arguments, "usd")
    return answer_admit(
        AdmitRequest(
            flags=build_job_table({name: value for name, value in arguments.items() if name not in HOLD}),
            job_file=_get_text(arguments, "job_file"),
            on=_get_text(arguments, "on"),
            count=_get_number(arguments, "count"),
            hours=_get_number(arguments, "hours"),
            money=None if money is None else Money.parse(money, field="usd"),
            owner=_get_text(arguments, "owner") or "",
            account=_get_text(arguments, "account") or "",
            name=_get_text(arguments, "name") or "",
            id=_get_text(arguments, "id") or "",
            config=context.config,
        )
    )


def _answer_size(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.quote.quote_commands import answer_size

    job_file, on = _get_text(arguments, "job_file"), _get_text(arguments, "on")
    return answer_size(flags=build_job_table(arguments), job_file=job_file, on=on, config=context.config)


def _answer_offers(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.quote.quote_commands import answer_offers

    top = _get_number(arguments, "top")
    return answer_offers(
        flags=build_job_table(arguments),
        count=_get_number(arguments, "count"),
        sort=_get_text(arguments, "sort") or "usd_per_hour",
        top=20 if top is None else top,
        offline=True,
        config=context.config,
    )


def _answer_status(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.report.status_answer import answer_status

    offline = context.offline or not arguments.get("poll", True)
    return answer_status(zone=_get_text(arguments, "zone"), offline=offline, config=context.config)


def _answer_report(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.report.ledger_answers import answer_report

    period = {name: _get_text(arguments, name) for name in ("month", "day", "week", "from", "to", "last")}
    by, zone, only = _get_text(arguments, "by"), _get_text(arguments, "zone"), cast("Sequence[str]", arguments.get("only", ()))
    return answer_report(period=period, by=by, only=only, zone=zone, config=context.config)


def _answer_keep(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.serving.mcp_acts import keep_for_agent

    return keep_for_agent(
        str(arguments["machine"]), length=str(arguments["for"]), why=str(arguments["why"]), config=context.config
    )


def _answer_until(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.serving.mcp_acts import set_end_date_for_agent

    machine, why = str(arguments["machine"]), _get_text(arguments, "why")
    return set_end_date_for_agent(machine, str(arguments["time"]), why=why, renter=context.renter, config=context.config)


def _answer_stop(arguments: Arguments, context: McpContext) -> CommandAnswer:
    from costguard.services.serving.mcp_acts import stop_for_agent

    if context.offline:
        raise NoAnswerError("asks a provider, and the server runs with --offline", field="stop")
    return stop_for_agent(str(arguments["machine"]), why=str(arguments["why"]), config=context.config)


def _is_stop_armed(context: McpContext) -> bool:
    from costguard.services.serving.mcp_acts import is_mcp_armed
    from costguard.settings import read_settings

    try:
        return is_mcp_armed(read_settings(context.config))
    except CostguardError:  # the call says what is wrong with the settings or the ledger
        return False


def _get_text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    return None if value is None else str(value)


def _get_number(arguments: Arguments, name: str) -> float | None:
    value = arguments.get(name)
    if isinstance(value, str):
        return parse_number(value, name)
    return value if isinstance(value, int | float) else None


def _describe(kind: Schema, description: str) -> Schema:
    return {**kind, "description": description}


def _describe_fields(names: str) -> Mapping[str, Schema]:
    """Return the schema of each named field of a job, in words of JobFields."""
    kinds: Mapping[object, Schema] = {str: TEXT, bool: SWITCH, Number: NUMBER, Names: NAMES}
    return {name: _describe(kinds[kind], flag.help) for name in names.split() for kind, flag in (FIELD_TYPES[name],)}


LIMITS: Mapping[str, Schema] = _describe_fields("gpu provider exclude region tier secure_only max_price_age")
JOB: Mapping[str, Schema] = {
    "job_file": _describe(TEXT, "Path of a job file on the server's machine; other arguments override it."),
    **_describe_fields(
        "template model method preference precision quant optimizer seq_len micro_batch checkpointing attention"
    ),
    **_describe_fields("framework lora_rank zero fsdp tp pp"),
    "on": _describe(TEXT, "Hardware to use, GPU:COUNT[xNODES]: H100:8, H100:8x4."),
}
WORK: Mapping[str, Schema] = {
    **_describe_fields("tokens images audio_seconds frames global_batch_tokens requests_per_second prompt_len output_len"),
    "count": _describe(NUMBER, "GPUs per instance; with hours and one gpu: a rental without a job."),
    "hours": _describe(NUMBER, "Quote a rental of this length instead of a job."),
    **_describe_fields("max_usd max_hours max_gpus"),
    "sort": _describe(TEXT, "usd | hours | usd_per_hour | provider"),
    "top": _describe(NUMBER, "Number of options (default: a few different ones)."),
}
HOLD: Mapping[str, Schema] = {
    "usd": _describe(NUMBER, "Amount to hold in dollars, instead of a quote."),
    "owner": _describe(TEXT, "Owner of the run."),
    "account": _describe(TEXT, "Account that the run uses."),
    "name": _describe(TEXT, "Name of the run, for people."),
    "id": _describe(TEXT, "Id of the hold; repeated calls with the same id hold only once."),
}
MACHINE = _describe(
    {"type": "string", "pattern": "^[^/]+/[^/]+/[^/]+/.+$"}, "The full key provider/account/region/id, as in the tool status."
)
ZONE = _describe(TEXT, "Time zone for month boundaries: Europe/Berlin.")
PERIOD: Mapping[str, Schema] = {
    "month": _describe(TEXT, "YYYY-MM (default: the current month)."),
    "day": _describe(TEXT, "YYYY-MM-DD"),
    "week": _describe(TEXT, "YYYY-Www, Monday to Sunday."),
    "from": _describe(TEXT, "Start of the period: a day or a time."),
    "to": _describe(TEXT, "End of the period, exclusive."),
    "last": _describe(TEXT, "The time until now: 7d, 24h."),
    "by": _describe(TEXT, "Group by: provider,account,owner,gpu,region,resource,label:KEY ..."),
    "only": _describe(NAMES, "Only this spending, KEY=VALUE each: owner=vision, team=cv, provider=aws."),
}

TOOLS = (
    McpTool(
        name="quote",
        title="Quote a GPU job",
        description="Cost, hours and fit of a training or inference job (or a plain rental) at each provider, before it runs.",
        answer_schema="costguard.quote/1",
        parameters={**JOB, **WORK, **LIMITS},
        answer=_answer_quote,
    ),
    McpTool(
        name="size",
        title="Size a GPU job",
        description="GPU memory that a job needs, by phase; the GPUs that fit; changes that reduce the memory.",
        answer_schema="costguard.size/1",
        parameters=JOB,
        answer=_answer_size,
    ),
    McpTool(
        name="offers",
        title="List GPU offers",
        description="Rental offers in the market data, with the age of each price. Does not query providers.",
        answer_schema="costguard.offers/1",
        parameters={
            **LIMITS,
            "count": _describe(NUMBER, "GPUs per instance."),
            "sort": _describe(TEXT, "usd_per_hour | usd_per_gpu_hour | age | provider"),
            "top": _describe(NUMBER, "Number of rows (20; 0: all)."),
        },
        answer=_answer_offers,
    ),
    McpTool(
        name="status",
        title="Show running machines and their cost",
        description="Running machines on the configured clouds, their cost per hour and this month, and their activity.",
        answer_schema="costguard.status/1",
        parameters={"zone": ZONE, "poll": _describe(SWITCH, "false: read the ledger without polling clouds (true).")},
        answer=_answer_status,
        asks_clouds=True,
    ),
    McpTool(
        name="report",
        title="Report a period's costs",
        description="The recorded costs of a period by group, with bounds, and what the figures do not include.",
        answer_schema="costguard.report/1",
        parameters={**PERIOD, "zone": ZONE},
        answer=_answer_report,
    ),
    McpTool(
        name="admit",
        title="Reserve a run's cost before launch",
        description="Reserve a run's cost in its budgets; a refusal names the budget and alternatives that fit.",
        answer_schema="costguard.admit/1",
        parameters={**JOB, **WORK, **LIMITS, **HOLD},
        answer=_answer_admit,
        reads=False,
    ),
    McpTool(
        name="keep",
        title="Keep a machine running",
        description="Record a lease: policies do not stop the machine until it ends. Ask the person first; it costs money.",
        answer_schema="costguard.wish/1",
        parameters={
            "machine": MACHINE,
            "for": _describe(TEXT, "45m, 4h, 2h30m, 1d"),
            "why": _describe({"type": "string", "minLength": 1}, "The person's reason, shown to other users."),
        },
        required=("machine", "for", "why"),
        answer=_answer_keep,
        reads=False,
    ),
    McpTool(
        name="until",
        title="Set when a rented machine ends",
        description="Record the date that ends a machine which this server's token rented: its label costguard:rented-by.",
        answer_schema="costguard.wish/1",
        parameters={
            "machine": MACHINE,
            "time": _describe(TEXT, "Duration from now, or a time with a zone: 4h, 2026-12-01T18:00Z."),
            "why": _describe(TEXT, "The reason, shown to other users."),
        },
        required=("machine", "time"),
        answer=_answer_until,
        reads=False,
        is_offered=lambda context: bool(context.renter),
    ),
    McpTool(
        name="stop",
        title="Stop a machine",
        description="Stop one machine and verify it. Data outside its disks is lost. Ask the person first; name the machine.",
        answer_schema="costguard.act/1",
        parameters={
            "machine": MACHINE,
            "why": _describe({"type": "string", "minLength": 1}, "The person's reason, shown to other users."),
        },
        required=("machine", "why"),
        answer=_answer_stop,
        reads=False,
        destroys=True,
        asks_clouds=True,
        is_offered=_is_stop_armed,
    ),
)
"""In the order in which an agent sees them. `stop` is offered while it is armed, and looks again when it is called."""
