"""After the job: the machine stopped or terminated from inside, where that is certain and nobody else works here or keeps it.

--then stop        asked for beforehand, and what is lost is said then and again before it is done
exit code 0        of the job, unless --then-always
nobody else        no GPU process that is not the job's, no other costguard run; not to be able to look counts as somebody
nobody keeps it    where the ledger knows the machine (--id): not protected, frozen, leased or in a phase of work
60 s               in which any key, Ctrl-C or a signal keeps it; without a terminal only where --yes-then was given
once               the request is sent once (costguard_agent.ending), and what came of it is said
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from costguard.app.running_books import read_record, runs_folder
from costguard.app.wishing import guard_book, present
from costguard.child.attending import Heard
from costguard.child.process import alive
from costguard.child.terminal import can_ask, countdown, say
from costguard.core.checks import one_of
from costguard.core.documents.amounts import instant_text
from costguard.core.documents.run import Came
from costguard.core.guard.incarnation import incarnation_of
from costguard.core.guard.owning import lease_of, phase_of, untouchable
from costguard.core.spending import Live
from costguard.data import Facts
from costguard.errors import CostguardError, InputError
from costguard.ledger.reading import Books
from costguard.settings import Settings, ledger_url

NOTHING, STOP, TERMINATE = "nothing", "stop", "terminate"
ACTS = (NOTHING, STOP, TERMINATE)
COUNTDOWN_S = 60
DEVICES = Path("/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """What is to be done when the job has ended. `always`: whatever its exit code. `yes`: without a terminal, too."""

    act: str = NOTHING
    always: bool = False
    yes: bool = False


NOTHING_AFTER = After()


def after_stated(after: After) -> After:
    """`after` where it may be; InputError where it cannot be done. What it would lose is told now: later nobody may look."""
    one_of(after.act, ACTS, "--then")
    if after.act == NOTHING:
        return after
    if not after.yes and not can_ask():
        hint = f"say yes beforehand: --then {after.act} --yes-then"
        raise InputError("there is no terminal on which it could be kept", field="--then", hint=hint)
    from costguard_agent.ending import chosen, where

    way, why = chosen(where(), after.act)
    if way is None:
        say(f"--then {after.act} will not be done: {why}")
    else:
        say(f"--then {after.act}, by {way.how}: loses {way.loses}; keeps {way.keeps}; bills after it: {way.bills_after}")
    return after


def afterwards(
    after: After, status: int, heard: Heard, came: Came, spared: Callable[[], str], *, seconds: int = COUNTDOWN_S
) -> dict[str, object]:
    """Do what was to be done; what it was and what came of it, {} where nothing was to be.

    `spared`: who wants the machine to stay, as of when it is asked; "" for nobody.
    """
    if after.act == NOTHING:
        return {}
    why = _why_not(after, status, came) or spared()
    if why:
        say(f"--then {after.act} is not done: {why}")
        return {"act": after.act, "done": False, "why": why}
    from costguard_agent.ending import chosen, end, where

    way, why = chosen(where(), after.act)
    if way is None:
        say(f"--then {after.act} is not done: {why}")
        return {"act": after.act, "done": False, "why": why}
    say(f"{after.act} by {way.how}. Lost: {way.loses}. Kept: {way.keeps}. Bills after it: {way.bills_after}")
    if not countdown(seconds, f"{after.act} of this machine", heard):
        say("it is kept")
        return {"act": after.act, "done": False, "why": "somebody kept it"}
    why = next(others(came.attempt.id), "") or spared()  # a minute has passed
    if why:
        say(f"--then {after.act} is not done: {why}")
        return {"act": after.act, "done": False, "why": why}
    outcome = end(way)
    say(f"{after.act} was sent: {outcome.result}; {outcome.text}")
    return {"act": after.act, "done": outcome.result == "accepted", "result": outcome.result, "why": outcome.text}


def _why_not(after: After, status: int, came: Came) -> str:
    if status != 0 and not after.always:
        return f"the job ended with status {status} (--then-always would)"
    if not after.yes and not can_ask():
        return "the terminal has gone, on which it could be kept"
    return next(others(came.attempt.id), "")


def spared_by(settings: Settings, live: Live | None) -> str:
    """Who wants the machine to stay, as the ledger has it now; "" for nobody, and where the ledger does not know the machine.

    What cannot be read counts as somebody.
    """
    if live is None:
        return ""
    now, key = present(), live.observation.key
    try:
        with Books(ledger_url(settings), rules=Facts().billing_rules()) as books:
            seen = next((one.observation for one in books.live(now) if one.observation.key == key), live.observation)
        with guard_book(settings) as book:
            wishes, before = book.open_wishes(now), book.protections().get(key)
    except CostguardError as error:
        return f"whether anybody protects it cannot be read: {str(error).splitlines()[0]}"
    why = untouchable(seen, wishes, settings.defaults.protect, before.at if before else None, now)
    if why:
        return why
    life = incarnation_of(seen)
    wish = lease_of(life, wishes, now) or phase_of(life, wishes, now)
    return "" if wish is None else f"{wish.who} wants it until {instant_text(wish.until or now)}: {wish.why or wish.subject}"


def others(attempt: str, devices: Path = DEVICES) -> Iterator[str]:
    """Who else works here, in words; also where that cannot be seen."""
    for path in sorted(runs_folder().glob("*.json")):
        with suppress(CostguardError, OSError):
            record = read_record(path)
            if any(alive(one.id) for one in record.unfinished if one.id != attempt):
                yield f"job {record.job} runs here as well"
    if not any(devices.glob("nvidia[0-9]*")):
        return
    from costguard_agent.nvml import Gpus

    gpus = Gpus()
    try:
        pids = gpus.look(0.0, full=False).pids
    finally:
        gpus.close()
    if pids is None:
        yield "whether others use the GPUs cannot be seen (pip install nvidia-ml-py)"
        return
    left = sorted(pids)
    if left:
        yield f"{len(left)} other processes use the GPUs: {' '.join(map(str, left[:8]))}"
