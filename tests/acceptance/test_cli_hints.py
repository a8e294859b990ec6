"""What a newcomer is told: how to answer, how to go on, what is alive, what a value is."""

import json
import re
import time
from datetime import datetime

import pytest

from tests.support.cli import WORKERS

pytestmark = pytest.mark.real

NEEDY = """

from leadhand import NeedsInfo


@worker(name="painter")
async def painter(context: Context) -> str:
    if not context.answers:
        raise NeedsInfo("which colour?")
    return "painted"
"""


FILES = {"workers.py": WORKERS + NEEDY}


def killed(folder):
    """A run whose host was killed while a step was in flight."""
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 60}})
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the step")
        child.kill()
        child.wait()
    return folder.latest()["run"]


# --- what waits ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--detach", "--quiet"])
def test_watching_what_waits_says_how_to_answer_and_leaves(folder, how):
    """With a host alive that stays, and without one: it ends as `leadhand run` would have."""
    folder.plan({"id": "a", "worker": "danger"})
    folder.run("run", "plan.json", how)
    run = folder.latest()["run"]
    watched = folder.run("watch", run, "--exit-status")
    assert watched.code == 5, watched
    assert f"approve: leadhand review {run} approve --digest " in watched.err
    last = json.loads(folder.run("watch", run, "--exit-status", "--json").out.splitlines()[-1])
    assert (last["status"], last["exit_code"]) == ("waiting", 5)


def test_watching_goes_on_until_somebody_answers(folder):
    """Without --exit-status, a run that a host keeps is followed to its end, said or not."""
    folder.plan({"id": "a", "worker": "danger"})
    run = folder.run("run", "plan.json", "--detach").out.strip()
    with folder.start("watch", run) as child:
        time.sleep(4)
        assert child.poll() is None, "it left a run that waits"
        folder.run("answer", f"{run}/review-1", "approve")
        out = child.communicate(timeout=120)
    assert child.returncode == 0, out
    assert f"reject: leadhand review {run} reject --reason TEXT" in out[1]
    assert "succeeded" in out[1]


def test_watching_what_waits_with_no_host_leaves(folder):
    folder.plan({"id": "a", "worker": "danger"})
    folder.run("run", "plan.json", "--quiet")
    assert folder.run("watch", folder.latest()["run"]).code == 5


def test_what_lacks_information_is_answered_in_words(folder):
    folder.plan({"id": "a", "worker": "painter"})
    done = folder.run("run", "plan.json")
    assert done.code == 5, done
    run = folder.latest()["run"]
    line = f'leadhand answer {run}/q1 retry --text "…"   # or: skip, abort'
    assert line in done.err
    assert f"leadhand answer {run}/q1 retry --text TEXT\n" in folder.run("inbox").out
    assert "words" not in folder.run("inbox", "--json").doc[0]
    wrong = folder.run("answer", "q1", "blue")
    assert wrong.code == 2
    assert "--text" in wrong.err
    assert folder.run("answer", "q1", "retry", "--text", "blue").code == 0
    assert folder.run("resume", run).out == "painted\n"


def test_what_a_person_skipped_after_a_start_did_start(folder):
    folder.plan({"id": "a", "worker": "painter"}, {"id": "b", "worker": "say", "depends_on": ["a"]})
    folder.run("run", "plan.json")
    run = folder.latest()["run"]
    assert folder.run("answer", "q1", "skip").code == 0
    done = folder.run("resume", run)
    assert "  skipped: a\n" in done.err
    assert "never started: a" not in done.err


# --- another database ----------------------------------------------------------------------


