"""The HTTP interface, in a process of its own: agents report, readers get the status.

Needs the extra `web` (decisions 0035 and 0091).
"""
