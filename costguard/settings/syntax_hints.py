"""Error messages and hints for files that are not valid TOML or JSON, based on the line that the parser names."""

from __future__ import annotations

import re

from costguard.errors import shorten

LINE_PATTERN = re.compile(r"at line (\d+)")
DIGITS_MESSAGE = "integer string conversion"
TWICE_HINT = "it appears twice: keep one of them"
GENERAL_HINTS = (
    ("recursion", "use fewer levels of brackets"),
    (DIGITS_MESSAGE, "check the zeros"),
    ("Cannot declare", TWICE_HINT),
    ("overwrite", TWICE_HINT),
    ("mutate", TWICE_HINT),
    ("appears twice", "keep one of them"),
)
JSON_HINTS = (
    ("property name enclosed in double quotes", 'write "key": in double quotes, and no comma before }'),
    ("Expecting ',' delimiter", "put only a comma between two values: JSON has no comments"),
    ("(char 0)", 'write a table: {"key": value}'),
    ("Expecting value", "write a value: a number, true, false, null, text in double quotes, a list or a table"),
    ("Extra data", "remove the text after the last }"),
    ("control character", "write \\n for the end of a line in a text"),
    ("escape", "write \\\\ for a backslash"),
)
"""What the parser says -> what to write. The first that fits counts."""
DEFAULT_HINT = 'write key = "value" lines'
TOML_HINTS = (
    (re.compile(r"^(?:<{7}|={7}|>{7})"), "the file has merge conflict markers: keep one version"),
    (re.compile(r"^\s*<"), "this is a web page or XML; save the file itself"),
    (re.compile("[\u201c\u201d\u201e\u2018\u2019]"), 'write plain quotes: "..."'),
    (re.compile(r"=\s*\"[^\"]*\\"), "write text with backslashes in single quotes: 'C:\\...'"),
    (re.compile(r"=\s*(?:true|false|yes|no|on|off)\b", re.IGNORECASE), "write true or false, in small letters"),
    (re.compile(r"=\s*(?:null|none|nil)\b", re.IGNORECASE), "remove the line: a missing key means no value"),
    (re.compile(r"^\s*export\s"), 'variables are set in the shell; here, write key = "value"'),
    (re.compile(r"^\s*[\w.-]+\s*:"), 'use = instead of the colon: key = "value"'),
    (re.compile(r"^\s*(?:;|//)"), "begin a comment with #"),
    (re.compile(r"^\s*\[\[?[^\]]*$"), "close the bracket: [section]"),
    (re.compile(r"=\s*\{.*,\s*\}"), "remove the comma before }"),
    (re.compile(r"=\s*$"), "write a value after =, or leave the line out"),
    (re.compile(r"=\s*0\d"), "write the number without a leading 0"),
    (re.compile(r"=\s*(?:\"[^\"]*|'[^']*)$"), "close the quotes"),
    (re.compile(r"=\s*[^\W\d]|=\s*[./~]"), 'write text in quotes: key = "value"'),
)
"""What a line looks like -> what to write. The first that fits counts."""


def describe_parse_error(broken: Exception) -> str:
    """Return the parser's error in terms of the file's content instead of the parser's internals."""
    message = str(broken)
    if isinstance(broken, RecursionError):
        return "it has too many nested brackets"
    return "it contains a number with thousands of digits" if DIGITS_MESSAGE in message else shorten(message, 120)


def suggest_toml_fix(text: str, message: str) -> str:
    """Return what to write instead of the line of `text` that the parser's message `message` names."""
    if "Unclosed" in message:
        return "close the bracket"
    match, lines = LINE_PATTERN.search(message), text.split("\n")
    line = lines[int(match[1]) - 1] if match and int(match[1]) <= len(lines) else ""
    return _suggest_general_fix(message) or next((hint for looks, hint in TOML_HINTS if looks.search(line)), DEFAULT_HINT)


def suggest_json_fix(message: str) -> str:
    """Return what to write to fix the error in the parser's message `message`."""
    return _suggest_general_fix(message) or next(
        (hint for looks, hint in JSON_HINTS if looks in message), "check commas, quotes and brackets"
    )


def _suggest_general_fix(message: str) -> str:
    """Return the fix for an error that TOML and JSON have in common; "" for any other."""
    return next((hint for looks, hint in GENERAL_HINTS if looks in message), "")
