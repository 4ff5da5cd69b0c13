"""One guard run: facts, judgement, acts, messages; and the commands that read or steer it."""
