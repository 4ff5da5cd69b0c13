"""What the watchdog answers over HTTP: agents that report, readers that ask. The extra `web` (decision 0035)."""
