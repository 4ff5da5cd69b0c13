"""Prices that anybody can read: one module a source, each named by an entry point of the group `costguard.price_sources`.

A source turns a published feed into offers (`costguard/providers/ports/price_source.py`). It sees the port, offers, values and
errors, and nothing else of costguard: it opens no connection, keeps no cache and knows no settings (tests/house.py).
"""
