"""Plans of wired worlds: machines of five vendors, and what goes wrong on the wire, by people, and to the watchdog.

Each plan first draws which kinds of trouble are on, and how hard; a swizzle takes vendors down one by one, and they come back
in another order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.plans import AFTERNOON, DRILL, MONTHS_END, WIRED, Box, Does, Happens, Plan

CLOUDS = ("aws", "gcp", "runpod", "lambda", "vast")
GUARDS = {
    "aws": ("controller", "handling", "unstoppable", "unarmed", "label", "slip", "wish"),
    "gcp": ("unarmed", "label", "slip", "wish"),
    "runpod": ("controller", "handling", "unarmed", "wish"),
    "lambda": ("unarmed", "label", "wish"),
    "vast": ("unarmed", "label", "slip", "wish"),
}
"""What keeps a machine from all acts, where its vendor has a word for it."""
SEEN_WORKING = {"aws": ("busy",), "lambda": ("busy",)}
"""What of its work a vendor's measures can show: of others processors as well."""
BROKEN = (
    "500", "502", "503", "429", "429long", "401", "reset", "timeout", "html", "apology", "truncated", "short", "drip", "deep",
    "redirect", "void", "late",
)  # fmt: skip
ON_ACTS = ("did", "gone", "reset", "timeout", "500", "503", "429", "truncated", "html", "apology", "late")
WHICH = ("any", "list", "pages", "look", "measure", "price", "beside", "list", "look")
LIES = ("empty", "stale", "hides", "forgets", "loops", "twice", "zero", "unmeasured", "date")
ANSWERS = ("lost", "deaf", "unclear", "refuses")
PEOPLE = ("restart", "stopped", "bounce", "label", "unlabel", "slip", "lease", "lift", "snooze", "freeze", "price")
WATCHDOG = ("crash", "dies", "sleeps", "jumps", "mute")
MEDDLING = ("label", "lease", "freeze", "restart", "slow", "slower", "protect", "relabel")
DEATHS = ("before", "after", "told", "commit")
SETTLES = 12
"""Minutes after which no act is in doubt whose answer was lost: it is asked again at a pace of its own."""
STATE_STOPS = {"aws", "gcp"}
"""Vendors that say when a machine stopped; of others a ledger knows it by its own clock alone, which must then be right."""
RAILS = {"irreversible_per_h": 100}
"""On these vendors a stop wipes what lies in the host, so that most stops are irreversible."""


def wired_plan_of(seed: int) -> Plan:
    """The wired world of `seed`."""
    dice = random.Random(f"wired {seed}")  # noqa: S311 - worlds are drawn, not secret
    minutes = dice.choice((50, 60, 60, 80))
    used = dice.sample(CLOUDS, dice.choice((1, 2, 3, 5)))
    boxes = tuple(_box(dice, n, used[n % len(used)], minutes) for n in range(dice.choice((4, 6, 8, 12))))
    share = dice.choice((0.2, 0.34, 0.5))
    rails = {
        "acts_per_10m": dice.choice((1, 2, 4)),
        "fleet_share_10m": share,
        "fleet_share_day": max(share, dice.choice((0.4, 0.8))),
        "breaker_least": dice.choice((5, 50, 50, 50)),
    }
    meddles = {dice.randint(1, 8): dice.choice(MEDDLING) for _ in range(dice.choice((0, 1, 3)))}
    return Plan(
        seed=seed,
        kind=WIRED,
        minutes=minutes,
        boxes=boxes,
        events=tuple(sorted(_events(dice, boxes, used, minutes))),
        rails=rails | RAILS,
        meddles=meddles,
        start=dice.choice((AFTERNOON, AFTERNOON, MONTHS_END)),
        wired=True,
    )


def wired_drill_of(seed: int) -> Plan:
    """A short world in which a broken adapter shows: idle machines everywhere, pages lost, answers lost, people meddling."""
    dice = random.Random(f"drill {seed}")  # noqa: S311 - worlds are drawn, not secret
    clouds = ("runpod", "gcp", "vast", "aws")
    idle = tuple(Box(f"b{n}", clouds[n % 4], "2.99", (Does(0, "busy"), Does(4, "quiet"))) for n in range(16))
    kept = (Box("b16", "gcp", "2.99", (Does(0, "quiet"),), "label"), Box("b17", "vast", "2.99", (Does(0, "quiet"),), "label"))
    silent = Box("b18", "runpod", "2.99", (Does(0, "busy"), Does(4, "silent")))
    events = [Happens(5, "wire", one, 6, "503 pages 1") for one in clouds]
    events += [Happens(14, "wire", "gcp", 20, "did act 1"), Happens(14, "wire", "vast", 20, "timeout act 1")]
    events += [Happens(14, "wire", "aws", 20, "truncated act 1"), Happens(14, "wire", "runpod", 20, "reset act 1")]
    events += [Happens(18, "wire", "aws", 3, f"{dice.choice(('500', 'reset', 'void', 'apology'))} list 1")]
    events += [Happens(10, "forgets", "gcp", 8, "b16"), *(Happens(31, "hides", "runpod", 8, f"b{n}") for n in (0, 4))]
    rails = {"acts_per_10m": 6, "fleet_share_10m": 0.5, "fleet_share_day": 0.9, "breaker_least": 50}
    meddles = {3: "restart", 5: dice.choice(("lease", "protect")), 7: "restart", 9: "label"}
    return Plan(seed, DRILL, 46, (*idle, *kept, silent), tuple(sorted(events)), rails | RAILS, meddles, wired=True)


