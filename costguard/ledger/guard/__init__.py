"""Intents, overrides, escalations and the audit log in the ledger."""
