"""After the run: statements, bills, metrics."""