def test_hints_name_the_database(folder):
    """Each command that is printed can be typed as it stands."""
    folder.plan({"id": "a", "worker": "danger"})
    at = ("--store", "my runs.db")
    done = folder.run("run", "plan.json", *at)
    assert done.code == 5, done
    (run,) = [row["run"] for row in folder.run("ls", *at, "--json").doc]
    end = " --store 'my runs.db'\n"
    assert f"leadhand review {run} reject --reason TEXT{end}" in done.err
    assert f"leadhand resume {run}{end}" in done.err
    assert f"review {run} reject --reason TEXT{end}" in folder.run("inbox", *at).out
    assert folder.run("show", run, *at, "--json").code == 0
    assert f"leadhand resume {run}{end}" in folder.run("show", run, *at).err
    assert f"leadhand resume {run}{end}" in folder.run("answer", "review-1", "approve", *at).err
    assert f"leadhand resume {run}{end}" in folder.run("cancel", run, *at).err
    variable = folder.run("show", run, LEADHAND_STORE="my runs.db")
    assert f"leadhand resume {run}{end}" in variable.err
    folder.plan({"id": "a", "worker": "say"})
    detached = folder.run("run", "plan.json", "--detach", *at)
    assert re.search(rf"leadhand watch \S+{end}", detached.err), detached
    folder.run("watch", detached.out.strip(), *at)


# --- who is alive --------------------------------------------------------------------------


def test_a_killed_run_does_not_look_alive(folder):
    run = killed(folder)
    shown = folder.run("show", run)
    assert "running (no host) · 0/1 done · 1 in flight when the host ended" in shown.out
    assert "in flight when the host ended" in shown.out.splitlines()[-1]
    assert "running (no host) after" in shown.err
    assert folder.run("show", run, "--json").doc["host"] is None
    watched = folder.run("watch", run)
    assert watched.code == 8, watched
    assert "running (no host)" in watched.err


def test_resume_of_a_paused_hosted_run_says_so(folder):
    steps = [{"id": f"n{n}", "worker": "nap", "parameters": {"seconds": 1}} for n in range(2)]
    steps[1]["depends_on"] = ["n0"]
    folder.plan(*steps)
    run = folder.run("run", "plan.json", "--detach").out.strip()
    assert folder.run("pause", run).code == 0
    assert f"run {run} is resumed" in folder.run("resume", run).err
    assert folder.run("watch", run, "--exit-status").code == 0


# --- values, times, places -----------------------------------------------------------------


def test_a_parameter_is_wrong_once(folder):
    folder.plan(
        {"id": "a", "worker": "nap", "parameters": {"seconds": "${{ params.n }}"}},
        params={"n": {"type": "integer"}},
    )
    for verb in ("lint", "show"):
        done = folder.run(verb, "plan.json", "--set", "n=x")
        assert done.code == 3, done
        assert "param-wrong" in done.out + done.err
        assert "param-missing" not in done.out + done.err


def test_known_parameters_are_shown_by_their_values(folder):
    words = "${{ params.who }} and ${{ steps.a.data }}"
    folder.plan(
        {"id": "a", "worker": "say", "parameters": {"text": "hi ${{ params.who }}"}, "retry": 7},
        {"id": "b", "worker": "say", "parameters": {"text": words}},
        params={"who": "nobody"},
    )
    for line in (("run", "plan.json", "--dry-run"), ("show", "plan.json")):
        done = folder.run(*line, "--set", "who=Ada")
        assert "text=hi Ada" in done.out, done
        assert re.search(r"1 +a +say .* 7\n", done.out), done
        first, second = folder.run(*line, "--set", "who=Ada", "--json").doc["steps"]
        assert first["parameters"] == {"text": "hi Ada"}
        assert second["parameters"] == {"text": words}
    assert "text=hi nobody" in folder.run("show", "plan.json").out


def test_times_for_machines_are_iso(folder):
    folder.plan({"id": "a", "worker": "danger"})
    doc = folder.run("run", "plan.json", "--json").doc
    times = [doc["waiting_for"][0]["since"]]
    times.append(folder.run("show", doc["run"], "--json").doc["waiting_for"][0]["since"])
    (row,) = folder.run("ls", "--json").doc
    times += [row["created"], row["updated"]]
    assert all(datetime.fromisoformat(each).tzinfo for each in times)


def test_what_is_wrong_with_a_declared_worker_names_its_file(folder):
    folder.write("leadhand.toml", "[workers.x]\nurl = 7\n[workers.y]\n")
    done = folder.run("ls", "workers")
    assert done.code == 2, done
    assert "leadhand.toml: workers.x" in done.err
    assert "leadhand.toml: workers.y" in done.err
