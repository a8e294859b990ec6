"""The whole command line on a log in PostgreSQL: the same words, wherever the log is kept."""

import contextlib
import json
import os
import signal
import threading

import pytest

from leadhand import Lead, worker
from leadhand.stores.postgres.schema import migrations
from tests.support.cli import WORKERS, Folder, finished
from tests.support.postgres import PASSWORD, serving
from tests.support.serving import ended, process, project

pytestmark = pytest.mark.real
ESCAPED = PASSWORD.replace(" ", "%20")


FILES = {"workers.py": WORKERS}


@pytest.fixture
def folder(folder, postgres):
    folder.store = postgres.new(folder.path).secret
    settings = f"[project]\nworkers = ['workers.py']\nstore = {json.dumps(folder.store)}\n"
    folder.write("leadhand.toml", settings)
    yield folder
    pids = folder.path / "pids"
    for pid in pids.read_text().split() if pids.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def detached(folder, *args):
    """Start a host in the background; it is killed when the test ends."""
    done = folder.run("run", *args, "--detach", "--json")
    assert done.code == 0, done
    with (folder.path / "pids").open("a") as file:
        file.write(f"{done.doc['pid']}\n")
    return done.doc


def test_a_run_from_its_start_to_its_proof(folder):
    """run, ls, show, logs, verify, export, metrics: nothing knows where the log is."""
    folder.plan({"id": "a", "worker": "say"}, {"id": "b", "worker": "loud", "depends_on": ["a"]})
    done = folder.run("run", "plan.json", "--json")
    assert done.code == 0, done
    run = done.doc["run"]
    assert [row["run"] for row in folder.run("ls", "--json").doc] == [run]
    assert folder.run("show", run, "--json").doc["status"] == "succeeded"
    assert "RunStarted" in folder.run("logs", run, "--json").out
    assert folder.run("watch", run).code == 0
    verified = folder.run("verify", "--all", "--json")
    assert verified.code == 0, verified
    assert verified.doc["valid"]
    assert verified.doc["anchors"]["lines"] >= 1
    assert folder.run("export", run, "-o", "run.zip").code == 0
    assert folder.run("verify", "run.zip").code == 0
    assert folder.run("metrics", "--json").code == 0
    doctor = folder.run("doctor")
    assert "none running" in doctor.out + doctor.err


def test_a_password_is_never_shown(folder, tmp_path, postgres):
    """Not in answers, hints, errors, logs of hosts, nor in the files of this machine."""
    folder.plan({"id": "a", "worker": "danger"})
    said = [folder.run("run", "plan.json", "--store", folder.store)]
    run = folder.run("ls", "--json").doc[0]["run"]
    (tmp_path / "leadhand.toml").write_text("[project]\nworkers = ['workers.py']\n")
    env = {"LEADHAND_STORE": folder.store}
    wrong = folder.store.replace(ESCAPED, "wrong%20secret")
    said += [
        folder.run("answer", "review-1", "approve", **env),
        folder.run("show", run, **env),
        folder.run("doctor", **env),
        folder.run("ls", "--store", folder.store.rpartition("/")[0] + "/nowhere"),
        folder.run("ls", "--store", wrong),
        folder.run("ls", "--store", f"postgres://me:{ESCAPED}@127.0.0.1:x/db"),
        folder.run("ls", "--store", f"postgres://me:{ESCAPED}@127.0.0.1/"),
        folder.run("ls", "--store", f"postgres://me:{PASSWORD}@127.0.0.1/db"),
        folder.run("run", "plan.json", "--detach", "--store", wrong),
    ]
    assert said[0].code == 5
    assert "--store postgres://postgres@127.0.0.1:" in said[0].err + said[1].err
    assert [each.code for each in said[4:]] == [2, 4, 2, 2, 2, 4]
    everything = "".join(f"{each.out}{each.err}" for each in said)
    for path in (tmp_path / ".leadhand").rglob("*"):
        everything += path.read_text(errors="replace") if path.is_file() else ""
    with postgres.connect(folder.store.rpartition("/")[2]) as connection:
        rows = connection.execute("SELECT body FROM leadhand.events").fetchall()
        rows += connection.execute("SELECT summary FROM leadhand.runs").fetchall()
        rows += connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
        assert len(rows) > 10
        everything += repr(rows)
    assert PASSWORD not in everything
    assert ESCAPED not in everything
    assert "wrong secret" not in everything
    assert "wrong%20secret" not in everything


