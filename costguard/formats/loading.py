"""Loads a config as plain values: bounded in size, depth and aliases, and never executed.

YAML is read by PyYAML's safe loader, so a tag such as `!!python/object` is refused; Python and notebooks are parsed to a syntax
tree, of which only literals are looked at; `training_args.bin` is a pickle, which runs code when it is loaded, and is refused.

Example of a bound: nine lines of YAML in which each repeats the line before ten times ("billion laughs") stand for a billion
values. They are counted as they would be expanded, and refused at `MOST_NODES`. The CI of a stranger's pull request reads with
these bounds, so each takes a time in proportion to the file's size (decision 0126).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from costguard.errors import InputError, shorten, to_one_line
from costguard.settings.files import parse_table, read_text

MOST_NODES = 20_000
"""Values of a file, each alias counted as what it stands for. The largest published config read so far has 400."""
LONGEST_SCRIPT = 200_000
"""Characters of Python or shell: parsers need a multiple of them. No published script or notebook has a fifth of it."""
LONGEST_NUMBER = 300
"""Characters of a number in YAML: `1:1:1 ...` to the base of 60 takes quadratic time, and 0xfff... has no limit of its own."""
DEEPEST = 60
"""Levels of nesting; published configs have at most 8."""
DOCUMENTS_MOST = 50

YAML, TOML, JSON, PYTHON, SHELL = "yaml", "toml", "json", "python", "shell"
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
POWER_PATTERN = re.compile(r"[-+]?\d[\d_]*(?:\.\d*)?[eE][-+]?\d+")  # a text to YAML 1.1, which wants a dot and a sign
PICKLES = (".bin", ".pt", ".pth", ".pkl")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A loaded config. `kind`: what it was parsed as. `documents`: its tables (YAML may hold several). `text`: as written.

    `repeated`: keys that stand twice in a table of YAML, with the line of the second; PyYAML takes the last, as most tools do.
    """

    path: Path
    kind: str
    documents: tuple[Mapping[str, object], ...]
    text: str
    repeated: Mapping[str, int] = field(default_factory=dict)

    @property
    def table(self) -> Mapping[str, object]:
        """Return the first table; {} for a script."""
        return self.documents[0] if self.documents else {}

    def is_beside(self, name: str) -> bool:
        """Return whether `name` is a relative path to a file in this file's folder or below it."""
        folder, target = self.path.parent.resolve(), Path(name)
        inside = not target.is_absolute() and ".." not in target.parts and not name.startswith("~")
        try:
            return inside and (folder / target).resolve().is_relative_to(folder) and (folder / target).is_file()
        except (OSError, ValueError):  # a name too long, or with a null byte: no file has it
            return False

    def load_beside(self, name: str) -> ConfigFile | None:
        """Return the config `name` beside this one; None if it is not there, or outside this file's folder: it is not opened.

        Raise InputError for one that cannot be read.
        """
        return load_config_file(self.path.parent / name) if self.is_beside(name) else None


def load_config_file(path: Path, text: str = "") -> ConfigFile:
    """Return the config at `path`, which is never run; raise InputError that says what it is and why it is not read.

    `text`: its content, if it was read.
    """
    ending = path.suffix.lower()
    if ending in PICKLES:
        what = "is a pickle, which can run code when it is loaded, so it is not read"
        hint = "write it as JSON where it was made: print(trainer.args.to_json_string()), and name that file"
        raise InputError(what, field=str(path), hint=hint)
    text = text or read_text(path)
    if ending in (".toml", ".json"):
        return build_table_file(parse_table(text, path), text, path)
    if ending in (".yaml", ".yml"):
        documents, repeated = _parse_yaml(text, path)
        return ConfigFile(path=path, kind=YAML, documents=documents, text=text, repeated=repeated)
    text = _join_cells(text, path) if ending == ".ipynb" else text
    if len(text) > LONGEST_SCRIPT:
        raise InputError("is too long for a training script", field=str(path), hint="name the script that trains")
    return ConfigFile(path=path, kind=PYTHON if ending in (".py", ".ipynb") else SHELL, documents=(), text=text)


def load_yaml_job(file: ConfigFile) -> Mapping[str, object]:
    """Return the one table of a job file in YAML, with numbers as TOML and JSON have them: 50e6 is one."""
    import yaml

    for key, line in file.repeated.items():
        what = f"is not valid YAML: the key '{shorten(to_one_line(key), 40)}' appears twice (at line {line})"
        raise InputError(what, field=str(file.path), hint="keep one of them")
    loader: Any = type("JobLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", POWER_PATTERN, list("+-0123456789"))
    return cast("Mapping[str, object]", _name_keys(next(filter(None, yaml.load_all(file.text, Loader=loader)), {})))


def build_table_file(table: Mapping[str, object], text: str, path: Path) -> ConfigFile:
    """Return the config that a parsed table is; raise InputError if it is nested too deeply or holds too many values."""
    kind = JSON if path.suffix.lower() == ".json" or text.lstrip().startswith("{") else TOML
    return ConfigFile(path=path, kind=kind, documents=(_check_size(table, path),), text="")


def _join_cells(text: str, path: Path) -> str:
    """Return the code cells of a notebook as one text, without the lines that call a shell."""
    cells = cast("Any", parse_table(text if text.lstrip().startswith("{") else "{}", path)).get("cells")
    sources = []
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            lines = "".join(map(str, source)) if isinstance(source, list) else str(source)
            if not lines.lstrip().startswith("%%"):
                sources.append("\n".join(line for line in lines.split("\n") if not line.lstrip().startswith(("!", "%"))))
    return "\n".join(sources)


