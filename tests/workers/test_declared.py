"""Workers from leadhand.toml, and every mistake that can be made there."""

import stat
import tomllib

import pytest

from leadhand import plugins
from leadhand.errors import UsageError
from leadhand.workers.commands.worker import CommandWorker
from leadhand.workers.declared import declared_workers
from leadhand.workers.http.worker import HttpWorker

GOOD = """
[workers.deploy]
description = "Deploys a version."
command = ["./deploy.sh", "--to={environment}", "{version}", "{flags...}"]
parameters.environment = {type = "string", enum = ["staging", "production"]}
parameters.version = "string"
parameters.flags = "array"
timeout = "10 minutes"
est = 120
risk = "high"
effects = ["deploys"]
idempotent = true
checks = {up = "data.exit_code == 0"}
check = "data.exit_code == 0"
probe = ["./deployed.sh", "{version}"]
env = ["KUBECONFIG"]
set_env = {MODE = "quiet"}
exit_codes = {"3" = "permanent"}
max_concurrency = 1
cost = 0.25
needs = ["image"]
gives = "service"
version = "7"

[workers.tickets]
url = "https://tickets.example.com/api/{id}"
headers = {Authorization = {env = "TICKETS_TOKEN", prefix = "Bearer "}}

[workers.notify]
action = "send"
method = "POST"
url = "https://{region}.example.com/notify"
allow = ["eu.example.com", "us.example.com"]
json = {text = "{text}", tags = "{tags}"}

[workers.database]
cwd = "."
timeout = 60

[workers.database.actions.migrate]
command = ["./migrate", "{target}"]
risk = "high"

[workers.database.actions.status]
command = ["./status"]
timeout = 5
"""


@pytest.fixture
def workers(tmp_path):
    made = declared_workers(tomllib.loads(GOOD)["workers"], tmp_path)
    return {worker.spec.name: worker for worker in made}


def test_a_command(workers):
    worker = workers["deploy"]
    assert isinstance(worker, CommandWorker)
    spec = worker.spec
    assert (spec.kind, spec.trusted, spec.version, spec.max_concurrency) == (
        "command",
        False,
        "7",
        1,
    )
    assert spec.description == "Deploys a version."
    offer = spec.offers[""]
    assert offer.parameters == {
        "type": "object",
        "properties": {
            "environment": {"type": "string", "enum": ["staging", "production"]},
            "version": {"type": "string"},
            "flags": {"type": "array"},
        },
        "required": ["environment", "version", "flags"],
        "additionalProperties": False,
    }
    assert (offer.timeout_s, offer.est_s, offer.risk, offer.cost) == (600, 120, "high", 0.25)
    assert (offer.effects, offer.needs, offer.gives) == (("deploys",), ("image",), ("service",))
    assert offer.idempotent
    assert offer.probe
    assert offer.result_check
    assert offer.checks == ("up",)


def test_http_calls(workers):
    tickets, notify = workers["tickets"], workers["notify"]
    assert isinstance(tickets, HttpWorker)
    assert tickets.spec.offers[""].idempotent
    assert tickets.spec.offers[""].effects is None
    properties = notify.spec.offers["send"].parameters["properties"]
    scalar = {"type": ["string", "number", "boolean"]}
    assert properties == {"region": scalar, "text": {}, "tags": {}}
    assert not notify.spec.offers["send"].idempotent


def test_several_actions_inherit_from_their_worker(workers):
    offers = workers["database"].spec.offers
    assert sorted(offers) == ["migrate", "status"]
    assert (offers["migrate"].timeout_s, offers["status"].timeout_s) == (60, 5)
    assert (offers["migrate"].risk, offers["status"].risk) == ("high", None)


def test_undeclared_placeholders_take_scalars(tmp_path):
    (worker,) = declared_workers({"it": {"command": ["x", "{a}", "{b...}"]}}, tmp_path)
    properties = worker.spec.offers[""].parameters["properties"]
    assert properties["a"] == {"type": ["string", "number", "boolean"]}
    assert properties["b"]["type"] == "array"


