"""Agents: what one may say, what a message that is refused is called, and what becomes of what it says."""
