"""Output formats, one module each, with a function `render(document) -> str`.

Each is registered under `costguard.reports` in pyproject.toml.
"""
