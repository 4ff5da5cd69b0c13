"""Whatever a provider says, in whatever order: no overlap, no loss, no negative amount, and replays change nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.values.money import Rate
from costguard.values.resource import KINDS, STATES
from tests.campaign import examples
from tests.metering.stories import RULE, Story, key, minute

MINUTES = st.integers(-3000, 3000)
TIMES = st.none() | MINUTES.map(minute)
PRICES = st.lists(st.builds(Price, st.none() | st.integers(1, 200).map(Rate.parse), TIMES), max_size=3).map(
    lambda found: tuple(sorted(found, key=lambda p: (p.since is not None, p.since or minute(0))))
)


DISKS = ((), (Disk(10, "disk"),), (Disk(10, "disk"), Disk(20, "disk"), Disk(5, "odd")), (Disk(None, "disk"),))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    return Observation(
        key=key(draw(st.sampled_from(("i-1", "i-2", "i-3")))),
        kind=draw(st.sampled_from(KINDS)),
        state=draw(st.sampled_from(STATES)),
        gpu="H100-SXM",
        gpu_count=1,
        tier=draw(st.sampled_from(("on-demand", "spot"))),
        owner=draw(st.sampled_from(("", "ann"))),
        created_at=draw(TIMES),
        started_at=draw(TIMES),
        stopped_at=draw(TIMES),
        prices=draw(PRICES),
        disks=draw(st.sampled_from(DISKS)),
        counters=draw(
            st.sampled_from(((), (TrafficCounter("traffic", 5000, 10**7),), (TrafficCounter("traffic", 9000, 10**7),)))
        ),
    )


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    items = tuple(draw(st.lists(observations(), max_size=3)))
    kinds: tuple[Inventory, ...] = (Complete(items), Complete(items), Partial(items, "page 2"), Failed("timeout"))
    return draw(st.sampled_from(kinds))


RULES = st.builds(
    lambda restarts, lag: replace(RULE, restarts=restarts, lag_s=lag),
    st.sampled_from(("stated", "unstated", "never")),
    st.sampled_from((0, 60)),
)
POLLS = st.lists(st.tuples(st.integers(1, 200), inventories()), min_size=1, max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(rule=RULES, polls=POLLS)
def test_whatever_is_said_spans_never_overlap_and_amounts_are_in_order(
    rule: object, polls: list[tuple[int, Inventory]]
) -> None:
    story, at = Story(rule, ceilings={"H100-SXM": 10**10}), 0  # type: ignore[arg-type]  # drawn from RULES
    for step, inventory in polls:
        at += step
        story.poll(at, inventory)
        for name in ("i-1", "i-2", "i-3"):
            for charge in ("compute", "storage", "address", "traffic"):
                low, expected, high = story.cost(at, charge_of=charge, name=name)
                assert 0 <= low <= expected <= high
        spans, state = list(story.spans), story.state
        assert not story.poll(at, inventory).fresh
        assert (story.spans, story.state) == (spans, state)
