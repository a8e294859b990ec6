"""Run tests of the suite for a row of `make proof`, and say of each what came of it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.proof.table import ROOT

SECONDS_MAX = 3600


class Counted(NamedTuple):
    """The tests of one node by what came of them."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def good(self) -> bool:
        """Whether there were tests, and all passed."""
        return self.passed > 0 and not self.failed and not self.skipped


def run_tests(nodes: Sequence[str], folder: Path | None = None) -> dict[str, Counted]:
    """Run test nodes (`tests/x/test_y.py::test_z`); return what came of each, parameters summed.

    `folder` is kept as the base of the tests' temporary folders, to be read afterwards.
    """
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        base = folder or Path(place) / "base"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
        ]
        command += [f"--junitxml={report}", f"--basetemp={base}", *nodes]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        if not report.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        found = dict.fromkeys(nodes, Counted())
        for case in ET.parse(report).iter("testcase"):
            _count(found, case)
    return found


def _count(found: dict[str, Counted], case: ET.Element) -> None:
    path = case.attrib.get("classname", "").replace(".", "/")
    name = case.attrib.get("name", "").partition("[")[0]
    bad = case.find("failure") is not None or case.find("error") is not None
    for node in (f"{path}.py::{name}", f"{path}.py"):
        if node in found:
            old = found[node]
            if bad:
                found[node] = old._replace(failed=old.failed + 1)
            elif case.find("skipped") is not None:
                found[node] = old._replace(skipped=old.skipped + 1)
            else:
                found[node] = old._replace(passed=old.passed + 1)
