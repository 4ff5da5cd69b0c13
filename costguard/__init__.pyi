# What type checkers read instead of __init__.py, whose functions of the API are imported only when they are used.
from costguard.api import admit as admit
from costguard.api import keep as keep
from costguard.api import quote as quote
from costguard.api import report as report
from costguard.api import size as size
from costguard.api import start as start
from costguard.api import status as status
from costguard.api import stop as stop
from costguard.services.run_jobs.tracked_run import TrackedRun

__version__: str

run = TrackedRun

def progress(step: float) -> None: ...
