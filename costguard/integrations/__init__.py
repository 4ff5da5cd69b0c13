"""Callbacks of training frameworks; each module imports its framework, and nothing else of costguard imports them."""
