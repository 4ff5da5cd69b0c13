"""Alerts: which hold after a guard run, what they say, and which notifications they become. Pure."""