def test_the_version_follows_the_declaration_and_the_script(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)

    def version(*command, **table):
        return declared_workers({"it": {"command": list(command), **table}}, tmp_path)[
            0
        ].spec.version

    first = version("./run.sh", "{a}")
    assert first == version("./run.sh", "{a}")
    assert first != version("./run.sh", "{b}")
    assert first != version("./run.sh", "{a}", set_env={"A": "1"})
    through_an_interpreter = version("sh", "run.sh")
    script.write_text("#!/bin/sh\nrm -rf /\n")
    assert first != version("./run.sh", "{a}")
    assert through_an_interpreter != version("sh", "run.sh")


ONE_KIND = " or ".join(f"`{key}`" for key in plugins.parts("workers"))
MISTAKES = [
    ({"command": "rm -rf {x}"}, "command: must be a list of texts"),
    ({"command": []}, "command: must be a list of texts"),
    ({"command": ["a", 1]}, "command: must be a list of texts"),
    ({"command": ["{program}", "x"]}, "command[0]: the program must be fixed"),
    ({"command": ["a", "{"]}, "command[1]: { is no placeholder"),
    ({"command": ["a", "{b c}"]}, "command[1]: {b c} is no placeholder"),
    ({"command": ["a", "x{b...}"]}, "command[1]: {name...} must be an argument of its own"),
    ({"command": ["a", "b\0"]}, "command[1]: must not be empty or hold a NUL"),
    ({"command": [""]}, "command[0]: must not be empty"),
    (
        {"command": ["a", "{x}"], "parameters": {"y": "string"}},
        "parameters: {x} is used, and not declared",
    ),
    (
        {"command": ["a"], "parameters": {"y": "string"}},
        "parameters.y: is declared, and no placeholder uses it",
    ),
    ({"command": ["a", "{x}"], "parameters": {"x": "text"}}, "parameters.x: must be a type"),
    ({"command": ["a", "{x}"], "parameters": {"x": 1}}, "parameters.x: must be a type"),
    ({"command": ["a", "{x}"], "parameters": {"x": "array"}}, "parameters.x: a placeholder {name}"),
    (
        {"command": ["a", "{x...}"], "parameters": {"x": "string"}},
        "parameters.x: a placeholder {name}",
    ),
    ({"command": ["a", "{x}"], "parameters": ["x"]}, "parameters: must be a table"),
    ({"command": ["a"], "timeout": "soon"}, "timeout: "),
    ({"command": ["a"], "timeout": True}, "timeout: "),
    ({"command": ["a"], "risk": "scary"}, "risk: must be one of low, medium, high, critical"),
    ({"command": ["a"], "output": "xml"}, "output: must be one of text, json, report"),
    ({"command": ["a"], "idempotent": "yes"}, "idempotent: must be true or false"),
    ({"command": ["a"], "exit_codes": {"x": "permanent"}}, "exit_codes: 'x' is no exit code"),
    ({"command": ["a"], "exit_codes": {"300": "permanent"}}, "exit_codes: '300' is no exit code"),
    ({"command": ["a"], "exit_codes": {"3": "transiet"}}, "did you mean transient?"),
    ({"command": ["a"], "env": "A", "set_env": {"B": 1}}, "set_env.B: must be a text"),
    ({"command": ["a"], "env": [1]}, "env: must be a list of texts"),
    ({"command": ["a"], "cwd": "not-there"}, "cwd: "),
    ({"command": ["a"], "stdout_limit": 0}, "stdout_limit: must be a whole number from 1"),
    ({"command": ["a"], "cost": -1}, "cost: must be a number"),
    ({"command": ["a"], "checks": {"x": "data.y =="}}, "checks.x: 'data.y =='"),
    ({"command": ["a"], "checks": {"x": "__import__('os')"}}, "checks.x: "),
    ({"command": ["a"], "check": "nobody == 1"}, "check: "),
    ({"command": ["a"], "probe": "x"}, "probe: must be a list of texts"),
    ({"command": ["a"], "probe": ["x", "{y}"]}, "probe: {y} is no parameter of the command"),
    ({"command": ["a"], "comand": ["b"]}, "comand: is not known; did you mean command?"),
    ({"comand": ["b"], "cwd": "."}, "comand: is not known; did you mean command?"),
    ({"ulr": "https://a.example/"}, "ulr: is not known; did you mean url?"),
    ({"command": ["a"], "max_concurency": 1}, "did you mean max_concurrency?"),
    (
        {"actions": {"a": {"command": ["a"]}, "b": {"comand": ["b"]}}},
        "actions.b.comand: is not known; did you mean command?",
    ),
    ({"command": ["a"], "method": "GET"}, "method: is not known"),
    ({"command": ["a"], "url": "https://a.example/"}, f": needs {ONE_KIND}, and only one"),
    ({"description": "empty"}, f": needs {ONE_KIND}, and only one"),
    ({"command": ["a"], "actions": {}}, "actions: must be tables"),
    ({"command": ["a"], "action": "a b"}, "action: 'a b' is not a name"),
    (
        {"actions": {"a": {"command": ["a"]}, "b": {"url": "https://a.example/"}}},
        "a worker's actions are all of one kind",
    ),
    ({"url": "ftp://a/"}, "url: must be http:// or https://"),
    ({"url": "https://u:p@a.example/"}, "url: must not hold a user or password"),
    (
        {"url": "http://10.0.0.1/"},
        "url: '10.0.0.1' is a private address; to allow it, add '10.0.0.1:80'",
    ),
    ({"url": "http://2130706433/"}, "url: '2130706433' is a loopback address"),
    ({"url": "http://a.example:8080/"}, "url: port 8080 is not allowed; add 'a.example:8080'"),
    ({"url": "http://{host}/"}, "url: a placeholder in the host needs an `allow` list"),
    ({"url": "https://a.example/", "method": "FETCH"}, "method: must be one of"),
    ({"url": "https://a.example/", "allow": ["a b"]}, "allow: 'a b'"),
    ({"url": "https://a.example/", "headers": {"Host": "x"}}, "headers.Host: 'Host' cannot be set"),
    (
        {"url": "https://a.example/", "headers": {"X": {"file": "y"}}},
        "headers.X: must be a text or {env",
    ),
    ({"url": "https://a.example/", "json": {"a": 1}}, "json: GET sends no body"),
    (
        {"url": "https://a.example/", "method": "POST", "json": {"a": "{"}},
        "json: { is no placeholder",
    ),
    ({"url": "https://a.example/", "expect_status": ["200"]}, "expect_status: must be statuses"),
    ({"url": "https://a.example/", "max_bytes": -1}, "max_bytes: must be a whole number"),
    (
        {"url": "https://a.example/", "probe": "http://127.0.0.1/"},
        "probe: '127.0.0.1' is a loopback",
    ),
    ({"url": "https://a.example/", "probe": "https://a.example/{x}"}, "probe: {x} is no parameter"),
]


