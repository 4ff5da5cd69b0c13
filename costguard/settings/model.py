"""The base of the settings' models: values are read by functions that word the errors, all of which are collected.

    class LedgerSettings(SettingsModel):
        url: OptionalText = describe_key(None, "The database of the ledger.", "sqlite:////srv/costguard/ledger.db")

`describe_key` holds what the example file and the documentation say of a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from costguard.errors import (
    FIELD_LENGTH_MAX,
    InputError,
    SeveralInputsError,
    collect_errors,
    raise_errors,
    shorten,
    to_one_line,
)
from costguard.settings.fields import (
    DURATION_MAX,
    NAME_CHARS_MAX,
    SettingsTable,
    parse_duration,
    read_flag,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
)
from costguard.settings.lines import FilePath
from costguard.values.checks import make_unknown_key_error, require, require_one_of, require_whole_number

Model = TypeVar("Model", bound="SettingsModel")
Built = TypeVar("Built", bound="HasName")
PATH_PATTERN = re.compile(r"\.([\w-]+)| (\d+)")


class HasName(Protocol):
    """What a table of its own is made into."""

    @property
    def name(self) -> str:
        """Its name, which no other of its kind has."""


class SettingsModel(BaseModel):
    """A table of the settings file. Its schema is built when the file states it.

    A stated value may be a secret: pydantic's own errors, which a traceback shows, must not repeat it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )


class RefusedValueError(ValueError):
    """Takes an InputError through pydantic, which catches ValueErrors."""

    def __init__(self, error: InputError) -> None:
        self.error = error


class ReadAs:
    """Marks a field that `read` reads, a function of the value and of the text that names it in errors.

    `place`: resolves a relative path against the folder of the settings file.
    """

    def __init__(self, read: Callable[[Any, str], object], place: Callable[[str, Path], str] | None = None) -> None:
        self.read, self.place = read, place

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: refuse(self.read, value, ""))


class CheckFirst:
    """Marks a field of tables within the table, which `check` looks at, as `ReadAs.read` does, before they are read."""

    def __init__(self, check: Callable[[Any, str], object]) -> None:
        self.read = check

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(lambda value: refuse(self.read, value, ""), handler(source))


def require_table(example: str) -> CheckFirst:
    """Return the mark of a table within the table, which may not be empty. `example`: what could be written."""
    return CheckFirst(lambda value, field: read_inner(value, field, example))


Text = Annotated[str, ReadAs(read_text)]
OptionalText = Annotated[str | None, ReadAs(read_text)]
Texts = Annotated[tuple[str, ...], ReadAs(read_texts)]
OptionalTexts = Annotated[tuple[str, ...] | None, ReadAs(read_texts)]
Name = Annotated[str, ReadAs(read_name)]
Flag = Annotated[bool, ReadAs(read_flag)]
OptionalFlag = Annotated[bool | None, ReadAs(read_flag)]


def choose(*choices: str) -> ReadAs:
    """Return the mark of a field that is one of `choices`."""
    return ReadAs(lambda value, field: require_one_of(value, choices, field))


def choose_many(*choices: str) -> ReadAs:
    """Return the mark of a field that is a list of some of `choices`."""
    return ReadAs(lambda value, field: tuple(require_one_of(one, choices, field) for one in read_texts(value, field)))


def fit(pattern: str, what: str, hint: str) -> ReadAs:
    """Return the mark of a field that is a text of `pattern`. `what`: what is wrong with another one."""
    return ReadAs(lambda value, field: _require_fit(read_text(value, field), field, pattern, what, hint))


def fit_each(pattern: str, what: str, hint: str) -> ReadAs:
    """Return the mark of a field that is a list of texts of `pattern`."""
    return ReadAs(lambda value, field: tuple(_require_fit(one, field, pattern, what, hint) for one in read_texts(value, field)))


def _require_fit(text: str, field: str, pattern: str, what: str, hint: str) -> str:
    require(bool(re.fullmatch(pattern, text)), field, f"'{shorten(text)}' {what}", hint)
    return text


def limit_duration(least: timedelta = timedelta(), most: timedelta = DURATION_MAX) -> ReadAs:
    """Return the mark of a field that is a duration."""
    return ReadAs(lambda value, field: parse_duration(value, field, least=least, most=most))


def count(least: int, most: int) -> ReadAs:
    """Return the mark of a field that is a whole number."""
    return ReadAs(lambda value, field: require_whole_number(value, field, least=least, most=most))


def describe_key(default: object, description: str = "", example: object = None, *, key: str | None = None) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return the field of a model. `default`: ... for a required key. `key`: its name in the file, if not the field's."""
    return Field(default, description=description, examples=[example], alias=key)


def describe_flag(description: str) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return the field of a flag that is off by default."""
    return describe_key(default=False, description=description, example=False)


def refuse(check: Callable[..., object], *arguments: object) -> object:
    """Return `check(*arguments)`; its InputError is raised so that pydantic collects it with the others."""
    try:
        return check(*arguments)
    except InputError as error:
        raise RefusedValueError(error) from None


def find_reader(field: FieldInfo) -> ReadAs | None:
    """Return how a field's value is read; None for a table within the table."""
    return next((mark for mark in field.metadata if isinstance(mark, ReadAs)), None)


