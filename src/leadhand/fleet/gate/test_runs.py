"""Test runs: which tests ran and how they ended, read from runners' reports.

An exit code of 0 says that a command ended well, and nothing of what it did. So what is compared is
what ran: every test that passed on main must pass with a change, by name and as often.

    pytest, unittest    a report of ours, written from inside the runner with a code on each line
                        that the code under test does not have the key for (`reporter/`)
    TAP, go test -json  read from what a command prints
    JUnit XML           read from the files that `reports` names; those that a commit brings along
                        are removed before the first command

What is wrong with a report is red: a run that began and did not end, lines that were changed,
tests that failed where the exit code is 0. Tests of a command without a readable report are not
counted, and the verdict reads "tests not counted".
"""

from __future__ import annotations

import hmac
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


REPORTER = Path(__file__).with_name("reporter")
PLACE = "LEADHAND_TEST_REPORTS"
KEYS = 16
"""Runners that one command may start one after the other."""
REPORT_BYTES = 64 << 20
NAMES_MAX = 200_000
NAMED = 10
_PARAMETERS = re.compile(r"\[.*", re.DOTALL)
_TAP = re.compile(r"^(\s*)(not ok|ok)\b(?:\s+\d+)?(?:\s+-)?\s*(.*)$")
_TAP_PLAN = re.compile(r"^1\.\.(\d+)\s*(#.*)?$", re.MULTILINE)
_TAP_HEAD = re.compile(r"^\s*# Subtest: (.*)$")


@dataclass(slots=True)
class Ran:
    """The tests that ran, with their outcomes, and mistakes in the report."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    counted: bool = False
    problems: list[str] = field(default_factory=list)
    runs: int = 0
    """Runs of runners that reported from inside."""

    def add(self, name: str, outcome: str) -> None:
        """Add one test; the parameters in brackets belong to the same test."""
        self.counted = True
        known = {"passed": self.passed, "failed": self.failed}.get(outcome, self.skipped)
        if len(known) < NAMES_MAX:
            known[_PARAMETERS.sub("", name)[:500]] += 1

    def merge(self, other: Ran) -> None:
        """Add the tests of another command."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.counted = self.counted or other.counted
        self.problems += other.problems
        self.runs += other.runs

    def lost(self, main: Mapping[str, int], waived: Collection[str] = ()) -> list[str]:
        """Return the tests that passed on main and did not pass here as often."""
        return sorted(
            name for name, times in main.items() if self.passed[name] < times and name not in waived
        )

    def fails_only(self, names: Collection[str]) -> bool:
        """Return whether tests failed, all of them in `names`, and the report has no mistakes."""
        return bool(self.failed) and self.failed.keys() <= {*names} and not self.problems

    @property
    def words(self) -> str:
        """Return the number of tests as text."""
        if not self.counted:
            return "tests not counted"
        skipped = f", {self.skipped.total()} skipped" if self.skipped else ""
        number = self.passed.total()
        return f"{number} {'test' if number == 1 else 'tests'} passed{skipped}"


def some_names(names: Collection[str]) -> str:
    """Return some names, and how many more there are."""
    some = sorted(names)[:NAMED]
    more = f" and {len(names) - len(some)} more" if len(names) > len(some) else ""
    return ", ".join(some) + more


class Reports:
    """The place where the runners of one command report; read when all its processes have ended."""

    def __init__(self, home: Path, random: bytes) -> None:
        self.place = home / "reports"
        self.place.mkdir(parents=True, exist_ok=True)
        self._keys = {
            f"{number:02d}": sha256(random + bytes([number])).digest() for number in range(KEYS)
        }
        for name, key in self._keys.items():
            (self.place / f"{name}.key").write_bytes(key)

    def env(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with which runners report."""
        path = ":".join(filter(None, (str(REPORTER), given.get("PYTHONPATH", ""))))
        plugins = ",".join(
            filter(None, ("leadhand_pytest_report", given.get("PYTEST_PLUGINS", "")))
        )
        more = {"PYTHONPATH": path, "PYTEST_PLUGINS": plugins, PLACE: str(self.place)}
        return {**given, **more}

    def read(self) -> Ran:
        """Return the runners' reports. Every key that was claimed must have a complete report."""
        ran = Ran()
        for name, key in self._keys.items():
            try:
                unclaimed = (self.place / f"{name}.key").read_bytes() == key
            except OSError:
                unclaimed = False
            if unclaimed and not (self.place / f"{name}.log").exists():
                continue
            ran.runs += 1
            problem = self._one(self.place / f"{name}.log", key, ran)
            if problem:
                ran.counted = True
                ran.problems.append(problem)
        return ran

    def _one(self, path: Path, key: bytes, ran: Ran) -> str:
        try:
            if path.is_symlink() or path.stat().st_size > REPORT_BYTES:
                return "a report of tests that cannot be read"
            lines = path.read_bytes().splitlines()
        except OSError:
            return "a test run began, and its report is gone"
        chain, last = b"", ""
        for number, line in enumerate(lines):
            body, _, code = line.rpartition(b" ")
            chain = hmac.new(key, chain + body, sha256).hexdigest().encode()
            try:
                kind, name, outcome = json.loads(body)
            except (ValueError, TypeError, RecursionError):
                return "a report of tests that was changed"
            begins = kind == "begin"
            if not hmac.compare_digest(chain, code) or begins != (number == 0) or last == "end":
                return "a report of tests that was changed"
            last = str(kind)
            if kind == "test":
                ran.add(str(name), str(outcome))
        if last != "end":
            return "a test run began, and ended before it was over"
        ran.counted = True
        return ""


def parse_test_output(text: str) -> Ran:
    """Return the tests in a command's output: TAP, or the lines of `go test -json`."""
    ran = Ran()
    if "\nok " in f"\n{text}" or "not ok " in text:
        _tap(text, ran)
    if not ran.counted and '"Action":' in text:
        _go(text, ran)
    return ran


def _tap(text: str, ran: Ran) -> None:
    if not _TAP_PLAN.search(text):
        return
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if head := _TAP_HEAD.match(line):
            depth = len(line) - len(line.lstrip())
            above = [each for each in above if each[0] < depth] + [(depth, head[1].strip())]
        elif found := _TAP.match(line):
            depth = len(found[1])
            title, _, remark = found[3].partition(" # ")
            names = [name for at, name in above if at < depth] + [title.strip()]
            word = remark.strip().upper()[:4]
            outcome = "passed" if found[2] == "ok" else "failed"
            ran.add(" > ".join(names), "skipped" if word in ("SKIP", "TODO") else outcome)


def _go(text: str, ran: Ran) -> None:
    words = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.get("Test") and said.get("Action") in words:
            ran.add(f"{said.get('Package', '')}.{said['Test']}", words[said["Action"]])


def parse_junit(data: bytes) -> Ran:
    """Return the tests in a file of JUnit XML."""
    ran = Ran()
    if len(data) > REPORT_BYTES or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        ran.problems.append("a report of tests that cannot be read")
        return ran
    try:
        root = ET.fromstring(data)  # noqa: S314 - without entities, and bounded
    except (ET.ParseError, ValueError, RecursionError):
        ran.problems.append("a report of tests that cannot be read")
        return ran
    for case in root.iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "passed"
        name = f"{case.get('classname', '')} {case.get('name', '')}".strip()
        ran.add(name, "skipped" if "skipped" in tags else outcome)
    return ran
