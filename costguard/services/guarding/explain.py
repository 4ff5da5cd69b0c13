"""`costguard explain CODE` and `costguard models`: what the ids in answers mean, and the models that are built in."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, cast

from costguard.data import ShippedFacts
from costguard.errors import NoLedgerError, UnknownNameError, shorten
from costguard.guard.policy import HOLD_REASONS
from costguard.services import CommandAnswer
from costguard.values.checks import find_nearest_names
from costguard.values.text_format import encode_plain, format_local_time, limit_lines
from costguard.views.columns import WORDS, ColumnFit
from costguard.views.document import Document, TableView

MODEL_FITS = {"also called": ColumnFit(rank=1, least=20, how=WORDS)}
SCHEMA, MODELS_SCHEMA = "costguard.explain/1", "costguard.models/1"


class Explanation(NamedTuple):
    """A code: where it appears, what it means, and what to do about it."""

    where: str
    meaning: str
    remedy: str


HOLD_REMEDIES = {
    "protected": "costguard protect ID --lift, or remove the label, if it may be stopped",
    "leased": "wait until the lease ends, or costguard keep ID --lift",
    "frozen": "costguard freeze --lift",
    "not_armed": "costguard policy arm NAME stop, or accept the digest that costguard policy lint shows",
    "grace": "nothing: the owner was notified and has this time to answer",
    "untold": "costguard notify test shows what its route answers; costguard doctor checks the addresses",
    "hook": "look at the hook's output in costguard audit; the stop follows 5 minutes after a failed one",
    "working": "nothing: it is in use; end its jobs, or change the policy's condition",
    "not_confident": "enrol an agent on the machine: costguard agent enrol ID",
    "unknown": "enrol an agent on the machine: costguard agent enrol ID",
    "controller": "scale its controller down: the group or job that would start it again",
    "no_act": "its provider has no stop: costguard terminate ID deletes it permanently",
    "irreversible": "costguard approve ID stop, or allow_irreversible = true in the policy",
    "saves_nothing": "nothing: use it, or costguard approve ID stop if it shall stop all the same",
    "first_seen": "wait: it is new here ([rails] first_seen)",
    "workers_first": "nothing: its workers are stopped first, then this machine",
    "not_ours": 'give it an owner label, or name its account in [watch] claims, such as claims = ["runpod"]',
    "rate": "wait, or costguard approve ID stop; the limits are in [rails] acts",
    "breaker": "costguard breaker show, and costguard breaker close if the machines are really idle",
    "quarantine": "wait for a complete listing; costguard status shows which account is incomplete",
    "clock": "set this machine's clock (NTP)",
    "gap": "nothing: the next run acts",
    "ledger": "free disk space, or repair the ledger: costguard db check",
    "older_ledger": "use the ledger that was used last: [ledger] url",
    "in_doubt": "wait: a request was sent and is checked until its effect is verified",
    "refused": "wait: the request is sent again; costguard audit and the provider's console show why it was refused",
    "stale": "costguard doctor shows why its account cannot be queried",
    "not_acting": "nothing: one watchdog acts on a ledger, the others wait",
    "not_accepted": "read costguard plan, then costguard plan --accept HASH",
    "asked": "costguard approve ID ACT, if you agree",
    "phase": "wait until the phase ends",
    "provider_protection": "lift it in the provider's console: costguard does not",
    "touched": "a schedule starts only machines that it stopped itself; costguard start ID starts it",
    "not_own": "costguard start ID: a schedule starts only machines that it certainly stopped itself",
    "off": "wait for the end of its off period, or costguard start ID",
    "edited": "costguard start ID; the edited policy applies from the next stop",
    "missed": "costguard start ID",
    "budget": "raise the cap, or costguard start ID if you agree to what it costs",
    "price": "costguard start ID shows the current price and asks",
    "retry": "wait",
    "tries": "costguard start ID, or costguard offers for another one",
}
"""What to do about each of HOLD_REASONS."""
OTHER_CODES = {
    "within_budget": Explanation("quote, run", "the money fits into every budget that matches", "nothing"),
    "budget_cap": Explanation(
        "run", "spent, held and new money together exceed the cap", "raise the cap, or choose a cheaper offer"
    ),
    "within_rate_cap": Explanation(
        "run", "what runs, what is held and the run together are within every cap an hour", "nothing"
    ),
    "rate_cap": Explanation(
        "run", "with the run, more would run at once than a cap an hour allows", "wait for another run to end, or raise the cap"
    ),
    "rate_unknown": Explanation("run", "a cap an hour cannot be compared with a cost without hours", "give --hours"),
    "no_budget": Explanation("run", "no budget matches, so the cost is not limited", "add a [[budget]]"),
    "idle": Explanation("status, plan", "all its measured signals show no activity", "costguard plan shows the next steps"),
    "active": Explanation("status, plan", "at least one measured signal shows work", "nothing"),
    "hung": Explanation(
        "status, plan", "its GPUs are busy at low power, and the job makes no progress", "check the job: it may be blocked"
    ),
    "warming": Explanation("status, plan", "it is being set up", "nothing"),
    "unknown_price": Explanation(
        "status, report", "no price is known: its cost has only low and high bounds", "costguard prices refresh"
    ),
    "exit 1": Explanation("exit code", "something failed", "read the error; --debug shows the traceback"),
    "exit 2": Explanation("exit code", "the input cannot be used", "follow the hint of the error"),
    "exit 3": Explanation("exit code", "the answer is no: nothing fits, or a limit is exceeded", "read why"),
    "exit 4": Explanation("exit code", "the answer is incomplete (--strict), or not verified yet", "try again later"),
    "exit 130": Explanation("exit code", "it was interrupted", "nothing"),
}


def list_explanations() -> dict[str, Explanation]:
    """Return every code with its explanation."""
    holds = {code: Explanation("plan, watch, audit", meaning, HOLD_REMEDIES[code]) for code, meaning in HOLD_REASONS.items()}
    return {**holds, **{code: one for code, one in OTHER_CODES.items() if code not in holds}}


def answer_explain(code: str | None, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard explain`: one code, or all of them; for `untold` with the messages that are not delivered."""
    explanations = list_explanations()
    if code is not None and code not in explanations:
        near = find_nearest_names(code, tuple(explanations))
        raise UnknownNameError("code", code, field="CODE", nearest=near, hint="costguard explain lists all")
    chosen = explanations if code is None else {code: explanations[code]}
    records = tuple({"code": name, **one._asdict()} for name, one in chosen.items())
    data: dict[str, object] = {"schema": SCHEMA, "codes": list(records)}
    if code is not None:
        one = chosen[code]
        lead = (f"{code} ({one.where}): {one.meaning}.", f"next: {one.remedy}")
        notes: tuple[str, ...] = ()
        if code == "untold":
            notes = data["undelivered"] = _list_undelivered(config)
        return CommandAnswer(document=Document(data=data, records=records, lead=lead, notes=notes))
    rows = tuple((name, one.meaning, one.remedy) for name, one in chosen.items())
    table = TableView(title="", columns=("code", "what", "instead"), rows=rows)
    return CommandAnswer(document=Document(data=data, records=records, tables=(table,)))


