"""What `action.yml` does: `leadhand lint`, `run` or `apply` in a workflow of GitHub.

Inputs come as variables INPUT_NAME, and go to `leadhand` as arguments of a list: no shell sees
them. The token is for GitHub's REST API, and reaches neither `leadhand` nor a worker: it is in the
environment of no process that they could look at, since this one begins anew without it, and
`run` and `apply` forget it before code of others runs. What a plan says is text of others: in a
comment it stands inside a code block, and in the log of the job no command of the workflow is read
from it. Standard library only.
"""

import contextlib
import ctypes
import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

COMMANDS = ("lint", "run", "apply")
PROGRAM = Path(sys.executable).with_name("leadhand")
COMMENT_CHARS_MAX = 60_000
"""GitHub takes 65,536."""
PAGES_MAX = 30
TRIES = 3
NO_DIGEST = (
    "No digest: the code of the workers was not loaded, so the plan cannot be approved. "
    "Fix: give the action the input `trust`, if you trust the code of this repository"
)
APPROVAL_EXPIRES = "1 hour"
TOKEN, TOKEN_PIPE = "INPUT_TOKEN", "INPUT_TOKEN_PIPE"
PR_SET_DUMPABLE = 4
BUSY = frozenset({429, 500, 502, 503, 504})


class WrongInput(ValueError):
    """An input, or the state of the workflow, that does not allow what is asked."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of the action."""

    command: str
    plan: str
    parameters: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    trust: bool = False
    approval: tuple[str, ...] = ()
    environment: str = ""
    digest: str = ""
    comment: bool = True
    export: str = ""

    def arguments(self) -> list[str]:
        """Arguments that every command of `leadhand` takes; each value is joined to its option."""
        return [
            *(f"--set={each}" for each in self.parameters),
            *(f"--workers={each}" for each in self.workers),
            *(["--trust"] if self.trust else []),
        ]


def inputs_of(env: Mapping[str, str]) -> Inputs:
    """Read the inputs. Raise `WrongInput`, with the fix."""
    given = {
        name.removeprefix("INPUT_").lower(): value.strip()
        for name, value in env.items()
        if name.startswith("INPUT_") and name != "INPUT_TOKEN"
    }
    if given.get("command") not in COMMANDS:
        raise WrongInput(f"command: must be one of {', '.join(COMMANDS)}")
    plan = given.get("plan", "")
    if not plan or plan.startswith(("-", "/")) or ".." in PurePosixPath(plan).parts:
        raise WrongInput("plan: must be the path of a file in the repository")
    for name in ("trust", "comment"):
        if given.get(name, "") not in ("", "true", "false"):
            raise WrongInput(f"{name}: must be true or false")
    parameters = _lines(given.get("parameters", ""))
    if wrong := [each for each in parameters if "=" not in each]:
        raise WrongInput(f"parameters: {wrong[0]!r} is not NAME=VALUE")
    made = Inputs(
        command=given["command"],
        plan=plan,
        parameters=parameters,
        workers=_lines(given.get("workers", "")),
        trust=given.get("trust") == "true",
        approval=_lines(given.get("approval", "")),
        environment=given.get("environment", ""),
        digest=given.get("digest", ""),
        comment=given.get("comment", "true") == "true",
        export=given.get("export", ""),
    )
    if made.command == "apply" and bool(made.environment) == bool(made.approval):
        raise WrongInput("apply: give either approval (files) or environment (and digest)")
    if made.environment and not re.fullmatch(r"[0-9a-f]{64}", made.digest):
        raise WrongInput(
            "digest: apply with an environment needs the plan digest that reviewers were shown. "
            "Fix: pass the output `digest` of a lint in an earlier job"
        )
    return made


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


# --- GitHub --------------------------------------------------------------------------------------


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the API and nowhere else."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        """Follow no redirect."""


class Refused(RuntimeError):
    """The API's refusal, by its status."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"GitHub's API answered {status} to {what}")
        self.status = status


