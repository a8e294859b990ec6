"""The OpenAPI document is true: whatever is sent, no answer is a 5xx or of another form."""

import json
import urllib.parse

import hypothesis
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, strategies
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from leadhand.server.openapi import DOCUMENTS
from tests.support.serving import TOKENS, ended, plan_of, project, served

STREAMS = ("/events", "/live")
"""Server-sent events, which tests of their own read."""

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
EXAMPLES = 25
"""For each operation; `make test` has some fifty of them to go through."""


@pytest.fixture(scope="module")
def stocked(tmp_path_factory):
    """A server with something to see: runs that ended, wait and failed; a plan in the library."""
    folder = tmp_path_factory.mktemp("schema")
    project(folder)
    with served(folder) as server:
        with server.client("approver") as client:
            names = {}
            say = {"id": "a", "worker": "say"}
            for name, steps in {
                "done": [say, {"id": "b", "worker": "loud", "depends_on": ["a"]}],
                "waits": [{"id": "a", "worker": "danger"}],
                "asks": [{"id": "a", "worker": "shaky"}],
            }.items():
                run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
                ended(client, run)
                names[name] = run
            client.put("/library/greet", json={"plan": plan_of(say)})
            schema = client.get("/openapi.json").json()
        yield server, schema, names


def operations(schema):
    methods = ("get", "post", "put", "delete")
    return [
        (path, method)
        for path, each in schema["paths"].items()
        for method in methods
        if method in each
    ]


def test_it_is_openapi_3_1_with_everything_in_it(stocked):
    """Each operation says what it answers and how it refuses."""
    _server, schema, _names = stocked
    assert schema["openapi"].startswith("3.1")
    assert len(operations(schema)) >= 35
    for path, method in operations(schema):
        operation = schema["paths"][path][method]
        assert operation.get("description") or operation.get("summary")
        assert {"4XX", "5XX"} <= set(operation["responses"]), path
        assert "422" not in operation["responses"], "problems have one form"


def try_out(operation, server, names):
    """Send generated requests to one operation, most with ids that are there; how many."""
    bearer = {"Authorization": f"Bearer {TOKENS['approver']}"}
    sent = 0

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(operation.as_strategy(), strategies.sampled_from([*names.values(), ""]))
    def one(case, run):
        nonlocal sent
        if run and "run" in (case.path_parameters or {}):
            case.path_parameters["run"] = run
            case.path_parameters |= {"step": "a"} if "step" in case.path_parameters else {}
        response = case.call(base_url=server.url, headers=bearer, timeout=120)
        case.validate_response(response, checks=CHECKS)
        sent += 1

    one()
    return sent


@pytest.mark.slow
def test_whatever_is_sent_the_answer_is_as_promised(stocked):
    """Generated requests at every operation: no 5xx, no answer that the document does not know."""
    server, schema, names = stocked
    loaded = schemathesis.openapi.from_dict(schema)
    sent = 0
    for found in loaded.get_all_operations():
        operation = found.ok()
        stops = operation.path.endswith("/stop-all") and operation.method == "post"
        # A stream never ends, and after a stop nothing would begin: both have their own tests.
        if not operation.path.endswith(STREAMS) and not stops:
            sent += try_out(operation, server, names)
    assert sent > 300


