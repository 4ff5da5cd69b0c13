"""A job that `costguard run` runs: its attempts, how fast they go, what is set aside for them and what they came to. Pure."""
