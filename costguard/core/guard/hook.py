"""Hooks: what a policy's ladder may run before it goes on, such as a checkpoint. Stated once, named by its steps."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A `command` with its arguments, run without a shell, or a `url` that is asked by POST; one of the two.

    `url` may be `env:NAME` or `file:PATH`: then the address is read from there when it is needed, as it holds a secret.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""

    def __post_init__(self) -> None:
        either = bool(self.command) != bool(self.url)
        require(either, f"hook {self.name}", "needs a command or a url, and not both", 'write command = ["/usr/bin/save"]')
