"""A job of `costguard run`: its attempts, its speed, its budget hold and its cost.

Pure.
"""
