"""One format a file: each holds `render(document) -> str`, and has its line under `costguard.reports` in pyproject.toml."""
