"""action.yml and its script, against a stand-in of GitHub's REST API."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support.cli import SOURCE

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
HOW_TO = ROOT / "docs" / "how-to" / "github-action.md"
TOKEN = "ghs_0123456789abcdefghijABCDEFGHIJ012345"

spec = importlib.util.spec_from_file_location("github_action", ROOT / "scripts/github_action.py")
script = importlib.util.module_from_spec(spec)
sys.modules["github_action"] = script  # dataclasses look there
spec.loader.exec_module(script)

SETTINGS = """
[workers.say]
command = ["echo", "{text}"]
parameters = {text = "string"}
effects = []

[workers.deploy]
command = ["sh", "-c", "env; echo deployed"]
effects = ["production"]
risk = "high"
"""
PLAN = """
goal: Say it
params: {text: {type: string}}
steps:
  - {id: a, worker: say, parameters: {text: "${{ params.text }}"}}
"""
DEPLOY = "goal: Release\nsteps:\n  - {id: d, worker: deploy}\n"


class Api:
    """What the action asks of GitHub, with the same forms and statuses."""

    def __init__(self):
        self.comments, self.files, self.approvals = [], {}, []
        self.seen, self.status, self.busy = [], {}, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, found = outer.respond(self, body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/stolen")
                self.end_headers()
                self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - their names

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def respond(self, request, body):
        method, (path, _, query) = request.command, request.path.partition("?")
        assert path.startswith("/repos/o/r/")
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        path = path.removeprefix("/repos/o/r")
        self.seen.append((method, path))
        if self.busy:
            self.busy -= 1
            return 503, {}
        if (method, path) in self.status:
            return self.status[method, path], {}
        if match := re.fullmatch(r"/contents/(.+)", path):
            found = self.files.get((match[1], query.removeprefix("ref=")))
            return (404, {}) if found is None else (200, found.encode())
        if path == "/issues/7/comments" and method == "GET":
            page = int(re.search(r"page=(\d+)$", query)[1])
            return 200, self.comments[(page - 1) * 100 : page * 100]
        if path == "/issues/7/comments" and method == "POST":
            self.add(body["body"])
            return 201, self.comments[-1]
        if match := re.fullmatch(r"/issues/comments/(\d+)", path):
            (at,) = [i for i, each in enumerate(self.comments) if each["id"] == int(match[1])]
            if method == "DELETE":
                del self.comments[at]
                return 204, b""
            self.comments[at]["body"] = body["body"]
            return 200, self.comments[at]
        assert path == "/actions/runs/99/approvals", path
        return 200, self.approvals

    def add(self, body, kind="Bot"):
        number = max((each["id"] for each in self.comments), default=0) + 1
        self.comments.append({"id": number, "body": body, "user": {"type": kind, "login": "x"}})

    def approve(self, login, environment="production", state="approved", kind="User"):
        self.approvals.append(
            {
                "state": state,
                "comment": "",
                "environments": [{"name": environment}],
                "user": {"login": login, "type": kind},
            }
        )


class Job:
    """A job of a workflow that uses the action, in a folder of its own."""

    def __init__(self, folder, api, monkeypatch):
        self.folder, self.api = folder, api
        (folder / "leadhand.toml").write_text(SETTINGS)
        (folder / "plan.yaml").write_text(PLAN)
        (folder / "deploy.yaml").write_text(DEPLOY)
        (folder / "tmp").mkdir()
        monkeypatch.chdir(folder)
        program = folder / "leadhand"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m leadhand.cli "$@"\n')
        program.chmod(0o755)
        monkeypatch.setattr(script, "PROGRAM", program)

    def variables(self, output, *, trusted=True, **inputs):
        """The environment of the action's script."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(SOURCE),
            "GITHUB_API_URL": self.api.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": "99",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "RUNNER_TEMP": str(self.folder / "tmp"),
            "LEADHAND_TRUST": str(self.folder) if trusted else "",
            "INPUT_TOKEN": TOKEN,
            "INPUT_PLAN": "plan.yaml",
            **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
        }

    def use(self, event=None, *, trusted=True, **inputs):
        """Use the action; return exit code and outputs."""
        (self.folder / "event.json").write_text(json.dumps(event or {}))
        output = self.folder / "output"
        output.write_text("")
        code = script.main(self.variables(output, trusted=trusted, **inputs), TOKEN)
        found = re.findall(r"(?m)^(\w+)<<(\w+)\n(.*?)\n\2$", output.read_text(), re.DOTALL)
        return code, {name: value for name, _, value in found}

    @property
    def summary(self):
        return (self.folder / "summary.md").read_text()


@pytest.fixture
def api():
    made = Api()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def job(tmp_path, api, monkeypatch):
    return Job(tmp_path, api, monkeypatch)


