"""Commands after `pip install gpu-costguard` without an extra: they work, or they say which extra to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bare import BareInstall, list_bare_distributions

KNOWN = frozenset(
    "alembic annotated-doc annotated-types anyio apscheduler gpu-costguard h11 httpcore2 httpx2 idna mako "  # noqa: SIM905
    "markdown-it-py markupsafe mdurl msgspec platformdirs pydantic pydantic-core pygments pyyaml rich shellingham sqlalchemy "
    "sqlmodel stamina structlog tenacity truststore typer typing-extensions typing-inspection tzlocal".split()
)
"""What `pip install gpu-costguard` brings. A name here is megabytes for everybody: `python -m bench.install` has them."""
QUOTE = ("quote", "--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6")
POLICY = """
[[policy]]
name = "idle-gpu"
when = 'state == "idle" && confidence >= 0.9 && name.startsWith("train-")'
for = "45m"
then = [{ do = "notify" }]
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareInstall:
    return BareInstall(tmp_path_factory.mktemp("bare"))


def test_the_bare_install_brings_what_is_known_and_nothing_else() -> None:
    assert set(list_bare_distributions()) == KNOWN


def test_it_has_nothing_of_an_extra(bare: BareInstall, tmp_path: Path) -> None:
    packages = ("boto3", "google", "fastapi", "cryptography", "pyarrow", "mcp", "cel_expr_python")
    ran = bare.run("-c", f"from importlib.util import find_spec; print(*filter(find_spec, {packages!r}))", cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("\n", "")


SIM = "[providers.sim]\nseed = 1\n"
WEB = f'{SIM}[web]\nlisten = "127.0.0.1:8470"\n'
EXTRAS = {
    "mcp": (("mcp",), "mcp", ""), "serve": (("serve",), "web", WEB), "watch": (("watch",), "web", WEB),
    "metrics": (("metrics",), "web", ""), "parquet": (("report", "--format", "focus", "-o", "a.parquet"), "parquet", ""),
    "traces": (("watch", "--once"), "otel", '[telemetry]\ntraces = "http://127.0.0.1:4318"\n'),
    "aws": (("status",), "aws", "[providers.aws]\n"), "gcp": (("status",), "gcp", '[providers.gcp]\nprojects = ["p"]\n'),
    "postgres": (("status",), "postgres", ""),
    "patterns": (("policy", "lint"), "patterns", POLICY.replace('startsWith("', 'matches("^')),
    "exact": (("size", "--model", "gpt2", "--method", "full", "--precision", "bf16-amp", "--exact"), "exact", ""),
}  # fmt: skip
"""A command, its extra, and settings; tests/cli/test_top.py has `top`, tests/notifiers/test_chat.py has `notify`."""


@pytest.fixture(scope="module")
def recorded(bare: BareInstall, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger that the bare install made."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///ledger.db"\n{SIM}{POLICY}')
    ran = bare.costguard("watch", "--once", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.sampled(3)
@pytest.mark.parametrize("words", [QUOTE, ("policy", "lint"), ("plan",), ("report",), ("status",)], ids=lambda words: words[0])
def test_a_command_needs_no_extra(bare: BareInstall, recorded: Path, words: tuple[str, ...]) -> None:
    ran = bare.costguard(*words, cwd=recorded)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", EXTRAS)
def test_a_command_without_its_extra_says_what_to_install(bare: BareInstall, recorded: Path, name: str, tmp_path: Path) -> None:
    words, extra, table = EXTRAS[name]
    ledger = "postgresql://ada@127.0.0.1:1/costs" if name == "postgres" else f"sqlite:///{recorded}/ledger.db"
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{ledger}"\n{table}')
    (tmp_path / "bill.parquet").write_bytes(b"PAR1")
    ran = bare.costguard(*words, cwd=tmp_path)
    assert f"pip install '.[{extra}]'" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_enrolling_an_agent_says_what_its_key_needs(bare: BareInstall, tmp_path: Path) -> None:
    script = "from pathlib import Path; from costguard.cli.agent import open_watchdog_key; open_watchdog_key(Path('key'))"
    ran = bare.run("-c", script, cwd=tmp_path)
    assert ran.stderr.splitlines()[-2:] == [
        "costguard.errors.InputError: agent enrol: needs a package that is not installed: cryptography",
        "hint: in a clone of costguard: pip install '.[web]'",
    ]
