"""What a schema forbids is no success, whoever did the step: through the public door.

Each gap of a schema that is only half understood would be a false success. Every kind of worker
that takes a schema is shown every one, with a result that the schema takes and one that it
refuses.
"""

import json
import sys
import tomllib
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest

from leadhand import Lead, McpServer, Policy, worker
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Report
from leadhand.engine.verdict import judge
from leadhand.errors import LeadhandError, UsageError
from leadhand.stores.memory import MemoryStore
from leadhand.workers.agent import Agent
from leadhand.workers.declared import declared_workers
from leadhand.workers.http.worker import HttpWorker
from leadhand.workers.mcp.definition import Definition, definitions_of
from leadhand.workers.mcp.pins import Pins
from leadhand.workers.mcp.tool import McpTool
from tests.support.scripts import calls
from tests.support.scripts import model as scripted

QUICK = Policy(backoff_s=0.01, jitter=0.0)
TREE = {
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"value": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    "unevaluatedProperties": False,
}
GAPS = {
    "not": ({"type": "object", "not": {"required": ["error"]}}, {"a": 1}, {"error": "x"}),
    "contains": ({"type": "array", "contains": {"const": 5}}, [1, 5], [1, 2]),
    "minContains": ({"contains": {"const": 5}, "minContains": 2}, [5, 5], [5]),
    "if": (
        {
            "type": "object",
            "if": {"properties": {"state": {"const": "sent"}}},
            "then": {"required": ["receipt"]},
            "else": {"required": ["reason"]},
        },
        {"state": "sent", "receipt": 1},
        {"state": "sent", "reason": "x"},
    ),
    "dependentRequired": ({"dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
    "dependentSchemas": (
        {"dependentSchemas": {"a": {"properties": {"b": {"type": "string"}}}}},
        {"a": 1, "b": "x"},
        {"a": 1, "b": 2},
    ),
    "unevaluatedProperties": (
        {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        {"a": 1},
        {"a": 1, "b": 2},
    ),
    "definitions": (
        {
            "$ref": "#/definitions/n",
            "definitions": {"n": {"type": "object", "required": ["a"]}},
        },
        {"a": 1},
        {"b": 1},
    ),
    "anchor": ({"$ref": "#n", "$defs": {"x": {"$anchor": "n", "maxItems": 1}}}, [1], [1, 2]),
    "recursion": (
        {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}},
        {"next": {"n": 1}},
        {"next": {"next": {"n": "x"}}},
    ),
    "$dynamicRef": (TREE, {"children": [{"value": 1}]}, {"children": [{"daat": 1}]}),
}
NOWHERE = {"properties": {"a": {"$ref": "#/$defs/missing"}}}
FETCHED = {"$ref": "https://schemas.example.com/report.json"}


def toml(schema):
    """A schema as an inline table, as far as these go."""
    if isinstance(schema, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in schema.items()) + "}"
    return (
        json.dumps(schema) if not isinstance(schema, list) else f"[{', '.join(map(toml, schema))}]"
    )


def function(schema, data, _monkeypatch, _tmp_path):
    kind = Annotated[Any, msgspec.Meta(extra_json_schema=schema)]

    async def one():
        return data

    one.__annotations__["return"] = kind
    return worker(one)


def command(schema, data, _monkeypatch, tmp_path):
    words = [sys.executable, "-c", f"print({json.dumps(json.dumps(data))})"]
    words = [word.replace("{", "{{").replace("}", "}}") for word in words]
    text = f'command = {json.dumps(words)}\noutput = "json"\nreturns = {toml(schema)}\n'
    return declared(text, tmp_path)


def http(schema, data, monkeypatch, tmp_path):
    async def sent(*_):
        return Report("succeeded", data)

    monkeypatch.setattr(HttpWorker, "_send", sent)
    return declared(f'url = "https://example.com/x"\nreturns = {toml(schema)}\n', tmp_path)


def declared(text, tmp_path):
    (made,) = declared_workers(tomllib.loads(f"[workers.one]\n{text}")["workers"], tmp_path)
    return made


def mcp(schema, data, monkeypatch, tmp_path):
    async def called(*_):
        return data

    monkeypatch.setattr(McpTool, "call", called)
    pins, reach = Pins(tmp_path / "pins.json"), {"name": "t", "command": ["x"]}
    tools, unusable = definitions_of(
        [{"name": "one", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    )
    if unusable:
        raise UsageError(unusable["one"])
    pins.put("t", "t", McpServer(**reach).identity, tools)
    return McpServer(**reach, pins=pins).tool("one", name="one")


def agent(schema, data, _monkeypatch, _tmp_path):
    return Agent("one", scripted([calls("finish", result=data)]), returns=schema)


async def played(made):
    lead = Lead(workers=[made], store=MemoryStore(), policy=QUICK)
    return await lead.run({"goal": "x", "steps": [{"id": "one", "worker": "one"}]})


KINDS = [function, command, http, mcp, agent]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_schema_forbids_is_no_success(kind, gap, monkeypatch, tmp_path):
    """A result that violates it fails as invalid output; one that does not succeeds."""
    schema, good, bad = GAPS[gap]
    outcome = await played(kind(schema, good, monkeypatch, tmp_path))
    assert outcome.status == "succeeded", outcome.steps["one"].error
    outcome = await played(kind(schema, bad, monkeypatch, tmp_path))
    assert outcome.status != "succeeded"
    assert outcome.steps["one"].error.failure_class == "invalid_output"


@pytest.mark.parametrize("schema", [NOWHERE, FETCHED], ids=["nowhere", "fetched"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_reference_that_leads_nowhere_is_no_success(kind, schema, monkeypatch, tmp_path):
    """It is told before the run: by whoever declares the worker, else by lint."""
    with pytest.raises(LeadhandError, match=r"leads nowhere|no reference is fetched"):
        await played(kind(schema, {"a": 1}, monkeypatch, tmp_path))


async def test_the_engine_judges_nothing_by_a_schema_that_is_of_no_use():
    """Should one get past lint: unsure is unmet."""
    step = {"id": "one", "effects": []}
    worker_ = SimpleNamespace(spec=WorkerSpec(name="one"))
    verdict = judge(step, Offer(returns=NOWHERE), worker_, Report("succeeded", 5), 5)
    assert not verdict.met
    assert "leads nowhere" in verdict.findings[0]


# --- parameters ---------------------------------------------------------------------------------

MODES = {
    "type": "object",
    "properties": {"mode": {"enum": ["fast", "safe"]}, "limit": {"type": "integer"}},
    "if": {"properties": {"mode": {"const": "fast"}}},
    "then": {"required": ["limit"]},
}


@worker
async def first() -> Any:
    return {"mode": "fast"}


@pytest.mark.parametrize(("limit", "status"), [({"limit": 5}, "succeeded"), ({}, "waiting")])
async def test_parameters_are_judged_once_they_are_there(limit, status):
    """A condition that hangs on a reference is open in lint, and strict when the step starts."""
    hand = Agent("hand", scripted([calls("finish", result="done")]), parameters=MODES)
    lead = Lead(workers=[first, hand], store=MemoryStore(), policy=QUICK)
    parameters = {"mode": "${{ steps.first.data.mode }}", **limit}
    steps = [{"id": "first", "worker": "first"}]
    steps += [{"id": "hand", "worker": "hand", "parameters": parameters, "depends_on": ["first"]}]
    outcome = await lead.run({"goal": "x", "steps": steps})
    assert outcome.status == status
    if status == "waiting":
        assert outcome.steps["hand"].error.failure_class == "permanent"
        assert outcome.steps["hand"].error.message == 'parameters: has no "limit"'


async def test_a_declared_parameter_is_judged_once_it_is_there(tmp_path):
    """What a placeholder of a command takes, and more than its type."""
    made = declared(
        f"command = {json.dumps([sys.executable, '-c', 'print(1)', '{name}'])}\n"
        'parameters.name = {type = "string", not = {const = "root"}, pattern = "^[a-z]+$"}\n',
        tmp_path,
    )

    @worker
    async def who(name: str) -> str:
        return name

    for name, status in (("ann", "succeeded"), ("root", "waiting"), ("a b", "waiting")):
        lead = Lead(workers=[who, made], store=MemoryStore(), policy=QUICK)
        steps = [{"id": "who", "worker": "who", "parameters": {"name": name}}]
        steps += [{"id": "b", "worker": "one", "parameters": {"name": "${{ steps.who.data }}"}}]
        outcome = await lead.run({"goal": "x", "steps": steps})
        assert outcome.status == status, name


def test_mistakes_in_declared_schemas_are_told(tmp_path):
    """When the file is read."""
    for line in (
        'returns = {pattern = "(?=a)"}',
        'parameters.a = {type = "string", minLength = -1}',
    ):
        with pytest.raises(UsageError, match="judges nothing"):
            declared(f'command = ["./x", "{{a}}"]\n{line}\n', tmp_path)


def test_a_pattern_without_bound_is_the_servers_own_business_in_its_input(tmp_path):
    """It is left out there, with what only it allowed; of a result it is refused."""
    look = {"type": "string", "pattern": "^(?!x)y", "maxLength": 3}
    schema = {"type": "object", "properties": {"pattern": look, "b": {"pattern": "^a"}}}
    schema |= {"patternProperties": {"(?=z)": {}}, "additionalProperties": False}
    (tool,), unusable = definitions_of([{"name": "x", "inputSchema": schema}])
    assert (tool, unusable) == ("x", {})
    pins, reach = Pins(tmp_path / "pins.json"), {"name": "t", "command": ["x"]}
    known = Definition("x", "", schema, None, {})
    pins.put("t", "t", McpServer(**reach).identity, {"x": known})
    made = McpServer(**reach, pins=pins).tool("x")
    assert (
        made.spec.offers[""].parameters
        == made.parameters
        == {
            "type": "object",
            "properties": {"pattern": {"type": "string", "maxLength": 3}, "b": {"pattern": "^a"}},
            "patternProperties": {},
        }
    )
    _, unusable = definitions_of(
        [{"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    )
    assert "its outputSchema: the pattern" in unusable["x"]
