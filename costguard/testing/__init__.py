"""Doubles that are shipped, for our tests and for those who write plug-ins: a clock, a cloud, a channel, and stories.

    story = read(text)                                    # see `timeline` for what a story may say
    outcome = play(story, PollPlay, folder)               # the real polls and the real ledger; nothing guards
    assert not outcome.faults, outcome.report()

`FakeClock` stands still until it is told. `SimulatedCloud` holds machines, what they measure and truly cost, and a log of the
acts it received. `RecordingNotifier` keeps what it is sent. Nothing here needs pytest.
"""

from costguard.testing.cloud import Act, EndingCloud, PrepaidCloud, SimulatedCloud
from costguard.testing.doubles import FakeClock
from costguard.testing.recording import RecordingNotifier, Told
from costguard.testing.story_parser import read, read_file
from costguard.testing.story_player import Outcome, Play, PollPlay, Reply, Sight, Stage, play

__all__ = [
    "Act",
    "EndingCloud",
    "FakeClock",
    "Outcome",
    "Play",
    "PollPlay",
    "PrepaidCloud",
    "RecordingNotifier",
    "Reply",
    "Sight",
    "SimulatedCloud",
    "Stage",
    "Told",
    "play",
    "read",
    "read_file",
]
