"""Bill lines in the ledger."""
