"""Stories: what happens to machines and what must come of it, as text (`*.story`), played with the real polls and ledger.

story = parse_story(text)                                   # see `parser` for what a story may say
outcome = play_story(story, PollPlayer, folder)             # nothing guards; `guard_player` does
assert not outcome.faults, outcome.report()
"""

from tests.stories.parser import parse_story, read_story
from tests.stories.player import (
    GuardResult,
    PollPlayer,
    StoryOutcome,
    StoryReply,
    StoryStage,
    play_story,
)

__all__ = [
    "GuardResult",
    "PollPlayer",
    "StoryOutcome",
    "StoryReply",
    "StoryStage",
    "parse_story",
    "play_story",
    "read_story",
]