def _list_undelivered(config: str | None) -> tuple[str, ...]:
    """Return a line for each message of the last day that failed: its route, what came back, and when it is tried again."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.guard.outbox import load_failed
    from costguard.services.guarding.ask_links import format_channel_name
    from costguard.services.guarding.overrides import get_now
    from costguard.settings import read_settings, resolve_ledger_url

    settings = read_settings(config)
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            failed = load_failed(ask, get_now() - timedelta(days=1))
    except NoLedgerError:
        return ()
    zone = settings.defaults.timezone
    return limit_lines(
        (
            f"not delivered to route {encode_plain(message.route or '?')} ({format_channel_name(message.channel)}): "
            f"{encode_plain(message.title)}: {encode_plain(why)}; "
            + (f"tried again at {format_local_time(again, zone)}" if again else "given up")
            for message, why, again in failed
        ),
        "messages",
    )


def answer_models(text: str | None) -> CommandAnswer:
    """Answer `costguard models`: the built-in models, or those with `text` in their name or another spelling of it."""
    facts, records = ShippedFacts(), []
    for name, aliases in sorted(facts.list_models().items()):
        if text is None or any(text.lower() in one.lower() for one in (name, *aliases)):
            one = facts.get_architecture(name)
            layers = sum(block.layers for block in one.blocks)
            record = {
                "model": name,
                "parameters": one.parameters,
                "layers": layers,
                "released_precision": one.released_precision,
            }
            records.append({**record, "counted_in": one.sample_unit or "tokens", "context": one.context, "also": list(aliases)})
    rows = tuple(
        (
            str(r["model"]),
            f"{float(str(r['parameters'])) / 1e9:.2f}",
            str(r["layers"] or "-"),
            str(r["released_precision"] or "-"),
            str(r["counted_in"]).replace("_", " "),
            ", ".join(cast("list[str]", r["also"])),
        )
        for r in records
    )
    table = TableView(
        title="",
        columns=("model", "B parameters>", "layers>", "released in", "counted in", "also called"),
        rows=rows,
        fits=MODEL_FITS,
    )
    lead = () if records else (f"No built-in model has '{shorten(text or '')}' in its name.",)
    notes = ("Any other model: --model FILE, its config.json.",)
    data = {"schema": MODELS_SCHEMA, "models": records}
    return CommandAnswer(document=Document(data=data, records=tuple(records), lead=lead, tables=(table,), notes=notes))
