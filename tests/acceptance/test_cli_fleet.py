"""The standing fleet as people run it: real processes, real agents, real git."""

import csv
import json
import os
import signal
import sys

import httpx2
import pytest

from leadhand.fleet.agents import transcripts
from leadhand.fleet.commands.doctor import fitting
from tests.fleet.places import make_repo, run_git
from tests.support.cli import finished

pytestmark = pytest.mark.real

AGENT = """
import json, pathlib, sys, time
task, attempt, brief, session = sys.argv[1:5]
pathlib.Path(f"{task}.py").write_text(f"half of {task}\\n")
print("I work on", task, flush=True)
print(json.dumps({"type": "usage", "cost": 0.25}), flush=True)
told = pathlib.Path(brief).read_text()
if task == "slow" and "hurry up" not in told:
    time.sleep(600)
pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
print("password=abc123def456")
"""
TASK = "  - {{id: {0}, goal: write the module {0}, writes: [{0}.py]}}"


@pytest.fixture
def folder(folder, tmp_path):
    """A project with a repository beside it, and agents that need no model."""
    make_repo(tmp_path / "shop")
    folder.write("agent.py", AGENT)
    words = ["{task}", "{attempt}", "{brief_file}", "{session}"]
    command = json.dumps([sys.executable, "-I", "-S", str(tmp_path / "agent.py"), *words])
    gate = json.dumps([[sys.executable, "-c", "import pathlib; pathlib.Path('a.txt').read_text()"]])
    folder.write(
        "leadhand.toml",
        f"""
[fleet]
gate = {gate}
publish = "leadhand/main"
agents = 4
sandbox = "none"
stagger = 0
drain = "1 s"

[policy]
backoff = "100 ms"

[coders.scripted]
kind = "command"
command = {command}
""",
    )
    return folder


def epic(folder, name, *tasks):
    lines = "\n".join(TASK.format(task) for task in tasks)
    folder.write(f"{name}.md", f"# Epic {name}\n\nModules.\n\n```yaml\ntasks:\n{lines}\n```\n")
    return f"{name}.md"


def status(folder):
    done = folder.run("fleet", "status", "--json")
    return done.doc if done.code in (0, 1) else {}


def started(folder, *more):
    return folder.start("fleet", "start", "--repo", "shop", "--no-serve", "--json", *more)


def working(folder, task):
    live = status(folder).get("live") or {"agents": []}
    return any(agent["task"] == task and agent["words"] for agent in live["agents"])


def ready(child):
    return json.loads(child.stdout.readline())


# --- from nothing to commits -----------------------------------------------------------------


def test_epics_that_are_handed_in_before_and_while_it_runs_become_commits(folder):
    """And everything that the commands say of it afterwards is true."""
    early = folder.run("fleet", "submit", epic(folder, "early", "a", "b"), "--json")
    assert early.code == 0, early
    assert early.doc["fleet"] is False
    with started(folder) as child:
        hello = ready(child)
        assert hello["repo"] == str(folder.path / "shop")
        late = folder.run("fleet", "submit", epic(folder, "late", "c"), "--priority", "7", "--json")
        assert (late.doc["fleet"], late.doc["priority"]) == (True, 7)
        folder.until(lambda: status(folder).get("tasks") == {"landed": 3}, "three to land")
        assert folder.run("fleet", "drain").code == 0
        done = finished(child)
    assert done.code == 0
    assert f"{early.doc['run']}: succeeded, 2 of 2 landed" in done.err
    assert f"{late.doc['run']}: succeeded, 1 of 1 landed" in done.err
    assert done.err.endswith("the fleet has ended\n")
    assert "leadhand fleet status" in folder.run("ls").err
    doc = status(folder)
    assert doc["live"] is None
    assert doc["disagreements"] == []
    assert doc["landed"]["total"] == doc["landed"]["last_hour"] == 3
    assert doc["agents"]["peak"] >= 1
    assert doc["agents"]["runs"] == 3
    assert doc["spend"]["total"] == 0.75
    assert doc["spend"]["per_landed"] == 0.25
    assert {each["status"] for each in doc["epics"]} == {"succeeded"}
    names = run_git(folder.path / "shop", "ls-tree", "--name-only", "leadhand/main").split()
    assert {"a.py", "b.py", "c.py"} <= set(names)
    said = folder.run("fleet", "log", "a")
    assert "I work on a" in said.out
    assert "usage   $0.25" in said.out
    assert "abc123def456" not in said.out
    lines = [
        json.loads(line) for line in folder.run("fleet", "log", "a", "--json").out.splitlines()
    ]
    assert lines[-1]["kind"] == "ended"
    kept = folder.run("fleet", "log", "--json").doc
    assert {name.partition("/")[2] for name in kept} == {"a", "b", "c"}
    again = folder.run("fleet", "submit", "early.md", "--json")
    assert again.doc["run"] == early.doc["run"], "the same words are the same epic"
    assert (early.doc["known"], again.doc["known"]) == (None, "succeeded")
    urgent = folder.run("fleet", "submit", "early.md", "--priority", "9")
    assert urgent.out.strip() == early.doc["run"]
    assert "it is not done twice" in urgent.err


