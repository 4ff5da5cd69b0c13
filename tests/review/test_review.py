"""`costguard review`: both sides of a change, the limits, and the one comment on a pull or merge request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from costguard.services import CommandAnswer
from costguard.services.quote.quote_commands import answer_quote
from costguard.services.quote.review import quote_job_file
from costguard.services.quote.review.comment import MARKER
from tests.conftest import Command, Ran
from tests.fakes.server import serving
from tests.review.forge import TOKEN, FakeForge, Repository, git

JOB = 'model = "llama-3.1-8b"\nmethod = "qlora"\ntokens = {tokens}\nseq_len = 2048\nmicro_batch = 2\n'
SMALL, LARGE = JOB.format(tokens=50_000_000), JOB.format(tokens=500_000_000)
SERVER = 'model = "llama-3.1-8b"\nmethod = "inference"\nrequests_per_second = 1\nprompt_len = 500\noutput_len = 100\n'
HOSTILE = "jobs/$(touch owned)`id`;@ana #1 ::error::x|.toml"
BEFORE = {"jobs/train.toml": SMALL, "jobs/old.toml": SMALL, "jobs/same.toml": SMALL, "README.md": "x", "outside.toml": SMALL}
AFTER: dict[str, str | None] = {
    "jobs/train.toml": LARGE, "jobs/old.toml": None, "jobs/serve.toml": SERVER, HOSTILE: SMALL, "README.md": "y",
    "outside.toml": LARGE,
}  # fmt: skip
ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path, BEFORE, AFTER)


@pytest.fixture
def github(
    repository: Repository, market: str, tmp_path: Path, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeForge]:
    """A workflow's environment in the checkout of the merge, and the API that its comments go to."""
    del costguard
    fake = FakeForge("github", "github-actions[bot]")
    with serving(fake) as url:
        monkeypatch.chdir(repository.checkout)
        (tmp_path / "costguard.toml").write_text(f'[quote]\nmarket = "{market}"\n')
        for name, value in {
            "GITHUB_EVENT_PATH": str(repository.write_event(tmp_path / "event.json")),
            "GITHUB_REPOSITORY": "acme/train",
            "GITHUB_API_URL": url,
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "COSTGUARD_QUOTE__MARKET": market,
        }.items():
            monkeypatch.setenv(name, value)
        yield fake


def review(costguard: Command, *more: str, ci: str = "github") -> Ran:
    return costguard("review", "--ci", ci, "--path", "jobs/*.toml", *more)


def test_both_sides_are_quoted_as_quote_does_it(
    repository: Repository, market: str, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.origin)
    ran = costguard("review", "--base", repository.base, "--path", "jobs/*.toml", "--market", market, "--json")
    assert ran.code == 0, ran.err
    changes: dict[str, Any] = {one["file"]: one for one in ran.data["changes"]}
    assert list(changes) == [HOSTILE, "jobs/old.toml", "jobs/serve.toml", "jobs/train.toml"]
    options = costguard("quote", "jobs/train.toml", "--market", market, "--json").data["options"]
    cheapest = next(one for one in options if "cheapest" in one["marks"])
    assert changes["jobs/train.toml"]["after"]["usd"] == cheapest["usd"]
    assert changes["jobs/train.toml"]["before"]["usd"]["expected"] < cheapest["usd"]["expected"]
    assert changes["jobs/old.toml"]["after"] is None
    assert changes["jobs/old.toml"]["usd_difference"].startswith("-")
    assert changes["jobs/serve.toml"]["before"] is None
    assert changes["jobs/serve.toml"]["after"]["per_month"] is True
    sums = [
        sum(float((one[side] or {"usd": {"expected": 0}})["usd"]["expected"]) for one in changes.values())
        for side in ("before", "after")
    ]
    assert [float(ran.data["usd_before"]), float(ran.data["usd_after"])] == pytest.approx(sums)
    assert git(repository.origin, "worktree", "list").count("\n") == 0, "nothing is left behind"


