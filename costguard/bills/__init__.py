"""Providers' bills: their lines, matched with charges, and the drift between both. Pure."""
