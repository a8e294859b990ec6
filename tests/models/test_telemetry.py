"""Spans and metrics: none unless switched on, no contents unless asked for."""

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from leadhand import Agent, Goal, Lead, ModelPlanner
from leadhand.models import telemetry
from leadhand.models.client import Client
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import (
    AssistantMessage,
    ModelAnswer,
    ModelRequest,
    Result,
    ToolCall,
    Usage,
    UserMessage,
)
from leadhand.stores.memory import MemoryStore
from leadhand.testing import Calls, ScriptedModel

ASKED = ModelRequest(system="the system text", turns=(UserMessage("the question"),))


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield lambda **more: telemetry.switch_on(provider=provider, **more) or exporter
    telemetry.switch_off()


async def test_a_question_is_a_span_without_its_contents(spans):
    exporter = spans()
    await Client([ScriptedModel(["the answer"], name="chat:m")]).ask(ASKED)
    (span,) = exporter.get_finished_spans()
    assert span.name == "chat m"
    told = dict(span.attributes)
    assert told["gen_ai.operation.name"] == "chat"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (100, 50)
    for words in ("the system text", "the question", "the answer"):
        assert words not in str(told)


async def test_contents_where_they_are_asked_for(spans):
    exporter = spans(contents=True)
    await Client([ScriptedModel(["the answer"], name="chat:m")]).ask(ASKED)
    told = str(dict(exporter.get_finished_spans()[0].attributes))
    for words in ("the system text", "the question", "the answer"):
        assert words in told


async def test_a_failure_is_told_by_its_class(spans):
    exporter = spans()
    with pytest.raises(ModelFailure):
        await Client([ScriptedModel([ModelFailure("policy", "secret words")])]).ask(ASKED)
    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == "policy"
    assert not span.status.is_ok
    assert "secret words" not in span.to_json()


async def test_off_means_off(spans):
    exporter = spans()
    telemetry.switch_off()
    await Client([ScriptedModel(["x"])]).ask(ASKED)
    assert exporter.get_finished_spans() == ()


async def test_a_run_is_one_tree_of_spans(spans):
    exporter = spans()

    def look(at: str) -> str:
        return f"{at} is fine"

    hand = Agent(
        "hand",
        ScriptedModel([Calls(("look", {"at": "x"})), "all fine"], name="chat:small"),
        tools=[look],
    )
    steps = [{"id": "a", "worker": "hand"}]
    planner = ModelPlanner(
        ScriptedModel(
            [
                {"kind": "propose", "because": "", "steps": steps},
                {"kind": "finish", "because": "", "result": "fine"},
            ],
            name="chat:big",
        )
    )
    outcome = await Lead([hand], planner, MemoryStore()).run(Goal(text="look"))
    assert outcome.status == "succeeded"
    found = exporter.get_finished_spans()
    names = [span.name for span in found]
    assert sorted(names) == sorted(
        [
            "invoke_workflow",
            "plan planner",
            "plan planner",
            "chat big",
            "chat big",
            "invoke_agent hand",
            "chat small",
            "chat small",
            "execute_tool look",
        ]
    )
    by_id = {span.context.span_id: span for span in found}

    def above(span):
        return by_id[span.parent.span_id].name if span.parent else None

    parents = {span.name: above(span) for span in found}
    assert parents["invoke_workflow"] is None
    assert parents["plan planner"] == parents["invoke_agent hand"] == "invoke_workflow"
    assert parents["chat small"] == parents["execute_tool look"] == "invoke_agent hand"
    assert parents["chat big"] == "plan planner"
    assert {span.name.split()[0]: span.kind for span in found} == {
        **dict.fromkeys(
            ("invoke_workflow", "plan", "invoke_agent", "execute_tool"), SpanKind.INTERNAL
        ),
        "chat": SpanKind.CLIENT,
    }
    (run,) = [span for span in found if span.name == "invoke_workflow"]
    assert run.attributes["leadhand.run"] == outcome.run
    (tool,) = [span for span in found if span.name == "execute_tool look"]
    assert tool.attributes["gen_ai.tool.name"] == "look"
    assert tool.attributes["gen_ai.tool.call.id"]
    assert run.attributes["leadhand.status"] == "succeeded"
    assert "is fine" not in " ".join(span.to_json() for span in found)


