"""One poll of every account: providers, listings, samples to the ledger."""
