"""The long-running watchdog: its context, its duties, the agents' messages."""