def test_one_comment_is_made_updated_and_nobody_elses_is_touched(github: FakeForge, costguard: Command, tmp_path: Path) -> None:
    for number in range(120):
        github.add("ana", f"{MARKER}\nnot yours {number}")
    first = review(costguard)
    assert first.code == 0, first.err
    (mine,) = [one for one in github.comments if one["user"]["login"] == github.login]
    assert mine["body"].startswith(f"{MARKER}\n### 4 GPU jobs change: $")
    second = review(costguard, "--max-usd", "1")
    assert second.code == 3
    assert "is over the limit of $1.00" in second.err
    assert "is over the limit of $1.00" in mine["body"]
    assert len(github.comments) == 121
    assert costguard("review", "--ci", "github", "--path", "nothing/*").code == 0
    assert "No job file changed" in mine["body"]
    mine["body"] = "deleted"
    assert costguard("review", "--ci", "github", "--path", "nothing/*").code == 0
    assert len(github.comments) == 121
    assert all(one["body"].startswith(f"{MARKER}\nnot yours") for one in github.comments[:120])
    assert (tmp_path / "summary.md").read_text().count("### 4 GPU jobs change") == 2
    assert TOKEN not in first.out + first.err + second.out + second.err + mine["body"]


def test_the_comment_is_ten_lines_and_what_is_hostile_is_drawn_as_written(github: FakeForge, costguard: Command) -> None:
    assert review(costguard).code == 0
    body = github.comments[0]["body"]
    shown = [line for line in body.partition("<details>")[0].splitlines() if line]
    assert len(shown) <= 10
    assert "before" in shown[2]
    assert r"jobs/$(touch `owned)'id';@ana` `#1` ::error::x\|.toml" in body
    assert body.count("@ana") == body.count("';@ana`") > 0
    assert not list(Path.cwd().rglob("owned"))


