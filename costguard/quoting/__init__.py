"""Offers, quotes, break-even and templates. Pure."""
