"""Budgets, holds and the status of each budget. Pure."""
