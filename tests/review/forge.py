"""A GitHub and a GitLab that answer the published paths of comments over loopback, and a repository with a pull request."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.server import Answer, Asked, FakeCloud

TOKEN = "ghs_canary0123456789abcdefghijklmnopqrst"  # noqa: S105 - of a test
PUBLISHED = {
    "github": (
        # docs.github.com/en/rest/issues/comments and /rest/users/users, as in @octokit/plugin-rest-endpoint-methods (2026-11)
        ("GET", r"/user"),
        ("GET", r"/repos/[^/]+/[^/]+/issues/\d+/comments"),
        ("POST", r"/repos/[^/]+/[^/]+/issues/\d+/comments"),
        ("PATCH", r"/repos/[^/]+/[^/]+/issues/comments/\d+"),
    ),
    "gitlab": (
        # docs.gitlab.com/api/notes (merge requests) and docs.gitlab.com/api/users (2026-11)
        ("GET", r"/user"),
        ("GET", r"/projects/[^/]+/merge_requests/\d+/notes"),
        ("POST", r"/projects/[^/]+/merge_requests/\d+/notes"),
        ("PUT", r"/projects/[^/]+/merge_requests/\d+/notes/\d+"),
    ),
}


class FakeForge(FakeCloud):
    """Comments of one pull or merge request. `login`: who writes with the token; `fork`: the token may only read."""

    def __init__(self, name: str, login: str) -> None:
        super().__init__()
        self.name, self.login, self.fork = name, login, False
        self.comments: list[dict[str, Any]] = []

    def add(self, author: str, body: str) -> dict[str, Any]:
        who = {"login": author, "username": author}
        made = {"id": 4_000_000_000 + len(self.comments), "body": body, "user" if self.name == "github" else "author": who}
        self.comments.append(made)
        return made

    def answer(self, asked: Asked) -> Answer:  # noqa: PLR0911 - one line a kind of answer
        if not any(asked.method == method and re.fullmatch(path, asked.path) for method, path in PUBLISHED[self.name]):
            return Answer.of({"message": "Not Found"}, 404)
        held = asked.headers.get("authorization") if self.name == "github" else asked.headers.get("private-token")
        if held not in (TOKEN, f"Bearer {TOKEN}"):
            return Answer.of({"message": "Bad credentials"}, 401)
        if asked.path == "/user":  # a workflow's token is an installation's, which is no user
            bot = self.name == "github" and self.login.endswith("[bot]")
            return (
                Answer.of({"message": "Resource not accessible by integration"}, 403)
                if bot
                else Answer.of({"login": self.login})
            )
        if asked.method == "GET":
            size, page = int(asked.one("per_page", "30")), int(asked.one("page", "1"))
            return Answer.of(self.comments[(page - 1) * size : page * size])
        if self.fork:
            return Answer.of({"message": "Resource not accessible by integration"}, 403)
        if asked.method == "POST":
            return Answer.of(self.add(self.login, asked.json()["body"]), 201)
        found = next(one for one in self.comments if one["id"] == int(asked.path.rsplit("/", 1)[1]))
        found["body"] = asked.json()["body"]
        return Answer.of(found)


def git(folder: Path, *arguments: str) -> str:
    who = (
        "-c", "user.name=ana", "-c", "user.email=ana@acme.example", "-c", "commit.gpgsign=false", "-c",
        "protocol.file.allow=always",
    )  # fmt: skip
    ran = subprocess.run(("git", *who, "-C", str(folder), *arguments), capture_output=True, text=True, check=True)
    return ran.stdout.strip()


class Repository:
    """A repository whose branch `main` has jobs and whose branch `pull` changes them; `checkout` is what CI gets of it."""

    def __init__(self, folder: Path, before: Mapping[str, str], after: Mapping[str, str | None]) -> None:
        self.origin = folder / "origin"
        self.origin.mkdir()
        git(self.origin, "init", "--quiet", "--initial-branch=main")
        git(self.origin, "config", "uploadpack.allowAnySHA1InWant", "true")
        self.base = self._commit(before)
        git(self.origin, "switch", "--quiet", "--create", "pull")
        self.head = self._commit(after)
        git(self.origin, "switch", "--quiet", "main")
        git(self.origin, "merge", "--quiet", "--no-ff", "-m", "merge", "pull")
        self.checkout = folder / "checkout"
        git(folder, "clone", "--quiet", "--depth=1", self.origin.as_uri(), str(self.checkout))

    def _commit(self, files: Mapping[str, str | None]) -> str:
        for name, text in files.items():
            file = self.origin / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink()
            elif text.startswith("-> "):
                file.unlink(missing_ok=True)
                file.symlink_to(text[3:])
            else:
                file.write_text(text, encoding="utf-8")
        git(self.origin, "add", "--all")
        git(self.origin, "commit", "--quiet", "--message", "change")
        return git(self.origin, "rev-parse", "HEAD")

    def write_event(self, file: Path) -> Path:
        """Write the recorded event with the commits of this repository."""
        text = (Path(__file__).parent / "events" / "pull_request_opened.json").read_text(encoding="utf-8")
        file.write_text(text.replace("BASE_SHA", self.base).replace("HEAD_SHA", self.head), encoding="utf-8")
        assert json.loads(file.read_text())["pull_request"]["base"]["sha"] == self.base
        return file
