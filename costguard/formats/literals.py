"""Literal values of Python source, found in its syntax tree: the source is parsed and never run.

A name counts where the module assigns a literal to it once, as in `GPU = "H100:8"`. Products and sums of numbers count too
(`timeout=24 * 60 * 60`), and texts with literals in braces (`f"A100:{GPUS}"`). Everything else is computed, and stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from costguard.errors import InputError, shorten, to_one_line
from costguard.formats.loading import ConfigFile

COMPUTED = "${computed}"
"""Stands for a value that only the program knows; `ConfigDraft` takes it for a template."""
MODULES = frozenset(("modal", "ray", "accelerators"))
"""Modules whose attributes are names of GPUs; an attribute of anything else is computed."""
LARGEST = 10**15
"""Of a product or a sum: anything beyond is no count, and no time in seconds."""


class PythonSource:
    """The calls of a source and their literal arguments."""

    def __init__(self, file: ConfigFile) -> None:
        self._values: dict[int, object] = {}
        try:
            self._tree = ast.parse(file.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as broken:
            why = shorten(to_one_line(str(broken)))
            raise InputError(
                f"is not valid Python: {why}", field=str(file.path), hint="python -m py_compile shows the line"
            ) from None
        self._constants = self._find_constants()
        self._values.clear()  # names in them were not known yet

    def list_calls(self, *names: str) -> Iterator[dict[str, object]]:
        """Yield the arguments of each call of a function with one of `names` as its last part, positions by `0`, `1` ..."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and get_name(node.func).rpartition(".")[2] in names:
                yield self.read_arguments(node)

    def list_full_calls(self, *names: str) -> Iterator[dict[str, object]]:
        """Yield the arguments of each call whose function ends in one of `names`, such as `app.function`."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and get_name(node.func).endswith(names):
                yield self.read_arguments(node)

    def read_arguments(self, call: ast.Call) -> dict[str, object]:
        """Return the arguments of a call; COMPUTED where one is no literal."""
        arguments = {str(index): self.read_value(node) for index, node in enumerate(call.args)}
        for word in call.keywords:
            value = self.read_value(word.value)
            if word.arg is not None:
                arguments[word.arg] = value
            elif isinstance(value, dict) and value.get("@", "dict") == "dict":  # `**common`, of literals or of `dict(...)`
                arguments |= {str(name): inner for name, inner in value.items() if name != "@"}
            else:
                arguments["**"] = COMPUTED
        return arguments

    def read_value(self, node: ast.expr) -> object:
        """Return the literal that `node` is; COMPUTED if it is none. Calls in calls are read once, not once a level."""
        if id(node) not in self._values:
            self._values[id(node)] = self._read_node(node)
        return self._values[id(node)]

    def _read_node(self, node: ast.expr) -> object:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass
        if isinstance(node, ast.Name):
            return self._constants.get(node.id, COMPUTED)
        if isinstance(node, ast.Attribute):
            name = get_name(node)
            return f"@{name}" if name.partition(".")[0] in MODULES else COMPUTED
        if isinstance(node, ast.Call):
            return {"@": get_name(node.func), **self.read_arguments(node)}
        return self._read_composed(node)

    def _read_composed(self, node: ast.expr) -> object:
        """Return the literal that a sum, a product or an f-string of literals makes; COMPUTED if it is none of these."""
        if isinstance(node, ast.JoinedStr):
            parts = [self._read_part(one) for one in node.values]
            return COMPUTED if COMPUTED in parts else "".join(parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
            left, right = self.read_value(node.left), self.read_value(node.right)
            if all(isinstance(one, int | float) and -LARGEST <= one <= LARGEST for one in (left, right)):
                return left * right if isinstance(node.op, ast.Mult) else left + right  # type: ignore[operator]  # numbers
        return COMPUTED

    def _read_part(self, node: ast.expr) -> str:
        """Return a part of an f-string: its text, or the literal in its braces; COMPUTED if that is none, or has a format."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        value = self.read_value(node.value) if isinstance(node, ast.FormattedValue) and node.format_spec is None else COMPUTED
        return str(value) if isinstance(value, str | int) else COMPUTED

    def _find_constants(self) -> dict[str, object]:
        """Return the names that are assigned one literal, once."""
        constants: dict[str, object] = {}
        self._constants = {}
        for node in ast.walk(self._tree):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            for target in targets:
                if isinstance(target, ast.Name) and value is not None:
                    constant = self.read_value(value)
                    constants[target.id] = COMPUTED if target.id in constants and constants[target.id] != constant else constant
        return constants


def get_name(node: ast.expr) -> str:
    """Return the dotted name of a function or attribute; "" if it has none."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((*([node.id] if isinstance(node, ast.Name) else []), *reversed(parts)))
