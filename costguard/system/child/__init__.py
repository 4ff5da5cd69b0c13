"""A program of the user's under `costguard run`: begun as a shell begins it, attended to until it ends, never in its way."""
