"""Memory of a job on each GPU in each phase. Start at `footprint.py`."""
