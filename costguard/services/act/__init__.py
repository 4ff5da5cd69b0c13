"""From a due step of the plan to one confirmed act: `executor` decides whether, `send_action` sends, `hooks` run before it."""
