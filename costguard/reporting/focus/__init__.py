"""FOCUS, the standard for billing data: its columns, charge items as its rows, and a validator of files."""
