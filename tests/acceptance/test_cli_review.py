"""`leadhand review`, `hold`, `redo` and `apply --approval`, as people type them."""

import json
import time

import pytest

from tests.support.cli import WORKERS, finished

pytestmark = pytest.mark.real

HIDDEN = "v2\u202e\x1b[31m \u00a0\u0430dmin "


FILES = {
    "workers.py": WORKERS,
    "leadhand.toml": "[project]\nworkers = ['workers.py']\nactor = 'ann'\n",
}


def waiting(folder, *steps, **more):
    """A run that waits for a review."""
    folder.plan(*(steps or ({"id": "a", "worker": "danger"},)), **more)
    done = folder.run("run", "plan.json", "--review", "--json")
    assert done.code == 5, done
    return done.doc["run"]


def say(ident, text, **more):
    return {"id": ident, "worker": "say", "parameters": {"text": text}, **more}


# --- what is shown -------------------------------------------------------------------------


def test_all_of_it_is_shown_and_nothing_that_only_looks_like_it(folder):
    """Every field, whole; what cannot be seen, or reads as something else, is escaped."""
    long = "x" * 5000 + "END"
    steps = say("a", HIDDEN), say("b", long, depends_on=["a"], timeout="5s", description="why")
    run = waiting(folder, *steps)
    shown = folder.run("review", run)
    assert shown.code == 0, shown
    assert "\u202e" not in shown.out
    assert "\x1b" not in shown.out
    escaped = '"v2\\u202e\\u001b[31m \\u00a0\\u0430dmin "'
    assert f"parameters:\n       text: {escaped}\n" in shown.out
    assert long in shown.out
    for line in (
        "timeout: 5s",
        "depends_on: a",
        "description: why",
        "2. b · say · risk not declared",
    ):
        assert f"  {line}\n" in shown.out
    doc = folder.run("review", run, "--json").doc
    assert doc["steps"] == list(steps), "complete, as written"
    assert doc["waiting"]
    assert doc["workers"]["say"]
    assert doc["binding"] in shown.out
    assert f"leadhand review {run} approve --digest {doc['binding']}\n" in shown.err


def test_a_run_that_waits_for_nobody_shows_what_is_to_come(folder):
    """And cannot be approved."""
    folder.plan({"id": "a", "worker": "broken", "failure_action": "escalate"}, say("b", "x"))
    run = folder.run("run", "plan.json", "--json").doc["run"]
    assert "No approval is pending" in folder.run("review", run).out
    done = folder.run("review", run, "approve")
    assert done.code == 7, done


# --- deciding ------------------------------------------------------------------------------


def test_an_approval_is_bound_to_the_digest_that_was_shown(folder):
    """Another digest is exit 7, a part of it exit 2, and nothing was approved; it runs with it."""
    run = waiting(folder)
    binding = folder.run("review", run, "--json").doc["binding"]
    other = binding[:-1] + ("0" if binding[-1] != "0" else "1")
    stale = folder.run("review", run, "approve", "--digest", other, "--json")
    assert stale.code == 7, stale
    assert stale.doc["error"]["code"] == "conflict"
    assert binding not in stale.out + stale.err, "what would be accepted is not told"
    for digits in (1, 12, 63):
        short = folder.run("review", run, "approve", "--digest", binding[:digits])
        assert short.code == 2, "another plan can begin alike"
        assert "the whole digest" in short.err
    done = folder.run("review", run, "approve", "--digest", binding, "--expires", "8 hours")
    assert done.code == 0, done
    assert f"leadhand resume {run}" in done.err
    assert folder.run("resume", run).code == 0
    assert folder.run("verify", run).code == 0
    again = folder.run("review", run, "approve")
    assert again.code == 7, again


def test_an_approval_that_ended_holds_the_steps(folder):
    """What it allowed and has not started waits again."""
    run = waiting(folder)
    assert folder.run("review", run, "approve", "--expires", "1 second", "--json").code == 0
    time.sleep(1.1)
    done = folder.run("resume", run)
    assert done.code == 5, done
    assert "its approval has expired" in done.err


