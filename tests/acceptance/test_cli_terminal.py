"""What a person at a terminal sees: the live view, prompts, colours, the next command."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest

from tests.support.cli import PROGRAM, WORKERS, Done, environment

pytestmark = pytest.mark.real

PROMPT = re.compile(
    rb"Your answer|Approve exactly (?:this|commit \w+)\?|Do you trust them\?|Which template\?"
)


FILES = {"workers.py": WORKERS}


def typed(folder, *args, keys="", rows=30, columns=100, limit_s=60, **env):
    """Run a command on a terminal of its own; each line of `keys` answers one prompt.

    Keys that are typed before a prompt is printed are discarded by the program.
    """
    lines = keys.splitlines(keepends=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder.path)
        known = {"TERM": "xterm", "COLUMNS": str(columns)}
        os.execve(PROGRAM[0], [*PROGRAM, *args], environment(folder.path, **known | env))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    seen, answered, until = b"", 0, time.monotonic() + limit_s
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
        if lines and (asked := PROMPT.search(seen, answered)):
            answered = asked.end()
            os.write(terminal, lines.pop(0).encode())
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return Done(os.waitstatus_to_exitcode(status), seen.decode(errors="replace"), "")


def test_an_untrusted_folder_is_asked_about_once(folder):
    """With a list of what would be executed; a no executes nothing, a yes is kept."""
    folder.plan({"id": "a", "worker": "once"})
    done = typed(folder, "run", "plan.json", keys="n\n", LEADHAND_TRUST="")
    assert (done.code, folder.lines("once.txt")) == (4, 0), done
    assert "is not trusted yet. Its settings would execute or contact:" in done.out
    assert "workers.py" in plain(done.out)
    done = typed(folder, "run", "plan.json", keys="y\n", LEADHAND_TRUST="")
    assert (done.code, folder.lines("once.txt")) == (0, 1), done
    done = typed(folder, "run", "plan.json", LEADHAND_TRUST="")
    assert (done.code, "trust" in done.out) == (0, False), done


def plain(text):
    """Without what moves the cursor or colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_the_live_view(folder):
    """Steps with worker, time against the estimate, who waits for whom, and how it ended."""
    folder.plan(
        {"id": "first", "worker": "nap", "parameters": {"seconds": 1.5}, "est": "1s"},
        {"id": "second", "worker": "nap", "parameters": {"seconds": 0.1}, "depends_on": ["first"]},
        estimated_duration="15 minutes",
    )
    done = typed(folder, "run", "plan.json")
    assert done.code == 0, done
    text = plain(done.out)
    assert re.search(r"0/2 done · 1 running · est 15m, \S+ so far, about 1\dm", text)
    assert re.search(r"▶ running +first +nap +\S+ of 1s, \S+ left", text)
    assert "OVERDUE by" in text
    assert re.search(r"· waiting +second +nap +waits for first", text)
    assert re.search(r"✓ succeeded +second", text)
    assert "succeeded after" in text
    assert "(planned 15m)" in text
    assert "Next: leadhand logs" in text
    assert done.out.rindex("\x1b[?25h") > done.out.rindex("\x1b[?25l"), "the cursor stays hidden"


