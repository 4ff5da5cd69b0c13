"""The user's program under `costguard run`: started as a shell starts it, and supervised until it ends."""
