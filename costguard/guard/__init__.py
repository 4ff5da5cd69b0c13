"""What the guard decides: activity of machines, verdicts of policies, a plan of acts, alerts. Pure."""