async def test_no_secret_is_in_the_contents(spans, monkeypatch):
    key, known = "sk-ant-" + "a1b2c3d4" * 4, "correct horse battery"
    monkeypatch.setenv("HORSE", known)
    exporter = spans(contents=True)
    agent = Agent("clerk", ScriptedModel([f"I say {key} and {known}"]))
    plan = {
        "params": {"horse": {"type": "secret", "env": "HORSE"}},
        "steps": [{"id": "a", "worker": "clerk", "parameters": {"x": "${{ params.horse }}"}}],
    }
    outcome = await Lead([agent], store=MemoryStore()).run(plan)
    assert outcome.status == "succeeded"
    told = str([dict(span.attributes) for span in exporter.get_finished_spans()])
    assert "I say" in told
    assert key not in told
    assert known not in told


async def test_contents_have_the_form_of_the_conventions(spans):
    """Roles with parts, as JSON; what has no room is cut inside it, so that it stays JSON."""
    exporter = spans(contents=True)
    asked = ModelRequest(
        system="be short",
        turns=(
            UserMessage("what is x?"),
            AssistantMessage("I look", (ToolCall("c1", "look", {"at": "x"}),)),
            Result("c1", "look", "y" * 30_000),
        ),
    )
    await Client([ScriptedModel(["fine"], name="chat:m")]).ask(asked)
    told = dict(exporter.get_finished_spans()[0].attributes)
    assert json.loads(told["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "be short"}
    ]
    user, said, result = json.loads(told["gen_ai.input.messages"])
    assert user == {"role": "user", "parts": [{"type": "text", "content": "what is x?"}]}
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"at":"x"}'}
    assert said == {"role": "assistant", "parts": [{"type": "text", "content": "I look"}, call]}
    assert result["role"] == "tool"
    assert len(result["parts"][0]["response"]) == 20_000 - len('what is x?I look{"at":"x"}')
    (answer,) = json.loads(told["gen_ai.output.messages"])
    assert answer == {"role": "assistant", "parts": [{"type": "text", "content": "fine"}]}


# --- metrics -------------------------------------------------------------------------------------


@pytest.fixture
def figures():
    """What was measured, by name: pairs of attributes and a point."""
    reader = InMemoryMetricReader()
    telemetry.switch_on(provider=TracerProvider(), meter_provider=MeterProvider([reader]))

    def read():
        data = reader.get_metrics_data()
        scopes = [s for r in (data.resource_metrics if data else ()) for s in r.scope_metrics]
        return {
            metric.name: [(dict(point.attributes), point) for point in metric.data.data_points]
            for scope in scopes
            for metric in scope.metrics
        }

    yield read
    telemetry.switch_off()


class Cached(ScriptedModel):
    """Answers from a cache, at an address."""

    async def ask(self, request, heard=None):
        used = Usage(input=1000, output=7, cache_read=900, cache_write=50)
        return ModelAnswer(text="x", usage=used, model=self.name)


