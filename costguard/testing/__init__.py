"""Doubles that are shipped, for our tests and for those who write plug-ins: a clock, a cloud, a channel, and stories.

    story = read(text)                                    # see `timeline` for what a story may say
    outcome = play(story, PollPlay, folder)               # the real polls and the real ledger; nothing guards
    assert not outcome.faults, outcome.report()

`FakeClock` stands still until it is told. `SimulatedCloud` holds machines, what they measure and truly cost, and a log of the
acts it received. `RecordingNotifier` keeps what it is sent. Nothing here needs pytest.
"""

from costguard.testing.cloud import PrepaidCloud, ReceivedAction, SimulatedCloud, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock, RecordedNotification, RecordingNotifier
from costguard.testing.story_parser import parse_story, read_story
from costguard.testing.story_player import (
    GuardResult,
    PollPlayer,
    StoryOutcome,
    StoryPlayer,
    StoryReply,
    StoryStage,
    play_story,
)

__all__ = [
    "FakeClock",
    "GuardResult",
    "PollPlayer",
    "PrepaidCloud",
    "ReceivedAction",
    "RecordedNotification",
    "RecordingNotifier",
    "SimulatedCloud",
    "StoryOutcome",
    "StoryPlayer",
    "StoryReply",
    "StoryStage",
    "TerminateOnlyCloud",
    "parse_story",
    "play_story",
    "read_story",
]
