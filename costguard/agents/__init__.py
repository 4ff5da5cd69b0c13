"""Agents: the messages that they may send, refusals, requests, and samples made from their records."""
