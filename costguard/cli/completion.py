"""Completion of words in a shell: click's scripts, and where each shell looks for one.

Until 2026-11 the scripts were typer's, which ask in another way: they get no answer, and the shell offers files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from click.shell_completion import get_completion_class, shell_complete

from costguard.cli import COMPLETION_VARIABLE
from costguard.errors import InputError

PROGRAM = "costguard"
SAME = {"pwsh": "powershell"}
"""Shells with the script of another one."""
ZSH_LINES = {
    "fpath+=~/.zfunc": "fpath+=~/.zfunc; autoload -Uz compinit; compinit",
    "zstyle": "zstyle ':completion:*' menu select",
}
"""What .zshrc needs, by the words that say that it has it."""


def answer_shell(command: Any, instruction: str) -> int:  # noqa: ANN401 - the group of commands, whose module imports this one
    """Print what a shell's script asked for in `COMPLETION_VARIABLE`, and return the exit code."""
    return shell_complete(command, {}, PROGRAM, COMPLETION_VARIABLE, instruction)


def show_script(command: Any) -> None:  # noqa: ANN401 - same
    """Print the script of the shell that this runs in; raises InputError if there is none."""
    sys.stdout.write(_build_script(command, _find_shell()))


def install_script(command: Any) -> None:  # noqa: ANN401 - same
    """Write the script where the shell that this runs in finds it, and print where; raises InputError or OSError."""
    shell, home = _find_shell(), Path.home()
    script = _build_script(command, shell)
    places = {
        "bash": home / ".bash_completions" / f"{PROGRAM}.sh",
        "zsh": home / ".zfunc" / f"_{PROGRAM}",
        "fish": home / ".config" / "fish" / "completions" / f"{PROGRAM}.fish",
    }
    if shell not in places:
        hint = f"write it to your profile: {PROGRAM} --show-completion"
        raise InputError(f"cannot be installed for {shell}", field="--install-completion", hint=hint)
    place = places[shell]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script)
    if shell == "bash":
        _add_line(home / ".bashrc", str(place), f"source '{place}'")
    for words, line in ZSH_LINES.items() if shell == "zsh" else ():
        _add_line(home / ".zshrc", words, line)
    sys.stdout.write(f"{shell} completion installed in {place}\nCompletion will take effect once you restart the terminal\n")


def _find_shell() -> str:
    import shellingham

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        raise InputError("no shell was found", hint=f"run {PROGRAM} from a shell: bash, zsh or fish") from None
    return name


def _build_script(command: Any, shell: str) -> str:  # noqa: ANN401 - same
    kind = get_completion_class(SAME.get(shell, shell))
    if kind is None:
        raise InputError(f"there is no completion for the shell {shell}", hint="use bash, zsh, fish or PowerShell")
    return kind(command, {}, PROGRAM, COMPLETION_VARIABLE).source()


def _add_line(file: Path, words: str, line: str) -> None:
    """Append `line` to a shell's settings, unless `words` stand in it."""
    had = file.read_text() if file.is_file() else ""
    if words not in had:
        with file.open("a") as settings:
            settings.write(f"{'' if not had or had.endswith(chr(10)) else chr(10)}{line}\n")