def test_a_long_plan_collapses(folder):
    """The picture never outgrows the screen."""
    steps = [{"id": f"s{n}", "worker": "nap", "parameters": {"seconds": 0.8}} for n in range(100)]
    folder.plan(*steps)
    done = typed(folder, "run", "plan.json", "--concurrency", "60", rows=20)
    assert done.code == 0, done
    assert re.search(r"… and \d+ steps: \d+ settled, \d+ to come", plain(done.out))


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("command", ["run", "watch"])
def test_the_picture_fits_the_screen(folder, columns, command):
    """One line for each step at any width: a line that wraps would leave its rest behind."""
    long = "a very long message that says exactly what went wrong, and when, and why it did"
    folder.plan(
        {"id": "fetch-the-prices-of-competitors", "worker": "nap", "est": "1ms"},
        {"id": "second", "worker": "nap", "depends_on": ["fetch-the-prices-of-competitors"]},
        {"id": "bad", "worker": "broken", "failure_action": "continue"}
        | {"parameters": {"message": long}},
        goal="A goal with a rather long text that does not fit on any narrow screen",
        estimated_duration="15 minutes",
    )
    if command == "run":
        done = typed(folder, "run", "plan.json", columns=columns)
    else:
        run = folder.run("run", "plan.json", "--detach").out.strip()
        done = typed(folder, "watch", run, "--exit-status", columns=columns)
    assert done.code == 0, done
    # A frame begins where the cursor went back up to the title.
    frames = re.split(r"(?=run [a-z0-9]{12} )", plain(done.out).partition("succeeded after")[0])
    assert len(frames) > 2
    for frame in frames[1:]:
        lines = frame.replace("\r", "").rstrip("\n ").split("\n")
        assert all(len(line) <= columns for line in lines), frame
        steps = [line for line in lines if re.match(r"  [✓✗▶·?!◷] ", line)]
        facts = [line for line in lines[1:] if line not in steps]
        assert len(steps) in (0, 3), frame
        assert len(facts) <= 3, frame
        assert all(re.match(r"\d+/3 done|\d+ |est ", fact) for fact in facts), frame


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "true"}])
def test_no_cursor_tricks_where_they_do_not_belong(folder, env):
    """A dumb terminal and CI get plain lines."""
    folder.plan({"id": "a", "worker": "say"})
    done = typed(folder, "run", "plan.json", **env)
    assert done.code == 0
    assert "a: attempt 1 verified" in plain(done.out)
    assert "\x1b[?25l" not in done.out
    assert "Next:" not in done.out


def test_no_colour_when_asked(folder):
    folder.plan({"id": "a", "worker": "say"})
    for command in (["run", "plan.json"], ["lint", "plan.json"], ["run", "no.json"]):
        done = typed(folder, *command, NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", done.out), done
    assert "\x1b[1;31m" in typed(folder, "run", "no.json").out


def test_answer_asks_on_a_terminal(folder):
    """The question is shown with its choices; only there does anything prompt."""
    folder.plan({"id": "a", "worker": "danger"})
    assert folder.run("run", "plan.json").code == 5
    done = typed(folder, "answer", "review-1", keys="approve\n")
    assert done.code == 0, done
    assert "approve" in done.out
    assert "leadhand resume" in done.out
    assert folder.run("resume", folder.latest()["run"]).code == 0


def test_review_opens_the_editor_and_asks_before_it_approves(folder):
    """The plan as YAML; what is saved is the amendment. All of it is shown before the question."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "old"}})
    assert folder.run("run", "plan.json", "--review").code == 5
    run = folder.latest()["run"]
    editor = folder.write("editor.sh", "#!/bin/sh\nsed -i 's/text: old/text: new/' \"$1\"\n")
    editor.chmod(0o755)
    done = typed(folder, "review", run, "amend", EDITOR=str(editor), VISUAL="")
    assert done.code == 0, done
    assert 'steps.a.parameters.text: "old" → "new"' in plain(done.out)
    idle = typed(folder, "review", run, "amend", EDITOR="true", VISUAL="")
    assert idle.code == 2, idle
    no = typed(folder, "review", run, "approve", keys="n\n")
    assert no.code == 5, no
    yes = typed(folder, "review", run, "approve", keys="y\n")
    assert yes.code == 0, yes
    assert "parameters:\r\n       text: new" in plain(yes.out)
    assert folder.run("resume", run).out == "new\n"


def test_prints_of_workers_do_not_break_the_view(folder):
    folder.plan({"id": "a", "worker": "loud"})
    done = typed(folder, "run", "plan.json")
    assert done.code == 0
    assert '"answer": 42' in plain(done.out)


NASTY = "a\x1b[31mred\x07\u202eb\x9bc\nd"


def test_what_a_result_would_do_to_a_terminal_is_shown(folder):
    """Escaped for a person; byte for byte in a pipe; the same document with --json."""
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": NASTY}})
    seen = typed(folder, "run", "-q", "plan.json").out
    assert "a\\x1b[31mred\\x07\\u202eb\\x9bc\r\nd" in seen
    assert folder.run("run", "-q", "plan.json").out == f"{NASTY}\n"
    seen = typed(folder, "run", "-q", "plan.json", "--json").out
    assert not {"\u202e", "\x9b", "\x07"} & set(seen)
    found = re.search(r'"result": (".*")', seen)
    assert json.loads(found[1]) == NASTY
