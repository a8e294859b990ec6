"""Running a run again, through the real command line."""

from tests.support.serving import process

WORKERS = """\
from pathlib import Path

from leadhand import Permanent, worker

HERE = Path(__file__).parent


def act(what: str) -> None:
    with (HERE / "world.txt").open("a") as file:
        file.write(what + "\\n")


@worker
async def build(version: str) -> dict[str, str]:
    act(f"build {version}")
    return {"image": f"shop:{version}"}


@worker(effects=["cluster"], risk="high")
async def deploy(image: str) -> str:
    if not (HERE / "mended").exists():
        raise Permanent("the cluster is full")
    act(f"deploy {image}")
    return f"{image} is there"
"""
FILES = {"workers.py": WORKERS}
STEPS = (
    {"id": "build", "worker": "build", "parameters": {"version": "${{ params.version }}"}},
    {
        "id": "deploy",
        "worker": "deploy",
        "parameters": {"image": "${{ steps.build.data.image }}"},
        "failure_action": "abort",
    },
)


def world(folder):
    return (folder.path / "world.txt").read_text().splitlines()


def failed(folder):
    """A run that was approved and failed at its deployment; the cluster is mended since."""
    plan = folder.plan(*STEPS, params={"version": {"type": "string"}})
    done = folder.run("run", plan, "--set", "version=v2", "--yes", "--json")
    assert done.doc["status"] == "failed", str(done)
    folder.write("mended", "")
    return done.doc["run"]


def test_a_run_is_run_again_from_its_failed_step(folder):
    """It waits for an approval of its own, and says what it took over from where."""
    first = failed(folder)
    waits = folder.run("rerun", first, "--from", "deploy", "--json")
    assert (waits.code, waits.doc["status"]) == (5, "waiting"), str(waits)
    run = waits.doc["run"]
    assert folder.run("answer", f"{run}/review-1", "approve").code == 0
    done = folder.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "shop:v2 is there"), str(done)
    assert world(folder) == ["build v2", "deploy shop:v2"]
    logged = folder.run("logs", run).out
    assert f"it repeats run {first} from step deploy" in logged
    assert f"results taken over, not produced here: build (run {first}, attempt 1" in logged
    assert folder.run("verify", "--all").code == 0
    compared = folder.run("compare", first, run)
    assert compared.code == 0, str(compared)
    assert "taken over" in compared.out
    assert "the cluster is full" in compared.out
    assert folder.run("compare", first, run, "--json").doc["b"]["rerun_of"] == first
    whole = folder.run("rerun", first, "--yes", "--json")
    assert (whole.code, whole.doc["status"]) == (0, "succeeded"), str(whole)
    assert world(folder)[2:] == ["build v2", "deploy shop:v2"]


def test_beside_a_server_a_rerun_is_a_process_of_its_own(folder):
    """And a step that is not there is refused before anything starts."""
    first = failed(folder)
    wrong = folder.run("rerun", first, "--from", "deplyo")
    assert (wrong.code, 'did you mean "deploy"' in wrong.err) == (2, True), str(wrong)
    folder.write("leadhand.toml", '[project]\nworkers = ["workers.py"]\n')
    up = process(folder.path)
    try:
        done = folder.run("rerun", first, "--from", "deploy", "--yes", "--json")
        assert (done.code, done.doc["status"]) == (0, "succeeded"), str(done)
    finally:
        up.stop()
