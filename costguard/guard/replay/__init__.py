"""Replay recorded history under other policies."""
