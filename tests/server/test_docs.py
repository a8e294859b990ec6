"""The examples of docs/reference/server.md that speak to a server are run, as they stand."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import environment
from tests.support.need import need
from tests.support.serving import process, project

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "server.md"


@pytest.mark.real
def test_the_examples_run(tmp_path):
    """Every line ends well; what is shown is JSON, events or figures."""
    need(shutil.which("curl"), "curl")
    project(tmp_path)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "set -eu\n" + "".join(block for block in blocks if "api " in block)
    server = process(tmp_path)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment(tmp_path, URL=server.url, TOKEN=server.token),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr + done.stdout
    for word in (
        '"role":"approver"',
        '"decision":"let through"',
        "leadhand_runs",
        "event: RunStarted",
    ):
        assert word in done.stdout, word