def test_what_could_not_be_taken_or_given_is_said_and_is_no_success(folder):
    """A branch that is checked out gets nothing, and an epic that is none is not begun."""
    run_git(folder.path / "shop", "checkout", "-q", "-b", "leadhand/main")
    folder.run("fleet", "submit", epic(folder, "early", "a"))
    (folder.path / ".leadhand/fleet/epics/words.md").write_text("# Only words\n")
    folder.write("agent.py", AGENT.replace("if task ==", "time.sleep(3)\nif task =="))
    with started(folder, "--until-idle") as child:
        folder.until(lambda: working(folder, "a"), "an agent to work")
        run_git(folder.path / "shop", "rm", "-q", "a.txt")
        run_git(folder.path / "shop", "commit", "-q", "-m", "Red by hand")
        before = run_git(folder.path / "shop", "rev-parse", "HEAD")
        done = finished(child)
    assert done.code == 1, done
    assert done.err.count(f"your branch: {before[:12]} was not merged (red)") == 1
    assert done.err.count("names no tasks") == 1
    assert done.err.count("is checked out; choose another") == 1
    assert run_git(folder.path / "shop", "rev-parse", "HEAD") == before
    toml = (folder.path / "leadhand.toml").read_text()
    folder.write("leadhand.toml", toml.replace("leadhand/main", "a..b"))
    with started(folder, "--until-idle") as child:
        done = finished(child)
    assert (done.code, "cannot be the name of a branch" in done.err) == (2, True), done


def test_the_report_is_one_file_and_the_same_figures_as_json(folder):
    folder.run("fleet", "submit", epic(folder, "first", "a", "b"))
    done = folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle")
    assert done.code == 0, done
    made = folder.run("fleet", "report", "--since", "7d", "-o", "out.html", "--csv", "--json")
    assert made.code == 0, made
    page = (folder.path / "out.html").read_text()
    doc = json.loads((folder.path / "out.json").read_text())
    assert doc["landed"]["in_window"] == 2
    rows = list(csv.DictReader((folder.path / "out.csv").read_text().splitlines()))
    told = {row["figure"]: row["value"] for row in rows if row["period"] == "period"}
    shown = {
        name: "" if each["value"] is None else repr(each["value"])
        for name, each in doc["delivery"]["period"]["figures"].items()
    }
    assert told == shown
    assert told["merged"] == "2"
    assert "They agree: every finished task is exactly one commit on main" in page
    for word in ("<script", "http://", "https://", str(folder.path)):
        assert word not in page, "nothing from elsewhere, and nothing of this machine"
    wrong = folder.run("fleet", "report", "--since", "soon")
    assert wrong.code == 2


# --- ends --------------------------------------------------------------------------------------


