"""What reports and replays read from the ledger."""
