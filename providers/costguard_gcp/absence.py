"""A refusal that may say that a project is empty: Compute Engine is off there, or its billing.

It is believed only where it speaks of this project. Google names the project whose API is off, and with a user's credentials
that is the project which pays for the questions: the one that was asked about may be full of machines.
"""

from __future__ import annotations

import re
import threading

from costguard.errors import ForbiddenError, ProviderError
from costguard.providers.transport import Deadline
from costguard_gcp.api import DISABLED, RESOURCES, SPEAKS_OF, UNBILLED, GoogleApi
from costguard_gcp.wire import ProjectNumber, take_last_part

ASKED_S = 5.0
"""Seconds for the question which number a project has."""


class AbsenceCheck:
    """What one login knows of its projects' numbers, and of where it saw machines."""

    def __init__(self, google: GoogleApi) -> None:
        self._google, self._lock = google, threading.Lock()
        self._saw = set[str]()
        self._numbers = dict[str, str]()
        self._named = dict[str, set[str]]()

    def note_seen(self, project: str) -> None:
        """`project` holds something: it has Compute Engine."""
        self._saw.add(project)

    def doubt(self, broken: ProviderError, project: str, deadline: Deadline) -> str:
        """Why `broken`, for which `none_there` holds, does not prove `project` empty; "" where it does."""
        if project in self._saw:
            return "machines were seen there before, so that there are none is not believed"
        for named in _list_named_numbers(broken):
            if named != project and not (named.isdigit() and self._may_be_number_of(named, project, deadline)):
                return f"that is another project than {project}: pass its quota project, or enable the API there"
        return ""

    def _may_be_number_of(self, number: str, project: str, deadline: Deadline) -> bool:
        """Whether `number` is that of `project`; where nobody tells, one number that two projects are refused with is not."""
        with self._lock:
            among = self._named.setdefault(number, set())
            among.add(project)
        known = self._numbers.get(project) or self._fetch_number(project, deadline)
        return known == number if known else len(among) == 1

    def _fetch_number(self, project: str, deadline: Deadline) -> str:
        """The project's number, "" where the Resource Manager does not say."""
        try:
            path, limit = f"/v3/projects/{project}", deadline.limit_to(ASKED_S)
            reply = self._google.read(RESOURCES, project, path, deadline=limit)
            found = take_last_part(self._google.decode(RESOURCES, project, reply, ProjectNumber, "the project").name)
        except ProviderError:
            return ""
        if found.isdigit():
            self._numbers[project] = found
        return self._numbers.get(project, "")


def is_no_compute_refusal(broken: ProviderError) -> bool:
    """Whether the refusal says that a project has no Compute Engine or no billing: by the exact reason, and no other way."""
    return isinstance(broken, ForbiddenError) and broken.code in DISABLED | UNBILLED


_PROJECT_NUMBER = re.compile(re.escape(SPEAKS_OF) + r"([a-z0-9:., -]+)")


def _list_named_numbers(broken: ProviderError) -> list[str]:
    found = _PROJECT_NUMBER.search(broken.what)
    return found[1].split(", ") if found else []
