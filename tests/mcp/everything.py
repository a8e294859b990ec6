"""The server of the official conformance suite: its tools, resources and prompts on our layer.

    python -m tests.mcp.everything

It is built by `build_server` and served by `http_app` as the product is, without accounts, since
the suite has no token. It prints its address, and ends when its input does.
"""

import asyncio
import base64
import socket
import sys
import threading
from datetime import UTC, datetime

import uvicorn
from mcp import types
from mcp.shared.exceptions import MCPError

from leadhand.errors import UsageError
from leadhand.mcp.http import PATH, http_app
from leadhand.mcp.server import InputNeeded, Parts, Prompt, Resources, Tool, build_server, failed
from leadhand.mcp.tasks import Task, require_tasks

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5E"
PIXEL += "rkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OBJECT = {"type": "object", "properties": {}}


def text(words):
    return types.CallToolResult(content=[types.TextContent(text=words)])


def embedded(uri, words, kind="text/plain"):
    held = types.TextResourceContents(uri=uri, mime_type=kind, text=words)
    return types.EmbeddedResource(resource=held)


def form(message, name, kind="string"):
    """A request for one value."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sampled(words, tokens=100):
    message = types.SamplingMessage(role="user", content=types.TextContent(text=words))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=tokens)
    return types.CreateMessageRequest(params=params)


def answer_to(call, key):
    """The answer to something that was asked; None if it is missing or none."""
    found = call.responses.get(key)
    return None if found is None else found.model_dump(by_alias=True)


def accepted(call, key, name):
    found = answer_to(call, key) or {}
    content = found.get("content") or {}
    return content.get(name) if found.get("action") == "accept" else None


def needs(call, requests, state=None):
    """Ask for what is missing."""
    if any(call.responses.get(key) is None for key in requests):
        raise InputNeeded(requests, state)


async def progress(call, _given):
    for done in (0, 50, 100):
        await call.progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.02)
    return text("done")


async def asks_name(call, _given):
    name = accepted(call, "user_name", "name")
    if name is None:
        raise InputNeeded({"user_name": form("What is your name?", "name")})
    return text(f"Hello, {name}!")


async def asks_sample(call, _given):
    needs(call, {"capital_question": sampled("What is the capital of France?")})
    return text(str(answer_to(call, "capital_question")["content"]))


async def asks_roots(call, _given):
    needs(call, {"client_roots": types.ListRootsRequest()})
    return text(str([root["uri"] for root in answer_to(call, "client_roots")["roots"]]))


async def asks_with_state(call, _given):
    needs(call, {"confirm": form("Please confirm", "ok", "boolean")}, "state-1")
    return text("state-ok" if call.state == "state-1" else "state-missing")


async def asks_several(call, _given):
    wanted = {
        "user_name": form("What is your name?", "name"),
        "greeting": sampled("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    needs(call, wanted, "several")
    return text("all answered")


async def asks_twice(call, _given):
    if call.state is None:
        raise InputNeeded({"step1": form("Step 1: What is your name?", "name")}, "1")
    if call.state == "1":
        name = accepted(call, "step1", "name")
        color = form("Step 2: What is your favorite color?", "color")
        raise InputNeeded({"step2": color}, f"2 {name}")
    return text(f"{call.state[2:]} likes {accepted(call, 'step2', 'color')}")


async def asks_what_the_client_has(call, _given):
    """Only what the client declared is asked for."""
    has = call.ctx.session.client_capabilities
    wanted = {}
    if has is not None and has.elicitation is not None:
        wanted["name"] = form("What is your name?", "name")
    if has is not None and has.sampling is not None:
        wanted["sample"] = sampled("hello")
    if has is not None and has.roots is not None:
        wanted["roots"] = types.ListRootsRequest()
    if wanted:
        needs(call, wanted)
    return text("done")


async def asks_user(call, given):
    asked = form(given.get("message", ""), "response").params
    found = await call.elicit("user", asked)
    return text(f"User response: action=accept, content={found}")


async def needs_sampling(call, _given):
    has = call.ctx.session.client_capabilities
    if has is None or has.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
        raise MCPError(code, "the client must support sampling", needed)
    return text("done")


async def greet(_call, given):
    return text(f"Hello, {given.get('name')}!")


class Jobs:
    """Tasks in memory: what the suite wants, over the product's methods."""

    def __init__(self):
        self.jobs = {}

    def start(self, call, work, *, only=False):
        """Begin a job: a task if the client takes one, else wait for it."""
        if only:
            require_tasks(call)
        job = Job(f"job-{len(self.jobs)}", work)
        self.jobs[job.id] = job
        return job.task() if call.tasks else job.work

    async def get(self, _call, ident):
        return self.jobs[ident].task()

    async def update(self, _call, ident, responses):
        self.jobs[ident].answered(responses)

    async def cancel(self, _call, ident):
        self.jobs[ident].work.cancel()