def test_a_rejection_needs_a_reason(folder):
    """It is recorded, and ends the run."""
    run = waiting(folder)
    assert folder.run("review", run, "reject").code == 2
    assert folder.run("review", run, "reject", "--text", "no").code == 2
    assert folder.run("review", run, "reject", "--reason", "not on a Friday").code == 0
    done = folder.run("resume", run)
    assert done.code == 3, done
    assert "not on a Friday" in folder.run("logs", run, "--intent").out


def test_two_people_have_to_be_two(folder):
    """The rule stands in the settings; `review` says who has allowed it so far."""
    rule = "[review]\nrules = [{risk = 'high', then = 'two', name = 'four eyes'}]\n"
    folder.write("leadhand.toml", f"[project]\nworkers = ['workers.py']\nactor = 'ann'\n{rule}")
    folder.plan({"id": "a", "worker": "danger"})
    run = folder.run("run", "plan.json", "--yes", "--json").doc["run"]
    shown = folder.run("review", run).out
    assert 'allowed by "ann"' in shown
    assert "1 of 2 given (by ann): another person must approve" in shown
    assert "four eyes" in shown
    assert folder.run("review", run, "approve").code == 7, "ann again"
    assert folder.run("review", run, "approve", LEADHAND_ACTOR="bob").code == 0
    assert folder.run("resume", run).code == 0


PLANNER = """
from leadhand import Finish, Propose, Step

def plan(view):
    if view.results:
        return Finish(view.results["b"])
    if not view.findings:
        return Propose([Step(id="a", worker="danger")])
    return Propose([Step(id="b", worker="say", parameters={"text": view.findings[0]})])
"""


def test_changes_are_for_the_planner(folder):
    """It hears the words and proposes again; a given document has nobody who could."""
    run = waiting(folder)
    done = folder.run("review", run, "request_changes", "--text", "smaller")
    assert done.code == 2, done
    assert "amend it" in done.err
    folder.write("planning.py", PLANNER)
    done = folder.run("run", "a goal", "--planner", "planning.py:plan", "--json")
    assert done.code == 5, done
    run = done.doc["run"]
    assert folder.run("review", run, "request_changes").code == 2, "which?"
    assert folder.run("review", run, "request_changes", "--text", "less risk").code == 0
    ended = folder.run("resume", run)
    assert (ended.code, ended.out) == (0, "less risk\n"), ended


ENVELOPE = """
from leadhand import Finish, Propose, Step, worker

@worker(risk="high", effects=["cluster"])
async def deploy(version: str) -> str:
    return version

@worker(risk="high", effects=["money"])
async def pay() -> str:
    return "paid"

def plan(view):
    done = len(view.results)
    if done == 3:
        return Finish("done")
    if done < 2:
        step = Step(id=f"deploy-{done}", worker="deploy", parameters={"version": f"v{done}"})
    else:
        step = Step(id="pay", worker="pay")
    return Propose([step], final=False)
"""


def test_a_replan_inside_the_envelope_does_not_ask_and_one_outside_does(folder):
    """Both stand in the intent ledger with the reason."""
    folder.write("planning.py", ENVELOPE)
    more = ("--planner", "planning.py:plan", "--workers", "planning.py", "--json")
    done = folder.run("run", "ship and pay", *more)
    assert done.code == 5, done
    run = done.doc["run"]
    assert folder.run("review", run, "approve").code == 0
    done = folder.run("resume", run)
    assert done.code == 5, done
    shown = folder.run("review", run).out
    assert "new: worker pay" in shown
    assert "+ steps.pay" in shown, "different from what was approved last"
    told = folder.run("logs", run, "--intent").out
    assert "Revision 2 approved by the policy: within the approval by ann" in told
    assert 'Approval requested: Approve revision 3 of plan "' in told
    assert "its risk is high; new: worker pay" in told
    assert folder.run("review", run, "approve").code == 0
    assert folder.run("resume", run).code == 0


# --- amending ------------------------------------------------------------------------------


