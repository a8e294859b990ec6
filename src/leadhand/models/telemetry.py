"""Spans and metrics after OpenTelemetry's conventions for generative AI; off unless switched on.

    span                metric
    invoke_workflow     gen_ai.invoke_workflow.duration     a run
    plan                                                    a call of a planner
    invoke_agent        gen_ai.invoke_agent.duration        an attempt of an agent
    execute_tool        gen_ai.execute_tool.duration        a tool that an agent calls
    chat                gen_ai.client.inference.*           a question to a model, with its tokens

The names are those of open-telemetry/semantic-conventions-genai in November 2026, whose status is
"development". `switch_on()` uses the tracer and meter providers of the program; `export()`, used by
`[telemetry] enabled = true`, sets up some that send by OTLP. Names, tokens and failure classes are
included; contents (requests, answers, arguments, results) only on request.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from leadhand.errors import UsageError
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leadhand.models.messages import ModelAnswer, ModelRequest, Turn, Usage

CONTENT_CHARS_MAX = 20_000


TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_{}_TIMEOUT")
EXPORT_S = 2
"""How long sending may take: a program that ends waits for the last of it."""

OPERATION_S = tuple(2**power / 100 for power in range(14))
RUN_S = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
TOKENS = tuple(4**power for power in range(14))
"""The bounds of the histograms, as the conventions give them."""
DURATIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "chat": ("gen_ai.client.inference.duration", OPERATION_S),
    "execute_tool": ("gen_ai.execute_tool.duration", OPERATION_S),
    "invoke_agent": ("gen_ai.invoke_agent.duration", OPERATION_S),
    "invoke_workflow": ("gen_ai.invoke_workflow.duration", RUN_S),
}
"""The histogram of each operation that has one; `plan` has none in the conventions."""
USAGE = "gen_ai.client.inference.usage"
PER_CALL = "gen_ai.client.inference.operation"
DIMENSIONS = frozenset(
    {
        *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"),
        *("gen_ai.response.model", "gen_ai.agent.name", "gen_ai.tool.name", "server.address"),
        *("server.port", "error.type", "gen_ai.token.modality"),
    }
)
"""Attributes that metrics have too: few values each. No run, no call, nothing that was said."""
PROVIDER_NAMES = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gen_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Providers that the conventions call otherwise than we do."""

_hide: ContextVar[Callable[[str], str]] = ContextVar("hide", default=str)
"""Takes out the secrets that the run of this task knows by value."""


class _Switch:
    tracer: Any = None
    meters: Meters | None = None
    contents = False


_switch = _Switch()


def switch_on(*, contents: bool = False, provider: Any = None, meter_provider: Any = None) -> None:
    """Make spans and metrics from now on, with the given providers or the program's own."""
    from opentelemetry import metrics, trace

    _switch.tracer = trace.get_tracer("leadhand", tracer_provider=provider)
    _switch.meters = Meters(metrics.get_meter("leadhand", meter_provider=meter_provider))
    _switch.contents = contents


