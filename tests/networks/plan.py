"""What goes wrong on a wire, as plain values: a plan is a list of faults, and can be written as JSON and read again.

Fault(kind="cut", side=DOWN, mark="GET /v2/pods", part=BODY, at=40)    the answer to that request, cut in its body
Fault(kind="reset", connections=(3,))                                  the third connection, before its first answer
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

UP, DOWN, CONNECT = "up", "down", "connect"
"""What a fault touches: what the client sends, what the server answers, the connection itself as soon as it is there."""
HEAD, BODY = "head", "body"
KINDS = {
    "delay": "the rest comes after `seconds`",
    "drip": "the rest comes a byte at a time, `seconds` apart",
    "cut": "both sides are told that it is over (FIN)",
    "reset": "both sides are told that it is broken (RST)",
    "half": "the one who waits for the rest is told that no more comes; the other may go on",
    "hole": "nothing more comes, and nobody is told",
    "corrupt": "`length` bytes come with a bit flipped",
    "garbage": "bytes that are none of the protocol come first",
}
STRUCK = 0.35
SECONDS = {"delay": 1.0, "drip": 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`mark`: regular expression of the request that it befalls ("": any); the first `skip` of those pass, `times` are struck.

    `at`: bytes that pass before it strikes, of the `part` of the message: from its first byte, or from that after the empty
    line. `connections`: None, or the numbers of those that it befalls, from 1.
    """

    kind: str
    side: str = DOWN
    mark: str = ""
    part: str = HEAD
    at: int = 0
    skip: int = 0
    times: int | None = 1
    seconds: float = 0.0
    length: int = 1
    connections: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.side not in (UP, DOWN, CONNECT) or self.part not in (HEAD, BODY):
            raise ValueError(f"no such fault: {self}")


def written(plan: Iterable[Fault]) -> str:
    """The plan as one line of JSON, without what is as usual."""
    usual = asdict(Fault(kind="cut"))
    rows = [{name: value for name, value in asdict(one).items() if name == "kind" or value != usual[name]} for one in plan]
    return json.dumps(rows, separators=(",", ":"))


def read(text: str) -> list[Fault]:
    """A plan as `written` leaves it."""
    rows: list[dict[str, Any]] = json.loads(text)
    for row in rows:
        if "connections" in row:
            row["connections"] = tuple(row["connections"])
    return [Fault(**row) for row in rows]


def storm(seed: str, requests: int) -> list[Fault]:
    """Something for about every third of the first so many requests, and for every fourth connection, drawn from `seed`.

    No byte is changed: over plain http nobody can know of that, and over TLS it is no more than a cut.
    """
    chance, plan = random.Random(seed), list[Fault]()  # noqa: S311 - no secret
    for number in range(requests):
        if chance.random() < STRUCK:
            kind = chance.choice([one for one in sorted(KINDS) if one not in ("garbage", "corrupt")])
            side = DOWN if kind == "drip" else chance.choice((UP, DOWN))
            part, seconds = chance.choice((HEAD, BODY)), SECONDS.get(kind, 0.0)
            plan.append(Fault(kind=kind, side=side, part=part, at=chance.randrange(80), skip=number, seconds=seconds))
        if chance.random() < STRUCK / 2:
            kind = chance.choice(("cut", "reset", "hole", "delay", "garbage"))
            plan.append(Fault(kind=kind, side=CONNECT, connections=(number + 1,), seconds=SECONDS.get(kind, 0.0)))
    return plan
