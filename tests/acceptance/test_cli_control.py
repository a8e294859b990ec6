"""People and processes around a run: reviews, answers, pause, cancel, stop-all, detach, signals."""

import signal
import time

import pytest

from tests.support.cli import WORKERS, finished

pytestmark = pytest.mark.real


FILES = {"workers.py": WORKERS}


def naps(folder, count, seconds, **more):
    steps = [
        {"id": f"n{number}", "worker": "nap", "parameters": {"seconds": seconds}}
        for number in range(count)
    ]
    for number in range(1, count):
        steps[number]["depends_on"] = [f"n{number - 1}"]
    folder.plan(*steps, **more)


# --- reviews and questions -----------------------------------------------------------------


def test_high_risk_waits_for_a_person(folder):
    """Exit 5; the inbox shows it; the answer and resume finish it."""
    folder.plan({"id": "a", "worker": "danger"})
    done = folder.run("run", "plan.json", "--json")
    assert done.code == 5, done
    assert done.doc["status"] == "waiting"
    run = done.doc["run"]
    (row,) = folder.run("inbox", "--json").doc
    assert row["id"] == f"{run}/review-1"
    assert [each["answer"] for each in row["choices"]] == ["approve", "reject"]
    assert f"leadhand review {run} approve --digest " in folder.run("inbox").out
    wrong = folder.run("answer", "review-1", "maybe")
    assert wrong.code == 2
    assert "is not one of: approve, reject" in wrong.err
    silent = folder.run("answer", "review-1")
    assert silent.code == 2
    assert "needs an answer" in silent.err
    told = folder.run("answer", "review-1", "approve", "--text", "looks good", "--json")
    assert told.code == 0, told
    assert told.doc["hosted"] is False
    assert folder.run("inbox", "--json").doc == []
    assert folder.run("resume", run).out == "survived\n"
    assert "looks good" in folder.run("logs", run, "--intent").out
    late = folder.run("answer", f"{run}/review-1", "approve")
    assert late.code == 2
    assert "No open question" in late.err


def test_a_rejected_plan_is_exit_3(folder):
    folder.plan({"id": "a", "worker": "say"})
    run = folder.run("run", "plan.json", "--review", "--json").doc["run"]
    assert folder.run("answer", f"{run[:6]}/review-1", "reject", "--text", "not today").code == 0
    done = folder.run("resume", run, "--json")
    assert done.code == 3, done
    assert done.doc["status"] == "rejected"
    assert "not today" in done.doc["reason"]


def test_yes_approves_as_the_person_who_typed_it(folder):
    folder.plan({"id": "a", "worker": "danger"})
    done = folder.run("run", "plan.json", "--yes", LEADHAND_ACTOR="Ada")
    assert done.code == 0, done
    assert done.out == "survived\n"
    assert "by Ada → revision 1 approved" in folder.run("logs", folder.latest()["run"]).out


ASKER = """
from leadhand import Ask, Finish

def ask(view):
    if not view.answers:
        return Ask("Which environment?")
    return Finish(view.answers[0]["text"])
"""


def test_a_planners_question_is_answered_in_words(folder):
    folder.write("asking.py", ASKER)
    planner = ("--planner", "asking:ask")
    done = folder.run("run", "deploy it", *planner, "--json")
    assert done.code == 5, done
    assert 'q1 --text "…"' in folder.run("inbox").out
    assert folder.run("answer", "q1").code == 2
    assert folder.run("answer", "q1", "staging").code == 0
    told = folder.run("resume", done.doc["run"])  # the log says where its planner is
    assert told.code == 0, told
    assert told.out == "staging\n"


def test_an_empty_inbox(folder):
    assert folder.run("inbox").code == 0
    assert folder.run("inbox", "--json").doc == []
    done = folder.run("answer", "q1", "x")
    assert done.code == 2


# --- two processes -------------------------------------------------------------------------


