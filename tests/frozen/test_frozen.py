"""What the third edition of the house may not change, one item a line: a diff of a file here is a change of contract.

Answers are held by their shape (schema, path, type); their words are in `tests/golden`. `pytest --write-golden tests/frozen`
writes the files anew; then read the diff.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from costguard import errors
from costguard.data import EXAMPLES
from costguard.guard.policy import HOLD_REASONS
from costguard.services.guarding.explain import list_explanations
from costguard.settings import check_settings
from tests.conftest import Command
from tests.golden.test_example import generated, switched_on
from tests.golden.test_golden import ledger  # noqa: F401 - a fixture

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "golden"
Compare = Callable[[str, Iterator[str]], None]

OTHER_ANSWERS = {
    "plan": ("plan",), "policy_lint": ("policy", "lint"), "db_check": ("db", "check"), "explain": ("explain", "rate"),
    "models": ("models", "gpt2"), "gpus": ("gpus", "T4"),
    "models_fits": ("models", "gpt2", "--fits", "T4", "--method", "lora"),
    "protect": ("protect", "i-0a1b", "--why", "ours"),
    "keep": ("keep", "i-0a1b", "--for", "2h", "--why", "ours"), "breaker": ("breaker", "show"),
    "until": ("until", "show"),
    "size_refused": ("size", "--model", "llama-3.1-405b", "--method", "full", "--on", "T4:1"),
}  # fmt: skip
"""Answers that have no sample of their own in `tests/golden`."""


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """Compares lines with the file of that name."""

    def check(name: str, lines: Iterator[str]) -> None:
        text, file = "".join(f"{line}\n" for line in lines), HERE / f"{name}.txt"
        if request.config.getoption("--write-golden"):
            file.write_text(text)
        assert text.splitlines() == file.read_text().splitlines(), f"{file.name} is frozen: see the docstring of this test"

    return check


def test_shapes_of_answers_with_a_sample(compare: Compare) -> None:
    compare("answers", merge_shapes((path.stem, json.loads(path.read_text())) for path in sorted(SAMPLES.glob("*.json"))))


def test_shapes_of_the_other_answers(
    ledger: Command,  # noqa: F811 - the fixture
    compare: Compare,
) -> None:
    Path("costguard.toml").write_text((EXAMPLES / "solo.toml").read_text())
    compare("other_answers", merge_shapes((name, ledger(*words, "--json").data) for name, words in OTHER_ANSWERS.items()))


def merge_shapes(answers: Iterator[tuple[str, Any]]) -> Iterator[str]:
    for name, answer in answers:
        yield from sorted({f"{name}: {line}" for line in list_shape(answer, answer["schema"])})


def list_shape(value: object, path: str) -> Iterator[str]:
    """Yield `path type` of every value in `value`; all items of a list have one path."""
    if isinstance(value, Mapping):
        yield f"{path} object"
        for key, inner in value.items():
            yield from list_shape(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path} list"
        for inner in value:
            yield from list_shape(inner, f"{path}[]")
    else:
        yield f"{path} {'null' if value is None else type(value).__name__}"


def test_schemas(compare: Compare) -> None:
    """Every name of a schema that the product writes, with its number."""
    root = HERE.parent.parent
    sources = (p for room in ("costguard", "agent", "integrations", "providers") for p in (root / room).rglob("*.py"))
    compare("schemas", iter(sorted({one for p in sources for one in re.findall(r"\bcostguard\.[a-z_-]+/\d+", p.read_text())})))


def test_exit_codes(compare: Compare) -> None:
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CostguardError))
    compare("exit_codes", iter(sorted(f"{kind.__name__} {kind.exit_code}" for kind in kinds)))


def test_keys_of_the_settings(compare: Compare) -> None:
    """Every key of the settings file, with the example that it carries."""
    compare("settings_keys", (line for line in sorted(set(list_keys(switched_on(generated()), "")))))


def list_keys(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from list_keys(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for inner in value:
            yield from list_keys(inner, f"{path}[]")
    else:
        yield f"{path} = {json.dumps(value, default=str, ensure_ascii=False)}"


def test_defaults_of_the_settings(compare: Compare) -> None:
    """What holds where the file says nothing."""
    compare("settings_defaults", iter(sorted(list_defaults(check_settings("", "empty"), ""))))


def list_defaults(value: object, path: str) -> Iterator[str]:
    names = [one.name for one in fields(value)] if is_dataclass(value) else list(getattr(type(value), "model_fields", ()))
    for name in names:
        yield from list_defaults(getattr(value, name), f"{path}.{name}" if path else name)
    if not names:
        yield f"{path} = {value!r}"


def test_reasons(compare: Compare) -> None:
    """What may hold an act back, and every code that `costguard explain` explains."""
    explained = list_explanations()
    compare("reasons", (f"{code} {'hold' if code in HOLD_REASONS else 'code'}" for code in sorted({*HOLD_REASONS, *explained})))


def test_digests_of_policies(compare: Compare) -> None:
    """A digest that changes takes back every acceptance that people gave."""
    lines = (
        f"{name} {one.name} {one.digest}"
        for name in ("solo", "lab", "company")
        for one in check_settings((EXAMPLES / f"{name}.toml").read_text(), name).policies
    )
    compare("policy_digests", lines)


def test_commands_and_their_flags(compare: Compare) -> None:
    """Every command with its arguments and long flags that the help shows."""
    from costguard.cli import app

    compare("commands", list_flags(app, "costguard"))


def list_flags(command: Any, name: str) -> Iterator[str]:  # noqa: ANN401 - click's, or that which typer makes
    yield name
    for one in command.params:
        if one.param_type_name == "argument":
            yield f"{name} {one.metavar}"
        elif not one.hidden:
            yield from (f"{name} {word}" for word in sorted((*one.opts, *one.secondary_opts)) if word.startswith("--"))
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(None):
            if not command.get_command(None, inner).hidden:
                yield from list_flags(command.get_command(None, inner), f"{name} {inner}")


@pytest.mark.usefixtures("ledger")
def test_tables_of_the_ledger(compare: Compare) -> None:
    """Each column with its type, and how many rows the ledger of the samples has in each table."""
    engine = create_engine(os.environ["COSTGUARD_LEDGER__URL"])
    with engine.connect() as connection:
        seen, lines = inspect(connection), list[str]()
        for table in sorted(seen.get_table_names()):
            rows = connection.exec_driver_sql(f'SELECT count(*) FROM "{table}"').scalar_one()  # noqa: S608 - its own name
            lines += [f"{table} rows {rows}"]
            for column in seen.get_columns(table):
                lines += [f"{table}.{column['name']} {column['type']}{'' if column['nullable'] else ' NOT NULL'}"]
    engine.dispose()
    compare("ledger_tables", iter(lines))
