"""Agents and tokens in the ledger."""
