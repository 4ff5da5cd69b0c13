"""The costs of a period and their breakdown. Pure."""
