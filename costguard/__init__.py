"""costguard: the guard for money spent on cloud GPUs. Start reading at `costguard/services/`."""

__version__ = "0.1.0"


def progress(step: float) -> None:
    """Tell that a job is at `step`: to `costguard run`, or to the agent of this machine. It never raises and never waits."""
    from costguard_agent import progress as told

    told(step)