def test_documents_fit_their_schemas(stocked):
    """With ids that are there: every answer that shows something."""
    server, schema, names = stocked
    loaded = schemathesis.openapi.from_dict(schema)
    bearer = {"Authorization": f"Bearer {TOKENS['approver']}"}
    fill = {
        "step": "a",
        "task": "a",
        "number": 1,
        "seq": 1,
        "name": "greet",
        "ref": f"sha256:{'0' * 64}",
    }
    for run in names.values():
        for found in loaded.get_all_operations():
            operation = found.ok()
            if operation.method.upper() != "GET" or operation.path.endswith(STREAMS):
                continue
            if "{run}" not in operation.path and run != names["done"]:
                continue
            wanted = {"run": run, "other": names["done"], **fill}
            given = {key: value for key, value in wanted.items() if f"{{{key}}}" in operation.path}
            query = {"from": 0} if operation.path.endswith("/diff") else {}
            case = operation.Case(path_parameters=given, query=query)
            response = case.call(base_url=server.url, headers=bearer, timeout=120)
            missing = run == names["waits"] and "/steps/" in operation.path
            # No fleet is at work in this server, no model was called, and no input has this name.
            absent = ("/fleet/{run}", "/model-calls/{number}", "/inputs/{name}")
            nobody = any(part in operation.path for part in absent)
            if "artifacts" not in operation.path and not missing and not nobody:
                assert response.status_code == 200, (
                    urllib.parse.unquote(response.request.url),
                    response.text,
                )
            case.validate_response(response, checks=CHECKS)


def fits(schema, response, method, path):
    """Whether an answer is the struct of its route, with no field more and none less."""
    answers = schema["paths"][f"/api/v1{path}"][method]["responses"]
    content = answers[str(response.status_code)]["content"]["application/json"]
    model = DOCUMENTS[content["schema"]["$ref"].rpartition("/")[2]]
    read = msgspec.json.decode(response.content, type=model)
    return json.loads(msgspec.json.encode(read)) == response.json()


SHOWN = (
    "/session",
    "/runs",
    "/inbox",
    "/library",
    "/library/{name}",
    "/workers",
    "/workers/use",
    "/people",
    "/metrics",
    "/settings",
    "/fleet",
)
OF_RUNS = ("", "/graph", "/rows", "/revisions", "/revisions/{number}", "/diff", "/ledger")
OF_RUNS += ("/model-calls", "/ledger/{seq}")


def test_answers_are_the_structs_of_their_routes(stocked):
    """What is shown, and what commands answer: every field is declared, and of its type."""
    server, schema, names = stocked
    with server.client("approver") as client:
        for path in SHOWN:
            assert fits(schema, client.get(path.format(name="greet")), "get", path), path
        for run in names.values():
            for rest in (*OF_RUNS, "/review"):
                path = f"/runs/{{run}}{rest}"
                query = {"from": 0} if rest == "/diff" else {}
                shown = client.get(path.format(run=run, number=1, seq=1), params=query)
                assert fits(schema, shown, "get", path), path
        for run in (names["done"], names["asks"]):
            path = "/runs/{run}/steps/{step}"
            assert fits(schema, client.get(path.format(run=run, step="a")), "get", path), path
        plan = plan_of({"id": "a", "worker": "say", "not_before": "2036-01-01T00:00:00Z"})
        for path in ("/plans/lint", "/plans/draft", "/runs"):
            for doc in (plan, plan_of({"id": "a", "worker": "nobody"})):
                done = client.post(path, json={"plan": doc})
                if done.status_code < 400:
                    assert fits(schema, done, "post", path), path
        run = done_run(client, plan)
        for verb, body in (
            ("pause", {"reason": "x"}),
            ("resume", {"reason": "x"}),
            ("steps/{step}/hold", {"reason": "x"}),
            ("steps/{step}/release", {"reason": "x"}),
            ("cancel", {"reason": "x"}),
        ):
            path = f"/runs/{{run}}/{verb}"
            told = client.post(path.format(run=run, step="a"), json=body)
            assert told.status_code == 200, told.text
            assert fits(schema, told, "post", path), (path, told.text)
        kept = client.put("/library/other", json={"plan": plan})
        assert fits(schema, kept, "put", "/library/{name}"), kept.text
        gone = client.delete("/library/other")
        assert fits(schema, gone, "delete", "/library/{name}"), gone.text
        for method in ("post", "delete"):
            body = {"json": {"reason": "x"}} if method == "post" else {}
            told = getattr(client, method)("/stop-all", **body)
            assert fits(schema, told, method, "/stop-all"), told.text


def done_run(client, plan):
    return client.post("/runs", json={"plan": plan}).json()["run"]