def test_an_amendment_keeps_text_as_text_and_shows_a_dropped_order(folder):
    """Version 1.10 stays 1.10; a step that no longer waits for a held one is shown."""
    later = {"id": "c", "worker": "say", "parameters": {"text": "${{ steps.b.data }}"}}
    run = waiting(folder, say("b", "1.9"), later)
    done = folder.run("review", run, "amend", "--set", "steps.b.parameters.text=1.10")
    assert done.code == 0, done
    assert '"1.9" → "1.10"' in done.out
    path = "steps.c.parameters.text=2"
    done = folder.run("review", run, "amend", "--set", path)
    assert done.code == 0, done
    assert "! c no longer waits for b" in done.out
    doc = folder.run("review", run, "--json").doc
    assert [step["parameters"]["text"] for step in doc["steps"]] == ["1.10", "2"]
    shown = folder.run("diff", run)
    assert shown.code == 1
    assert "! c no longer waits for b" in shown.out


def test_an_amendment_is_a_new_revision_by_its_author(folder):
    """Compared with the one before; checked like any other."""
    run = waiting(folder, say("a", "one"), say("b", "two", depends_on=["a"]))
    path = "steps.b.parameters.text=three"
    done = folder.run("review", run, "amend", "--set", path, "--set", "steps.a.timeout=5s")
    assert done.code == 0, done
    assert '~ steps.b.parameters.text: "two" → "three"' in done.out
    wrong = folder.run("review", run, "amend", "--set", "steps.b.worker=nobody", "--json")
    assert wrong.code == 3, wrong
    shown = folder.run("review", run, "--json").doc
    assert (shown["revision"], shown["author"]) == (2, "ann")
    diff = folder.run("diff", run, "--json").doc
    assert [each["path"] for each in diff["changes"]] == [
        "steps.a.timeout",
        "steps.b.parameters.text",
    ]
    text = folder.run("review", run, "amend", "--set", 'steps.b.parameters.text="four"')
    assert text.code == 0, text
    assert folder.run("review", run, "amend", "--unset", "steps.a.timeout").code == 0
    assert folder.run("review", run, "amend", "--set", "goal=another").code == 2
    assert folder.run("review", run, "amend").code == 2, "there is no terminal for an editor"
    assert folder.run("review", run, "approve").code == 0
    assert folder.run("resume", run).out == "four\n"


def test_what_has_not_started_can_change_while_a_host_runs_it(folder):
    """Through its socket; what has started cannot."""
    nap = {"id": "nap", "worker": "nap", "parameters": {"seconds": 5}}
    folder.plan(nap, say("b", "old", depends_on=["nap"]))
    with folder.start("run", "plan.json") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the nap")
        run = folder.latest()["run"]
        late = folder.run("review", run, "amend", "--set", "steps.nap.parameters.seconds=1")
        assert late.code == 2, late
        assert "cannot change any more" in late.err
        wrong = folder.run("review", run, "amend", "--set", "steps.b.worker=nobody")
        assert wrong.code == 3, wrong
        done = folder.run("review", run, "amend", "--set", "steps.b.parameters.text=new", "--json")
        assert done.code == 0, done
        assert done.doc["hosted"]
        ended = finished(child)
    assert (ended.code, ended.out) == (0, "new\n"), ended
    assert "Revision 2 by ann" in folder.run("logs", run, "--intent").out


def test_hold_stops_before_a_step_until_it_is_released(folder):
    """Others go on."""
    run = waiting(folder, say("a", "one"), say("b", "two"))
    assert folder.run("hold", run, "b").code == 2, "nothing has been approved yet"
    assert folder.run("review", run, "approve").code == 0
    held = folder.run("hold", run, "b", "--reason", "lunch")
    assert held.code == 0, held
    done = folder.run("resume", run)
    assert done.code == 5, done
    assert "lunch" in done.err
    assert folder.run("answer", run, "release").code == 0
    assert folder.run("resume", run).code == 0


def test_redo_tries_again_what_failed(folder):
    """With a reason, while its run is open; what was skipped because of it runs then."""
    folder.write("more.py", MORE)
    steps = (
        {"id": "a", "worker": "needs_file", "failure_action": "continue"},
        {"id": "nap", "worker": "nap", "parameters": {"seconds": 5}},
        say("b", "after it", depends_on=["a", "nap"]),
    )
    folder.plan(*steps)
    with folder.start("run", "plan.json", "--workers", "more.py", "--workers", "workers.py") as it:
        folder.until(lambda: folder.lines("naps.txt"), "the nap")
        run = folder.latest()["run"]
        assert folder.run("redo", run, "a").code == 2, "no reason"
        assert folder.run("redo", run, "nobody", "--reason", "x").code == 2
        folder.write("there.txt", "yes")
        done = folder.run("redo", run, "a", "--reason", "the file is there now", "--json")
        assert done.code == 0, done
        assert done.doc["hosted"]
        ended = finished(it)
    assert ended.code == 0, ended
    assert "the file is there now" in folder.run("logs", run, "--intent").out


