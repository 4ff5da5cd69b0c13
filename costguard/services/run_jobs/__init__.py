"""A job under `costguard run`, and its admission before launch."""