def test_pause_and_resume_a_hosted_run(folder):
    """The host hears it at once, stays, and goes on when told."""
    naps(folder, 3, 2.0)
    with folder.start("run", "plan.json", "--json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the first step")
        run = folder.latest()["run"]
        paused = folder.run("pause", run, "--reason", "lunch", "--json")
        assert paused.code == 0, paused
        assert paused.doc["hosted"] is True
        assert folder.latest()["status"] == "paused"
        time.sleep(2.2)
        seen = folder.lines("naps.txt")
        time.sleep(1.0)
        assert folder.lines("naps.txt") == seen < 3
        assert child.poll() is None
        assert folder.run("resume", run).code == 0
        done = finished(child)
    assert done.code == 0, done
    assert folder.lines("naps.txt") == 3
    assert "lunch" in folder.run("logs", run).out


def test_pause_without_a_host_survives(folder):
    naps(folder, 2, 0.1, risk_level="high")
    run = folder.run("run", "plan.json", "--json").doc["run"]
    assert folder.run("pause", run).code == 0
    assert folder.latest()["status"] == "paused"
    assert folder.run("answer", "review-1", "approve").code == 0
    assert folder.run("watch", run, "--exit-status").code == 8
    assert folder.run("resume", run).code == 0
    assert folder.lines("naps.txt") == 2


def test_cancel_a_hosted_run(folder):
    """What runs is ended, nothing new starts, exit 9."""
    naps(folder, 2, 60)
    with folder.start("run", "plan.json", "--json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the first step")
        run = folder.latest()["run"]
        assert folder.run("cancel", run, "--reason", "wrong one").code == 0
        done = finished(child, 30)
    assert done.code == 9, done
    assert done.doc["status"] == "cancelled"
    assert folder.lines("naps.txt") == 1
    ended = folder.run("cancel", run)
    assert ended.code == 7
    assert "has ended" in ended.err


def test_stop_all_survives_until_it_is_lifted(folder):
    naps(folder, 1, 0.1)
    assert folder.run("run", "plan.json").code == 0
    assert folder.run("stop-all", "--reason", "incident").code == 0
    refused = folder.run("run", "plan.json", "--json")
    assert refused.code == 4, refused
    assert refused.doc["error"]["fix"] == "leadhand stop-all --lift"
    assert folder.run("doctor", "--json").doc["checks"]
    assert folder.run("stop-all", "--lift", "--json").doc["stopped"] is False
    assert folder.run("run", "plan.json").code == 0


def test_stop_all_holds_a_hosted_run(folder):
    naps(folder, 3, 2.0)
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the first step")
        assert folder.run("stop-all").code == 0
        time.sleep(2.2)
        seen = folder.lines("naps.txt")
        time.sleep(1)
        assert folder.lines("naps.txt") == seen < 3
        assert folder.run("stop-all", "--lift").code == 0
        done = finished(child)
    assert done.code == 0, done
    assert folder.lines("naps.txt") == 3


# --- signals -------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_drains(folder, number, code):
    """What runs may finish, nothing new starts, and the way on is printed."""
    naps(folder, 3, 1.0)
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the first step")
        child.send_signal(number)
        done = finished(child)
    assert done.code == code, done
    assert "no new steps start" in done.err
    run = folder.latest()["run"]
    assert f"leadhand resume {run}" in done.err
    assert folder.lines("naps.txt") == 1
    assert "n0: attempt 1 verified" in folder.run("logs", run).out
    again = folder.run("resume", run)
    assert again.code == 0, again
    assert folder.lines("naps.txt") == 3


def test_the_second_signal_ends_at_once(folder):
    naps(folder, 1, 60)
    with folder.start("run", "plan.json", "--json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the first step")
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        done = finished(child)
    assert done.code == 130, done
    assert "leadhand resume" in done.err
    assert folder.run("verify", "--all").code == 0


# --- detach --------------------------------------------------------------------------------


def test_detach_and_watch(folder):
    naps(folder, 2, 0.5)
    done = folder.run("run", "plan.json", "--detach")
    assert done.code == 0, done
    run = done.out.strip()
    assert f"leadhand watch {run}" in done.err
    assert (folder.path / ".leadhand" / "host.log").exists()
    watched = folder.run("watch", run, "--exit-status")
    assert watched.code == 0, watched
    assert "n1: attempt 1 verified" in watched.err
    assert folder.latest()["status"] == "succeeded"


