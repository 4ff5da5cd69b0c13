"""Budgets, holds and how far each budget is spent. Pure."""
