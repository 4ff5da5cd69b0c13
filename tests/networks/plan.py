"""What goes wrong on a wire, as plain values: a plan is a list of faults.

Fault(kind="cut", side=DOWN, mark="GET /v2/pods", part=BODY, at=40)    the answer to that request, cut in its body
Fault(kind="reset", connections=(3,))                                  the third connection, before its first answer
"""

from __future__ import annotations

from dataclasses import dataclass

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
