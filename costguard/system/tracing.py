"""Traces: spans of polls, guard runs and acts, sent to an OTLP/HTTP collector where the settings name one.

    [telemetry]
    traces = "http://127.0.0.1:4318/v1/traces"

Without it nothing is imported, and a span costs one comparison. With it spans go into a queue of bounded length and are sent
by a thread of their own: a collector that is slow or down loses spans, and delays no poll and no act. Attributes are names and
outcomes of at most `TEXT_MAX` characters; of an exception only its class is kept, because a message may quote what a provider
answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from costguard import __version__
from costguard.errors import InputError, shorten, to_one_line

QUEUE_MAX, BATCH_MAX = 2048, 256
"""Spans that wait at most; more are dropped."""
SEND_EVERY_S, SEND_LIMIT_S, END_LIMIT_S = 5.0, 5.0, 3.0
"""Seconds between two sendings, for one of them, and for the last one at the end of the process."""
TEXT_MAX = 120

_tracer: Any = None


class TraceSpan:
    """A span that is being recorded; one without a tracer ignores what it is given."""

    def __init__(self, span: Any = None) -> None:  # noqa: ANN401 - a type of the extra `otel`, which may be missing
        self._span = span

    def set(self, **attributes: str | bool) -> None:
        """Add attributes: `costguard.NAME`. Raises nothing: an act that was sent is recorded whatever becomes of its span."""
        if self._span is None:
            return
        with suppress(Exception):
            for name, value in attributes.items():
                self._span.set_attribute(f"costguard.{name}", _shorten_value(value))


NO_SPAN = TraceSpan()


@contextmanager
def trace_span(name: str, **attributes: str | bool) -> Iterator[TraceSpan]:
    """Record the block as a span named `costguard.NAME`, with the class of an exception that ends it."""
    if _tracer is None:
        yield NO_SPAN
        return
    with _tracer.start_as_current_span(f"costguard.{name}", record_exception=False, set_status_on_exception=False) as span:
        current_span = TraceSpan(span)
        current_span.set(**attributes)
        try:
            yield current_span
        except BaseException as error:
            from opentelemetry.trace import StatusCode

            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise


@contextmanager
def open_tracing(address: str | None) -> Iterator[None]:
    """Send spans to `address` while the block runs; None: record none. Raises InputError if the extra `otel` is missing."""
    global _tracer  # noqa: PLW0603 - one process has one destination of traces, like its log
    if address is None:
        yield
        return
    provider = _build_provider(address)
    _tracer = provider.get_tracer("costguard", __version__)
    try:
        yield
    finally:
        _tracer = None
        ending = threading.Thread(target=provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(END_LIMIT_S)


def _build_provider(address: str) -> Any:  # noqa: ANN401 - a type of the extra `otel`
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        hint = "in a clone of costguard: pip install '.[otel]', or remove the line"
        raise InputError("needs the extra otel, which is not installed", field="telemetry.traces", hint=hint) from None
    provider = TracerProvider(
        resource=Resource.create({"service.name": "costguard", "service.version": __version__}),
        span_limits=SpanLimits(max_span_attributes=16, max_span_attribute_length=TEXT_MAX),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint=address, timeout=SEND_LIMIT_S),
            max_queue_size=QUEUE_MAX,
            max_export_batch_size=BATCH_MAX,
            schedule_delay_millis=SEND_EVERY_S * 1000,
            export_timeout_millis=SEND_LIMIT_S * 1000,
        )
    )
    return provider


def _shorten_value(value: str | bool) -> str | bool:  # noqa: FBT001 - a value of an attribute
    return value if isinstance(value, bool) else shorten(to_one_line(value), TEXT_MAX)
