"""Replay recorded history under other policies (`costguard simulate`). Pure."""
