"""Runs when a Python starts in the gate: watches for test runs, then loads what it hides."""

import contextlib
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - any Python


def _next():
    """Return the sitecustomize.py that would have run without this one."""
    for place in sys.path:
        path = os.path.join(place or os.curdir, "sitecustomize.py")  # noqa: PTH118
        if os.path.abspath(place or os.curdir) != HERE and os.path.isfile(path):  # noqa: PTH100, PTH113
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


with contextlib.suppress(Exception):
    import leadhand_test_report

    leadhand_test_report.install()
with contextlib.suppress(Exception):
    _next()
