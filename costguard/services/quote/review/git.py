"""Which files a change touches, and both of its sides as folders: the work tree, and a worktree of the base beside it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from costguard.errors import CostguardError, InputError, shorten
from costguard.system.process import build_child_environment

GIT_LIMIT_S = 300.0
"""Seconds for one call of git: a fetch of one commit of a large repository takes a minute."""
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
GIT_VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy", "no_proxy")
GIT_PREFIXES = ("GIT_", "SSH_", "SSL_CERT_", "XDG_", "CURL_CA_")
"""What git reads of the environment; a job's tokens of the forge or of a cloud are no part of it."""
NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
"""A repository's own programs are not run by what only reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """`before`, `after`: the two sides as folders. `files`: paths below them that differ, sorted."""

    before: Path
    after: Path
    files: tuple[str, ...]


@contextmanager
def open_base_folder(root: Path, base: str) -> Iterator[ChangedFiles]:
    """Check the revision `base` out into a temporary folder, and yield it beside `root` with the files that differ.

    Compared are the commits `base` and HEAD. Raises InputError for a revision that git does not know.
    """
    commit = _resolve_commit(root, base)
    names = _run_git(root, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", commit, "HEAD", "--")
    files = tuple(sorted(name for name in names.split("\0") if name))
    with TemporaryDirectory(prefix="costguard-") as temporary:
        folder = Path(temporary) / "base"
        _run_git(root, "worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield ChangedFiles(before=folder, after=root, files=files)
        finally:
            _run_git(root, "worktree", "remove", "--force", str(folder))


def find_checkout(root: Path) -> Path:
    """Return the folder of the checkout in which `root` lies. Raises CostguardError where there is none."""
    return Path(_run_git(root, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()


def find_change_base(root: Path, base: str, head: str) -> str:
    """Return the commit against which a pull request is compared: both are commits that its event states.

    CI checks out the merge of both, whose first parent is the base as it is now; else it is where `head` left `base`.
    """
    for side, commit in (("base", base), ("head", head)):
        if not COMMIT.fullmatch(commit):
            raise InputError(f"the {side} is not a commit: {shorten(commit)}", field="event", hint="run it for a pull request")
    raw = _run_git(root, "cat-file", "commit", "HEAD")  # a shallow clone hides the parents from every other command
    parents = re.findall(r"^parent ([0-9a-f]+)$", raw.partition("\n\n")[0], re.MULTILINE)
    base_commit = parents[0] if len(parents) == 2 and parents[1] == head else base  # noqa: PLR2004 - a merge of two
    _fetch_commit(root, base_commit)
    if base_commit != base:
        return base_commit
    try:
        return _run_git(root, "merge-base", base, "HEAD").strip() or base
    except CostguardError:  # a shallow clone does not reach so far
        return base


def _fetch_commit(root: Path, commit: str) -> None:
    """Fetch `commit` from origin where a shallow clone lacks it."""
    try:
        _run_git(root, "cat-file", "-e", f"{commit}^{{commit}}")
    except CostguardError:
        _run_git(root, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", commit)


def _resolve_commit(root: Path, base: str) -> str:
    try:
        return _run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").strip()
    except CostguardError as error:
        if error.field == "git" and "is not installed" in error.what:
            raise
        hint = "name a branch or a commit of this repository: --base origin/main"
        raise InputError(f"git has no revision {shorten(base)} here", field="--base", hint=hint) from None


def _run_git(root: Path, *arguments: str) -> str:
    """Run git in `root` without a shell, and return its output; raises CostguardError with the first line of its complaint."""
    passed = build_child_environment(os.environ, names=GIT_VARIABLES, prefixes=GIT_PREFIXES)
    environment = {**passed, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ("git", *NO_HOOKS, "-C", str(root), *arguments)
    try:
        ran = subprocess.run(command, capture_output=True, timeout=GIT_LIMIT_S, env=environment, check=False)  # noqa: S603 - no shell
    except FileNotFoundError:
        raise CostguardError("is not installed", field="git", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise CostguardError(f"{arguments[0]} took longer than {GIT_LIMIT_S:.0f} s", field="git", hint="try again") from None
    if ran.returncode:
        complaint = next(iter(ran.stderr.decode(errors="replace").strip().splitlines()), f"{arguments[0]} failed")
        raise CostguardError(shorten(complaint, 200), field="git", hint="run it in a checkout of the repository")
    return ran.stdout.decode(errors="surrogateescape")