def test_what_was_open_is_taken_up_after_a_kill(folder):
    """Nothing is lost, nothing lands twice, and no agent outlives its fleet."""
    folder.run("fleet", "submit", epic(folder, "first", "a", "slow", "b"))
    with started(folder) as child:
        ready(child)
        folder.until(lambda: status(folder).get("tasks", {}).get("landed") == 2, "two to land")
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert status(folder)["live"] is None
    script = folder.path / "agent.py"
    script.write_text(AGENT.replace("time.sleep(600)", "pass"))
    done = folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle", "--json")
    assert done.code == 0, done
    assert json.loads(done.out)["open"] == 1
    doc = status(folder)
    assert (doc["tasks"], doc["disagreements"]) == ({"landed": 3}, [])
    assert doc["agents"]["now"] == 0
    assert doc["agents"]["runs"] == 4, "that of the killed fleet counts too"
    tasks = [each["task"] for each in doc["commits"]]
    assert sorted(tasks) == ["a", "b", "slow"]


def test_killed_at_the_gate_and_on_the_train_everything_lands_once(folder):
    """The service is killed where a change is tested alone, and again where it is merged."""
    gate = "import pathlib, time; pathlib.Path('a.txt').read_text(); time.sleep(1.5)"
    text = (folder.path / "leadhand.toml").read_text()
    commands = json.dumps([[sys.executable, "-c", gate]])
    lines = [f"gate = {commands}" if li.startswith("gate") else li for li in text.splitlines()]
    folder.write("leadhand.toml", "\n".join(lines))
    folder.run("fleet", "submit", epic(folder, "first", "a", "b", "c"))
    for place in ("gate", "train"):
        with started(folder) as child:
            ready(child)
            folder.until(
                lambda at=place: status(folder)["flow"][at], f"a change at the {place}", 60
            )
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert status(folder)["disagreements"] == []
    done = folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle")
    assert done.code == 0, done
    doc = status(folder)
    assert (doc["tasks"], doc["disagreements"]) == ({"landed": 3}, [])
    assert sorted(each["task"] for each in doc["commits"]) == ["a", "b", "c"]
    assert doc["recovery"]["people"] == 0
    main = run_git(folder.path / "shop", "rev-list", "main..leadhand/main").split()
    assert len(main) == 3


def test_sigterm_drains_and_saves_what_agents_have_done(folder):
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        child.send_signal(signal.SIGTERM)
        ended = finished(child)
    assert ended.code == 143, ended
    assert "1 agent ended; what they did is saved" in ended.err
    hub = folder.path / ".leadhand" / "fleet" / "hub" / "hub.git"
    (ref,) = run_git(hub, "for-each-ref", "--format=%(refname)", "refs/leadhand/wip").splitlines()
    assert run_git(hub, "show", f"{ref}:slow.py") == "half of slow"


# --- orders ------------------------------------------------------------------------------------


def test_an_agent_is_told_something_and_goes_on_with_it(folder):
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        told = folder.run("fleet", "message", "slow", "hurry up", "--json")
        assert told.code == 0, told
        folder.until(lambda: status(folder)["tasks"] == {"landed": 1}, "it to land")
        assert status(folder)["recovery"]["failed"] == 0


def test_an_agent_is_stopped_and_its_task_goes_on(folder):
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        script = folder.path / "agent.py"
        script.write_text(AGENT.replace("time.sleep(600)", "pass"))
        assert folder.run("fleet", "stop", "slow").code == 0
        folder.until(lambda: status(folder)["tasks"] == {"landed": 1}, "it to land")
        doc = status(folder)
    assert doc["recovery"]["failed"] == 0, "a person stopped it: the agent did not fail"
    (landing,) = doc["commits"]
    assert landing["attempt"] == 2


def test_what_nobody_can_do_is_in_the_inbox_and_answered_while_the_fleet_works(folder):
    """Without a word about databases, beside the runs of the project's own."""
    script = folder.path / "agent.py"
    script.write_text("print('done')\n")
    folder.run("fleet", "submit", epic(folder, "first", "a"))
    assert folder.run("inbox", "--json").doc == []
    with started(folder) as child:
        ready(child)
        (row,) = folder.until(lambda: folder.run("inbox", "--json").doc, "a question", 60)
        assert row["id"].startswith("epic-first-")
        assert "`leadhand inbox`" in folder.run("fleet", "status").out
        script.write_text(AGENT)
        assert folder.run("answer", row["id"], "retry").code == 0
        folder.until(lambda: status(folder)["tasks"] == {"landed": 1}, "it to land", 60)
    ended = folder.run("show", row["run"], "--json")
    assert ended.doc["status"] == "succeeded"
    assert folder.run("inbox").err.strip() == "The inbox is empty."


