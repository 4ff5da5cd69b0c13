"""`costguard run`: a command with a quote, a budget hold, a lease and tracking. `job_run` is the main path."""
