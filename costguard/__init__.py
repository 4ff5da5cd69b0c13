"""costguard: the guard for money spent on cloud GPUs. Start reading at `costguard/services/`."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def run(job: Any = None, **options: Any) -> Any:  # noqa: ANN401 - the fields of TrackedRun, which is imported when it is used
    """Track a training: `with costguard.run("job.toml") as run: ... run.step()`. Options: the fields of `TrackedRun`."""
    return import_module("costguard.services.run.tracked_run").TrackedRun(job=job, **options)


def progress(step: float) -> None:
    """Tell that a job is at `step`: to `costguard run`, or to the agent of this machine. It never raises and never waits."""
    from costguard_agent import progress as told

    told(step)