def test_an_epic_is_taken_up_by_its_fleet_and_nobody_else(folder):
    script = folder.path / "agent.py"
    script.write_text("print('done')\n")
    run = folder.run("fleet", "submit", epic(folder, "first", "a"), "--json").doc["run"]
    assert folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle").code == 0
    (row,) = folder.run("inbox", "--json").doc
    answered = folder.run("answer", row["id"], "retry")
    assert "Continue with: leadhand fleet start" in answered.err
    done = folder.run("resume", run)
    assert (done.code, "leadhand fleet start" in done.err) == (2, True)


def test_a_gate_that_is_red_before_anybody_worked_is_said(folder):
    """Nobody is sent, and nothing is paid for."""
    text = (folder.path / "leadhand.toml").read_text()
    folder.write("leadhand.toml", text.replace("a.txt", "not-there.txt"))
    folder.run("fleet", "submit", epic(folder, "first", "a"))
    done = folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle")
    assert done.code == 2
    assert "main itself does not pass" in done.err
    assert "not-there.txt" in done.err
    assert status(folder)["agents"]["runs"] == 0


def test_orders_without_a_fleet_or_for_nobody_are_refused(folder):
    for words in (["drain"], ["stop", "a"], ["message", "a", "hello"]):
        done = folder.run("fleet", *words, "--json")
        assert done.code == 7, done
        assert "no fleet is at work" in done.doc["error"]["message"]
    with started(folder) as child:
        ready(child)
        twice = folder.run("fleet", "start", "--repo", "shop", "--no-serve")
        assert (twice.code, "a fleet is at work in" in twice.err) == (7, True)
        done = folder.run("fleet", "stop", "nobody")
        assert done.code == 7
        assert "no agent works on nobody" in done.err


# --- what is wrong is said -----------------------------------------------------------------------


def test_what_is_missing_is_named_with_its_fix(folder):
    text = (folder.path / "leadhand.toml").read_text()
    folder.write("leadhand.toml", "")
    done = folder.run("fleet", "start", "--repo", "shop")
    assert done.code == 2
    assert "[coders.NAME] and [fleet] gate" in done.err
    assert 'kind = "claude"' in done.err
    folder.write("leadhand.toml", text)
    done = folder.run("fleet", "start")
    assert (done.code, "give --repo PATH" in done.err) == (2, True)
    done = folder.run("fleet", "start", "--repo", "nowhere")
    assert (done.code, "no such folder" in done.err) == (2, True)
    more = '\n[coders.big]\nkind = "claude"\ntier = 2\nkey = "NO_SUCH_KEY"\n'
    folder.write("leadhand.toml", text + more + f'program = "{sys.executable}"\n')
    done = folder.run("fleet", "start", "--repo", "shop")
    assert (done.code, "NO_SUCH_KEY is not set" in done.err) == (2, True)
    folder.write("leadhand.toml", text + more + 'program = "no-such-program"\n')
    done = folder.run("fleet", "start", "--repo", "shop", NO_SUCH_KEY="x")
    assert (done.code, "there is no program" in done.err) == (2, True)
    folder.write("leadhand.toml", text + '[coders.own]\nkind = "command"\ncommand = ["no-such"]\n')
    done = folder.run("fleet", "start", "--repo", "shop")
    assert (done.code, 'by its path in "command"' in done.err) == (2, True), done
    folder.write("leadhand.toml", text.replace("[fleet]", '[fleet]\nreviewer = "scriptd"'))
    done = folder.run("fleet", "start", "--repo", "shop")
    assert (done.code, 'Did you mean "scripted"?' in done.err) == (2, True)
    assert folder.run("fleet", "status").code == 2, "there is no fleet yet"
    unplanned = folder.write("unplanned.md", "# Make it quick\n")
    done = folder.run("fleet", "submit", unplanned.name)
    assert (done.code, "this fleet has no planner" in done.err) == (2, True)
    for name in ("folder", "epics"):
        folder.write("leadhand.toml", text.replace("[fleet]", f'[fleet]\n{name} = "shop"'))
        done = folder.run("fleet", "start", "--repo", "shop")
        assert (done.code, f"[fleet] {name} is the repository" in done.err) == (2, True), done
    assert run_git(folder.path / "shop", "status", "--porcelain") == ""
    folder.write("leadhand.toml", text.replace("leadhand/main", "main/sub"))
    done = folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle")
    assert (done.code, "cannot be made beside your branch 'main'" in done.err) == (2, True), done
    folder.write("leadhand.toml", text)
    bad = folder.write("bad.md", "# Bad\n```yaml\ntasks: [{id: a}]\n```\n")
    assert folder.run("fleet", "submit", bad.name).code == 2
    assert folder.run("fleet", "submit", "none.md").code == 2
    assert folder.run("fleet", "log", "a").code == 2


