"""The comment on a pull request (GitHub) or merge request (GitLab): one, found by its first line and updated in place.

Paths, as published: docs.github.com/rest/issues/comments and docs.gitlab.com/api/notes (2026-11). Only a comment of our own
is updated: anybody can write the first line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from costguard.errors import ForbiddenError, InputError, MissingError, ProviderError
from costguard.providers.transport import ProviderChannel, Transport, check_url
from costguard.system.input_file import read_input_file
from costguard.system.secret import Secret

GITHUB, GITLAB = FORGES = ("github", "gitlab")
MARKER = "<!-- costguard review -->"
PAGE_SIZE, PAGES_MAX = 100, 30
GITHUB_ACTIONS_LOGIN = "github-actions[bot]"
"""Whose comments the token of a workflow writes; it may not ask who it is (GET /user answers 403)."""
EVENT_BYTES_MAX = 25 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedChange:
    """A pull or merge request as CI describes it. `base`, `head`: commits. `thread`: the path of its comments in the API.

    `edit`: the path of one comment, without its id. `token` None: nothing can be written.
    """

    forge: str
    api: str
    base: str
    head: str
    thread: str
    edit: str
    token: Secret | None


def read_reviewed_change(forge: str, environ: Mapping[str, str]) -> ReviewedChange:
    """Return the change that CI's variables describe. Raises InputError that names the variable which is missing."""
    return _read_github(environ) if forge == GITHUB else _read_gitlab(environ)


def _read_github(environ: Mapping[str, str]) -> ReviewedChange:
    event = _read_event(Path(_require(environ, "GITHUB_EVENT_PATH")))
    pull = event.get("pull_request")
    if not isinstance(pull, dict):
        raise InputError("is not of a pull request", field="GITHUB_EVENT_PATH", hint="run it on: pull_request")
    repository, number = _require(environ, "GITHUB_REPOSITORY"), pull.get("number")
    if repository.count("/") != 1 or not isinstance(number, int):
        raise InputError("names no repository and number", field="GITHUB_EVENT_PATH", hint="run it on: pull_request")
    token = environ.get("GITHUB_TOKEN", "")
    path = f"/repos/{quote(repository)}/issues"
    return ReviewedChange(
        forge=GITHUB,
        api=check_url(environ.get("GITHUB_API_URL") or "https://api.github.com", "GITHUB_API_URL"),
        base=_read_commit(pull, "base"),
        head=_read_commit(pull, "head"),
        thread=f"{path}/{number}/comments",
        edit=f"{path}/comments",
        token=Secret(token) if token else None,
    )


def _read_gitlab(environ: Mapping[str, str]) -> ReviewedChange:
    project, number = _require(environ, "CI_PROJECT_ID"), _require(environ, "CI_MERGE_REQUEST_IID")
    token = environ.get("GITLAB_TOKEN", "")
    path = f"/projects/{quote(project, safe='')}/merge_requests/{quote(number, safe='')}/notes"
    return ReviewedChange(
        forge=GITLAB,
        api=check_url(_require(environ, "CI_API_V4_URL"), "CI_API_V4_URL"),
        base=_require(environ, "CI_MERGE_REQUEST_DIFF_BASE_SHA"),
        head=_require(environ, "CI_COMMIT_SHA"),
        thread=path,
        edit=path,
        token=Secret(token) if token else None,
    )


def _require(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise InputError(
            "is not set", field=name, hint="CI sets it for pull and merge requests; elsewhere write --base REVISION"
        )
    return environ[name]


def _read_event(path: Path) -> dict[str, object]:
    try:
        event = json.loads(read_input_file(path, EVENT_BYTES_MAX))
    except (OSError, ValueError):
        raise InputError("cannot be read as JSON", field="GITHUB_EVENT_PATH", hint="GitHub sets it in a workflow") from None
    return event if isinstance(event, dict) else {}


def _read_commit(pull: Mapping[str, object], side: str) -> str:
    branch = pull.get(side)
    return str(branch.get("sha", "")) if isinstance(branch, dict) else ""


def write_comment(change: ReviewedChange, text: str, transport: Transport, *, makes: bool = True) -> str:
    """Write `text` as the one comment on the change, and return what was done: "made", "updated", or why nothing was.

    `makes`: make a comment where there is none; False: "not needed" then.
    A token without the right to comment (a pull request from a fork) is no error: the log has the text as well.
    """
    if change.token is None:
        return f"no comment: {'GITHUB_TOKEN' if change.forge == GITHUB else 'GITLAB_TOKEN'} is not set"
    channel, body = _open_channel(change, transport), {"body": f"{MARKER}\n{text}"}
    try:
        comment_id = _find_own_comment(change, channel)
        if comment_id is None and not makes:
            return "not needed"
        if comment_id is None:
            channel.act("POST", change.thread, body=body)
            return "made"
        channel.act("PATCH" if change.forge == GITHUB else "PUT", f"{change.edit}/{comment_id}", body=body)
    except (ForbiddenError, MissingError) as refused:
        return f"no comment: {refused.what} (a fork's token may only read)"
    except ProviderError as broken:
        return f"no comment: {broken.what}"
    return "updated"


def _open_channel(change: ReviewedChange, transport: Transport) -> ProviderChannel:
    if change.token is None:
        raise InputError("is not set", field="token")
    headers: dict[str, str | Secret] = {"PRIVATE-TOKEN": change.token}
    if change.forge == GITHUB:
        bearer = Secret(f"Bearer {change.token.reveal()}")
        headers = {"Authorization": bearer, "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    return ProviderChannel(transport, provider=change.forge, base_url=change.api, headers=headers, secrets=(change.token,))


def _find_own_comment(change: ReviewedChange, channel: ProviderChannel) -> int | None:
    """Return the id of the comment that begins with the marker and was written with this token; None if there is none."""
    login = _find_login(channel)
    for one in _list_comments(change, channel):
        author = one.get("user" if change.forge == GITHUB else "author")
        name = author.get("login" if change.forge == GITHUB else "username") if isinstance(author, dict) else None
        if str(one.get("body", "")).startswith(MARKER) and name == login and isinstance(one.get("id"), int):
            return int(str(one["id"]))
    return None


def _find_login(channel: ProviderChannel) -> str:
    try:
        user = json.loads(channel.read("/user").body)
    except (ForbiddenError, MissingError):
        return GITHUB_ACTIONS_LOGIN
    except ValueError:
        return ""
    return str(user.get("login") or user.get("username") or "") if isinstance(user, dict) else ""


def _list_comments(change: ReviewedChange, channel: ProviderChannel) -> Iterator[dict[str, object]]:
    for page in range(1, PAGES_MAX + 1):
        try:
            comments = json.loads(channel.read(change.thread, {"per_page": str(PAGE_SIZE), "page": str(page)}).body)
        except ValueError:
            return
        rows = [one for one in comments if isinstance(one, dict)] if isinstance(comments, list) else []
        yield from rows
        if len(rows) < PAGE_SIZE:
            return