def test_a_failed_run_is_reopened_and_ends_well(folder):
    """The way that `run` names; the log verifies, alone as well, and says who and why."""
    folder.write("more.py", MORE)
    steps = ({"id": "a", "worker": "needs_file", "failure_action": "abort"},)
    folder.plan(*steps, say("b", "after it", depends_on=["a"]))
    done = folder.run("run", "plan.json", "--workers", "more.py", "--workers", "workers.py")
    assert done.code == 1, done
    run = folder.latest()["run"]
    assert f"redo {run} a --reason" in done.err
    folder.write("there.txt", "yes")
    assert folder.run("redo", run, "b", "--reason", "so").code == 7, "it never started"
    done = folder.run("redo", run, "a", "--reason", "it is there now")
    assert (done.code, f"resume {run}" in done.err) == (0, True), done
    assert folder.latest()["status"] == "running"
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "after it"), done
    assert "it is there now" in folder.run("logs", run, "--intent").out
    assert folder.run("verify", run).code == 0
    assert folder.run("export", run, "-o", "bundle.zip").code == 0
    assert folder.run("verify", "bundle.zip").code == 0
    assert folder.run("redo", run, "a", "--reason", "so").code == 7


def test_a_hold_is_released_by_the_name_of_its_step(folder):
    """While nobody hosts the run as well."""
    folder.plan(say("a", "one"), say("b", "two", depends_on=["a"]), risk_level="high")
    assert folder.run("run", "plan.json").code == 5
    run = folder.latest()["run"]
    assert folder.run("review", run, "approve").code == 0
    done = folder.run("hold", run, "b", "--json")
    assert (done.code, done.doc["question"]) == (0, f"{run}/q1"), done
    assert folder.run("release", run, "a").code == 7
    done = folder.run("release", run, "b", "--reason", "fine")
    assert (done.code, "may start b" in done.err) == (0, True), done
    assert folder.run("resume", run).code == 0


MORE = """
from pathlib import Path
from leadhand import Permanent, worker

@worker
def needs_file() -> str:
    if not Path("there.txt").exists():
        raise Permanent("no file")
    return "there"
"""


# --- approving a plan before it runs -------------------------------------------------------


def approved(folder, *more):
    done = folder.run("review", "plan.json", "approve", "-o", "approval.json", *more)
    assert done.code == 0, done
    return json.loads((folder.path / "approval.json").read_text())


def test_an_approval_runs_exactly_its_plan_once(folder):
    """High risk, and nobody is asked; a second time is refused."""
    folder.plan({"id": "a", "worker": "danger"})
    doc = approved(folder, "--expires", "8 hours")
    assert doc["actor"] == "ann"
    done = folder.run("apply", "plan.json", "--approval", "approval.json", "--json")
    assert done.code == 0, done
    assert folder.run("verify", "--all").code == 0
    again = folder.run("apply", "plan.json", "--approval", "approval.json")
    assert again.code == 7, again
    assert f"used by run {done.doc['run']}" in again.err


def test_one_changed_byte_voids_it_and_the_message_names_it(folder):
    """A trailing space in an argument; a changed worker."""
    folder.plan(say("a", "v2"))
    approved(folder)
    folder.plan(say("a", "v2 "))
    done = folder.run("apply", "plan.json", "--approval", "approval.json")
    assert done.code == 7, done
    assert "changed since: step a" in done.err
    folder.plan(say("a", "v2"))
    folder.write("workers.py", WORKERS.replace("return text", "return text + '!'"))
    done = folder.run("apply", "plan.json", "--approval", "approval.json")
    assert done.code == 7, done
    assert "changed since: worker say" in done.err
    folder.write("workers.py", WORKERS)
    assert folder.run("apply", "plan.json", "--approval", "approval.json").out == "v2\n"