def test_whoever_follows_an_agent_is_let_go_when_it_is_gone(folder):
    """A fleet that was killed has no last word: no fleet is there, or a later attempt is."""
    place = folder.path / ".leadhand/fleet/transcripts/e/a"
    place.mkdir(parents=True)
    line = json.dumps({"at": 1, "kind": "text", "text": "I begin"}) + "\n"
    (place / "1.jsonl").write_text(line)
    said = folder.run("fleet", "log", "a", "-f")
    assert (said.code, "I begin" in said.out) == (0, True)
    assert "the agent has ended" in said.err
    assert transcripts.is_over(place / "1.jsonl") is False
    (place / "2.jsonl").write_text(line)
    assert transcripts.is_over(place / "1.jsonl") is True
    assert "attempt 2, the last of 2; --attempt N" in folder.run("fleet", "log", "a").err
    assert folder.run("fleet", "log", "a", "--attempt", "1").err == ""


def test_a_commit_that_the_log_does_not_know_is_shown(folder):
    """Somebody's hand in the hub: the figures say so, and do not smooth it over."""
    folder.run("fleet", "submit", epic(folder, "first", "a"))
    assert folder.run("fleet", "start", "--repo", "shop", "--no-serve", "--until-idle").code == 0
    hub = folder.path / ".leadhand" / "fleet" / "hub" / "hub.git"
    tree, main = (run_git(hub, "rev-parse", name) for name in ("main^{tree}", "main"))
    text = "Forged\n\nLeadhand-Task: ghost\nLeadhand-Run: epic-first\nLeadhand-Attempt: 1\n"
    forged = run_git(hub, "commit-tree", tree, "-p", main, "-m", text)
    run_git(hub, "update-ref", "refs/heads/main", forged)
    done = folder.run("fleet", "status", "--json")
    assert done.code == 1
    assert "the log knows no such task" in done.doc["disagreements"][0]


# --- the server of a fleet ---------------------------------------------------------------------


def test_the_page_and_the_api_are_served_with_it(folder):
    """Viewers look, operators stop and tell, and nobody else does either."""
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    with (
        folder.start("fleet", "start", "--repo", "shop", "--port", "0", "--json") as child,
        httpx2.Client(base_url=f"{ready(child)['url']}/api/v1", timeout=120) as client,
    ):
        token = (folder.path / ".leadhand" / "fleet" / "fleet.db.token").read_text().strip()
        assert client.get("/fleet").status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"

        def agents():
            return client.get("/fleet").json()["fleet"]["live"]["agents"]

        (agent,) = folder.until(lambda: [a for a in agents() if a["words"]], "the agent")
        place = f"/fleet/{agent['run']}/{agent['task']}"
        words = client.get(f"{place}/words").json()
        assert words["lines"][0]["text"] == "I work on slow"
        assert client.get("/fleet/none/such/words").status_code == 404
        assert client.post("/fleet/none/such/stop", json={}).status_code == 404
        assert client.post(f"{place}/message", json={"text": ""}).status_code == 422
        assert client.post(f"{place}/message", json={"text": "hurry up"}).status_code == 200
        folder.until(lambda: client.get("/fleet").json()["fleet"]["tasks"] == {"landed": 1}, "it")
        runs = client.get("/runs").json()["items"]
        assert [run["status"] for run in runs] == ["succeeded"]
        os.kill(child.pid, signal.SIGTERM)
        assert finished(child).code == 143


