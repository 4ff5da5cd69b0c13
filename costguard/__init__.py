"""costguard: the guard for money spent on cloud GPUs. Start reading at `costguard/flows/`."""

__version__ = "0.1.0"