def _check_size(value: Any, path: Path) -> Any:  # noqa: ANN401 - any value of JSON or TOML
    """Return `value` unless it is nested too deeply or holds too many values."""
    level, nodes = [value], 0
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _list_inner(one)]
        nodes += len(level)
        if not level:
            return value
        if nodes > MOST_NODES:
            break
    raise _refuse_size(path)


def _list_inner(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _refuse_size(path: Path) -> InputError:
    what = (
        f"holds more than {MOST_NODES:,} values or {DEEPEST} levels of them, or a number of more than {LONGEST_NUMBER} digits"
    )
    return InputError(what, field=str(path), hint="name a training config or a launch file")


def _parse_yaml(text: str, path: Path) -> tuple[tuple[Mapping[str, object], ...], dict[str, int]]:
    """Return the tables, and the keys that stand twice in one, with the line of the second."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        repeated = _check_events(yaml.parse(text, Loader=loader), path)
        documents = list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as broken:
        raise _refuse_yaml(broken, text, path) from None
    except (ValueError, RecursionError) as broken:
        raise InputError(f"is not valid YAML: {shorten(to_one_line(str(broken)))}", field=str(path)) from None
    tables = tuple(one for one in documents if one is not None)
    if not tables or len(tables) > DOCUMENTS_MOST or not all(isinstance(one, Mapping) for one in tables):
        raise InputError("contains no keys", field=str(path), hint="start it with key: value")
    return tuple(cast("Mapping[str, object]", _name_keys(one)) for one in tables), repeated


def _name_keys(value: object) -> object:
    """Return `value` with every key as text: YAML reads `on:` and `8:` as true and 8."""
    if isinstance(value, Mapping):
        return {str(key): _name_keys(inner) for key, inner in value.items()}
    return [_name_keys(inner) for inner in value] if isinstance(value, list) else value


@dataclass(slots=True)
class _OpenNode:
    """A list or table of YAML that has begun. `keys`: those of a table so far. `parts`: keys and values of it so far."""

    anchor: str | None
    before: int
    keys: set[str] | None
    parts: int = 0

    def add_part(self, scalar: str | None) -> tuple[str, ...]:
        """Count a key or a value, None if it is no scalar; return the key if it stood in this table before."""
        self.parts += 1
        if self.keys is None or self.parts % 2 == 0 or scalar in (None, "<<"):
            return ()
        repeated_keys = (scalar,) if scalar in self.keys else ()
        self.keys.add(scalar)
        return repeated_keys


def _check_events(events: Iterator[Any], path: Path) -> dict[str, int]:
    """Return the keys that stand twice in a table, with the line of the second.

    Raise InputError if the YAML is too deep, holds itself, or is too large once its aliases are expanded.
    """
    sizes: dict[str, int] = {}
    open_nodes: list[_OpenNode] = []
    repeated: dict[str, int] = {}
    total = 0
    for event in events:
        kind = type(event).__name__
        starts = kind in ("MappingStartEvent", "SequenceStartEvent")
        if open_nodes and (starts or kind in ("AliasEvent", "ScalarEvent")):
            repeated |= dict.fromkeys(open_nodes[-1].add_part(getattr(event, "value", None)), event.start_mark.line + 1)
        if kind == "AliasEvent":
            if any(one.anchor == event.anchor for one in open_nodes):
                raise InputError(
                    f"refers to itself: *{event.anchor} is inside &{event.anchor}",
                    field=f"{path} line {event.start_mark.line + 1}",
                    hint="remove the alias",
                )
            total += sizes.get(event.anchor, 1)
        elif starts:
            open_nodes.append(_OpenNode(event.anchor, total, set() if kind == "MappingStartEvent" else None))
            total += 1
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            node = open_nodes.pop()
            if node.anchor is not None:
                sizes[node.anchor] = total - node.before
        elif kind == "ScalarEvent":
            total += 1
        if total > MOST_NODES or len(open_nodes) > DEEPEST or _is_long_number(event):
            raise _refuse_size(path)
    return repeated


def _is_long_number(event: Any) -> bool:  # noqa: ANN401 - PyYAML has no types
    if len(getattr(event, "value", "")) <= LONGEST_NUMBER:
        return False
    return event.tag in NUMBER_TAGS or (event.tag is None and event.implicit[0] and event.value[0] in "+-.0123456789")


def _refuse_yaml(broken: Any, text: str, path: Path) -> InputError:  # noqa: ANN401 - PyYAML has no types
    """Return the error for YAML that is not valid or has a tag of a program's own."""
    mark = getattr(broken, "problem_mark", None)
    where = f"{path} line {mark.line + 1}" if mark is not None else str(path)
    problem = shorten(to_one_line(str(getattr(broken, "problem", None) or broken)), 160)
    if "could not determine a constructor" in problem:
        tag = problem.rpartition("tag ")[2]
        return InputError(
            f"has the tag {tag}: only plain values are read, and nothing is executed", field=where, hint="remove it"
        )
    if "{{" in text or "{%" in text:
        hint = "render the template first, and name the rendered file"
        return InputError(f"is a template, not YAML: {problem}", field=where, hint=hint)
    return InputError(f"is not valid YAML: {problem}", field=where, hint="check the indentation and the quotes of this line")
