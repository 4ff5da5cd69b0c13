"""The yardstick: what a typer + rich program with two commands costs when it does nothing."""

import typer
from rich import print as rprint

app = typer.Typer()


@app.command()
def quote(name: str = "world") -> None:
    """Say hello."""
    rprint(f"[bold]hello[/bold] {name}")


@app.command()
def report() -> None:
    """Be a second command, so that the app is a group."""


if __name__ == "__main__":
    app()
