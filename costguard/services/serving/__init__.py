"""What is answered over HTTP: agents, pages, logins, MCP."""
