"""Alerts of until labels that cannot count: without a zone, unreadable, contradictory, too far ahead or too old.

The machine counts as one without a date, so a policy for passed dates does not end it, and one for missing dates may. Its owner
is notified of what the label says and what to write. The alert is resolved once the label can be read, or is removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from costguard.guard.alerts.alert import WARNING, Alert, build_alert, format_alert_rate
from costguard.guard.alerts.fleet import build_alert_subject
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.policy import NOTIFY, UNTIL_MISSING, reaches_level
from costguard.guard.until import find_until_override, read_end_date
from costguard.values.resource import RUNNING, ResourceKey
from costguard.values.text_format import format_command


def list_until_alerts(survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield one alert for each running machine whose date cannot count for a policy that looks at it."""
    now, keys = snapshot.now, set[ResourceKey]()
    for case in survey.cases:
        rule, live, key = case.verdict.policy.until, case.live, case.verdict.life.key
        is_due = rule is not None and key not in keys and reaches_level(case.level, NOTIFY)
        if rule is None or not is_due or live.observation.state != RUNNING or live.absent_at is not None:
            continue
        override = find_until_override(case.verdict.life, snapshot.wishes, now)
        end = read_end_date(live.observation, override, now, rule.ahead_max, rules.zone)
        if not end.fault:
            continue
        keys.add(key)
        subject = build_alert_subject(live, case.owner, now, rules.zone, topic="until")
        ends = rule.label == UNTIL_MISSING or any(
            one.verdict.life.key == key and one.verdict.policy.until and one.verdict.policy.until.label == UNTIL_MISSING
            for one in survey.cases
        )
        facts = (
            ("per hour", format_alert_rate(subject.rate)),
            ("why", end.why),
            ("to set it", format_command("until set", key, "4h")),
            ("next", "a policy for missing dates may end it" if ends else "no date ends it"),
        )
        what = f"the date that is to end {subject.called} cannot be used"
        yield build_alert(subject, WARNING, what, now, facts, keep=False, condition=f"until date of {subject.short_name}")
