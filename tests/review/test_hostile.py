"""Files of a stranger: each reader is bounded, and what a child process still takes too long for is said and passed by."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from costguard.formats.commands import expand_variables
from costguard.formats.literals import PythonSource
from costguard.formats.loading import PYTHON, ConfigFile
from costguard.services.quote import review
from costguard.services.quote.review import FILE_LIMITS, answer_review, quote_job_file
from costguard.system.child.limited import run_limited

JOB = 'model = "llama-3.1-8b"\nmethod = "qlora"\ntokens = 50e6\n'
AXOLOTL = "base_model: gpt2\nsequence_len: 2048\nmicro_batch_size: 2\nnum_epochs: 1\nsample_packing: true\n"
SCRIPT = "torchrun --nproc_per_node 8 t.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --max_steps 9\n"
N = 100_000

HOSTILE = {
    "dotted keys": ("j.toml", JOB + "a." * N + "b = 1\n", "60 parts"),
    "a dotted header": ("j.toml", f"{JOB}[{'a.' * N}b]\n", "60 parts"),
    "a dotted key behind a quoted sign": ("j.toml", JOB + '"="' + ".a" * N + " = 1\n", "60 parts"),
    "a large file": ("j.toml", JOB + "#" * 2**20, "1 MiB"),
    "repeated keys": (
        "j.json",
        "{" + ",".join(f'"k{i}":1' for i in range(N)) + ',"z":1,"z":2}',
        "'z' appears twice (at line 1)",
    ),
    "repeated, then garbage": ("j.json", '{"a":{"\\u0061":1,"a":1}}}}"' + '\\"' * N, "'a' appears twice"),
    "a number to the base of 60": ("j.yaml", AXOLOTL + "x: 1" + ":1" * N, "300 digits"),
    "a tagged number": ("j.yaml", f"{AXOLOTL}x: !!int '1{':1' * N}'", "300 digits"),
    "a hexadecimal number": ("j.yaml", AXOLOTL + "max_steps: 0x" + "f" * N, "300 digits"),
    "many keys": ("j.yaml", AXOLOTL + "".join(f"k{i}: 1\n" for i in range(N)), "20,000 values"),
    "a name for a slow pattern": ("j.yaml", AXOLOTL.replace("gpt2", "a" + "-hf" * N + "x"), "4,096 characters"),
    "a long script": ("j.sh", SCRIPT + "a ; " * N, "too long"),
    "the checkout's token": ("j.toml", 'path = ".git/config"\nmethod = "qlora"\n', "outside of the allowed folder"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_out_of_bounds_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    file, text, why = HOSTILE[name]
    (tmp_path / file).write_text(text)
    cost = quote_job_file(tmp_path, file)
    assert cost is not None
    assert why in cost.problem
    assert len(cost.problem) < 1000


def test_literals_and_variables_do_not_grow_without_bounds() -> None:
    source = f"A = {'9' * 400} * {'9' * 400}\nf(timeout=2 * 10 * 60, big={'9' * 400} * 3)\n"
    (call,) = PythonSource(ConfigFile(path=Path("m.py"), kind=PYTHON, documents=(), text=source)).list_calls("f")
    assert call == {"timeout": 1200, "big": "${computed}"}
    assert len(expand_variables("A=" + "x" * 299 + "\n" + "$A " * N)) < 2 * N * 3 + 400
    assert expand_variables("A=7\nrun $A\n") == "A=7\nrun 7\n"


def test_a_child_that_takes_too_much_is_ended_and_gives_nothing() -> None:
    def take_memory() -> int:
        return len(bytearray(2**30))

    def take_time() -> None:
        while True:
            pass

    assert [run_limited(compute, FILE_LIMITS) for compute in (lambda: 7, take_memory, take_time)] == [7, None, None]


def run_git(folder: Path, *words: str) -> None:
    subprocess.run(("git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words), check=True)


def test_a_file_that_becomes_a_folder_is_removed_and_a_submodule_is_no_job(tmp_path: Path) -> None:
    git = partial(run_git, tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / "x.toml").write_text(JOB)
    git("add", ".")
    git("commit", "-q", "-m", "base")
    (tmp_path / "x.toml").unlink()
    (tmp_path / "x.toml").mkdir()
    (tmp_path / "x.toml" / "in.yaml").mkdir()
    (tmp_path / "x.toml" / "in.yaml" / "z.toml").write_text(JOB)
    with (tmp_path / "huge.yaml").open("wb") as huge:
        huge.truncate(2**26)
    (tmp_path / "sub.toml").mkdir()
    git("-C", "sub.toml", "init", "-q")
    git("-C", "sub.toml", "commit", "-q", "--allow-empty", "-m", "a submodule")
    git("-c", "advice.addEmbeddedRepo=false", "add", ".")
    git("commit", "-q", "-m", "head")
    answer = answer_review(patterns=["*"], base="HEAD~1", max_usd="1000", root=tmp_path)
    changes = {str(one["file"]): (one["usd_before"], one["usd_after"], one["problem"]) for one in answer.document.records}
    assert set(changes) == {"huge.yaml", "x.toml", "x.toml/in.yaml/z.toml"}
    assert changes["x.toml"][1:] == (None, None)
    assert changes["x.toml"][0] == changes["x.toml/in.yaml/z.toml"][1]
    assert changes["huge.yaml"][2] == "huge.yaml: is larger than 8 MiB"


def test_files_that_are_not_read_are_said_and_pass_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = partial(run_git, tmp_path)
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "base")
    names = [b"a\xff.toml", b"b.toml", b"c.toml", b"d.toml"]
    for name in names:
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_text(JOB)
    (tmp_path / "e.toml").symlink_to("/etc/passwd")
    git("add", ".")
    git("commit", "-q", "-m", "head")
    monkeypatch.setattr(review, "FILES_MAX", 2)
    answer = answer_review(patterns=["*"], base="HEAD~1", max_usd="1000", root=tmp_path)
    files = [(one["file"], one["problem"]) for one in answer.document.records]
    assert files[:2] == [("a\ufffd.toml", None), ("b.toml", None)]
    assert files[2][0] == "3 more files"
    assert "at most 2 files" in str(files[2][1])
    assert answer.refusal is not None
