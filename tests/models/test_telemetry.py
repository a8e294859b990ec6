"""Spans: none unless switched on, no contents unless asked for."""

import os
import socket
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leadhand import Agent, Goal, Lead, ModelPlanner
from leadhand.models import telemetry
from leadhand.models.client import Client
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelRequest, UserMessage
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
            "plan",
            "plan",
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
    assert parents["plan"] == parents["invoke_agent hand"] == "invoke_workflow"
    assert parents["chat small"] == parents["execute_tool look"] == "invoke_agent hand"
    assert parents["chat big"] == "plan"
    (run,) = [span for span in found if span.name == "invoke_workflow"]
    assert run.attributes["gen_ai.conversation.id"] == outcome.run
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


def test_a_collector_that_hangs_does_not_keep_a_program(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        code = "from leadhand.models import telemetry as t\nt.export()\nwith t.span('chat'): pass"
        environ = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        command = [sys.executable, "-c", code]
        subprocess.run(command, env=environ, check=True, cwd=tmp_path, timeout=120)
