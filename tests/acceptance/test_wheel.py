"""The built wheel, installed apart from the checkout: what the README's install lines come to."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import wheel
from tests.support.cli import environment


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(tmp_path):
    """`leadhand demo` of a fresh environment: no checkout in sight, no network, no key."""
    for name in ("build", "place"):
        (tmp_path / name).mkdir()
    programs = wheel.install(wheel.build(tmp_path / "build"), tmp_path / "fresh")
    env = environment(tmp_path / "place")
    del env["PYTHONPATH"]

    where = [programs / "python", "-c", "import leadhand; print(leadhand.__file__)"]
    found = subprocess.run(where, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path / "fresh")

    done = subprocess.run(
        [programs / "leadhand", "demo", "--folder", "show", "--json"],
        cwd=tmp_path / "place",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]
