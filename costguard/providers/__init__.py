"""What a cloud offers costguard: the provider ports, the HTTP transport and plug-in loading."""