PULL = {"pull_request": {"number": 7, "base": {"sha": "abc123"}}}


# --- lint and the comment ------------------------------------------------------------------------


def test_the_difference_is_commented_once_and_then_updated(job, api, capsys):
    """A person's comment with the same first line is left alone."""
    marker = '<!-- leadhand plan "plan.yaml" -->'
    api.add(f"{marker}\nmine", kind="User")
    for _ in range(100):
        api.add("something else", kind="User")
    api.files["plan.yaml", "abc123"] = PLAN.replace("Say it", "Say nothing")
    code, outputs = job.use(PULL, command="lint", parameters="text=hi")
    assert code == 0
    assert outputs["status"] == "valid"
    assert re.fullmatch("[0-9a-f]{64}", outputs["digest"])
    assert len(api.comments) == 102
    body = api.comments[-1]["body"]
    assert body.startswith(marker)
    assert '~ goal: "Say nothing" → "Say it"' in body
    assert outputs["digest"] in body
    assert body.partition("\n")[2] == job.summary.rstrip("\n")
    api.busy = 1  # a service that is busy is asked again
    api.files["plan.yaml", "abc123"] = PLAN
    assert job.use(PULL, command="lint", parameters="text=hi")[0] == 0
    assert len(api.comments) == 102
    assert "means the same as in the base branch" in api.comments[-1]["body"]
    assert api.comments[0]["body"] == f"{marker}\nmine"
    assert TOKEN not in capsys.readouterr().out + job.summary


def test_of_several_comments_the_first_stays(job, api):
    marker = '<!-- leadhand plan "plan.yaml" -->'
    for each in ("one", "two", "three"):
        api.add(f"{marker}\n{each}")
    assert job.use(PULL, command="lint", parameters="text=hi")[0] == 0
    assert [each["id"] for each in api.comments] == [1]
    assert "This plan is new." in api.comments[0]["body"]


def test_a_plan_cannot_write_markdown(job, api):
    """Nor mention people: what it says stays inside a code block."""
    words = "````\\n@everyone **bold** <img src=x>"
    (job.folder / "plan.yaml").write_text(PLAN.replace("Say it", f'"{words}"'))
    api.files["plan.yaml", "abc123"] = PLAN
    assert job.use(PULL, command="lint", parameters="text=hi")[0] == 0
    fence, outside = "", []
    for line in api.comments[-1]["body"].splitlines():
        found = re.match("(`{3,})", line)
        if found and (not fence or line == fence):
            fence = "" if fence else found[1]
        elif not fence:
            outside.append(line)
    assert not fence
    assert "@everyone" in api.comments[-1]["body"]
    assert "@everyone" not in "\n".join(outside)


def commands_of(said):
    """The commands that GitHub's runner finds in the log of a job."""
    stopped, found = "", []
    for line in said.splitlines():
        if stopped and line == f"::{stopped}::":
            stopped = ""
        elif match := re.match(r"::stop-commands::(\w+)$", line):
            stopped = stopped or match[1]
        elif not stopped and (line.lstrip().startswith("::") or "##[" in line):
            found.append(line)
    assert not stopped
    return found


def test_a_plan_gives_no_commands_to_the_runner(job, api, capsys):
    words = "##[add-mask]e ::error::x"
    wrong = f'goal: "{words}"\nsteps:\n  - {{id: a, worker: "{words}"}}\n'
    (job.folder / "plan.yaml").write_text(wrong)
    assert job.use(PULL, command="lint")[0] == 3
    failing = PLAN.replace("Say it", f'"{words}"').replace("worker: say", "worker: deploy")
    (job.folder / "plan.yaml").write_text(failing)
    job.use(command="run", parameters=f"text={words}")
    said = capsys.readouterr()
    assert "##[add-mask]e" in said.out
    assert commands_of(said.out) == commands_of(said.err) == []


def test_a_token_that_may_not_write_is_a_warning(job, api, capsys):
    """As that of a pull request from a fork."""
    api.status["POST", "/issues/7/comments"] = 403
    assert job.use(PULL, command="lint", parameters="text=hi")[0] == 0
    said = capsys.readouterr().out
    assert "::warning::no comment was written: GitHub's API answered 403" in said
    assert not api.comments


def test_a_wrong_plan_fails_and_says_why(job, api):
    (job.folder / "plan.yaml").write_text(PLAN.replace("worker: say", "worker: shout"))
    code, outputs = job.use(PULL, command="lint")
    assert (code, outputs["status"], outputs["digest"]) == (3, "invalid", "")
    assert "shout" in api.comments[-1]["body"]


def test_no_comment_without_a_pull_request_or_a_wish(job, api):
    assert job.use(command="lint", parameters="text=hi")[0] == 0
    assert job.use(PULL, command="lint", parameters="text=hi", comment="false")[0] == 0
    assert not api.comments
    assert not [each for each in api.seen if each[0] != "GET"]


