"""What a period cost and where the money went. Pure."""