def test_a_detached_host_waits_for_the_answer(folder):
    """It stays while a person is asked, and goes on the moment the answer comes."""
    folder.plan({"id": "a", "worker": "danger"})
    told = folder.run("run", "plan.json", "--detach", "--json").doc
    folder.until(lambda: folder.run("inbox", "--json").doc, "the review")
    answered = folder.run("answer", "review-1", "approve", "--json")
    assert answered.doc["hosted"] is True, answered
    assert folder.run("watch", told["run"], "--exit-status").code == 0


def test_errors_of_a_detached_start_come_back(folder):
    """The caller sees the message and the code, wherever the trouble was."""
    folder.plan({"id": "a", "worker": "nobody"})
    assert folder.run("run", "plan.json", "--detach").code == 3
    folder.plan({"id": "a", "worker": "say"})
    assert folder.run("run", "plan.json").code == 0
    assert folder.run("stop-all").code == 0
    refused = folder.run("run", "plan.json", "--detach", "--json")
    assert refused.code == 4, refused
    assert "was stopped" in refused.doc["error"]["message"]


def test_resume_in_the_background(folder):
    naps(folder, 2, 0.6, risk_level="high")
    run = folder.run("run", "plan.json", "--json").doc["run"]
    done = folder.run("resume", run, "--yes", "--detach")
    assert done.code == 0, done
    assert folder.run("watch", run, "--exit-status").code == 0
    assert folder.lines("naps.txt") == 2


# --- telling somebody ----------------------------------------------------------------------


def test_a_command_is_told_when_something_waits_and_when_it_ends(folder):
    """Each hole one argument, no shell; failures of it do not harm the run."""
    folder.write("tell.sh", '#!/bin/sh\nprintf "%s|" "$@" >> told.txt; echo >> told.txt\n')
    (folder.path / "tell.sh").chmod(0o755)
    folder.write(
        "leadhand.toml",
        '[project]\nworkers = ["workers.py"]\n'
        '[notify]\ncommand = ["./tell.sh", "{kind}", "{run}", "{text} $(id) {kind}"]\n',
    )
    folder.plan({"id": "a", "worker": "danger"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    (line,) = (folder.path / "told.txt").read_text().splitlines()
    assert line.startswith(f"waiting|{run}|")
    assert line.endswith("$(id) waiting|")
    folder.run("answer", "review-1", "approve")
    assert folder.run("resume", run).code == 0
    folder.run("run", "plan.json", "--yes")
    assert folder.lines("told.txt") == 3, "nobody is called for what --yes answers"
    assert (
        (folder.path / "told.txt").read_text().splitlines()[1].startswith(f"ended|{run}|succeeded")
    )
    folder.write(
        "leadhand.toml",
        '[project]\nworkers = ["workers.py"]\n[notify]\ncommand = ["./no-such-program"]\n',
    )
    folder.plan({"id": "a", "worker": "say"})
    done = folder.run("run", "plan.json")
    assert done.code == 0, done
    assert "notify: ./no-such-program" in done.err


def test_a_webhook_that_fails_does_no_harm(folder):
    folder.plan({"id": "a", "worker": "say"})
    done = folder.run("run", "plan.json", LEADHAND_NOTIFY__WEBHOOK="http://127.0.0.1:9/secret")
    assert done.code == 0, done
    assert "notify: the webhook failed" in done.err
    assert "secret" not in done.err


def test_a_host_of_another_run_is_not_taken_for_this_ones(folder):
    """A database may have a host that does not drive this run: nobody is told that it goes on."""
    folder.plan({"id": "a", "worker": "danger"})
    waiting = folder.run("run", "plan.json", "--json").doc["run"]
    naps(folder, 1, 20, name="long.json")
    with folder.start("run", "long.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the other run")
        answered = folder.run("answer", f"{waiting}/review-1", "approve")
        assert answered.code == 0, answered
        assert "No process is running it" in answered.err
        rows = {row["run"]: row["host"] for row in folder.run("ls", "--json").doc}
        assert rows.pop(waiting) is None
        assert list(rows.values()) == [child.pid]
        assert folder.run("watch", waiting, "--exit-status").code == 8
        done = folder.run("resume", waiting)
        assert done.code == 0, done
        assert "beside the host" in done.err
        child.kill()
