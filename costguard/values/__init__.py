"""Pure values and rules. No clock, disk, network, randomness, logging or third-party import."""
