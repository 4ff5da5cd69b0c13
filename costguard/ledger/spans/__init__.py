"""Spans, observations and samples in the ledger."""