def test_a_plan_can_be_amended_before_it_is_approved(folder):
    """Into another file; the differences are printed."""
    folder.plan(say("a", "v2"))
    done = folder.run(
        "review", "plan.json", "amend", "--set", "steps.a.parameters.text=v3", "-o", "new.yaml"
    )
    assert done.code == 0, done
    assert '"v2" → "v3"' in done.out
    assert folder.run("run", "new.yaml").out == "v3\n"
    assert folder.run("review", "plan.json", "reject", "--reason", "x").code == 2
    stale = folder.run("review", "plan.json", "approve", "--digest", "0" * 64)
    assert stale.code == 7, stale
    binding = folder.run("review", "plan.json", "--json").doc["binding"]
    assert binding not in stale.out + stale.err, "what would be accepted is not told"
    short = folder.run("review", "plan.json", "approve", "--digest", binding[:63])
    assert (short.code, "the whole digest" in short.err) == (2, True)


def test_where_there_are_approvers_only_their_signature_counts(folder):
    """In the engine: for reviews, for answers, for --yes and for approvals of plans."""
    pytest.importorskip("cryptography")
    key = folder.run("audit-key", "ann.key", "--json").doc["approver"]
    folder.run("audit-key", "eve.key")
    base = "[project]\nworkers = ['workers.py']\nactor = 'ann'\n"
    folder.write("leadhand.toml", f"{base}[approvers]\nann = '{key}'\n")
    run = waiting(folder)
    for words in (("review", run, "approve"), ("answer", run, "approve")):
        done = folder.run(*words)
        assert done.code == 4, done
        assert "not signed" in done.err
    assert folder.run("review", run, "approve", "--key", "eve.key").code == 4
    assert folder.run("review", run, "approve", LEADHAND_ACTOR="bob").code == 4
    assert folder.run("resume", run, "--yes").code == 4
    approved(folder)
    assert folder.run("apply", "plan.json", "--approval", "approval.json").code == 4
    approved(folder, "--key", "ann.key")
    assert folder.run("apply", "plan.json", "--approval", "approval.json").code == 0
    assert folder.run("review", run, "approve", "--key", "ann.key").code == 0
    assert folder.run("resume", run).code == 0


def test_verify_looks_at_signatures_again(folder):
    """Of a run and of its bundle; whose key it is only the settings can say."""
    pytest.importorskip("cryptography")
    key = folder.run("audit-key", "ann.key", "--json").doc["approver"]
    base = "[project]\nworkers = ['workers.py']\nactor = 'ann'\n[review]\nkey = 'ann.key'\n"
    folder.write("leadhand.toml", f"{base}[approvers]\nann = '{key}'\n")
    run = waiting(folder)
    assert folder.run("review", run, "approve").code == 0
    assert folder.run("resume", run).code == 0
    folder.run("export", run, "-o", "run.zip")
    for what in (run, "run.zip"):
        done = folder.run("verify", what)
        assert done.code == 0, done
        assert "1 approval signed" in done.err
        assert "[approvers]" not in done.err
        assert folder.run("verify", what, "--json").doc["signed_approvals"] == 1
    folder.write("leadhand.toml", base)
    for what in (run, "run.zip"):
        done = folder.run("verify", what)
        assert done.code == 0, done
        assert "is ann's: only the log says so" in done.err


def test_held_steps_are_let_go_by_approvers(folder):
    """By name or by answer: unsigned it is refused, signed it goes on and verifies."""
    pytest.importorskip("cryptography")
    key = folder.run("audit-key", "ann.key", "--json").doc["approver"]
    base = "[project]\nworkers = ['workers.py']\nactor = 'ann'\n"
    signing = f"{base}[review]\nkey = 'ann.key'\n[approvers]\nann = '{key}'\n"
    for words in (("release", "RUN", "a"), ("answer", "RUN", "release")):
        folder.write("leadhand.toml", signing)
        run = waiting(folder)
        assert folder.run("review", run, "approve").code == 0
        assert folder.run("hold", run, "a").code == 0
        command = [run if word == "RUN" else word for word in words]
        folder.write("leadhand.toml", f"{base}[approvers]\nann = '{key}'\n")
        refused = folder.run(*command)
        assert refused.code == 4, refused
        folder.write("leadhand.toml", signing)
        done = folder.run(*command)
        assert done.code == 0, done
        assert folder.run("resume", run).code == 0
        assert folder.run("verify", run).code == 0


