"""Notices about hooks: what went wrong with one, what it said, and when the stop after it comes.

Example: `checkpoint` took longer than its 5 min at 19:05: told at once; the stop, due at 19:05, comes at 19:10 or later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from costguard.guard.alerts.alert import WARNING, Alert
from costguard.guard.alerts.wording import AlertSubject, format_keep_command
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.hook import BEGUN, SUCCEEDED, HookRun, describe_hook_run
from costguard.guard.owning import find_owner
from costguard.guard.policy import DESTRUCTIVE
from costguard.values.text_format import format_local_time

HOOK_TOLD_FOR = timedelta(hours=1)
"""How long it is told that a hook went wrong."""
HOOK_OUTPUT_SHOWN = 400
"""Characters of its output in a notice: its end. The ledger holds more."""


def list_hook_alerts(survey: GuardEvaluation, sight: GuardSnapshot, rules: GuardConfig) -> Iterator[Alert]:
    """A notice for each run that went wrong within the last hour. What it said is hostile, and encoded where shown."""
    live = {one.observation.key: one.observation for one in sight.live}
    for run in sight.hooks:
        seen = live.get(run.life.key)
        bad = run.state not in (BEGUN, SUCCEEDED) and run.ended_at is not None
        if not bad or seen is None or run.ended_at is None or sight.now - run.ended_at >= HOOK_TOLD_FOR:
            continue
        matter = AlertSubject(
            topic=f"hook:{run.hook}", key=run.life.key, owner=find_owner(seen, rules.owner_from), name=seen.name
        )
        said = (("it said", run.output[-HOOK_OUTPUT_SHOWN:]),) if run.output.strip() else ()
        yield Alert(
            topic=matter.topic,
            subject=matter.subject,
            owner=matter.owner,
            severity=WARNING,
            what=f"hook {run.hook} of {matter.called} {describe_hook_run(run)}",
            at=sight.now,
            once=True,
            facts=(("since", format_local_time(run.began_at)), *said, ("next", _format_next_act(run, survey))),
            keep=format_keep_command(matter.key.id),
        )


def _format_next_act(run: HookRun, survey: GuardEvaluation) -> str:
    """What comes although it went wrong."""
    acts = [
        one
        for one in survey.proposals
        if one.verdict.policy.name == run.policy and one.verdict.life.key == run.life.key and one.step.do in DESTRUCTIVE
    ]
    first = min(acts, key=lambda one: one.due_at, default=None)
    if first is None:
        return "nothing comes after it"
    held = [words for reason, words in first.held_by if reason not in {"grace", "hook", "rate"}]
    return f"no {first.step.do} while {held[0]}" if held else f"{first.step.do} at {format_local_time(first.due_at)} or later"
