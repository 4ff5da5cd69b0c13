"""What an agent is told of its machine that a dead-man switch must know: False only where anybody may end it."""

from __future__ import annotations

import pytest
from costguard_agent.deadman_policy import PROTECTED, DeadmanFacts, DeadmanSettings, IdleEvidence, decide_shutdown

from costguard.guard.context import GuardSnapshot
from costguard.guard.overrides import FREEZE, PROTECT, Override
from costguard.metering.observation import Handling
from costguard.metering.spending import LiveResource
from costguard.services.serving.agent_desk import _is_untouchable
from tests.blank import blank_sight
from tests.guard.cases import friday, machine, wish

NOW = friday(18)
LABEL = ("label:costguard=never",)
PLAIN = machine()


def sight(*wishes: Override) -> GuardSnapshot:
    return blank_sight(NOW, (PLAIN,), wishes=wishes)


@pytest.mark.parametrize(
    ("live", "wishes", "untouchable"),
    [
        (PLAIN, (), False),
        (PLAIN, (wish(PROTECT, PLAIN, NOW),), True),
        (PLAIN, (wish(FREEZE, PLAIN, NOW),), True),
        (machine(labels=(("costguard", "never"),)), (), True),
        (machine(labels=(("costguard", "nevr"),)), (), True),
        (machine(handling=Handling(stops=True, terminates=True, controller="auto-scaling group train")), (), True),
        (machine(handling=Handling(stops=True, terminates=True, protected=("stop",))), (), True),
    ],
)
def test_a_machine_is_told_whether_only_a_person_may_end_it(
    live: LiveResource, wishes: tuple[Override, ...], *, untouchable: bool
) -> None:
    assert _is_untouchable(live, NOW, sight(*wishes), LABEL) is untouchable
    idle = DeadmanFacts(
        silent_s=9e4, evidence=IdleEvidence(7200.0, (), (), 7200.0), checked=True, protected=untouchable, job=False
    )
    judged = decide_shutdown(idle, DeadmanSettings("stop", "vast", "1"))
    assert judged.end is not untouchable
    assert not untouchable or judged.reason == PROTECTED