def test_a_fork_reads_only_and_the_check_still_says_what_it_costs(
    github: FakeForge, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    github.fork = True
    ran = review(costguard, "--json")
    assert ran.code == 0
    assert "a fork's token may only read" in ran.err
    assert len(ran.data["changes"]) == 4
    assert "a fork's token may only read" in review(costguard).out
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "GITHUB_TOKEN is not set" in review(costguard, "--json").err
    assert github.comments == []
    calls = len(github.asked)
    assert costguard("--offline", "review", "--ci", "github", "--path", "jobs/*").code == 0
    assert review(costguard, "--no-comment").code == 0
    assert len(github.asked) == calls


@pytest.mark.parametrize(
    ("limit", "code"), [(("--max-usd", "100000"), 0), (("--max-increase", "0.01"), 3), (("--max-usd", "5"), 3)]
)
def test_a_limit_decides_the_exit_code(limit: tuple[str, str], code: int, github: FakeForge, costguard: Command) -> None:
    assert review(costguard, "--no-comment", *limit).code == code
    assert github.asked == []


def test_what_is_not_quoted_is_said_and_counts_as_over_a_limit(
    tmp_path: Path, market: str, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('token = "canary-of-the-runner"\n')
    repository = Repository(
        tmp_path,
        {"jobs/broken.toml": SMALL},
        {
            "jobs/broken.toml": "model = [",
            "jobs/link.toml": f"-> {secret}",
            "jobs/nobody.toml": 'model = "no-such-model"\nmethod = "full"\ntokens = 1000000\n',
            "jobs/huge.toml": 'model = "llama-3.1-405b"\nmethod = "full"\ntokens = 1000000\n[limits]\ngpus = ["T4"]\n',
            "jobs/mute.toml": 'model = "llama-3.1-8b"\nmethod = "qlora"\n',
        },
    )
    monkeypatch.chdir(repository.origin)
    asked = ("review", "--base", repository.base, "--path", "jobs/* unused/*", "--market", market)
    ran = costguard(*asked, "--json")
    assert ran.code == 0
    problems = {one["file"]: one["after"]["problem"] for one in ran.data["changes"]}
    assert "links are not followed" in problems["jobs/link.toml"]
    assert "no-such-model" in problems["jobs/nobody.toml"]
    assert "nothing fits" in problems["jobs/huge.toml"]
    assert "tokens" in problems["jobs/mute.toml"]
    assert "jobs/broken.toml" in problems["jobs/broken.toml"]
    assert str(tmp_path) not in ran.out
    assert "canary" not in ran.out
    over = costguard(*asked, "--max-usd", "1000000")
    assert over.code == 3
    assert "is not quoted, so its cost is unknown" in over.err


@pytest.mark.parametrize("depth", [(), ("--depth=1",)])
def test_a_checkout_of_the_head_is_compared_with_where_it_left_the_base(
    depth: tuple[str, ...], github: FakeForge, repository: Repository, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository.origin, "switch", "--quiet", "--detach", repository.base)
    (repository.origin / "jobs" / "same.toml").write_text(LARGE)
    git(repository.origin, "commit", "--quiet", "--all", "--message", "the base goes on")
    event = Path(os.environ["GITHUB_EVENT_PATH"])
    moved = git(repository.origin, "rev-parse", "HEAD")
    event.write_text(event.read_text().replace(repository.base, moved))
    head = event.parent / "head"
    git(event.parent, "clone", "--quiet", *depth, "--branch", "pull", repository.origin.as_uri(), str(head))
    monkeypatch.chdir(head)
    ran = review(costguard, "--no-comment", "--json")
    assert ran.code == 0, ran.err
    files = [one["file"] for one in ran.data["changes"]]
    assert files == [HOSTILE, "jobs/old.toml", *(["jobs/same.toml"] if depth else []), "jobs/serve.toml", "jobs/train.toml"]
    assert github.asked == []


def test_gitlab_gets_a_note_that_is_updated(
    repository: Repository, market: str, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeForge("gitlab", "project_12_bot")
    monkeypatch.chdir(repository.origin)
    with serving(fake) as url:
        variables = {"CI_API_V4_URL": url, "CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "7", "GITLAB_TOKEN": TOKEN}
        commits = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base, "CI_COMMIT_SHA": repository.head}
        for name, value in {**variables, **commits, "COSTGUARD_QUOTE__MARKET": market}.items():
            monkeypatch.setenv(name, value)
        fake.add("ana", f"{MARKER}\nnot yours")
        for _ in range(2):
            ran = review(costguard, "--market", market, ci="gitlab")
            assert ran.code == 0, ran.err
    assert [one["author"]["login"] for one in fake.comments] == ["ana", "project_12_bot"]
    assert fake.calls("PUT ") == fake.calls("POST ") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--path", "jobs/*"), "state one of --base and --ci"),
        (("--base", "main"), "--path"),
        (("--base", "no-such-branch", "--path", "x"), "git has no revision"),
        (("--base", "--upload-pack=touch owned", "--path", "x"), "git has no revision"),
        (("--ci", "jenkins", "--path", "x"), "--ci"),
        (("--ci", "github", "--path", "x"), "GITHUB_EVENT_PATH"),
        (("--base", "main", "--path", "x", "--max-usd", "much"), "--max-usd"),
    ],
)
def test_a_wrong_call_says_what_to_write(
    arguments: tuple[str, ...], words: str, costguard: Command, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.origin)
    for name in ("GITHUB_EVENT_PATH", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    costguard("review", *arguments).says(words)


def test_the_action_runs_and_no_expression_stands_in_a_script(github: FakeForge, market: str, tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, quote = action["runs"]["steps"]
    for step in (install, quote):
        assert "${{" not in step["run"]
    assert "python3 -I " in install["run"]
    runner = tmp_path / "runner"
    (runner / "costguard" / "bin").mkdir(parents=True)
    python = runner / "costguard" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in ("costguard.py", "secrets.py", "json.py", "yaml.py"):  # modules of the checkout, which nobody may import
        Path(name).write_text('open("owned", "w")\n')
    inputs = {
        "paths": "jobs/*.toml\n$(touch owned)", "max-usd": "1", "max-increase": "", "comment": "true", "github-token": TOKEN,
    }  # fmt: skip
    stated = {name: inputs[text.split("inputs.")[1].rstrip(" }")] for name, text in quote["env"].items()}
    environment = {**os.environ, **stated, "RUNNER_TEMP": str(runner), "COSTGUARD_QUOTE__MARKET": market}
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", quote["run"]], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert ran.stdout.startswith("::stop-commands::")
    assert ran.stdout.splitlines()[-1] == f"::{ran.stdout.splitlines()[0].rpartition('::')[2]}::"
    assert len(github.comments) == 1
    assert not list(Path.cwd().rglob("owned"))


def test_the_gitlab_template_quotes_its_variables() -> None:
    job = yaml.safe_load((ROOT / "config" / "ci" / "gitlab.yml").read_text(encoding="utf-8"))["costguard"]
    for line in (*job["before_script"], *job["script"]):
        for at in [n for n, sign in enumerate(line) if sign == "$"]:
            assert line[:at].count('"') % 2 == 1, f"unquoted: {line}"


def test_no_module_of_the_checkout_is_run_by_the_action_or_the_template() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, quote = (step["run"] for step in action["runs"]["steps"])
    job = yaml.safe_load((ROOT / "config" / "ci" / "gitlab.yml").read_text(encoding="utf-8"))["costguard"]
    scripts = [install, quote, *job["before_script"], *job["script"]]
    calls = [rest for script in scripts for rest in re.split(r"\bpython3?\b", script)[1:]]
    assert len(calls) == 7
    for rest in calls:
        assert rest.lstrip('"').startswith(" -I "), f"not isolated: {rest}"
    for script in scripts:
        assert not re.search(r"bin/(?!python\b)|(^|[;&(])\s*(pip|costguard)", script, re.MULTILINE), (
            f"not by python -I: {script}"
        )
        for line in re.split(r"\n(?!\s+--)", script):
            if re.search(r"-m (venv|pip)\b", line):
                assert re.search(r"\bcd \S+", script[: script.index(line)] + line.partition("python")[0]), (
                    f"in the checkout: {line}"
                )
    assert any("unset GITLAB_TOKEN" in line for line in job["before_script"])


HOSTILE_SETTINGS = '[network]\nproxy = "{proxy}"\nca_file = "own.pem"\n[quote]\nmarket = "no-such-market.sqlite"\n'


@pytest.mark.sampled(2)
@pytest.mark.parametrize("forge", ["github", "gitlab"])
@pytest.mark.parametrize("side", ["added by the change", "removed by the change"])
def test_settings_of_the_checkout_decide_neither_where_the_token_goes_nor_a_quote(
    side: str, forge: str, *, github: FakeForge, tmp_path: Path, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, folder, adds = FakeForge("github", "github-actions[bot]"), tmp_path / "other", side.startswith("added")
    folder.mkdir()
    monkeypatch.delenv("COSTGUARD_QUOTE__MARKET")  # else the variable wins over the file
    with serving(proxy) as url:
        hostile = {"costguard.toml": HOSTILE_SETTINGS.format(proxy=url), "own.pem": "-----BEGIN CERTIFICATE-----"}
        before = {"jobs/train.toml": SMALL} | ({} if adds else hostile)
        repository = Repository(folder, before, {"jobs/train.toml": LARGE} | (hostile if adds else dict.fromkeys(hostile)))
        monkeypatch.chdir(repository.checkout)
        repository.write_event(tmp_path / "event.json")
        if forge == "gitlab":
            monkeypatch.chdir(repository.origin)
            github.name = "gitlab"
            variables = {"CI_API_V4_URL": os.environ["GITHUB_API_URL"], "CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "7"}
            commits = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base, "CI_COMMIT_SHA": repository.head}
            for name, value in {**variables, **commits, "GITLAB_TOKEN": TOKEN}.items():
                monkeypatch.setenv(name, value)
        ran = review(costguard, "--json", ci=forge)
    assert ran.code == 0, ran.err
    assert proxy.asked == []
    assert len(github.comments) == 1
    (change,) = ran.data["changes"]
    assert change["before"]["usd"]
    assert change["after"]["usd"]
    assert ("is not used: the reviewed change may have edited it" in ran.err) is adds


def test_settings_above_the_working_folder_are_not_used_in_ci(
    github: FakeForge, repository: Repository, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: repository.checkout.parent)
    (repository.checkout / "costguard.toml").write_text("no settings at all")
    monkeypatch.chdir(repository.checkout / "jobs")
    ran = review(costguard)
    assert ran.code == 0, ran.err
    assert "is not used: the reviewed change may have edited it" in ran.out
    here = review(costguard, "--json")
    monkeypatch.chdir(repository.checkout)
    assert here.data == review(costguard, "--json").data, "in a folder of the checkout both sides are found as well"
    assert len(github.comments) == 1


@pytest.mark.parametrize("named", ["flag", "variable"])
def test_settings_named_in_the_checkout_are_refused_and_those_outside_of_it_are_used(
    named: str, github: FakeForge, tmp_path: Path, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, inside, link = tmp_path / "trusted.toml", Path.cwd() / "costguard.toml", Path.cwd() / "link.toml"
    with serving(github) as proxy:
        inside.write_text(HOSTILE_SETTINGS.format(proxy=proxy))
    outside.write_text("")
    link.symlink_to(outside)
    (tmp_path / "way.toml").symlink_to(inside)
    (tmp_path / "folder").symlink_to(Path.cwd())

    def call(place: str) -> Ran:
        if named == "flag":
            return costguard("--config", place, "review", "--ci", "github", "--path", "jobs/*.toml")
        monkeypatch.setenv("COSTGUARD_CONFIG", place)
        return review(costguard)

    for place in ("costguard.toml", str(inside), "link.toml", "../way.toml", str(tmp_path / "folder" / "costguard.toml")):
        refused = call(place)
        assert refused.code == 2, place
        assert "is in the checkout" in refused.err
        assert ("--config" if named == "flag" else "COSTGUARD_CONFIG") in refused.err
    assert github.asked == []
    outside.write_text('[network]\nproxy = "no proxy"\n')
    assert "network.proxy" in call(str(outside)).err
    outside.write_text("")
    for place in (str(outside), "../trusted.toml"):
        assert call(place).code == 0
    assert len(github.comments) == 1


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (RecursionError("canary"), "cannot be read: RecursionError"),
        (PermissionError(13, "Permission denied", "/canary"), "cannot be read: Permission denied"),
    ],
)
def test_one_bad_file_is_one_row_and_the_others_are_quoted(
    raised: Exception, words: str, github: FakeForge, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = answer_quote

    def answer(**asked: Any) -> CommandAnswer:  # noqa: ANN401 - of `answer_quote`
        if asked["job_file"].endswith("serve.toml"):
            raise raised
        return true(**asked)

    monkeypatch.setattr("costguard.services.quote.review.answer_quote", answer)
    ran = review(costguard, "--json")
    assert ran.code == 0, ran.err
    changes = {one["file"]: one for one in ran.data["changes"]}
    assert changes["jobs/serve.toml"]["after"]["problem"] == words
    assert changes["jobs/train.toml"]["after"]["usd"]
    assert words in github.comments[0]["body"]
    over = review(costguard, "--max-usd", "1000000")
    assert over.code == 3
    assert "jobs/serve.toml is not quoted" in over.err
    assert "canary" not in ran.out + ran.err + over.out + over.err + github.comments[0]["body"]


def test_a_name_that_is_no_utf_8_is_a_row_like_any_other(
    tmp_path: Path, market: str, github: FakeForge, costguard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    repository = Repository(folder, {"README.md": "x"}, {os.fsdecode(b"jobs/\xff.toml"): SMALL, "jobs/train.toml": LARGE})
    repository.write_event(tmp_path / "event.json")
    monkeypatch.chdir(repository.checkout)
    ran = review(costguard, "--market", market)
    assert ran.code == 0, ran.err
    assert "2 GPU jobs change" in github.comments[0]["body"]
    assert review(costguard, "--market", market, "--json").code == 0


def test_a_job_that_names_a_file_outside_the_repository_shows_nothing_of_it(tmp_path: Path, market: str) -> None:
    leak = tmp_path / "leak.json"
    leak.write_text('{"model_type": "S3CR3T"}')
    side = tmp_path / "side"
    side.mkdir()
    for name, line in (("path.toml", f'path = "{leak}"'), ("up.toml", 'path = "../leak.json"')):
        (side / name).write_text(f'{line}\nmethod = "full"\ntokens = 1000000\n')
        found = quote_job_file(side, name, market=market)
        assert found is not None
        assert found.problem
        assert "S3CR3T" not in found.problem
