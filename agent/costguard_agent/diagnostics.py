"""What ends a command of the agent: said in one sentence, with what to do next."""

from __future__ import annotations


class AgentError(Exception):
    """The message says what happened, to which thing, and what to do."""