class Job:
    """One job; `ask` in its work waits for answers."""

    def __init__(self, ident, work):
        self.id = ident
        self.asked, self.answers = {}, {}
        self.came = asyncio.Event()
        self.at = datetime.now(UTC).isoformat()
        self.work = asyncio.ensure_future(work(self))

    async def ask(self, requests):
        self.asked = dict(requests)
        while self.asked:
            await self.came.wait()
            self.came.clear()
        return self.answers

    def answered(self, responses):
        for key in [key for key in responses if key in self.asked]:
            self.answers[key] = responses[key]
            del self.asked[key]
        self.came.set()

    def task(self):
        now = {"id": self.id, "created": self.at, "updated": self.at, "poll_ms": 100}
        if not self.work.done():
            status = "input_required" if self.asked else "working"
            return Task(status=status, requests=dict(self.asked), **now)
        if self.work.cancelled():
            return Task(status="cancelled", **now)
        if isinstance(error := self.work.exception(), UsageError):
            return Task(status="completed", result=failed(error), **now)
        if error is not None:
            wrong = {"code": types.INTERNAL_ERROR, "message": str(error)}
            return Task(status="failed", error=wrong, **now)
        return Task(status="completed", result=self.work.result(), **now)


JOBS = Jobs()


async def waited(found):
    return found if isinstance(found, Task) else await found


async def slow_compute(call, given):
    async def work(_job):
        await asyncio.sleep(float(given.get("seconds", 0)))
        return text("computed")

    return await waited(JOBS.start(call, work))


async def failing_job(call, _given):
    async def work(_job):
        raise UsageError("the job failed")

    return await waited(JOBS.start(call, work, only=True))


async def protocol_error_job(call, _given):
    async def work(_job):
        raise RuntimeError("broken")

    return await waited(JOBS.start(call, work))


async def confirm_delete(call, _given):
    async def work(job):
        return text(str(await job.ask({f"{job.id}-1": form("Delete?", "confirm", "boolean")})))

    return await waited(JOBS.start(call, work))


async def multi_input(call, _given):
    async def work(job):
        asked = {f"{job.id}-{name}": form(f"Which {name}?", name) for name in ("name", "colour")}
        return text(str(await job.ask(asked)))

    return await waited(JOBS.start(call, work))


async def input_then_task(call, _given):
    require_tasks(call)
    name = accepted(call, "user_name", "name")
    if name is None:
        raise InputNeeded({"user_name": form("What is your name?", "name")})

    async def work(_job):
        return text(f"Hello, {name}!")

    return await waited(JOBS.start(call, work))


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
LEVELS = [{"const": "low", "title": "Low"}, {"const": "high", "title": "High"}]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": LEVELS},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": LEVELS}},
}


def asks(fields):
    async def run(call, _given):
        schema = {"type": "object", "properties": fields, "required": list(fields)}
        params = types.ElicitRequestFormParams(message="Fill in", requested_schema=schema)
        found = await call.elicit("form", params)
        return text(f"Elicitation completed: action=accept, content={found}")

    return run


async def broken(_call, _given):
    raise UsageError("This tool intentionally returns an error for testing")


def says(*content):
    async def run(_call, _given):
        return types.CallToolResult(content=list(content))

    return run


IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
RUNS = {
    "test_simple_text": says(types.TextContent(text="This is a simple text response for testing.")),
    "test_image_content": says(IMAGE),
    "test_audio_content": says(types.AudioContent(data=SOUND, mime_type="audio/wav")),
    "test_embedded_resource": says(embedded("test://embedded-resource", "This is embedded.")),
    "test_multiple_content_types": says(
        types.TextContent(text="Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", '{"test": "data"}', "application/json"),
    ),
    "test_error_handling": broken,
    "test_tool_with_progress": progress,
    "test_elicitation": asks_user,
    "test_elicitation_sep1034_defaults": asks(DEFAULTS),
    "test_elicitation_sep1330_enums": asks(ENUMS),
    "test_input_required_result_elicitation": asks_name,
    "test_input_required_result_sampling": asks_sample,
    "test_input_required_result_list_roots": asks_roots,
    "test_input_required_result_request_state": asks_with_state,
    "test_input_required_result_multiple_inputs": asks_several,
    "test_input_required_result_multi_round": asks_twice,
    "test_input_required_result_tampered_state": asks_with_state,
    "test_input_required_result_capabilities": asks_what_the_client_has,
    "test_missing_capability": needs_sampling,
    "test_streaming_elicitation": asks_name,
    "test_logging_tool": says(types.TextContent(text="nothing is logged")),
    "json_schema_2020_12_tool": greet,
    "test_custom_headers": greet,
    "greet": greet,
    "slow_compute": slow_compute,
    "failing_job": failing_job,
    "protocol_error_job": protocol_error_job,
    "confirm_delete": confirm_delete,
    "multi_input": multi_input,
    "test_tool_with_task": input_then_task,
}
PHONE = {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]}
ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMAS = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": PHONE,
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    "test_custom_headers": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
}
TOOLS = [
    Tool(
        name=name,
        title="",
        description=f"{name} of the suite",
        run=run,
        schema=SCHEMAS.get(name, OBJECT),
    )
    for name, run in RUNS.items()
]


def resource(uri, name, kind):
    return types.Resource(uri=uri, name=name, description=name, mime_type=kind)


STATIC = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": types.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=PIXEL
    ),
}
LISTED = [resource(uri, uri, held.mime_type) for uri, held in STATIC.items()]
TEMPLATE = types.ResourceTemplate(
    uri_template="test://template/{id}/data", name="template", mime_type="application/json"
)


async def listed(_call, _cursor):
    return types.ListResourcesResult(resources=LISTED)


async def read(_call, uri):
    if uri in STATIC:
        return types.ReadResourceResult(contents=[STATIC[uri]])
    ident = uri.removeprefix("test://template/").removesuffix("/data")
    if uri != f"test://template/{ident}/data":
        raise LookupError(uri)
    words = f'{{"id": "{ident}", "templateTest": true, "data": "Data for ID: {ident}"}}'
    held = types.TextResourceContents(uri=uri, mime_type="application/json", text=words)
    return types.ReadResourceResult(contents=[held])


def said(content):
    return types.PromptMessage(role="user", content=content)


def wants(*names):
    return [types.PromptArgument(name=name, required=True) for name in names]


async def simple(_call, _given):
    return [said(types.TextContent(text="This is a simple prompt for testing."))]


async def with_arguments(_call, given):
    words = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
    return [said(types.TextContent(text=words))]


async def with_resource(_call, given):
    held = embedded(given["resourceUri"], "Embedded resource content for testing.")
    return [said(held), said(types.TextContent(text="Please process the embedded resource."))]


async def with_image(_call, _given):
    return [said(IMAGE), said(types.TextContent(text="Please analyze the image above."))]


async def with_input(call, _given):
    context = accepted(call, "user_context", "context")
    if context is None:
        raise InputNeeded({"user_context": form("What context should it use?", "context")})
    return [said(types.TextContent(text=f"Use {context}."))]


PROMPTS = [
    Prompt(definition=types.Prompt(name=name, description=name, arguments=given), messages=run)
    for name, run, given in (
        ("test_simple_prompt", simple, []),
        ("test_prompt_with_arguments", with_arguments, wants("arg1", "arg2")),
        ("test_prompt_with_embedded_resource", with_resource, wants("resourceUri")),
        ("test_prompt_with_image", with_image, []),
        ("test_input_required_result_prompt", with_input, []),
    )
]


async def complete(_call, params):
    return [each for each in ("paris", "park", "party") if each.startswith(params.argument.value)]


def server():
    """The server of the suite."""
    resources = Resources(list=listed, templates=[TEMPLATE], read=read)
    parts = Parts(tools=TOOLS, resources=resources, prompts=PROMPTS, complete=complete, tasks=JOBS)
    return build_server("everything", "1.0.0", "", parts)


def main():
    assert base64.b64decode(PIXEL)
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(http_app(server(), None), log_config=None, lifespan="on")
    running = uvicorn.Server(config)

    def watch():
        sys.stdin.read()
        running.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    print(f"http://127.0.0.1:{sock.getsockname()[1]}{PATH}", flush=True)
    asyncio.run(running.serve(sockets=[sock]))


if __name__ == "__main__":
    main()
