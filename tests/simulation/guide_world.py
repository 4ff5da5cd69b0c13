"""The policy of docs/START.md, armed, on the five fakes: when is the owner of a machine that idles told, asked, and served?

    python -m tests.simulation guide

Each cloud has one machine, which works for half an hour and then idles. It is measured by what its provider tells by itself,
or by costguard's agent as well.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from costguard.guard.policy import STOP, Policy
from costguard.guard.signals import CPU, IO
from costguard.settings.policies import read_policies
from costguard.testing.machine import FAMILY_OF, SampleRule, make_busy_rule, make_quiet_rule
from costguard.values.resource import RUNNING
from costguard.values.sample import CPU_UTIL, NETWORK, Sample
from tests.simulation.plans import DRILL, Box, Does, Plan
from tests.simulation.reading import Record, instant
from tests.simulation.wired_plans import CLOUDS
from tests.simulation.wired_world import WiredWorld

WORKS_MIN, WATCHED_MIN = 30, 150
"""Minutes of work, and minutes of the world in all."""
OWN_MEASURES: Mapping[str, frozenset[str]] = {
    "aws": frozenset((CPU, IO)),
    "gcp": frozenset((CPU, IO)),
    "lambda": frozenset(),
}
"""The families that a provider tells by itself, where that is not all that its fake can show; as in `providers/*.md`."""
RAILS = {"acts_per_10m": 3, "fleet_share_10m": 1.0, "fleet_share_day": 0.5}
"""The limits of who states none."""
GUIDE = Path(__file__).parents[2] / "docs/START.md"


class Served(NamedTuple):
    """Minutes from the end of the work until its owner was told, was asked, and the machine was stopped. None: never."""

    told: float | None
    asked: float | None
    stopped: float | None

    @property
    def acted(self) -> float | None:
        """Minutes until it was stopped or asked about, whichever came first."""
        return min((one for one in (self.asked, self.stopped) if one is not None), default=None)


def read_guide_policies() -> tuple[Policy, ...]:
    """The policies of docs/START.md, armed to stop."""
    block = next(text for text in GUIDE.read_text(encoding="utf-8").split("```toml\n")[1:] if "[[policy]]" in text)
    stated = tomllib.loads(block.split("```")[0])["policy"]
    policies = read_policies(stated, "docs/START.md", zone=UTC, poll=timedelta(minutes=1), hooks=())
    return tuple(replace(policy, arm=STOP) for policy in policies)


class GuideWorld(WiredWorld):
    """See the module."""

    agent: bool = False

    def __init__(self, plan: Plan, folder: Path, *, agent: bool = False) -> None:
        self.agent = agent
        super().__init__(plan, folder)

    def armed_policies(self) -> tuple[Policy, ...]:
        return read_guide_policies()

    def put(self, box: Box) -> None:
        super().put(box)
        cloud = self.clouds[box.cloud]
        machine = cloud.machines[box.name]
        machine.rules = [(at, _keep_families(rule, OWN_MEASURES.get(box.cloud))) for at, rule in machine.rules]
        if box.cloud == "aws":
            watch, id_ = cloud.fake.cloudwatch, cloud.keys[box.name].id
            watch.series.clear()
            watch.put("AWS/EC2", "CPUUtilization", lambda at: cloud.value(machine, CPU_UTIL, at), InstanceId=id_)
            for direction in ("NetworkIn", "NetworkOut"):
                watch.put("AWS/EC2", direction, lambda at: cloud.value(machine, NETWORK, at), InstanceId=id_)

    def judge(self, who: str) -> None:
        if self.agent:
            self.rooms[who].ledger.record_samples(list(self._measure_inside()))
        super().judge(who)

    def _measure_inside(self) -> Iterator[Sample]:
        """What the agent of each machine measures in this minute."""
        now = self.truth.now()
        works = now - self.start < timedelta(minutes=WORKS_MIN)
        for cloud in self.clouds.values():
            for machine in cloud.machines.values():
                here = machine.now(now)
                if here is not None and here.state == RUNNING:
                    gpus = float(cloud.vendor.types[cloud.vendor.came[machine.name]][1])
                    values = (make_busy_rule(gpus=gpus) if works else make_quiet_rule(gpus=gpus)).values
                    for signal, value in values.items():
                        yield Sample(key=machine.key, signal=signal, at=now, value=value(now) if callable(value) else value)


def _keep_families(rule: SampleRule, families: frozenset[str] | None) -> SampleRule:
    if families is None:
        return rule
    return replace(rule, values={signal: value for signal, value in rule.values.items() if FAMILY_OF[signal] in families})


def play_guide(cloud: str, folder: Path, *, agent: bool) -> Served:
    """Play one machine of `cloud` in the empty `folder`."""
    box = Box("b0", cloud, "2.99", (Does(0, "busy"), Does(WORKS_MIN, "quiet")))
    plan = Plan(0, DRILL, WATCHED_MIN, (box,), (), RAILS, wired=True)
    world = GuideWorld(plan, folder, agent=agent)
    record = world.play()
    if world.broken:
        raise AssertionError(world.broken)
    return _serve(record, world.start + timedelta(minutes=WORKS_MIN))


def _serve(record: Record, ended_at: datetime) -> Served:
    words = [(instant(one["at"]), one["title"], one["topics"]) for one in record.of("message")]
    about = [at for at, _, topics in words if any(topic.startswith(("policy:", "blind")) for topic in topics)]
    asked = [at for at, title, _ in words if title.endswith("?")]
    stops = [one.at for one in record.asked if one.done]

    def count(ats: Sequence[datetime]) -> float | None:
        return min((round((at - ended_at).total_seconds() / 60, 1) for at in ats if at >= ended_at), default=None)

    return Served(told=count(about), asked=count(asked), stopped=count(stops))


def list_guide_lines(folder: Path) -> Iterator[str]:
    """Yield the table of minutes as Markdown: a line for each cloud, without and with the agent. Plays in `folder`."""
    yield "| cloud | agent | told | asked | stopped |"
    yield "|---|---|---|---|---|"
    for cloud in CLOUDS:
        for agent in (False, True):
            made = folder / f"{cloud}-{agent}"
            made.mkdir()
            cells = ("-" if one is None else f"{one:.0f} min" for one in play_guide(cloud, made, agent=agent))
            yield f"| {cloud} | {'yes' if agent else 'no'} | {' | '.join(cells)} |"
