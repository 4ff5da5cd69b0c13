"""FOCUS, a standard of bills: its columns, charge items as its rows, and whether a file keeps to it."""
