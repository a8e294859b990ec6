"""Tells the gate which tests pytest ran: a plugin that `PYTEST_PLUGINS` names (see the file beside
it)."""

import leadhand_test_report
import pytest

_add = leadhand_test_report.begin("pytest")
_told = {}


def _tell(name, outcome):
    if _add is not None and (outcome == "failed" or _told.get(name) != outcome):
        _add("test", name, outcome)
    _told[name] = outcome


def pytest_runtest_logreport(report):
    """Record one phase of a test: it passed if its call did, and no other phase failed."""
    if report.failed:
        _tell(report.nodeid, "failed")
    elif report.skipped:
        _tell(report.nodeid, "skipped")
    elif report.when == "call" and report.passed:
        _tell(report.nodeid, "passed")


def pytest_collectreport(report):
    """Record a file that cannot be imported as one failed test."""
    if report.failed:
        _tell(report.nodeid, "failed")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main():
    """Record the end of the run when pytest itself ends."""
    yield
    if _add is not None:
        _add("end")