def export(*, contents: bool = False) -> None:
    """Send spans and metrics from now on to where the OTEL_ variables say, by OTLP over HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
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
    resource = Resource.create({"service.name": "leadhand"})
    provider = TracerProvider(resource=resource)
    # A collector that is away is said once for each batch, not for each try.
    for exporter in (OTLPSpanExporter, OTLPMetricExporter):
        logging.getLogger(exporter.__module__).setLevel(logging.ERROR)
    spans = OTLPSpanExporter(timeout=_timeout("TRACES"))
    provider.add_span_processor(BatchSpanProcessor(spans))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_timeout("METRICS")))
    meters = MeterProvider(metric_readers=[reader], resource=resource)
    switch_on(contents=contents, provider=provider, meter_provider=meters)


def _timeout(signal: str) -> float | None:
    """Return our limit; None if a variable of OpenTelemetry gives one."""
    said = any(os.environ.get(name.format(signal)) for name in TIMEOUTS)
    return None if said else EXPORT_S


def switch_off() -> None:
    """Make no more spans and metrics."""
    _switch.tracer = _switch.meters = None


class Meters:
    """The instruments, each made when it is first used."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._made: dict[str, Any] = {}

    def took(self, operation: str, seconds: float, attributes: dict[str, Any]) -> None:
        """Record how long an operation took, if the conventions have a metric for it."""
        if operation in DURATIONS:
            name, bounds = DURATIONS[operation]
            self._histogram(name, "s", bounds).record(seconds, _dimensions(attributes))

    def used(self, usage: Usage | None, attributes: dict[str, Any]) -> None:
        """Count the tokens of a call; none at all means that its usage was not told."""
        nothing = _no_usage()
        told = usage or nothing
        counted = {
            "input_tokens": told.input,
            "output_tokens": told.output,
            "cache_read.input_tokens": told.cache_read,
            "cache_write.input_tokens": told.cache_write,
        }
        shared = _dimensions(attributes)
        by_kind = {
            **{name: value for name, value in shared.items() if name != "error.type"},
            "gen_ai.token.modality": "unknown" if told == nothing else "text",
        }
        for name, tokens in counted.items():
            self._counter(f"{USAGE}.{name}").add(tokens, by_kind)
        for name in ("input_tokens", "output_tokens"):
            self._histogram(f"{PER_CALL}.{name}", "{token}", TOKENS).record(counted[name], shared)

    def _counter(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._meter.create_counter(name, unit="{token}")
        return self._made[name]

    def _histogram(self, name: str, unit: str, bounds: tuple[float, ...]) -> Any:
        if name not in self._made:
            self._made[name] = self._meter.create_histogram(
                name, unit=unit, explicit_bucket_boundaries_advisory=bounds
            )
        return self._made[name]


def _dimensions(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name in DIMENSIONS}


def _no_usage() -> Usage:
    from leadhand.models.messages import Usage

    return Usage()


class TelemetrySpan:
    """A span with its metrics, or nothing when they are off."""

    def __init__(self, inner: Any = None, attributes: dict[str, Any] | None = None) -> None:
        self._inner = inner
        self.attributes = attributes or {}
        self.used: Usage | None = None
        """The tokens of a call, once they were told."""

    def set(self, **attributes: Any) -> None:
        """Attributes by name; `__` stands for a dot."""
        if self._inner is not None:
            for name, value in _dotted(attributes).items():
                self.attributes[name] = value
                self._inner.set_attribute(name, value)

    def content(self, name: str, value: Any) -> None:
        """Something that was said, told only where contents are asked for."""
        if self._inner is not None and _switch.contents:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            self._inner.set_attribute(name, _shown(text, CONTENT_CHARS_MAX))

    def messages(self, name: str, turns: Iterable[Turn]) -> None:
        """Turns of a conversation, in the form of the conventions: roles with parts."""
        if self._inner is not None and _switch.contents:
            said = msgspec.json.encode(_messages(turns, _Room()))
            self._inner.set_attribute(name, said.decode())

    def failed(self, failure_class: str) -> None:
        """Record the failure class."""
        if self._inner is not None:
            from opentelemetry.trace import StatusCode

            self.set(error__type=failure_class)
            self._inner.set_status(StatusCode.ERROR)

    def answered(self, answer: ModelAnswer) -> None:
        """Record the model's answer."""
        if self._inner is None:
            return
        used = self.used = answer.usage
        self.set(
            gen_ai__response__model=answer.model.partition("@")[0].partition(":")[2]
            or answer.model,
            gen_ai__usage__input_tokens=used.input,
            gen_ai__usage__output_tokens=used.output,
        )
        if used.cache_read:
            self.set(gen_ai__usage__cache_read__input_tokens=used.cache_read)
        if used.cache_write:
            self.set(gen_ai__usage__cache_write__input_tokens=used.cache_write)
        self.messages("gen_ai.output.messages", (answer.turn(),))


def _dotted(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items()}


def _shown(text: str, most: int) -> str:
    return scrub(_hide.get()(text))[:most]


class _Room:
    """How many characters of contents a span still takes."""

    def __init__(self) -> None:
        self._left = CONTENT_CHARS_MAX

    def text(self, text: str) -> str:
        """Return what may be shown of a text, cut where there is no more room."""
        shown = _shown(text, self._left)
        self._left -= len(shown)
        return shown


def _messages(turns: Iterable[Turn], room: _Room) -> list[dict[str, Any]]:
    from leadhand.models.messages import AssistantMessage, UserMessage

    found: list[dict[str, Any]] = []
    for turn in turns:
        if isinstance(turn, UserMessage):
            found.append({"role": "user", "parts": [_text(turn.text, room)]})
        elif isinstance(turn, AssistantMessage):
            parts = [_text(turn.text, room)] if turn.text else []
            for call in turn.calls:
                said = room.text(msgspec.json.encode(call.arguments).decode())
                parts.append(
                    {"type": "tool_call", "id": call.id, "name": call.tool, "arguments": said}
                )
            found.append({"role": "assistant", "parts": parts})
        else:
            answer = room.text(turn.text)
            part = {"type": "tool_call_response", "id": turn.id, "response": answer}
            found.append({"role": "tool", "parts": [part]})
    return found


def _text(text: str, room: _Room) -> dict[str, Any]:
    return {"type": "text", "content": room.text(text)}


@contextmanager
def span(
    operation: str, what: str = "", *, client: bool = False, **attributes: Any
) -> Iterator[TelemetrySpan]:
    """Open a span for one operation; record an exception's class, never its text."""
    if _switch.tracer is None:
        yield TelemetrySpan()
        return
    from opentelemetry.trace import SpanKind

    name = f"{operation} {what}" if what else operation
    known = {"gen_ai.operation.name": operation, **_dotted(attributes)}
    began = time.monotonic()
    with _switch.tracer.start_as_current_span(
        name,
        kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
        attributes=known,
        record_exception=False,
        set_status_on_exception=False,
    ) as inner:
        made = TelemetrySpan(inner, known)
        try:
            yield made
        except BaseException as error:
            made.failed(getattr(error, "failure_class", type(error).__name__))
            raise
        finally:
            if _switch.meters is not None:
                _switch.meters.took(operation, time.monotonic() - began, made.attributes)


ENDED = frozenset({"succeeded", "failed", "cancelled"})


class Runs:
    """The spans of the runs that a host drives, each the parent of the spans of its work."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Any, float]] = {}

    def enter(self, run: str, hide: Callable[[str], str] | None = None) -> None:
        """Make the run's span the parent of all spans of this task; `hide` removes secrets."""
        if _switch.tracer is None:
            return
        _hide.set(hide or str)
        from opentelemetry import context, trace

        if run not in self._open:
            known = {"gen_ai.operation.name": "invoke_workflow", "leadhand.run": run}
            made = _switch.tracer.start_span(
                "invoke_workflow", context=context.Context(), attributes=known
            )
            self._open[run] = made, time.monotonic()
        context.attach(trace.set_span_in_context(self._open[run][0]))

    def leave(self, run: str, status: str) -> None:
        """Close the run's span: the run ended, or this host releases it."""
        inner, began = self._open.pop(run, (None, 0.0))
        if inner is None:
            return
        made = TelemetrySpan(inner, {"gen_ai.operation.name": "invoke_workflow"})
        made.set(leadhand__status=status)
        if status == "failed":
            made.failed(status)
        inner.end()
        if status in ENDED and _switch.meters is not None:
            _switch.meters.took("invoke_workflow", time.monotonic() - began, made.attributes)


@contextmanager
def chatting(model: str, request: ModelRequest) -> Iterator[TelemetrySpan]:
    """Open a span for one request to a model."""
    if _switch.tracer is None:
        yield TelemetrySpan()
        return
    spoken, _, url = model.partition("@")
    provider, _, name = spoken.partition(":")
    with span(
        "chat",
        name,
        client=True,
        gen_ai__provider__name=PROVIDER_NAMES.get(provider, provider),
        gen_ai__request__model=name,
        gen_ai__request__max_tokens=request.max_tokens,
        **_asked(request),
        **_server(url),
    ) as made:
        if _switch.contents:
            made.content("gen_ai.system_instructions", [_text(request.system, _Room())])
        made.messages("gen_ai.input.messages", request.turns)
        try:
            yield made
        except BaseException as error:
            made.used = made.used or getattr(error, "usage", None)
            made.failed(getattr(error, "failure_class", type(error).__name__))
            raise
        finally:
            if _switch.meters is not None:
                _switch.meters.used(made.used, made.attributes)


def _asked(request: ModelRequest) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if request.temperature is not None:
        found["gen_ai__request__temperature"] = request.temperature
    if request.schema is not None:
        found["gen_ai__output__type"] = "json"
    return found


def _server(url: str) -> dict[str, Any]:
    """Return address and port of a model that is asked by its address."""
    parts = urlsplit(url)
    if not parts.hostname:
        return {}
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server__address": parts.hostname, "server__port": port}