# --- doctor ------------------------------------------------------------------------------------


def test_doctor_says_what_a_fleet_would_find_here(folder):
    """Git, sandboxes, the coders that are configured, and how many agents fit."""
    text = (folder.path / "leadhand.toml").read_text()
    done = folder.run("doctor", "--json")
    assert done.code == 0, done
    checks = {(each["what"], each["value"].partition(":")[0]): each for each in done.doc["checks"]}
    assert ("coder", "scripted") in checks
    assert ("coder", "claude") in checks
    (fit,) = [each for each in done.doc["checks"] if each["what"] == "agents fit"]
    assert " claude, " in fit["value"]
    assert [each for each in done.doc["checks"] if each["what"] == "git"]
    more = '\n[coders.big]\nkind = "codex"\nkey = "NO_SUCH_KEY"\n'
    folder.write("leadhand.toml", text.replace("agents = 4", "agents = 2000") + more)
    done = folder.run("doctor", "--json")
    assert done.code == 1
    said = {each["problem"] for each in done.doc["checks"]}
    assert "NO_SUCH_KEY is not set" in said
    assert any(each and "[fleet] agents is 2000, and about" in each for each in said)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ((10_500, 300, 1e6, 100, 100), 33),
        ((1e6, 300, 1_500, 100, 100), 10),
        ((1e6, 300, 1e6, 100, 2), 16),
        ((100, 300, 1e6, 100, 2), 0),
    ],
)
def test_the_scarcest_thing_says_how_many_fit(given, fits):
    assert fitting(*given) == fits


# --- taking over ---------------------------------------------------------------------------------


def commit(clone, text, name="slow.py"):
    (clone / name).write_text(text)
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-q", "-m", "The slow module, by hand")


def test_what_a_persons_programs_would_obey_in_a_taken_clone_is_named(folder):
    """The agent left hooks for Claude Code, and a variable file in a folder."""
    planted = """
for name in (".claude/settings.json", "web/.envrc"):
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text("planted\\n")
"""
    place = 'pathlib.Path(f"{task}.py").write_text(f"half of {task}\\n")\n'
    assert place in AGENT
    folder.write("agent.py", AGENT.replace(place, place + planted))
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        told = folder.run("fleet", "take", "slow", "--to", str(folder.path / "mine"))
        assert told.code == 0, told
        named = ".claude/settings.json, web/.envrc (by the agent)"
        assert f"read before you open it in an editor or an agent: {named}" in told.err
        assert folder.run("fleet", "drain").code == 0
        finished(child)


