"""A plan of 20,000 steps: it runs, and every way to look at it stays usable."""

import pytest

from tests.support.cli import WORKERS, Folder

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 20_000
LIMIT_S = 120
"""For each command, on a busy machine; on an idle one none takes a tenth of it."""


def test_a_plan_of_twenty_thousand_steps(tmp_path):
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", "[project]\nworkers = ['workers.py']\n")
    folder.plan(
        *(
            {"id": f"s{n}", "worker": "say", "depends_on": [f"s{n - 100}"] if n >= 100 else []}
            for n in range(STEPS)
        )
    )
    ran = folder.run("run", "plan.json", "--quiet", timeout_s=LIMIT_S)
    assert ran.code == 0, ran.err[-1000:]
    row = folder.latest()
    assert (row["succeeded"], row["steps"]) == (STEPS, STEPS)
    run = row["run"]
    for words, lines_max in (
        (("ls",), 2),
        (("show", run), 250),
        (("watch", run, "--exit-status"), 105),  # with the result, as `run` prints it
        (("logs", run), 3 * STEPS),
        (("logs", run, "s7"), 10),
        (("verify", run), 2),
        (("inbox",), 0),
    ):
        done = folder.run(*words, timeout_s=LIMIT_S)
        assert done.code == 0, (words, done.err[-1000:])
        assert len(done.out.splitlines()) <= lines_max, words