async def test_tokens_are_counted(figures):
    await Client([Cached([], name="mistral:large@https://m.example:8443/v1")]).ask(ASKED)
    found = figures()
    shared = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "large",
        "gen_ai.response.model": "large",
        "server.address": "m.example",
        "server.port": 8443,
    }
    usage = "gen_ai.client.inference.usage"
    counted = {name: points[0][1].value for name, points in found.items() if usage in name}
    assert counted == {
        f"{usage}.input_tokens": 1000,
        f"{usage}.output_tokens": 7,
        f"{usage}.cache_read.input_tokens": 900,
        f"{usage}.cache_write.input_tokens": 50,
    }
    assert found[f"{usage}.input_tokens"][0][0] == {**shared, "gen_ai.token.modality": "text"}
    ((told, point),) = found["gen_ai.client.inference.operation.input_tokens"]
    assert (told, point.sum, point.count) == (shared, 1000, 1)
    ((told, point),) = found["gen_ai.client.inference.duration"]
    assert (told, point.count) == (shared, 1)
    assert list(point.explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    assert list(point.explicit_bounds)[-1] == 81.92


async def test_a_failed_call_counts_what_was_told_of_it(figures):
    """Nothing told: 0 tokens of an unknown kind. The words of the failure are in no metric."""
    failure = ModelFailure("rate_limited", "secret words")
    with pytest.raises(ModelFailure):
        await Client([ScriptedModel([failure], name="chat:m")]).ask(ASKED)
    found = figures()
    ((told, point),) = found["gen_ai.client.inference.usage.input_tokens"]
    assert (told["gen_ai.token.modality"], point.value) == ("unknown", 0)
    ((told, _),) = found["gen_ai.client.inference.duration"]
    assert told["error.type"] == "rate_limited"
    assert "secret words" not in str(found)


async def test_runs_agents_and_tools_are_measured(figures):
    def look(at: str) -> str:
        return f"{at} is fine"

    hand = Agent("hand", ScriptedModel([Calls(("look", {"at": "x"})), "fine"]), tools=[look])
    outcome = await Lead([hand], store=MemoryStore()).run(
        {"steps": [{"id": "a", "worker": "hand"}]}
    )
    assert outcome.status == "succeeded"
    found = figures()
    for name, more in {
        "gen_ai.invoke_workflow.duration": {},
        "gen_ai.invoke_agent.duration": {"gen_ai.agent.name": "hand"},
        "gen_ai.execute_tool.duration": {"gen_ai.tool.name": "look"},
    }.items():
        ((told, point),) = found[name]
        operation = name.split(".")[1]
        assert told == {"gen_ai.operation.name": operation, **more}
        assert point.count == 1
    assert outcome.run not in str(found), "a run is no dimension: there are too many"


def test_a_run_that_a_host_lets_go_is_not_measured(figures):
    """Its span ends; its duration is not known before its end."""
    runs = telemetry.Runs()
    runs.enter("r1")
    runs.leave("r1", "waiting")
    assert "gen_ai.invoke_workflow.duration" not in figures()
    runs.enter("r1")
    runs.leave("r1", "failed")
    ((told, point),) = figures()["gen_ai.invoke_workflow.duration"]
    assert (told["error.type"], point.count) == ("failed", 1)


# --- sending -------------------------------------------------------------------------------------

PROGRAM = """
import asyncio
from leadhand import Agent, Lead
from leadhand.models import telemetry
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedModel

telemetry.export()
lead = Lead([Agent("hand", ScriptedModel(["fine"], name="chat:m"))], store=MemoryStore())
asyncio.run(lead.run({"steps": [{"id": "a", "worker": "hand"}]}))
"""


def test_a_collector_gets_spans_and_metrics(tmp_path):
    """By OTLP over HTTP, at the latest when the program ends."""
    got = {"/v1/traces": ExportTraceServiceRequest(), "/v1/metrics": ExportMetricsServiceRequest()}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            got[self.path].MergeFromString(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever).start()
        environ = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
        }
        command = [sys.executable, "-c", PROGRAM]
        try:
            subprocess.run(command, env=environ, check=True, cwd=tmp_path, timeout=120)
        finally:
            collector.shutdown()
    traces, measured = got["/v1/traces"].resource_spans, got["/v1/metrics"].resource_metrics
    names = {span.name for r in traces for s in r.scope_spans for span in s.spans}
    assert names == {"invoke_workflow", "invoke_agent hand", "chat m"}
    found = {metric.name for r in measured for s in r.scope_metrics for metric in s.metrics}
    assert {
        "gen_ai.invoke_workflow.duration",
        "gen_ai.client.inference.usage.input_tokens",
    } <= found


def test_a_collector_that_hangs_does_not_keep_a_program(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        code = "from leadhand.models import telemetry as t\nt.export()\nwith t.span('chat'): pass"
        environ = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        command = [sys.executable, "-c", code]
        subprocess.run(command, env=environ, check=True, cwd=tmp_path, timeout=120)
