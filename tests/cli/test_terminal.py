"""The one place that asks on a terminal: which keys count, and what an answer is for."""

import asyncio
import os
import pty
from pathlib import Path
from types import SimpleNamespace

import pytest

import leadhand
from leadhand.cli import terminal as module
from leadhand.cli.approval_prompt import ApprovalPrompt
from leadhand.cli.terminal import Overtaken, Terminal, edit_text


def test_keys_pressed_while_a_plan_replaces_another_answer_nothing(monkeypatch):
    """Those pressed after the question was printed do."""
    keys, keyboard = pty.openpty()
    monkeypatch.setattr(module, "KEYBOARD", keyboard)

    async def reflex():
        os.write(keys, b"y\n")

    class Screen(Terminal):
        def write(self, text):
            if "Approve?" in text:
                os.write(keys, b"n\n")

    monkeypatch.setattr(module, "settle", reflex)
    found = asyncio.run(Screen().line("Approve? ", lambda: False, replaced=True))
    os.close(keys)
    os.close(keyboard)
    assert found == "n"


def test_an_answer_to_a_question_that_was_decided_meanwhile_has_no_effect(monkeypatch):
    """The state no longer has the question when the key arrives."""
    question = SimpleNamespace(choices=["approve", "reject"])
    revision = SimpleNamespace(number=1, approvals=[])
    state = SimpleNamespace(pending=revision, questions={"review-1": question})
    run, said = SimpleNamespace(state=state), []

    class Screen:
        colour, say = False, staticmethod(said.append)

        async def line(self, *_args, **_more):
            state.questions.clear()
            return "y"

    monkeypatch.setattr("leadhand.cli.approval_prompt._mark", lambda *_: ("digest", 0))
    prompt = ApprovalPrompt(None, None, "ann")
    with pytest.raises(Overtaken):
        asyncio.run(prompt._line(run, Screen(), ("digest", 0)))
    assert "your answer has no effect" in said[0]
    assert prompt._choices(state, revision) == ["approve", "reject", "edit", "diff"]


def test_an_editor_that_deletes_its_file_saved_nothing(monkeypatch):
    monkeypatch.setenv("VISUAL", "rm")
    assert edit_text("a: 1\n", ".yaml") is None


def test_every_question_is_asked_by_the_function_that_discards_keys():
    source = Path(leadhand.__file__).parent
    asking = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(word in path.read_text() for word in ("click.confirm(", "click.prompt(", " input("))
    ]
    assert asking == ["cli/terminal.py"]
