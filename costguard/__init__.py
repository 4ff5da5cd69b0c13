"""costguard: the guard for money spent on cloud GPUs. Start reading at `costguard/services/`, or use `costguard.quote(...)`."""

from importlib import import_module as _import

__version__ = "0.1.0"

_OF_API = frozenset(("admit", "quote", "size", "status", "report", "keep", "start", "stop"))
"""Functions of `costguard.api`, imported when one is first used: `import costguard` costs nothing."""


def __getattr__(name: str) -> object:
    """Return the function `name` of `costguard.api`."""
    if name not in _OF_API:
        raise AttributeError(f"module 'costguard' has no attribute '{name}'")
    return getattr(_import("costguard.api"), name)


def __dir__() -> list[str]:
    """Return the names of this module and of the API."""
    return sorted({*globals(), *_OF_API})


def run(job: object = None, **options: object) -> object:
    """Track a training: `with costguard.run("job.toml") as run: ... run.step()`.

    Options: the fields of `TrackedRun`, and `then`, `then_always` and `yes_then` of `build_tracked_run`.
    """
    return _import("costguard.services.run_jobs.tracked_run").build_tracked_run(job, **options)


def progress(step: float) -> None:
    """Tell that a job is at `step`: to `costguard run`, or to the agent of this machine. It never raises and never waits."""
    from costguard_agent import progress as told

    told(step)