@pytest.mark.parametrize(("table", "message"), MISTAKES, ids=[row[1][:40] for row in MISTAKES])
def test_mistakes_are_named_with_table_and_key(tmp_path, table, message):
    with pytest.raises(UsageError) as caught:
        declared_workers({"it": table}, tmp_path)
    assert message in str(caught.value)
    assert all(line.startswith("workers.it") for line in str(caught.value).splitlines())


def test_one_misspelt_key_is_no_reason_to_doubt_the_others(tmp_path):
    tables = {"it": {"actions": {"a": {"command": ["a"]}, "b": {"comand": ["b"], "cwd": "."}}}}
    with pytest.raises(UsageError) as caught:
        declared_workers(tables, tmp_path)
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "workers.it.actions.b",
        "workers.it.actions.b.comand",
    ]


def test_all_mistakes_are_found_at_once(tmp_path):
    tables = {
        "one": {"command": ["a"], "timeout": "soon", "risk": "scary", "cwd": "gone"},
        "two": {"url": "http://127.0.0.1/", "method": "FETCH"},
        "three": "not a table",
        "fo ur": {"command": ["a"]},
    }
    with pytest.raises(UsageError) as caught:
        declared_workers(tables, tmp_path)
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "workers.one.timeout",
        "workers.one.risk",
        "workers.one.cwd",
        "workers.two.method",
        "workers.two.url",
        "workers.three",
        "workers.fo ur",
    ]