def _box(dice: random.Random, number: int, cloud: str, minutes: int) -> Box:
    work = SEEN_WORKING.get(cloud, ("busy", "busy", "cpu"))
    turns = sorted(dice.sample(range(2, minutes // 2), dice.choice((0, 0, 1, 1, 1, 3))))
    does = (
        Does(0, dice.choice((*work, "quiet", "quiet"))),
        *(Does(at, dice.choice(("quiet", "quiet", "quiet", "quiet", *work, "silent"))) for at in turns),
    )
    late = dice.random() < 0.15
    return Box(
        name=f"b{number}",
        cloud=cloud,
        rate=dice.choice(("2.99", "11.96", "32.77")),
        does=does,
        guard=dice.choice(GUARDS[cloud]) if dice.random() < 0.25 else "",
        age_min=0 if late else dice.choice((10, 60, 24 * 60, 24 * 60, 24 * 60)),
        at=dice.randint(5, minutes // 2) if late else 0,
    )


def _events(dice: random.Random, boxes: tuple[Box, ...], used: list[str], minutes: int) -> Iterator[Happens]:
    often = dice.choice((0.06, 0.12, 0.3))
    kinds = {"wire": 3.0, "acts": 3.0, "answers": 2.0, "down": 0.5, "partial": 1.0}
    kinds |= dict.fromkeys((*LIES, *PEOPLE), 1.0) | dict.fromkeys(WATCHDOG, 0.5)
    if not {*used} <= STATE_STOPS:
        del kinds["jumps"]
    for what in [one for one, likely in kinds.items() if dice.random() < often * likely]:
        for _ in range(dice.choice((1, 1, 2, 4)) * (4 if what == "wire" else 1)):
            yield _event(dice, what, boxes, used, minutes)
    if dice.random() < often:
        yield from _swizzle(dice, used, minutes)


def _event(dice: random.Random, what: str, boxes: tuple[Box, ...], used: list[str], minutes: int) -> Happens:
    at, lasts = dice.randint(2, minutes - 2), dice.choice((1, 2, 3, 5, 12))
    name, how, cloud = dice.choice(boxes).name, "", dice.choice(used)
    match what:
        case "wire":
            return Happens(at, what, cloud, lasts, f"{dice.choice(BROKEN)} {dice.choice(WHICH)} {dice.choice((1, 1, 2, 3))}")
        case "acts":
            at = dice.randint(2, minutes - SETTLES - 2)
            lasts = min(25, minutes - SETTLES - at)
            return Happens(at, "wire", cloud, lasts, f"{dice.choice(ON_ACTS)} act {dice.choice((1, 2))}")
        case "answers":
            at, how = dice.randint(0, minutes // 2), dice.choice(ANSWERS)
        case "date":
            return Happens(at, what, cloud, lasts, str(dice.choice((-86400, -600, 600, 86400))))
        case "jumps":
            how = str(dice.choice((3, 20, 90, 600, -3, -20, -300)))
        case "dies":
            how = dice.choice(DEATHS)
            how = f"commit {dice.randint(1, 12)}" if how == "commit" else how
        case "price":
            how = f"{dice.choice(('1.99', '3.49', '34.10'))} unsaid"
        case _ if what in {*LIES, "down", "partial"}:
            return Happens(at, what, cloud, lasts, name)
    return Happens(at, what, name, lasts if what != "sleeps" else dice.choice((1, 5, 60)), how)


def _swizzle(dice: random.Random, used: list[str], minutes: int) -> Iterator[Happens]:
    """All go down one by one, and come back in another order."""
    first, ends = dice.randint(3, minutes // 2), dice.sample(range(8, 30), len(used))
    for number, cloud in enumerate(dice.sample(used, len(used))):
        at = first + 2 * number
        yield Happens(at, "down", cloud, max(1, first + ends[number] - at))
