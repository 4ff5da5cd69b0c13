"""An answer that was overtaken: it was asked for before another one, and came after it."""

from __future__ import annotations

from costguard.metering.inventory import Complete
from tests.metering.stories import Story, machine


def test_an_answer_that_was_asked_for_before_the_last_one_changes_nothing_however_late_it_comes() -> None:
    story = Story()
    story.poll(10, Complete((machine(),)), asked=10)
    overtaken = story.poll(12, Complete(()), asked=9)
    assert not overtaken.fresh
    story.listed(13)
    assert story.cost(13) == (10, 11.5, 13)  # missed once, and once is no proof


def test_of_two_answers_of_one_moment_the_first_counts() -> None:
    story = Story()
    story.poll(10, Complete((machine(),)), asked=10)
    assert not story.poll(11, Complete(()), asked=10).fresh
