"""Doubles that are shipped, for our tests and for those who write plug-ins: a clock, a cloud and a channel.

`FakeClock` stands still until it is told. `SimulatedCloud` holds machines, what they measure and truly cost, and a log of the
acts it received. `RecordingNotifier` keeps what it is sent. Nothing here needs pytest.
"""

from costguard.testing.cloud import PrepaidCloud, ReceivedAction, SimulatedCloud, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock, RecordedNotification, RecordingNotifier

__all__ = [
    "FakeClock",
    "PrepaidCloud",
    "ReceivedAction",
    "RecordedNotification",
    "RecordingNotifier",
    "SimulatedCloud",
    "TerminateOnlyCloud",
]