def test_an_approval_for_a_budget_holds_for_no_larger_one(folder):
    """Given with it, it is shown, covered by the hash, and kept."""
    folder.plan(say("a", "v2"))
    shown = folder.run("review", "plan.json", "--budget", "5")
    assert "limits: budget 5" in shown.out
    other = folder.run("review", "plan.json")
    assert "limits: budget none" in other.out
    assert shown.out.splitlines()[-1] != other.out.splitlines()[-1]
    approved(folder, "--budget", "5")
    apply = ("apply", "plan.json", "--approval", "approval.json")
    for more in ((), ("--budget", "500")):
        done = folder.run(*apply, *more)
        assert done.code == 7, done
        assert "with tighter limits" in done.err
        assert "instead of 5" in done.err
    assert folder.run(*apply, "--budget", "4").code == 0
    assert folder.run("review", waiting(folder), "--budget", "5").code == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "an approval is an object, not a list"),
        ("", "is empty"),
        ("{}", "this is not an approval"),
        ('{"steps": []}', "this is not an approval"),
    ],
)
def test_a_file_that_is_no_approval_says_so(folder, content, said):
    """By its name, and with what would write one; a plan is not spoken of."""
    folder.plan(say("a", "x"))
    folder.write("it.json", content)
    done = folder.run("apply", "plan.json", "--approval", "it.json")
    assert done.code == 2, done
    assert f"it.json: {said}" in done.err
    assert "steps:" not in done.err


def test_reviewers_of_the_settings_look_first(folder):
    """What they find makes a plan wait; one that fails does too."""
    base = "[project]\nworkers = ['workers.py']\nactor = 'ann'\n"
    folder.write("leadhand.toml", f"{base}[review]\nreviewers = ['checks.py:look']\n")
    code = (
        "def look(revision):\n    return [s['id'] for s in revision['steps'] if s['id'] == 'bad']\n"
    )
    folder.write("checks.py", code)
    folder.plan(say("good", "x"))
    assert folder.run("run", "plan.json").code == 0
    folder.plan(say("bad", "x"))
    done = folder.run("run", "plan.json")
    assert done.code == 5, done
    assert "checks.py:look: bad" in done.err


# --- what follows --------------------------------------------------------------------------


def test_an_amendment_of_a_run_that_goes_on_says_who_must_approve_it(folder):
    """The run stays running, since other steps may start: the approval is missing all the same."""
    rules = "[review]\nrules = [{workers = ['danger'], then = 'two'}]\nexpires = '8 hours'\n"
    folder.write("leadhand.toml", (folder.path / "leadhand.toml").read_text() + rules)
    run = waiting(folder, say("a", "x"), {"id": "b", "worker": "danger", "depends_on": ["a"]})
    assert "approval expiry 8h" in folder.run("review", run).out
    for person in ("ann", "bob"):
        given = folder.run("review", run, "approve", "--yes", LEADHAND_ACTOR=person)
        assert given.code == 0, given
        assert "warning: this approval ends" not in given.err
    done = folder.run("review", run, "amend", "--set", "steps.b.not_before=2099-01-01T00:00:00Z")
    assert done.code == 0, done
    assert "and is running" in done.err
    assert "Revision 2 starts nothing before 2 people approved it" in done.err
    given = folder.run("review", run, "approve", "--yes")
    assert "before the time of b" in given.err, "an approval for 8 hours does not reach it"
    timeline = folder.run("show", run, "--timeline").out
    assert "not approved" not in timeline


def test_a_worker_that_changed_is_told_to_whoever_resumes_the_run(folder):
    folder.plan({"id": "a", "worker": "broken", "failure_action": "escalate"})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    folder.write("workers.py", WORKERS + "\n# mended\n")
    assert folder.run("answer", f"{run}/q1", "retry").code == 0
    (line,) = [x for x in folder.run("resume", run).err.splitlines() if "orkers changed: " in x]
    assert "broken (version" in line
