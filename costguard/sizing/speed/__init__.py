"""How fast a job is and how long it takes. Start at `throughput.py`, then `duration.py`."""