def test_a_person_takes_a_task_over_and_their_commits_land_under_their_name(folder):
    """Refused once, with the fleet killed in between; no try of the agent is used up."""
    run = folder.run("fleet", "submit", epic(folder, "first", "slow"), "--json").doc["run"]
    clone = folder.path / "mine"
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        early = folder.run("fleet", "give", "slow")
        assert early.code == 2
        assert "is not taken" in early.err
        told = folder.run("fleet", "take", "slow", "--to", str(clone), "--json")
        assert told.code == 0, told
        assert (told.doc["task"], told.doc["stopped"]) == (f"{run}/slow", True)
        assert (clone / "slow.py").read_text() == "half of slow\n"
        assert run_git(clone, "diff", "--cached", "--name-only") == "slow.py"
        assert run_git(clone, "branch", "--show-current") == told.doc["branch"]
        assert "write the module slow" in (clone / ".git" / "leadhand-brief.md").read_text()
        assert run_git(clone, "push", "fleet", "HEAD:main", check=False) == ""
        dirty = folder.run("fleet", "give", "slow", "--from", str(clone))
        assert (dirty.code, "not committed" in dirty.err) == (2, True)
        foreign = folder.run("fleet", "take", "slow", "--to", "theirs", LOGNAME="somebody-else")
        assert (foreign.code, "is taken by" in foreign.err) == (7, True), foreign
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert [each["task"] for each in status(folder)["taken"]] == ["slow"]
    commit(clone, "name = 'mine'\n", "elsewhere.py")
    with started(folder) as child:
        ready(child)
        folder.until(lambda: status(folder)["live"], "the fleet to be there")
        branch = run_git(clone, "branch", "--show-current")
        run_git(clone, "checkout", "-q", "--orphan", "alone")
        commit(clone, "alone\n")
        alone = folder.run("fleet", "give", "slow", "--from", str(clone), "--json")
        assert (alone.code, "in common with main" in alone.doc["refused"]) == (1, True), alone
        commit(clone, "not given\n")
        run_git(clone, "update-ref", "refs/remotes/fleet/main", "HEAD")
        commit(clone, "on it\n")
        part = folder.run("fleet", "give", "slow", "--from", str(clone), "--json")
        assert (part.code, "does not have" in part.doc["refused"]) == (1, True), part
        run_git(clone, "fetch", "-q", "fleet")
        run_git(clone, "checkout", "-q", branch)
        refused = folder.run("fleet", "give", "slow", "--from", str(clone), "--json")
        assert refused.code == 1, refused
        assert "elsewhere.py, which is outside of slow.py" in refused.doc["refused"]
        assert "outside of slow.py" in folder.run("fleet", "status").out
        run_git(clone, "rm", "-q", "elsewhere.py")
        commit(clone, "name = 'by hand'\n")
        given = folder.run("fleet", "give", "slow", "--from", str(clone), "--json")
        assert given.code == 0, given
        folder.until(lambda: status(folder)["tasks"] == {"landed": 1}, "it to land")
    shop, landed = folder.path / "shop", given.doc["landed"]
    hub = folder.path / ".leadhand" / "fleet" / "hub" / "hub.git"
    assert run_git(hub, "show", f"{landed}:slow.py") == "name = 'by hand'"
    assert run_git(hub, "log", "-1", "--format=%an <%ae>", landed) == "Ann <ann@localhost>"
    words = run_git(hub, "log", "-1", "--format=%B", landed)
    assert "Leadhand-Given-by: Ann <ann@localhost>" in words
    assert "Assisted-by: scripted:default" in words, "the agent's half was staged"
    assert run_git(shop, "status", "--porcelain") == ""
    doc = status(folder)
    assert (doc["agents"]["runs"], doc["taken"], doc["disagreements"]) == (1, [], [])
    assert doc["recovery"]["people"] == 0


def test_a_task_that_is_given_back_to_an_agent_goes_on_with_the_message(folder):
    """The agent is told of the person's commits, in the same attempt."""
    folder.run("fleet", "submit", epic(folder, "first", "slow"))
    clone = folder.path / "slow"
    with started(folder) as child:
        ready(child)
        folder.until(lambda: working(folder, "slow"), "the slow one to begin")
        assert folder.run("fleet", "take", "slow").code == 0
        assert "taken      " in folder.run("fleet", "status").out
        commit(clone, "half by hand\n")
        given = folder.run("fleet", "give", "slow", "--to-agent", "--message", "hurry up")
        assert given.code == 0, given
        folder.until(lambda: status(folder)["tasks"] == {"landed": 1}, "it to land")
        assert status(folder)["recovery"]["failed"] == 0
        words = ("log", "-1", "--format=%B", "leadhand/main")
        folder.until(
            lambda: "Assisted-by: scripted" in run_git(folder.path / "shop", *words),
            "the branch of results to hold it",
        )
    hub = folder.path / ".leadhand" / "fleet" / "hub" / "hub.git"
    kept = run_git(hub, "for-each-ref", "--format=%(refname)", "refs/leadhand/task").splitlines()
    assert any(run_git(hub, "show", f"{ref}:slow.py") == "half by hand" for ref in kept)
