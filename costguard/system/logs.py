"""The log: one event with fields a line, without secrets.

Only the long-running commands import this module.

    {"at": "2026-11-22T06:17:34Z", "level": "error", "event": "account_degraded", "account": "runpod/me", "failures": 3}

That is the form with `as_json`; on a terminal it is coloured text, in a pipe `at=... level=... event=...`. Warnings that other
libraries send through `logging` are written the same way. A failure to write the log stops nothing.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO

from costguard.errors import to_one_line
from costguard.system.process import hide_module
from costguard.system.secret import Secret, scrub_environment, scrub_text

with hide_module("rich"):  # which typer brings: for tracebacks in colour, which are not logged; 5 MB of a watchdog
    import structlog

SECRET_NAMES = re.compile(
    r"secret|passw|api_?key|authori[sz]ation|cookie|credential|private_?key|bearer|(?:^|_)token$", re.IGNORECASE
)
"""Fields whose text is not written, whatever it is."""
SECRET_TEXTS = (
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), r"\1 [secret]"),
    (re.compile(r"((?:api_?key|token|secret|password|passwd|signature)=)[^\s&\"']+", re.IGNORECASE), r"\1[secret]"),
    (re.compile(r"(://[^/\s:@]+:)[^/\s@]+@"), r"\1[secret]@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\b(?:rpa|sk|ghp|xox[abp])[-_][A-Za-z0-9_-]{16,}"), "[secret]"),
)
"""What looks like one in any text: a provider may echo what it was sent."""
LONGEST_TEXT = 2000

LogFields = MutableMapping[str, Any]


class SecretRedactor:
    """Removes secrets from every field: known secrets, fields with the name of a secret, and text in the form of one."""

    def __init__(self, secrets: tuple[Secret, ...] = ()) -> None:
        self._secrets = secrets

    def __call__(self, _logger: object, _method: str, fields: LogFields) -> LogFields:
        """Redact all fields; called by structlog."""
        return {name: self.redact_value(value, name) for name, value in fields.items()}

    def redact_value(self, value: object, name: str = "") -> object:
        """Return `value` of the field `name` without secrets: numbers and booleans unchanged, all else as one-line text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if SECRET_NAMES.search(name):
            return "[secret]"
        if isinstance(value, dict):
            return {str(key): self.redact_value(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.redact_value(one) for one in value]
        text = scrub_environment(scrub_text(str(value), self._secrets))
        for looks, instead in SECRET_TEXTS:
            text = looks.sub(instead, text)
        return to_one_line(text.replace("\n", "; "))[:LONGEST_TEXT]


class LineWriter:
    """Writes each line in one write; a closed or full stream is ignored."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write `line`."""
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = msg


class LibraryLogForwarder(logging.Handler):
    """Forwards warnings of other libraries to costguard's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as a `library` event."""
        with suppress(Exception):  # a library's broken format string is not our failure
            get_log().warning("library", name=record.name, message=record.getMessage(), said=record.levelname)


def configure_logging(*, as_json: bool, secrets: tuple[Secret, ...] = (), stream: TextIO | None = None) -> None:
    """Configure the log of this process, and forward what libraries warn of.

    `stream`: where it is written, None: stderr.
    """
    _configure_lines(stream or sys.stderr, as_json=as_json, secrets=secrets)
    logging.basicConfig(level=logging.WARNING, handlers=[LibraryLogForwarder()], force=True)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # what it warns of, the watchdog says with its own facts


def get_log() -> Any:  # noqa: ANN401 - structlog's loggers take any field
    """Return the logger, whose `info`, `warning` and `error` take an event and its fields.

    A process that configured nothing logs to stderr: structlog's own default is stdout, where a command's answer goes.
    """
    if not structlog.is_configured():
        _configure_lines(sys.stderr, as_json=False)
    return structlog.get_logger()


def _configure_lines(out: TextIO, *, as_json: bool, secrets: tuple[Secret, ...] = ()) -> None:
    """Write one line a fact to `out`, without `secrets`."""
    colours = out.isatty() and not os.environ.get("NO_COLOR")
    renderer: Any = structlog.processors.LogfmtRenderer(key_order=["at", "level", "event"], bool_as_flag=False)
    if as_json:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    elif out.isatty():
        renderer = structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="at", pad_event_to=24)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            SecretRedactor(secrets),
            _order_fields,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: LineWriter(out),
        cache_logger_on_first_use=False,
    )


def _order_fields(_logger: object, _method: str, fields: LogFields) -> LogFields:
    """Put time, level and event first."""
    first = ("at", "level", "event")
    return {name: fields[name] for name in (*first, *fields) if name in fields}
