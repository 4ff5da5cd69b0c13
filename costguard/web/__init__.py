"""The watchdog's HTTP interface: agents report, readers get the status.

Needs the extra `web` (decision 0035).
"""
