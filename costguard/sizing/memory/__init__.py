"""What a job holds on each GPU, moment by moment. Start at `footprint.py`."""
