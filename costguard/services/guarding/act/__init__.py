"""From a due step of the plan to a confirmed act: `executor` decides, `send_action` sends, `hooks` run before it."""
