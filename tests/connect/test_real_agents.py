"""Real Claude Code and real Codex, connected by `leadhand connect`, with a scripted model.

The agent proposes a plan and tries to approve it in every way that it has; a person approves it,
the run goes on, and the agent gets the verified result.
"""

import asyncio
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from leadhand.testing.endpoint import Endpoint, Say, Use
from tests.connect.test_agent_shell import BEARER, COOKIE, SOCKET
from tests.support.cli import Done

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
BIN = Path(sys.executable).parent
LEADHAND = shlex.quote(str(BIN / "leadhand"))
MODELS = {"claude": "claude-sonnet-4-5", "codex": "gpt-5.2-codex"}
TOOLS = {"claude": "mcp__plugin_leadhand_leadhand__", "codex": "mcp__leadhand__"}
SETTINGS = """\
[project]
store = "runs.db"

[workers.greet]
command = ["sh", "-c", "echo world > greeting.txt; cat greeting.txt"]
effects = ["files"]
risk = "high"
"""
PLAN = {
    "goal": "The greeting is written",
    "steps": [{"id": "a", "worker": "greet", "success_criteria": ["data.stdout == 'world\\n'"]}],
}
AGENT_S = 240


class Project:
    """A person's folder, with the person's own shell and the person's agents."""

    def __init__(self, path, coders):
        self.coders, self.home, self.path = coders, path / "home", path / "project"
        for folder in (self.home, self.path):
            folder.mkdir()
        (self.path / "leadhand.toml").write_text(SETTINGS)
        kept = ("LANG", "LC_ALL", "SSL_CERT_FILE")
        self.env = {name: os.environ[name] for name in kept if name in os.environ}
        self.env |= {"HOME": str(self.home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin"}
        self.env |= {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}

    def run(self, *args):
        """The person types a command."""
        done = subprocess.run(
            [BIN / "leadhand", *args],
            cwd=self.path,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def trusted(self):
        """The person trusts the folder, in Leadhand, Claude Code and Codex."""
        assert self.run("trust").code == 0
        known = {"hasTrustDialogAccepted": True}
        doc = {"projects": {str(self.path): known}, "hasCompletedOnboarding": True}
        (self.home / ".claude.json").write_text(json.dumps(doc))
        (self.home / ".codex").mkdir()
        text = f'[projects.{json.dumps(str(self.path))}]\ntrust_level = "trusted"\n'
        (self.home / ".codex" / "config.toml").write_text(text)

    async def told(self, agent, prompt, script):
        """Have an agent work on a prompt to its end."""
        async with Endpoint(script) as endpoint:
            argv, more = getattr(self, f"_{agent}")(endpoint.url, prompt)
            child = await asyncio.create_subprocess_exec(
                *map(str, argv),
                cwd=self.path,
                env={**self.env, **more},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = await asyncio.wait_for(child.communicate(), AGENT_S)
        assert child.returncode == 0, (out[-2000:], err[-2000:])

    def _claude(self, url, prompt):
        tools = f"Bash,Skill,{TOOLS['claude'].rstrip('_')}"
        argv = [self.coders.claude, "-p", "--model", MODELS["claude"], "--allowedTools", tools]
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k", "DISABLE_AUTOUPDATER": "1"}
        env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "1"}
        return [*argv, "--", prompt], env | {"MCP_TIMEOUT": "120000"}

    def _codex(self, url, prompt):
        provider = {"name": "x", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "K"}
        settings = {f"model_providers.x.{key}": json.dumps(v) for key, v in provider.items()}
        settings |= {"model_provider": '"x"', "mcp_servers.leadhand.required": "true"}
        settings |= {"mcp_servers.leadhand.startup_timeout_sec": "120"}
        argv = [self.coders.codex, "exec", "--json", "--skip-git-repo-check"]
        argv += ["--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
        argv += ["-m", MODELS["codex"]]
        argv += [word for pair in settings.items() for word in ("-c", "=".join(pair))]
        return [*argv, prompt], {"K": "k"}


def shell(agent, command):
    """The model calls a shell."""
    if agent == "claude":
        return Use("Bash", {"command": command, "description": "as told", "timeout": 120000})
    return Use("exec_command", {"cmd": command, "yield_time_ms": 60000})


@pytest.fixture(params=list(MODELS))
def agent(request):
    return request.param


@pytest.fixture
def project(tmp_path, coders):
    """A project; runs that are still open at the end are cancelled, so that their host ends."""
    made = Project(tmp_path, coders)
    yield made
    for row in made.run("ls", "--status", "waiting", "--json").doc or []:
        assert made.run("cancel", row["run"]).code == 0, row


@pytest.fixture
def server(project):
    """`leadhand serve`, started by the person; gives back its address."""
    program = [BIN / "leadhand", "serve", "--port", "0", "--json"]
    child = subprocess.Popen(
        program, cwd=project.path, env=project.env, stdout=subprocess.PIPE, text=True
    )
    try:
        lines = ""
        while not lines.endswith("}\n"):
            line = child.stdout.readline()
            assert line, "the server has ended"
            lines += line
        yield json.loads(lines)["url"]
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


def test_the_agent_lists_what_was_connected(project, agent):
    """The agent's own commands see the server; after --remove they see nothing."""
    project.trusted()
    assert project.run("connect", agent, "--yes").code == 0

    def listed():
        program = [getattr(project.coders, agent), "mcp", "list"]
        where = {"cwd": project.path, "env": project.env}
        return subprocess.run(
            program, **where, check=True, capture_output=True, text=True, timeout=120
        ).stdout

    assert "leadhand" in listed()
    if agent == "codex":
        table = tomllib.loads((project.path / ".codex" / "config.toml").read_text())
        assert table["mcp_servers"]["leadhand"]["command"] == "leadhand"
    assert project.run("connect", agent, "--remove", "--yes").code == 0
    assert "leadhand mcp serve" not in listed().replace("  ", " ")


async def test_an_agent_proposes_a_person_approves_and_the_result_is_verified(
    project, server, agent
):
    settings = project.path / "leadhand.toml"
    settings.write_text(f'{settings.read_text()}\n[server]\naddress = "{server}"\n')
    project.trusted()
    assert project.run("connect", agent, "--yes").code == 0
    seen = {}

    def person(address, binding):
        """Open the agent's link, sign in by the owner's token, and approve what was shown."""
        assert address.startswith(f"{server}/#/runs/"), address
        run = address.split("/")[5]
        with urllib.request.urlopen(address, timeout=60) as page:
            assert page.headers.get_content_type() == "text/html"
        token = (project.path / "runs.db.token").read_text().strip()
        head = {"Content-Type": "application/json", "Origin": server}

        def post(path, body, **more):
            data = json.dumps(body).encode()
            asked = urllib.request.Request(f"{server}/api/v1{path}", data, {**head, **more})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.headers.get("Set-Cookie", "").split(";")[0]

        cookie = post("/session", {"token": token})
        post(f"/runs/{run}/review/approve", {"digest": binding}, Cookie=cookie)

    def ways():
        run, binding = seen["run"], seen["binding"]
        known = {"RUN": run, "HASH": binding, "URL": server}
        yield f"{LEADHAND} review {run} approve --digest {binding}"
        yield f"env -u CLAUDECODE LEADHAND_ACTOR=ann {LEADHAND} answer {run}/review-1 approve"
        for text in (SOCKET, BEARER, COOKIE):
            code = functools.reduce(lambda code, each: code.replace(*each), known.items(), text)
            yield f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"

    def model():
        """What the model does, one call after the other; each gets the result of the last."""
        own = TOOLS[agent]
        told = yield Use(f"{own}propose_plan", {"plan": PLAN})
        (row,) = project.run("inbox", "--json").doc
        link = re.search(r"sign in and decide at ([^\s\"\\\\]+)", told)
        seen.update(run=row["run"], proposed=told, link=link and link[1])
        seen["binding"] = project.run("review", row["run"], "--json").doc["binding"]
        answer = {"question": row["id"], "choice": "approve", "digest": seen["binding"]}
        seen["refused"] = [(yield Use(f"{own}answer", answer))]
        for way in ways():
            seen["refused"].append((yield shell(agent, way)))
        seen["waiting"] = project.run("show", row["run"], "--json").doc["status"]
        person(seen["link"], seen["binding"])
        seen["result"] = yield Use(f"{own}wait_for_run", {"run": row["run"], "seconds": 60})
        yield Say("The greeting is written, and was verified.")

    await project.told(agent, "Write the greeting with a reviewed plan.", played(model()))
    assert seen["run"] in seen["proposed"]
    assert "input_required" in seen["proposed"]
    assert seen["waiting"] == "waiting"
    by_tool, *by_shell = seen["refused"]
    assert "reserved for people" in by_tool or "a person must" in by_tool, by_tool
    for said in by_shell:
        assert "is an agent" in said or "403" in said, said
    assert '"succeeded"' in seen["result"]
    assert (project.path / "greeting.txt").read_text() == "world\n"
    log = project.run("logs", seen["run"], "--json")
    assert "agent:" in log.out
    assert project.run("verify", seen["run"]).code == 0


async def test_a_required_plan_denies_the_shell_until_a_person_has_approved(project, agent):
    """The gate runs inside of the real agent, before its tool."""
    project.trusted()
    assert project.run("connect", agent, "--require-plan", "--yes").code == 0
    written, seen = project.path / "written", {}
    step = {"id": "a", "worker": "caller", "success_criteria": ["data == 1"]}
    plan = {"goal": "It is written", "risk_level": "high", "steps": [step]}

    def model():
        seen["before"] = yield shell(agent, "touch written")
        seen["early"] = written.exists()
        yield Use(f"{TOOLS[agent]}propose_plan", {"plan": plan})
        (row,) = project.run("inbox", "--json").doc
        seen["waiting"] = yield shell(agent, "touch written")
        seen["early"] |= written.exists()
        assert project.run("answer", row["id"], "approve").code == 0
        yield shell(agent, "touch written")
        yield Say("It is written.")

    await project.told(agent, "Write it.", played(model()))
    assert "no plan is approved" in seen["before"]
    assert "waits for approval" in seen["waiting"]
    assert not seen["early"]
    assert written.exists()


PATCH = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n"
SKILL = (
    "---\nname: {0}\ndescription: does it\nallowed-tools: Bash\n---\nDone: !`touch $ARGUMENTS`\n"
)


def ways_around(agent, path):
    """Tools that change something without being called a shell; and a skill that begins with one.

    Claude Code runs the command of a skill without a hook for it.
    """
    if agent == "codex":
        yield Use("exec_command", {"cmd": f"apply_patch <<'END'\n{PATCH}END"})
        yield Use("multi_agent_v1__spawn_agent", {"message": "touch spawned"})
        return
    yield Use("Write", {"file_path": str(path / "written"), "content": "x"})
    yield Use("Agent", {"description": "x", "prompt": "x", "subagent_type": "general-purpose"})
    yield Use("Skill", {"skill": "release", "args": "by-skill"})


async def test_no_other_tool_leads_around_the_gate(project, agent):
    """Edits, other agents, skills: all of them are denied as the shell is; our own skill is not."""
    project.trusted()
    assert project.run("connect", agent, "--require-plan", "--yes").code == 0
    skill = project.path / ".claude" / "skills" / "release"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL.format("release"))
    before, told = sorted(each.name for each in project.path.iterdir()), []

    def model():
        for way in ways_around(agent, project.path):
            said = yield way
            told.append(said)
        if agent == "claude":
            said = yield Use("Skill", {"skill": "leadhand:plan", "args": "x"})
            told.append(said)
        yield Say("Done.")

    await project.told(agent, "Write it.", played(model()))
    ours = [told.pop()] if agent == "claude" else []
    assert all("Leadhand denied this tool" in each for each in told), told
    assert all("Launching skill" in each for each in ours), ours
    assert sorted(each.name for each in project.path.iterdir()) == before


async def test_from_an_empty_folder_the_agent_does_the_steps_itself(project, agent):
    """No settings and no workers: connect, propose, approve in a terminal, one step at a time."""
    (project.path / "leadhand.toml").unlink()
    project.trusted()
    assert project.run("connect", agent, "--yes").code == 0
    own, seen = TOOLS[agent], {}
    step = {"id": "write", "worker": "caller", "description": "Write greeting.txt"}
    step |= {"effects": ["files"], "success_criteria": ["data.words >= 2"]}

    def model():
        plan = {"goal": "A greeting is there", "steps": [step]}
        yield Use(f"{own}propose_plan", {"plan": plan})
        (row,) = project.run("inbox", "--json").doc
        run = {"run": row["run"]}
        seen["early"] = yield Use(f"{own}next_step", {**run, "seconds": 0})
        binding = project.run("review", row["run"], "--json").doc["binding"]
        assert project.run("review", row["run"], "approve", "--digest", binding).code == 0
        seen["step"] = yield Use(f"{own}next_step", run)
        yield shell(agent, "echo good morning > greeting.txt")
        report = {**run, "step": "write", "attempt": 1}
        seen["short"] = yield Use(f"{own}report_step", {**report, "data": {"words": 1}})
        seen["asked"] = yield Use(f"{own}next_step", run)
        assert project.run("answer", f"{row['run']}/q1", "retry").code == 0
        yield Use(f"{own}next_step", run)
        report["attempt"] = 2
        seen["done"] = yield Use(f"{own}report_step", {**report, "data": {"words": 2}})
        seen["run"] = row["run"]
        yield Say("Done.")

    await project.told(agent, "Write a greeting.", played(model()))
    assert "for_person" in seen["early"]
    assert "Write greeting.txt" in seen["step"]
    assert "data.words >= 2" in seen["short"]
    assert "for_person" in seen["asked"]
    assert '"status":"succeeded"' in seen["done"]
    assert project.run("show", seen["run"], "--json").doc["status"] == "succeeded"
    assert project.run("verify", seen["run"]).code == 0


def played(model):
    """A script of an endpoint from a generator: titles and summaries are answered beside it."""
    begun = []

    def reply(request):
        if not {"Bash", "exec_command"} & {tool.name for tool in request.tools}:
            return Say("a title")  # a small request beside the conversation
        if not begun:
            begun.append(True)
            return next(model)
        return model.send("\n".join(each.text for each in request.results))

    return reply