class GitHub:
    """The requests that the action needs, of one repository."""

    def __init__(self, url: str, repository: str, token: str) -> None:
        if not url.startswith(("https://", "http://127.0.0.1:")):
            raise WrongInput("GITHUB_API_URL: must be https")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise WrongInput("GITHUB_REPOSITORY: is no owner/name")
        self._base = f"{url.rstrip('/')}/repos/{repository}"
        self._token = token
        self._opener = urllib.request.build_opener(NoRedirect)

    def forget_token(self) -> None:
        """Send no more requests: what follows runs the code of others."""
        self._token = ""

    def call(self, method: str, path: str, body: Any = None, accept: str = "json") -> bytes:
        """Send one request; try again while the service is busy. Raise `Refused`."""
        kind = (
            "application/vnd.github.raw+json" if accept == "raw" else "application/vnd.github+json"
        )
        headers = {
            "Accept": kind,
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": "leadhand",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        data = None if body is None else json.dumps(body).encode()
        for left in reversed(range(TRIES)):
            request = urllib.request.Request(  # noqa: S310 - https, or a test's own server
                self._base + path, data, headers, method=method
            )
            try:
                with self._opener.open(request, timeout=30) as answer:
                    found: bytes = answer.read()
                    return found
            except urllib.error.HTTPError as error:
                error.close()
                # A comment that was created is not created again by a repeated request.
                if error.code not in BUSY or not left or method == "POST":
                    raise Refused(error.code, f"{method} {path.partition('?')[0]}") from None
            time.sleep(TRIES - left)
        raise AssertionError

    def base_version(self, path: str, commit: str) -> str | None:
        """Return a file as it was in a commit; None if it was not there."""
        try:
            at = f"/contents/{quote(path)}?ref={quote(commit)}"
            return self.call("GET", at, accept="raw").decode("utf-8", "replace")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def comment(self, number: int, marker: str, body: str) -> str:
        """Write the one comment with this marker: update it, or create it; remove any other."""
        found = self._comments(number, marker)
        if not found:
            self.call("POST", f"/issues/{number}/comments", {"body": body})
            # Another job may have done the same meanwhile: the first comment stays.
            found = self._comments(number, marker)[1:]
            self._remove(found)
            return "created"
        self.call("PATCH", f"/issues/comments/{found[0]}", {"body": body})
        self._remove(found[1:])
        return "updated"

    def _comments(self, number: int, marker: str) -> list[int]:
        """Return the comments with the marker, the oldest first; only those of bots."""
        found = []
        for page in range(1, PAGES_MAX + 1):
            path = f"/issues/{number}/comments?per_page=100&page={page}"
            comments = json.loads(self.call("GET", path))
            found += [
                each["id"]
                for each in comments
                if each["body"].startswith(marker) and each["user"]["type"] == "Bot"
            ]
            if len(comments) < 100:
                break
        return sorted(found)

    def _remove(self, comments: list[int]) -> None:
        for each in comments:
            self.call("DELETE", f"/issues/comments/{each}")

    def approvers(self, run: str, environment: str) -> list[str]:
        """Return the people who approved an environment for this run of the workflow."""
        reviews = json.loads(self.call("GET", f"/actions/runs/{quote(run)}/approvals"))
        about = [
            each for each in reviews if environment in {env["name"] for env in each["environments"]}
        ]
        if any(each["state"] == "rejected" for each in about):
            return []
        people = [each["user"] for each in about if each["state"] == "approved"]
        return sorted({each["login"] for each in people if each["type"] == "User"})


# --- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """What `leadhand` printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def doc(self) -> Any:
        """The printed document; {} if there is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return {}


class Action:
    """One use of the action."""

    def __init__(self, inputs: Inputs, env: Mapping[str, str], github: GitHub) -> None:
        self.inputs, self.env, self.github = inputs, env, github
        self.outputs: dict[str, str] = {}

    def leadhand(self, *args: str, **variables: str) -> Done:
        """Run a command of Leadhand, without the token and the inputs in its environment."""
        env = {
            name: value
            for name, value in self.env.items()
            if not name.startswith(("INPUT_", "ACTIONS_RUNTIME", "ACTIONS_ID_TOKEN"))
        }
        done = subprocess.run(
            [str(PROGRAM), *args],
            env={**env, **variables},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        show(done.stderr)
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self) -> int:
        """Do what the input `command` says; return the exit code."""
        return {"lint": self.lint, "run": self.start, "apply": self.apply}[self.inputs.command]()

    def lint(self) -> int:
        """Check the plan; show its digest and what it would do; comment the difference."""
        plan, more = self.inputs.plan, self.inputs.arguments()
        checked = self.leadhand("lint", "--json", *more, "--", plan)
        self.outputs["status"] = "valid" if checked.code == 0 else "invalid"
        shown = self.leadhand("lint", *more, "--", plan).out
        review = (
            self.leadhand("review", "--json", *more, "--", plan).doc if not checked.code else {}
        )
        self.outputs["digest"] = review.get("binding") or ""
        summary = review.get("in_short") or review.get("summary", "")
        if not checked.code and not self.outputs["digest"]:
            summary = f"{summary}\n{NO_DIGEST}".strip()
        self._report(shown, summary)
        return checked.code

    def start(self) -> int:
        """Run the plan, and export the run."""
        self.github.forget_token()
        more = ["--json", "--no-input", "--quiet", *self.inputs.arguments()]
        return self._ended(self.leadhand("run", *more, "--", self.inputs.plan))

    def apply(self) -> int:
        """Run the approved plan, and export the run."""
        people = [] if self.inputs.approval else self._people()
        self.github.forget_token()
        approvals = list(self.inputs.approval) or self._approve(people)
        more = ["--json", "--no-input", "--quiet", *self.inputs.arguments()]
        more += [f"--approval={each}" for each in approvals]
        return self._ended(self.leadhand("apply", *more, "--", self.inputs.plan))

    def _people(self) -> list[str]:
        """Return who approved the environment. Raise `WrongInput` if nobody did."""
        wanted = self.inputs.environment
        people = self.github.approvers(self.env["GITHUB_RUN_ID"], wanted)
        if not people:
            raise WrongInput(
                f"environment {wanted!r}: nobody approved it for this run of the workflow. "
                "Fix: give the environment required reviewers, and this job `environment:` with it"
            )
        return people

    def _approve(self, people: list[str]) -> list[str]:
        """Write an approval of each person who approved the environment, for the shown digest."""
        wanted = self.inputs.environment
        where = f"{self.env['GITHUB_SERVER_URL']}/{self.env['GITHUB_REPOSITORY']}"
        reason = f"environment {wanted}, {where}/actions/runs/{self.env['GITHUB_RUN_ID']}"
        shared = [f"--digest={self.inputs.digest}", f"--expires={APPROVAL_EXPIRES}"]
        shared += [f"--reason={reason}", *self.inputs.arguments()]
        files = []
        for person in people:
            file = str(Path(self.env["RUNNER_TEMP"]) / f"approval-{secrets.token_hex(8)}.json")
            more = [*shared, f"--output={file}", "--", self.inputs.plan, "approve"]
            done = self.leadhand("review", *more, LEADHAND_ACTOR=f"github:{person}")
            if done.code:
                raise WrongInput(f"the plan is not the approved one (exit code {done.code})")
            files.append(file)
        return files

    def _ended(self, done: Done) -> int:
        """Say how a run ended, and export it."""
        doc = done.doc
        self.outputs["run"] = run = str(doc.get("run", ""))
        self.outputs["status"] = str(doc.get("status", ""))
        if run and self.inputs.export:
            exported = self.leadhand(
                "export", "--force", f"--output={self.inputs.export}", "--", run
            )
            if exported.code == 0:
                self.outputs["export"] = self.inputs.export
        show(f"{doc.get('headline', '')}\n")
        self._summarise(f"### {self._title()}\n\n{fenced(doc.get('headline') or done.err)}\n")
        return done.code

    def _report(self, shown: str, summary: str) -> None:
        """Write the summary of the job, and the comment of a pull request."""
        digest = self.outputs["digest"]
        told = [fenced(text) for text in (shown, summary) if text.strip()]
        parts = [f"### {self._title()}", *told]
        if digest:
            parts.append(f"Plan digest: `{digest}`")
        show(shown)
        event = self._event()
        if "pull_request" in event:
            parts.insert(1, self._difference(event["pull_request"]["base"]["sha"]))
        body = "\n\n".join(part for part in parts if part)
        self._summarise(body)
        if "pull_request" in event and self.inputs.comment:
            self._comment(int(event["pull_request"]["number"]), body)

    def _title(self) -> str:
        return f"Leadhand {self.inputs.command}: {code(self.inputs.plan)}"

    def _difference(self, commit: str) -> str:
        """Return the difference to the plan of the base branch, by meaning."""
        try:
            before = self.github.base_version(self.inputs.plan, commit)
        except (Refused, OSError) as error:
            warn(f"the plan of the base branch could not be read: {error}")
            return "The plan of the base branch could not be read."
        if before is None:
            return "This plan is new."
        old = (
            Path(self.env["RUNNER_TEMP"])
            / f"base-{secrets.token_hex(8)}{Path(self.inputs.plan).suffix}"
        )
        old.write_text(before, encoding="utf-8")
        done = self.leadhand("diff", "--", str(old), self.inputs.plan)
        if done.code not in (0, 1):
            return f"The difference could not be told:\n\n{fenced(done.err)}"
        if done.code == 0:
            return "The plan means the same as in the base branch."
        return f"Changed since the base branch:\n\n{fenced(done.out, 'diff')}"

    def _comment(self, number: int, body: str) -> None:
        marker = (
            f"<!-- leadhand plan {json.dumps(self.inputs.plan).replace('--', '&#45;&#45;')} -->"
        )
        try:
            done = self.github.comment(number, marker, f"{marker}\n{cut(body)}")
            sys.stdout.write(f"comment {done}\n")
        except (Refused, OSError) as error:
            # The token of a pull request from a fork may not write.
            warn(f"no comment was written: {error}. Fix: permissions: pull-requests: write")

    def _event(self) -> dict[str, Any]:
        path = self.env.get("GITHUB_EVENT_PATH", "")
        found: dict[str, Any] = json.loads(Path(path).read_text()) if path else {}
        return found

    def _summarise(self, text: str) -> None:
        if path := self.env.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{cut(text)}\n")

    def write_outputs(self) -> None:
        """Write the outputs; an unguessable delimiter keeps a value one value."""
        with Path(self.env["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
            for name, value in self.outputs.items():
                end = secrets.token_hex(16)
                file.write(f"{name}<<{end}\n{value}\n{end}\n")


def fenced(text: str, kind: str = "text") -> str:
    """Return text as a code block that it cannot leave: nothing in it is Markdown or a mention."""
    longest = max((len(each) for each in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text.rstrip()[: COMMENT_CHARS_MAX // 3]}\n{fence}"


def code(text: str) -> str:
    """Return a short text as code."""
    return "`" + re.sub(r"[`\s]", "?", text) + "`"


def cut(text: str) -> str:
    """Return a text that GitHub takes."""
    return text[:COMMENT_CHARS_MAX]


def show(text: str) -> None:
    """Print text of others; the runner reads no commands such as `::add-mask::` from it."""
    if text.strip():
        token = secrets.token_hex(16)
        end = "" if text.endswith("\n") else "\n"
        # All of it on one stream: the runner reads two of them in any order.
        sys.stdout.write(f"::stop-commands::{token}\n{text}{end}::{token}::\n")
        sys.stdout.flush()


def warn(text: str) -> None:
    """Show a warning of the workflow."""
    sys.stdout.write(f"::warning::{text.replace('%', '%25').splitlines()[0]}\n")


def begin_without_token(env: Mapping[str, str]) -> str:
    """Return the token; begin this process anew if its environment holds the token.

    Programs of the same account can read the environment that a process began with, and the
    shell's that started it: so `action.yml` has the shell replaced, and the token goes through a
    pipe. Where the system allows it, they cannot read the memory of this process either.
    """
    if token := env.get(TOKEN, ""):
        reading, writing = os.pipe()
        os.write(writing, token.encode())
        os.close(writing)
        os.set_inheritable(reading, True)
        rest = {name: value for name, value in env.items() if name != TOKEN}
        env = {**rest, TOKEN_PIPE: str(reading)}
        os.execve(sys.executable, sys.orig_argv, env)  # noqa: S606 - this very program
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    pipe = env.get(TOKEN_PIPE, "")
    if not pipe:
        return ""
    with os.fdopen(int(pipe), "rb") as opened:
        return opened.read().decode()


def main(env: Mapping[str, str], token: str) -> int:
    """Do what the inputs say."""
    try:
        api = env.get("GITHUB_API_URL", ""), env.get("GITHUB_REPOSITORY", "")
        action = Action(inputs_of(env), env, GitHub(*api, token))
        try:
            return action.run()
        finally:
            action.write_outputs()
    except (WrongInput, Refused) as error:
        sys.stderr.write(f"leadhand: error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"leadhand: error: GitHub cannot be reached: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(os.environ, begin_without_token(os.environ)))
