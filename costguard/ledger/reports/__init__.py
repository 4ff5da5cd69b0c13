"""Read the ledger for reports and replays."""