def test_the_token_follows_no_redirect(job, api, capsys):
    api.status["GET", "/contents/plan.yaml"] = 302
    assert job.use(PULL, command="lint", parameters="text=hi")[0] == 0
    assert "could not be read: GitHub's API answered 302" in capsys.readouterr().out


# --- run and apply -------------------------------------------------------------------------------


def test_a_run_is_exported(job):
    nasty = "text=$(touch pwned); `touch pwned` \" ' --yes"
    code, outputs = job.use(command="run", parameters=nasty, export="out.zip")
    assert code == 0, outputs
    assert outputs["status"] == "succeeded"
    assert outputs["export"] == "out.zip"
    assert (job.folder / "out.zip").read_bytes().startswith(b"PK")
    assert not (job.folder / "pwned").exists()
    assert "Succeeded" in job.summary


def test_a_run_that_waits_has_its_exit_code(job):
    code, outputs = job.use(command="run", plan="deploy.yaml", export="out.zip")
    assert (code, outputs["status"]) == (5, "waiting")
    assert outputs["export"] == "out.zip"


def test_the_reviewers_of_an_environment_approve_the_shown_plan(job, api):
    """Exactly the digest of the lint, under the names of those who approved, and once a run."""
    _, outputs = job.use(command="lint", plan="deploy.yaml")
    apply = {"command": "apply", "plan": "deploy.yaml", "environment": "production"}
    apply["digest"] = outputs["digest"]
    assert job.use(**apply)[0] == 2, "nobody has approved"
    api.approve("eve", environment="staging")
    api.approve("robot", kind="Bot")
    assert job.use(**apply)[0] == 2, "another environment, and no person"
    api.approve("ann")
    code, outputs = job.use(**apply, export="out.zip")
    assert (code, outputs["status"]) == (0, "succeeded")
    shown = job_shows(job, outputs["run"])
    assert "github:ann" in shown
    assert "https://github.example/o/r/actions/runs/99" in shown
    assert TOKEN not in shown, "the token reaches no worker"


SPY = """
import json, os
found, pid = [], os.getpid()
while pid > 1:
    try:
        found.append(open(f"/proc/{pid}/environ").read())
    except PermissionError:
        found.append("closed")
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
print(json.dumps(found))
"""


@pytest.mark.parametrize("command", ["run", "apply"])
def test_no_process_above_a_worker_holds_the_token_in_its_environment(job, api, command):
    """The step as the runner starts it: a worker reads the environments of all its ancestors."""
    (job.folder / "spy.py").write_text(SPY)
    worker = f'\n[workers.spy]\ncommand = ["{sys.executable}", "spy.py"]\n'
    (job.folder / "leadhand.toml").write_text(f"{SETTINGS}{worker}effects = []\nrisk = 'low'\n")
    (job.folder / "spy.yaml").write_text("goal: Look\nsteps:\n  - {id: d, worker: spy}\n")
    here = job.folder / "tmp" / "leadhand" / "bin"
    here.mkdir(parents=True)
    (here / "python").symlink_to(sys.executable)
    (here / "leadhand").symlink_to(script.PROGRAM)
    (job.folder / "event.json").write_text("{}")
    inputs = {"command": command, "plan": "spy.yaml"}
    if command == "apply":
        api.approve("ann")
        digest = job.use(command="lint", plan="spy.yaml")[1]["digest"]
        inputs |= {"environment": "production", "digest": digest}
    output = job.folder / "output"
    env = {**job.variables(output, **inputs), "GITHUB_ACTION_PATH": str(ROOT)}
    doc = yaml.safe_load(ACTION.read_text())
    (step,) = [each for each in doc["runs"]["steps"] if each.get("id") == "leadhand"]
    (job.folder / "step.sh").write_text(step["run"])
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"]
    done = subprocess.run(
        shell, cwd=job.folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done
    run = re.search(r"(?m)^run<<\w+\n(\w+)$", output.read_text())[1]
    shown = job_shows(job, run)
    assert TOKEN not in shown
    assert "INPUT_PLAN" in shown or "closed" in shown, "the script is among the ancestors"


def job_shows(job, run):
    env = {"PATH": os.environ["PATH"], "HOME": str(job.folder), "PYTHONPATH": str(SOURCE)}
    texts = [
        subprocess.run(
            [script.PROGRAM, *args], env=env, capture_output=True, text=True, check=True
        ).stdout
        for args in (("logs", run, "--json"), ("show", run, "d", "--json"))
    ]
    return "".join(texts)


def test_a_plan_whose_workers_were_not_loaded_has_no_digest_and_the_summary_says_why(job):
    (job.folder / "shop.py").write_text(
        "from leadhand import worker\n\n\n@worker\ndef deploy():\n    return 1\n"
    )
    settings = job.folder / "leadhand.toml"
    settings.write_text('[project]\nworkers = ["shop.py"]\n')
    plan = "goal: Release\nsteps:\n  - {id: a, worker: deploy}\n"
    (job.folder / "plan.yaml").write_text(plan)
    _, outputs = job.use(command="lint", trusted=False)
    assert outputs["digest"] == ""
    assert "`trust`" in job.summary
    assert "```text\n\n```" not in job.summary


def test_a_plan_that_changed_after_the_lint_is_refused(job, api, capsys):
    _, outputs = job.use(command="lint", plan="deploy.yaml")
    api.approve("ann")
    (job.folder / "deploy.yaml").write_text(DEPLOY.replace("Release", "Something else"))
    apply = {"command": "apply", "plan": "deploy.yaml", "environment": "production"}
    code, after = job.use(**apply, digest=outputs["digest"])
    assert code == 2
    assert "run" not in after
    assert "is not what was shown" in capsys.readouterr().out


def test_a_rejected_environment_approves_nothing(job, api):
    _, outputs = job.use(command="lint", plan="deploy.yaml")
    api.approve("ann")
    api.approve("bob", state="rejected")
    apply = {"command": "apply", "plan": "deploy.yaml", "environment": "production"}
    assert job.use(**apply, digest=outputs["digest"])[0] == 2


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"command": "delete"}, "command: must be one of lint, run, apply"),
        ({"command": "lint", "plan": "../plan.yaml"}, "plan: must be the path"),
        ({"command": "lint", "plan": "--help"}, "plan: must be the path"),
        ({"command": "lint", "trust": "yes"}, "trust: must be true or false"),
        ({"command": "lint", "parameters": "x"}, "'x' is not NAME=VALUE"),
        ({"command": "apply"}, "give either approval"),
        ({"command": "apply", "environment": "e"}, "needs the plan digest"),
        ({"command": "apply", "environment": "e", "digest": "x; rm"}, "needs the plan digest"),
    ],
)
def test_wrong_inputs_are_told(job, api, capsys, inputs, why):
    assert job.use(**inputs)[0] == 2
    assert why in capsys.readouterr().err
    assert not api.seen