def test_a_person_answers_with_and_without_a_host(folder):
    """Without one the command becomes the owner for the moment."""
    folder.plan({"id": "a", "worker": "danger"})
    done = folder.run("run", "plan.json", "--json")
    assert done.code == 5, done
    (row,) = folder.run("inbox", "--json").doc
    assert folder.run("answer", row["id"], "approve").code == 0
    assert folder.run("resume", done.doc["run"], "--json").doc["status"] == "succeeded"
    again = detached(folder, "plan.json")
    folder.until(lambda: folder.run("inbox", "--json").doc, "the question")
    answered = folder.run("answer", f"{again['run']}/review-1", "approve")
    assert answered.code == 0, answered
    folder.until(
        lambda: folder.run("show", again["run"], "--json").doc["status"] == "succeeded", "the end"
    )
    assert folder.run("verify", "--all").code == 0


def test_commands_reach_a_host_through_the_database(folder):
    """pause, resume, cancel: durable when they return, and carried out by the host."""
    short, long = ({"worker": "nap", "parameters": {"seconds": each}} for each in (6, 120))
    folder.plan({"id": "a", **short}, {"id": "b", **long, "depends_on": ["a"]})
    host = detached(folder, "plan.json")
    paused = folder.run("pause", host["run"])
    assert paused.code == 0, paused
    assert folder.run("show", host["run"], "--json").doc["status"] in ("paused", "running")
    folder.until(
        lambda: folder.run("show", host["run"], "--json").doc["status"] == "paused", "the pause"
    )
    resumed = folder.run("resume", host["run"], "--detach")
    assert resumed.code == 0, resumed
    assert folder.run("cancel", host["run"], "--reason", "enough").code == 0
    folder.until(
        lambda: folder.run("show", host["run"], "--json").doc["status"] == "cancelled", "the end"
    )
    assert folder.run("verify", "--all").code == 0


def test_there_is_one_host_at_a_time(folder):
    """The second is told who the first is, and starts nothing; with the first gone it may."""
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 30}})
    host = detached(folder, "plan.json")
    second = folder.run("run", "plan.json")
    assert second.code == 7, second
    assert f"process {host['pid']} on " in second.err
    os.kill(host["pid"], signal.SIGKILL)
    folder.plan({"id": "b", "worker": "say"})
    with folder.start("run", "plan.json", "--json") as child:
        done = finished(child)
    assert done.code == 0, done
    taken = folder.run("ls", "--json").doc
    assert {row["status"] for row in taken} == {"running", "succeeded"}


def serving_on(tmp_path, address):
    """`leadhand serve` in a process of its own."""
    project(tmp_path)
    text = (tmp_path / "leadhand.toml").read_text()
    store = f"store = {json.dumps(address.secret)}\n"
    (tmp_path / "leadhand.toml").write_text(text.replace("[project]\n", f"[project]\n{store}", 1))
    return process(tmp_path, "--port", "0", store=tmp_path / ".leadhand" / address.home.name)


def test_a_server_lives_through_restarts_of_its_database(tmp_path, postgres_programs):
    """A run that is under way, one that is started meanwhile, and one afterwards: all end well."""
    nap = {"id": "a", "worker": "nap", "parameters": {"seconds": 2}}

    def started(client, *steps):
        given = client.post("/runs", json={"plan": {"goal": "g", "steps": list(steps)}})
        assert given.status_code in (200, 201, 202), given.text
        return given.json()["run"]

    with serving(postgres_programs, sync=True) as database:
        server = serving_on(tmp_path, database.new(tmp_path))
        try:
            with server.client() as client:
                runs = [started(client, nap)]
                for how in (signal.SIGINT, signal.SIGQUIT):
                    database.stop(how)
                    again = threading.Timer(1.0, database.start)
                    again.start()
                    runs.append(started(client, nap))
                    again.join()
                runs.append(started(client, {"id": "b", "worker": "say"}))
                assert {ended(client, run)["status"] for run in runs} == {"succeeded"}
                assert len(client.get("/runs").json()["items"]) == 4
        finally:
            server.stop()
        assert (tmp_path / "naps.txt").read_text().count("nap") == 3
        assert Folder(tmp_path).run("verify", "--all").code == 0


def test_a_server_on_it(tmp_path, postgres):
    """`leadhand serve`: a run by HTTP, its events, and commands beside it."""
    server = serving_on(tmp_path, postgres.new(tmp_path))
    try:
        with server.client() as client:
            plan = {"goal": "a test", "steps": [{"id": "a", "worker": "say"}]}
            started = client.post("/runs", json={"plan": plan})
            assert started.status_code in (200, 201, 202), started.text
            run = started.json()["run"]
            assert ended(client, run)["status"] == "succeeded"
            listed = Folder(tmp_path).run("ls", "--json")
            assert [row["run"] for row in listed.doc] == [run]
            assert ESCAPED not in client.get("/settings").text + client.get("/session").text
    finally:
        server.stop()


