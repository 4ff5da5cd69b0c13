"""FOCUS, the standard for billing data: its columns, and charge items as its rows."""