# --- the files -----------------------------------------------------------------------------------


def test_the_action_is_valid_and_safe(linter, tmp_path):
    """By GitHub's schema, and by zizmor: no template in a shell, every action pinned."""
    check = ("check-jsonschema", "--builtin-schema", "vendor.github-actions")
    code, said = linter(*check, ACTION)
    assert code == 0, said
    code, said = linter("zizmor", "--offline", "--no-progress", ACTION)
    assert code == 0, said
    wrong = tmp_path / "action.yml"
    wrong.write_text(ACTION.read_text().replace('"$GITHUB_ACTION_PATH"', "${{ inputs.plan }}"))
    assert "template-injection" in linter("zizmor", "--offline", "--no-progress", wrong)[1]


def test_every_input_reaches_the_script_and_no_other_does():
    doc = yaml.safe_load(ACTION.read_text())
    (step,) = [each for each in doc["runs"]["steps"] if each.get("id") == "leadhand"]
    assert step["env"] == {
        f"INPUT_{name.upper()}": f"${{{{ inputs.{name} }}}}" for name in doc["inputs"]
    }
    assert set(doc["inputs"]) == {*script.Inputs.__dataclass_fields__, "token"}
    for each in doc["runs"]["steps"]:
        assert "${{" not in each.get("run", "")
        if "uses" in each:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each["uses"])
    named = set(re.findall(r"steps\.leadhand\.outputs\.(\w+)", ACTION.read_text()))
    assert named == {"digest", "run", "status", "export"}


def workflows():
    return re.findall(
        r"```yaml title=\"\.github/workflows/\S+\"\n(.*?)```", HOW_TO.read_text(), re.DOTALL
    )


@pytest.mark.parametrize("text", workflows(), ids=["checks", "release"])
def test_the_documented_workflows_are_valid_and_safe(linter, tmp_path, text):
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "w.yml").write_text(text)
    check = ("check-jsonschema", "--builtin-schema", "vendor.github-workflows")
    code, said = linter(*check, folder / "w.yml")
    assert code == 0, said
    # Users put the commit of their release in the place of OWNER/leadhand@COMMIT.
    (folder / "w.yml").write_text(text.replace("@COMMIT", f"@{'0' * 40}"))
    code, said = linter("zizmor", "--offline", "--no-progress", folder / "w.yml")
    assert code == 0, said
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    for job in yaml.safe_load(text)["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("OWNER/leadhand@"):
                assert set(step["with"]) <= set(inputs)
