"""The Model Context Protocol: `tools.py` is what an agent may ask, `server.py` serves it with the official SDK."""
