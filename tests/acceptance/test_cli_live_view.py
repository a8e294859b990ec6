"""The live view with `--why`: the story above the picture."""

import pytest

from leadhand.cli.rendering.live import line_of
from leadhand.core import events as ev
from tests.acceptance.test_cli_terminal import plain, typed
from tests.support.cli import Folder

WORKERS = """
from leadhand import Context, Human, Transient, worker

@worker(idempotent=True)
def shaky(context: Context) -> str:
    if context.attempt == 1:
        raise Transient("busy")
    return "ok"

somebody = Human("somebody", "Who is it?", timeout="1s", default="me")
"""


@pytest.mark.real
def test_the_story_stands_above_the_picture(tmp_path):
    """What went wrong and what was decided, in one line; without --why only the picture."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    steps = [
        {"id": "shake", "worker": "shaky", "retry": {"attempts": 2, "backoff": 0.1}},
        {"id": "who", "worker": "somebody", "depends_on": ["shake"]},
    ]
    plan = folder.plan(*steps)
    seen = plain(typed(folder, "run", plan, "--workers", "workers.py", "--why").out)
    assert "✗ shake: transient → retrying with shaky   (busy; attempt 2 of 2 in 1" in seen
    assert "? Task who: Who is it?" in seen
    assert "waiting for input" in seen
    assert "default in" in seen
    assert "? answered by default: done" in seen
    seen = plain(typed(folder, "run", plan, "--workers", "workers.py").out)
    assert "→ retrying" not in seen


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            ev.RevisionProposed(
                number=2, author="p", base="", hash="", add=[{"id": "a"}], because="so"
            ),
            "▸ next: a   (so)",
        ),
        (
            ev.RevisionProposed(number=2, author="p", base="", hash="", add=[], cancel=["b"]),
            "▸ next: cancel b",
        ),
        (ev.RevisionProposed(number=2, author="p", base="", hash="", add=[]), ""),
        (ev.AttemptReported("a", 1, 1, True), ""),
        (ev.AttemptReported("a", 1, 1, True, surprise="odd"), "! a: odd"),
        (ev.StopDecided("failed", "no way"), "Stopping as failed: no way"),
        (ev.RunHosted(1), ""),
    ],
)
def test_what_is_part_of_the_story(event, line):
    """Decisions and trouble; not what goes well, and not what changes nothing."""
    assert line_of(event)[0] == line
