"""Real Claude Code and real Codex in a whole fleet, from leadhand.toml to main."""

import asyncio
from functools import partial

import pytest

from leadhand.fleet.configuration import config_of, crew_of
from leadhand.fleet.service import Fleet
from leadhand.settings import load_settings
from leadhand.testing.endpoint import Endpoint, Say, Use
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import run_git

pytestmark = pytest.mark.real
KEYS = {"ONE_KEY": "key-of-one", "TWO_KEY": "key-of-two"}
SETTINGS = """
[fleet]
gate = ["grep -q . a.txt"]
publish = "leadhand/main"
time = "90 s"
silence = "60 s"

[policy]
backoff = "100 ms"

[coders.claude]
kind = "claude"
model = "claude-sonnet-4-5"
program = "{claude}"
url = "{one}"
key = "ONE_KEY"

[coders.codex]
kind = "codex"
tier = 2
model = "gpt-5.2-codex"
program = "{codex}"
url = "{two}/v1"
key = "TWO_KEY"
"""
EPIC = """# Greet

Two files.

```yaml
tasks:
  - {id: first, goal: write the word hello to one.txt, writes: [one.txt], acceptance: [grep -q hello one.txt]}
  - {id: second, goal: write the word world to two.txt, writes: [two.txt], tier: codex, acceptance: [grep -q world two.txt]}
```
"""  # noqa: E501 - a task is a line
CLAUDE = [
    Use("Bash", {"command": "echo hello > one.txt", "description": "as told"}),
    Say("Done."),
]
CODEX = [
    Say("Done. I have written the file, and all tests pass."),
    Use("exec_command", {"cmd": "echo world > two.txt"}),
    Say("Now it is done."),
]


async def test_each_takes_a_task_edits_is_gated_and_lands(
    coders, bwrap, tmp_path, user, monkeypatch
):
    """A Codex that says "Done" and has changed nothing is not done, and is told so."""
    monkeypatch.setattr("leadhand.fleet.service.choose", partial(choose, bwrap=bwrap))
    (tmp_path / "greet.md").write_text(EPIC)
    async with Endpoint(CLAUDE) as one, Endpoint(CODEX) as two:
        places = {"one": one.url, "two": two.url, "claude": coders.claude, "codex": coders.codex}
        (tmp_path / "leadhand.toml").write_text(SETTINGS.format(**places))
        settings = load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
        config = config_of(settings, user, KEYS)
        async with Fleet(config, crew_of(settings, KEYS)) as fleet:
            ident = fleet.submit(tmp_path / "greet.md")
            async with asyncio.timeout(200):
                await fleet.idle()
            state = fleet._runs[ident].state
            assert state.ended is not None, [q.text for q in state.questions.values()]
            assert state.ended.status == "succeeded"
        told = [" ".join(m.text for m in request.messages) for request in two.requests]
        asked = (*one.requests, *two.requests)
        held = str([list(request.headers.values()) for request in asked])
    assert "has changed nothing" in told[1]
    assert "key-of-one" in held
    assert "key-of-two" in held
    form = "%(trailers:key=Leadhand-Task,key=Leadhand-Attempt,key=Assisted-by,separator=%x20)"
    said = run_git(user, "log", f"--format={form}", "main..leadhand/main").splitlines()
    found = {line.split("Leadhand-Task: ")[1].split()[0]: line for line in said}
    assert "Assisted-by: claude:claude-sonnet-4-5" in found["first"]
    assert "Leadhand-Attempt: 1" in found["first"]
    assert "Assisted-by: codex:gpt-5.2-codex" in found["second"]
    assert "Leadhand-Attempt: 2" in found["second"]
    assert run_git(user, "show", "leadhand/main:one.txt") == "hello"
    assert run_git(user, "show", "leadhand/main:two.txt") == "world"
