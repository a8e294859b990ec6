"""Spans after OpenTelemetry's conventions for generative AI; off unless switched on.

    invoke_workflow     a run
    plan                a call of a planner
    invoke_agent        an attempt of an agent
    execute_tool        a tool that an agent calls
    chat                a question to a model

`switch_on()` uses the tracer provider of the program; `export()`, used by `[telemetry] enabled =
true`, sets up one that sends by OTLP. Names, tokens and failure classes are included; contents
(requests, answers, arguments, results) only on request.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.errors import UsageError
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.models.messages import ModelAnswer, ModelRequest

CONTENT_CHARS_MAX = 20_000


TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
EXPORT_S = 2
"""How long spans may take to be sent: a program that ends waits for the last of them."""

_hide: ContextVar[Callable[[str], str]] = ContextVar("hide", default=str)
"""Takes out the secrets that the run of this task knows by value."""


class _Switch:
    tracer: Any = None
    contents = False


_switch = _Switch()


def switch_on(*, contents: bool = False, provider: Any = None) -> None:
    """Make spans from now on, with the given tracer provider or the program's own."""
    from opentelemetry import trace

    _switch.tracer = trace.get_tracer("leadhand", tracer_provider=provider)
    _switch.contents = contents


def export(*, contents: bool = False) -> None:
    """Send spans from now on to where the OTEL_ variables say, by OTLP over HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(
            f"telemetry.enabled: {error.name} is not installed. "
            "Fix: pip install 'leadhand[telemetry]'"
        ) from None
    if _switch.tracer is not None:
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "leadhand"}))
    said = any(os.environ.get(name) for name in TIMEOUTS)
    exporter = OTLPSpanExporter() if said else OTLPSpanExporter(timeout=EXPORT_S)
    # A collector that is away is said once for each batch, not for each try.
    logging.getLogger(OTLPSpanExporter.__module__).setLevel(logging.ERROR)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    switch_on(contents=contents, provider=provider)


def switch_off() -> None:
    """Make no more spans."""
    _switch.tracer = None


class TelemetrySpan:
    """A span, or nothing when they are off."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def set(self, **attributes: Any) -> None:
        """Attributes by name; `__` stands for a dot."""
        if self._inner is not None:
            for name, value in attributes.items():
                self._inner.set_attribute(name.replace("__", "."), value)

    def content(self, name: str, value: Any) -> None:
        """Something that was said, told only where contents are asked for."""
        if self._inner is not None and _switch.contents:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            self._inner.set_attribute(name, scrub(_hide.get()(text))[:CONTENT_CHARS_MAX])

    def failed(self, failure_class: str) -> None:
        """Record the failure class."""
        if self._inner is not None:
            from opentelemetry.trace import StatusCode

            self._inner.set_attribute("error.type", failure_class)
            self._inner.set_status(StatusCode.ERROR)

    def answered(self, answer: ModelAnswer) -> None:
        """Record the model's answer."""
        if self._inner is None:
            return
        self.set(
            gen_ai__response__model=answer.model,
            gen_ai__usage__input_tokens=answer.usage.input,
            gen_ai__usage__output_tokens=answer.usage.output,
        )
        self.content("gen_ai.output.messages", answer.turn())


@contextmanager
def span(operation: str, what: str = "", **attributes: Any) -> Iterator[TelemetrySpan]:
    """Open a span for one operation; record an exception's class, never its text."""
    if _switch.tracer is None:
        yield TelemetrySpan()
        return
    name = f"{operation} {what}" if what else operation
    with _switch.tracer.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as inner:
        made = TelemetrySpan(inner)
        made.set(gen_ai__operation__name=operation, **attributes)
        try:
            yield made
        except BaseException as error:
            made.failed(getattr(error, "failure_class", type(error).__name__))
            raise


class Runs:
    """The spans of the runs that a host drives, each the parent of the spans of its work."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    def enter(self, run: str, hide: Callable[[str], str] | None = None) -> None:
        """Make the run's span the parent of all spans of this task; `hide` removes secrets."""
        if _switch.tracer is None:
            return
        _hide.set(hide or str)
        from opentelemetry import context, trace

        if run not in self._open:
            made = _switch.tracer.start_span("invoke_workflow", context=context.Context())
            made.set_attribute("gen_ai.operation.name", "invoke_workflow")
            made.set_attribute("gen_ai.conversation.id", run)
            self._open[run] = made
        context.attach(trace.set_span_in_context(self._open[run]))

    def leave(self, run: str, status: str) -> None:
        """Close the run's span: the run ended, or this host releases it."""
        made = self._open.pop(run, None)
        if made is not None:
            made.set_attribute("leadhand.status", status)
            if status == "failed":
                TelemetrySpan(made).failed(status)
            made.end()


@contextmanager
def chatting(model: str, request: ModelRequest) -> Iterator[TelemetrySpan]:
    """Open a span for one request to a model."""
    provider, _, name = model.partition(":")
    with span(
        "chat",
        name,
        gen_ai__provider__name=provider,
        gen_ai__request__model=name,
        gen_ai__request__max_tokens=request.max_tokens,
    ) as made:
        made.content("gen_ai.system_instructions", request.system)
        made.content("gen_ai.input.messages", request.turns)
        yield made