def list_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys of a table as they stand in the file."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def list_stated(table: BaseModel) -> dict[str, Any]:
    """Return the values that the file states, by the names of the model's fields."""
    return {name: value for name, value in table if name in table.model_fields_set}


def read_model(model: type[Model], table: SettingsTable, place: str, path: FilePath, *, name: str = "") -> Model:
    """Return the table `table` as `model`; raise all its errors. `place`: its name in errors. `name`: what it calls itself."""
    try:
        return model.model_validate(dict(table))
    except ValidationError as broken:
        called = f" ({name})" if name else ""
        # a key that is misspelt is told before the key that is missing for that
        errors = sorted(broken.errors(), key=lambda one: one["type"] != "extra_forbidden")
        raise_errors([error for one in errors for error in _make_errors(model, one, place, path, called)])
        raise


def _make_errors(
    model: type[BaseModel], details: Mapping[str, Any], place: str, path: FilePath, name: str
) -> Iterator[InputError]:
    """Yield what pydantic found as errors of costguard's form."""
    where = tuple(part + 1 if isinstance(part, int) else part for part in details["loc"])
    inner = _find_model(model, details["loc"][:-1])
    full_name = f"{place}{'' if where == ('name',) else name}"
    field = full_name + "".join(f" {part}" if isinstance(part, int) else f".{part}" for part in where)
    if details["type"] == "extra_forbidden":
        refused = make_unknown_key_error(str(where[-1]), list_keys(inner), "")
    elif details["type"] == "missing":
        refused = _make_missing_error(inner, str(where[-1]))
    else:
        refused = details["ctx"]["error"].error
    for error in refused.errors if isinstance(refused, SeveralInputsError) else (refused,):
        _place_error(error, field, (*path, *where))
        yield error


def _make_missing_error(model: type[BaseModel], key: str) -> InputError:
    from costguard.settings.example import format_toml

    model_field = next(field for name, field in model.model_fields.items() if (field.alias or name) == key)
    (example,) = model_field.examples or [""]
    if isinstance(example, list) and isinstance(example[0], dict):
        example = example[:1]  # of several steps the first says how one is written
    return InputError("is missing", hint=f"write {key} = {format_toml(example, lines=False)}. {model_field.description}")


def _find_model(model: type[BaseModel], loc: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the model of the table at `loc` within `model`."""
    for part in loc:
        if isinstance(part, str):
            model_field = next(field for name, field in model.model_fields.items() if (field.alias or name) == part)
            model = find_inner_model(model_field.annotation) or model
    return model


def find_inner_model(annotation: object) -> type[BaseModel] | None:
    """Return the model in a type such as `LeaseTable | None` or `tuple[StepTable, ...]`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (find_inner_model(part) for part in getattr(annotation, "__args__", ()))
    return next((one for one in inner if one is not None), None)


def read_models(
    kind: str,
    model: type[Model],
    value: object,
    where: str,
    make: Callable[[Model], Built],
    *,
    title: Callable[[SettingsTable], object] = lambda table: table.get("name"),
) -> tuple[Built, ...]:
    """Return what `make` makes of each `[[kind]]` table of the file `where`; raise all errors of all tables.

    Errors name the number of the table, and its name: `costguard.toml: budget 2 (vision).cap`. The fields of errors that `make`
    raises are relative: ".cap". `title`: what a table is called in errors.
    """
    base: FilePath = tuple(kind.split("."))
    errors: list[InputError] = []
    built: list[Built] = []
    names: dict[int, str] = {}
    for number, table in enumerate(read_tables(value, where, kind), 1):
        place, name = f"{where}: {kind} {number}", str(title(table) or "").strip()
        path: FilePath = (*base, number)
        if len(name) <= NAME_CHARS_MAX and name and name.isprintable():
            names[number] = name
        with collect_errors(errors):
            read = read_model(model, table, place, path, name=names.get(number, ""))
            with place_errors(f"{place} ({name})" if number in names else place, path):
                built.append(make(read))
            names[number] = built[-1].name
    numbers: dict[str, int] = {}
    for number, name in names.items():
        first = numbers.setdefault(name.casefold(), number)
        with collect_errors(errors, (*base, number, "name")):
            field = f"{where}: {kind} {number} ({name}).name"
            require(first == number, field, f"is also the name of {kind} {first}", f"give each {kind} a different name")
    raise_errors(errors)
    return tuple(built)


@contextmanager
def place_errors(place: str, path: FilePath) -> Iterator[None]:
    """Complete the relative fields of errors that the block raises: ".cap" becomes "costguard.toml: budget 2 (vision).cap"."""
    try:
        yield
    except InputError as error:
        for one in error.errors if isinstance(error, SeveralInputsError) else (error,):
            _place_error(one, place, path)
        raise


def _place_error(error: InputError, place: str, path: FilePath) -> None:
    relative = error.field or ""
    relative = relative if relative[:1] in ("", ".", " ", ",") else f".{relative}"
    error.path = (*path, *(int(number) if number else key for key, number in PATH_PATTERN.findall(relative)))
    error.field = shorten(to_one_line(f"{place}{relative}"), FIELD_LENGTH_MAX)
    error.args = (str(error),)
