"""Kill the client, the server or the host in the middle: the run is finished, and once."""

import asyncio
import json
import os
import signal
import subprocess

import pytest

from tests.support.cli import PROGRAM, environment

pytestmark = pytest.mark.real

PLAN = {
    "goal": "three naps",
    "steps": [
        {"id": "a", "worker": "nap"},
        {"id": "b", "worker": "nap", "depends_on": ["a"]},
    ],
}


class Wire:
    """A client without a library: it writes lines, and can be killed with its server or alone."""

    def __init__(self, project):
        self.process = subprocess.Popen(
            [*PROGRAM, "mcp", "serve"],
            cwd=project.path,
            env=environment(project.path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._number = 0
        self.request(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "wire", "version": "1"},
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def send(self, method, **params):
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    def request(self, method, **params):
        self.send(method, **params)
        return self.answer()

    def answer(self):
        """The answer to what was sent last."""
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._number:
                return answer["result"]

    def call(self, tool, **arguments):
        found = self.request("tools/call", name=tool, arguments=arguments)
        assert not found.get("isError"), found
        return found["structuredContent"]

    def close(self):
        """The client ends: its ends of the pipes are closed."""
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def kill(self):
        """The server is killed."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def finished_once(project, run, naps):
    """The run has succeeded, its log holds, and there is no other run."""
    shown = project.run("show", run, "--json").doc
    assert shown["status"] == "succeeded", shown
    assert [row["run"] for row in project.run("ls", "--json").doc] == [run]
    assert project.lines("naps.txt") == naps
    assert project.run("verify", run).code == 0


def ended(project, run):
    def look():
        found = project.run("show", run, "--json").doc
        return found["status"] == "succeeded"

    return project.until(look, "the end of the run")


def test_the_client_and_then_the_server_are_killed(project):
    """The run goes on; a new client finds it by the same request and gets the result."""
    first = Wire(project)
    run = first.call("start_run", plan=PLAN)["run"]
    first.send("tools/call", name="wait_for_run", arguments={"run": run})
    first.close()  # with a call in flight
    second = Wire(project)
    again = second.call("start_run", plan=PLAN)
    assert (again["run"], again["new"]) == (run, False)
    second.kill()
    ended(project, run)
    third = Wire(project)
    assert third.call("start_run", plan=PLAN)["status"] == "succeeded"
    third.close()
    finished_once(project, run, 2)


def test_the_server_is_killed_while_it_starts_a_run(project):
    """Whether or not the start was durable: the same request leads to one run."""
    for delay in (0.0, 0.3, 0.6):
        wire = Wire(project)
        wire.send("tools/call", name="start_run", arguments={"plan": PLAN})
        asyncio.run(asyncio.sleep(delay))
        wire.kill()
    wire = Wire(project)
    run = wire.call("start_run", plan=PLAN)["run"]
    wire.call("wait_for_run", run=run, seconds=60)
    wire.close()
    finished_once(project, run, 2)


def test_of_the_same_request_at_once_one_run_comes(project):
    """From several servers, each of a client of the same name."""
    wires = [Wire(project) for _ in range(3)]
    for wire in wires:
        wire.send("tools/call", name="start_run", arguments={"plan": PLAN})
    found = [wire.answer()["structuredContent"] for wire in wires]
    (run,) = {each["run"] for each in found}
    assert sorted(each["new"] for each in found) == [False, False, True]
    wires[0].call("wait_for_run", run=run, seconds=60)
    for wire in wires:
        wire.close()
    finished_once(project, run, 2)


def test_host_and_server_are_killed_around_a_report(project):
    """The step is still the agent's; its report is taken once, however often it is sent."""
    mine = {
        "id": "mine",
        "worker": "caller",
        "success_criteria": "data.n > 2",
        "effects": ["files"],
    }
    wire = Wire(project)
    run = wire.call("propose_plan", plan={"goal": "count", "steps": [mine]})["run"]
    assert project.run("review", run, "approve", "--yes").code == 0
    first = wire.call("next_step", run=run, seconds=30)["step"]
    report = {"run": run, "step": "mine", "attempt": first["attempt"], "data": {"n": 3}}
    os.kill(project.run("show", run, "--json").doc["host"], signal.SIGKILL)
    wire.send("tools/call", name="report_step", arguments=report)
    wire.kill()
    wire = Wire(project)
    told = [wire.call("report_step", **report) for _ in range(2)]
    wire.close()
    assert [(each["met"], each["status"]) for each in told] == [(True, "succeeded")] * 2
    events = [json.loads(line) for line in project.run("logs", run, "--json").out.splitlines()]
    assert (
        sum("mine" in json.dumps(each) and "handed out" in json.dumps(each) for each in events) == 1
    )
    assert project.run("verify", run).code == 0


def test_the_host_is_killed_in_a_step(project):
    """The next question about the run resumes it: the idempotent step is repeated, the run ends."""
    wire = Wire(project)
    run = wire.call("start_run", plan=PLAN)["run"]
    project.until(lambda: project.lines("naps.txt") == 1, "the first nap")
    host = project.run("show", run, "--json").doc["host"]
    os.kill(host, signal.SIGKILL)
    found = wire.call("wait_for_run", run=run, seconds=60)
    assert found["status"] == "succeeded"
    assert wire.call("start_run", plan=PLAN)["new"] is False
    wire.close()
    finished_once(project, run, 3)
