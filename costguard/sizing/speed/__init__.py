"""Speed and duration of a job. Start at `throughput.py`, then `duration.py`."""