async def test_a_lead_in_python(tmp_path, postgres, monkeypatch):
    """`Lead(store="postgres://…")`, and again to read what was done."""
    monkeypatch.chdir(tmp_path)

    @worker(name="double")
    async def double(number: int) -> int:
        return 2 * number

    url = postgres.new(tmp_path).secret
    lead = Lead([double], store=url)
    plan = {
        "goal": "g",
        "steps": [{"id": "a", "worker": "double", "parameters": {"number": 21}}],
    }
    outcome = await lead.run(plan, run_id="mine")
    assert outcome.status == "succeeded"
    assert (await Lead([double], store=url).resume("mine")).status == "succeeded"


def test_doctor_says_what_a_server_lacks(folder, postgres):
    """Durability, version, role, a follower, a half copy: each with its fix; and says when well."""
    database = folder.store.rpartition("/")[2]
    assert folder.run("migrate", folder.store).code == 0

    def checks():
        done = folder.run("doctor", "--json")
        assert ESCAPED not in done.out + done.err
        rows = [row for row in done.doc["checks"] if row["what"] not in ("", "settings")]
        return {row["what"]: row for row in rows}

    found = checks()
    assert found["server"]["value"].startswith("PostgreSQL 1")
    assert found["fsync"]["status"] == "problem"  # the tests' server
    assert "ALTER SYSTEM SET fsync = on" in found["fsync"]["fix"]
    assert found["full_page_writes"]["status"] == "ok"
    assert found["synchronous_commit"]["value"] == "on"
    assert "superuser" in found["role"]["value"]
    assert "--writer" in found["role"]["fix"]
    more = folder.run("doctor", "--store", f"{folder.store}?connect_timeout=9", "--json").doc
    (fix,) = [row["fix"] for row in more["checks"] if row["what"] == "role"]
    assert "?connect_timeout=9' --writer ROLE" in fix  # a shell takes no question mark as it is
    assert found["schema"]["value"].startswith(f"version {migrations()[-1].number}, ")
    with postgres.connect(database) as admin:
        for role in ("doc_writer", "doc_reader", "doc_nobody"):
            admin.execute(f"DROP ROLE IF EXISTS {role}")
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        admin.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        admin.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        read_only = checks()
        assert read_only["server"]["problem"] == "takes no writes"
        assert read_only["synchronous_commit"]["status"] == "warning"
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {database} RESET ALL")
    given = folder.run("migrate", folder.store, "--writer", "doc_writer", "--reader", "doc_reader")
    assert given.code == 0, given
    owner = folder.store
    for role, status in (("writer", "ok"), ("reader", "warning"), ("nobody", "problem")):
        folder.store = owner.replace("//postgres:", f"//doc_{role}:")
        text = f"[project]\nworkers = ['workers.py']\nstore = {json.dumps(folder.store)}\n"
        folder.write("leadhand.toml", text)
        assert checks()["role"]["status"] == status, role
    folder.plan({"id": "a", "worker": "say"})
    writer = owner.replace("//postgres:", "//doc_writer:")
    assert folder.run("run", "plan.json", "--store", writer).code == 0
    reader = owner.replace("//postgres:", "//doc_reader:")
    assert folder.run("verify", "--all", "--store", reader).code == 0
    refused = folder.run("run", "plan.json", "--store", reader)
    assert refused.code == 4, refused
    assert "--writer" in refused.err


def test_an_agent_carries_out_its_steps(folder):
    """Without a host the commands drive the run; with one they reach it through the database."""
    mine = {"id": "a", "worker": "caller", "success_criteria": "data > 1"}
    folder.plan(mine, {"id": "b", "worker": "caller", "depends_on": ["a"]})
    run = folder.run("run", "plan.json", "--json").doc["run"]
    words = ("--caller", "bot", "--json")
    assert folder.run("step", "next", run, *words).doc["step"]["id"] == "a"
    report = ("step", "report", run, "a", "--attempt", "1", "--data", "2", *words)
    assert folder.run(*report).doc["met"]
    assert folder.run(*report).doc["repeated"]
    other = folder.run("step", "next", run, "--caller", "other", "--json").doc["step"]
    assert (other["id"], other["caller"]) == ("b", "agent:other")
    live = detached(folder, "plan.json")["run"]
    step = folder.run("step", "next", live, "--wait", "20", *words).doc["step"]
    assert (step["id"], step["attempt"]) == ("a", 1)
    bad = folder.run("step", "report", live, "a", "--attempt", "1", "--data", "0", *words)
    assert (bad.code, bad.doc["findings"]) == (1, ["data > 1 does not hold"])
    assert folder.run("verify", "--all").code == 0
