"""Timelines of real labs against the guard: `python -m bench.guard_timelines [FILE ...]`.

Each `*.story` of `../shared/data/timelines` states in its first comments what was true: a line a machine, "needed all along:
not stopped, or asked about first", or "nobody needs it from T; told by T; stopped by T". The story is played with the real
guard, and each machine is right or wrong. Files whose signals a story's words cannot say are counted, not played.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory

from costguard.guard.alerts.alert import RESOLVED
from tests.stories import StoryOutcome, play_story, read_story
from tests.stories.guard_player import GuardPlayer

FOLDER = Path(__file__).resolve().parents[1].parent / "shared/data/timelines"
NEEDED = "needed all along"
UNPLAYABLE = "a story's words cannot say it"
TRUTH = re.compile(r"^# ([\w-]+): (needed all along.*|nobody needs it.*)$")
TIME = r"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What was true of one machine. `needless_from`: since when nobody needs it; None: it is needed all along."""

    machine: str
    needless_from: datetime | None
    told_by: datetime | None
    stopped_by: datetime | None
    arguable: bool


def main(arguments: Sequence[str]) -> int:
    """Play the files, print a line each, and the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard_timelines", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="timelines; all of ../shared where none is named")
    parser.add_argument("--report", action="store_true", help="print what happened in each timeline that is wrong")
    options = parser.parse_args(arguments)
    files = options.files or sorted(FOLDER.glob("*.story"))
    right = stopped = played = 0
    for path in files:
        text = path.read_text()
        if UNPLAYABLE in text:
            continue
        with TemporaryDirectory() as folder:
            outcome = play_story(read_story(path), GuardPlayer, Path(folder))
        faults = [fault for truth in read_truths(text, outcome) for fault in judge_machine(truth, outcome)]
        played += 1
        right += not faults
        stopped += any("stopped wrongly" in fault for fault in faults)
        sys.stdout.write(f"{path.stem:5} {'right' if not faults else '; '.join(faults)}\n")
        if faults and options.report:
            sys.stdout.write(outcome.report() + "\n")
    sys.stdout.write(f"{right} of {played} right, {stopped} with wrong stops; {len(files) - played} not playable as stories\n")
    return 0


def read_truths(text: str, outcome: StoryOutcome) -> Iterator[Truth]:
    """Yield what the comments of a timeline say, a value a machine."""
    story = outcome.stage.story
    for line in text.splitlines():
        if matched := TRUTH.match(line):
            name, says = matched.groups()
            times = {word: _find_time(word, says, story.start, story.zone) for word in ("from", "told by", "stopped by")}
            yield Truth(
                machine=name,
                needless_from=None if says.startswith(NEEDED) else times["from"],
                told_by=times["told by"],
                stopped_by=times["stopped by"],
                arguable="arguable" in says,
            )


def _find_time(word: str, says: str, start: datetime, zone: tzinfo) -> datetime | None:
    """Find the time after `word`: a full one in the story's zone, or the first such hour after its start."""
    matched = re.search(f"{word} ({TIME})", says)
    if matched is None:
        return None
    if "T" in matched[1]:
        return datetime.fromisoformat(matched[1]).replace(tzinfo=zone)
    hour, minute = map(int, matched[1].split(":"))
    at = start.astimezone(zone).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at >= start else at + timedelta(days=1)


def judge_machine(truth: Truth, outcome: StoryOutcome) -> Iterator[str]:
    """Yield a sentence for each thing that the guard did wrong, or too late."""
    name = truth.machine
    acts = [act.at for act in outcome.acts if act.name == name and act.act in ("stop", "terminate")]
    subject = outcome.stage.key(name).id
    told = [
        one.at
        for one in outcome.told
        for notice in one.message.notices
        if one.message.why_now != RESOLVED and (subject in notice.subject or any(subject in fact for fact in notice.facts))
    ]
    wrong = [at for at in acts if truth.needless_from is None or at < truth.needless_from]
    if wrong and not truth.arguable:
        yield f"{name} stopped wrongly at {wrong[0]:%d %H:%M}"
    since = truth.needless_from or outcome.stage.story.start
    if truth.told_by and not any(since <= at <= truth.told_by for at in told):
        late = min((at for at in told if at > truth.told_by), default=None)
        yield f"{name} told {f'at {late:%d %H:%M}' if late else 'never'}, due by {truth.told_by:%d %H:%M}"
    if truth.stopped_by and not any(since <= at <= truth.stopped_by for at in acts):
        late = min((at for at in acts if at > truth.stopped_by), default=None)
        yield f"{name} stopped {f'at {late:%d %H:%M}' if late else 'never'}, due by {truth.stopped_by:%d %H:%M}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
