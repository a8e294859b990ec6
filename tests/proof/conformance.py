"""Conformance suites of others, by the tests that run them: one row of `make proof`."""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
from pathlib import Path

from tests.external.test_jsonschema_suite import EXCEPTIONS, JUDGED
from tests.mcp.test_conformance import CURRENT, EXTENSIONS, results
from tests.proof.pytest_runs import run_tests
from tests.proof.table import ROOT, Figure, Row

MCP = "tests/mcp/test_conformance.py"
SERVER = f"{MCP}::test_the_server_passes_everything_that_the_current_version_requires"
CLIENT = f"{MCP}::test_the_client_passes_everything_that_the_current_version_requires"
OPENAPI = "tests/server/test_schema.py::test_whatever_is_sent_the_answer_is_as_promised"
SCHEMAS = "tests/external/test_jsonschema_suite.py::test_the_suite_passes"


def row() -> Row:
    """Run the suites; count what they checked."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "base"
        seen = run_tests([SERVER, CLIENT, OPENAPI, SCHEMAS], base)
        checks = {
            side: _checks(next(base.glob(f"test_the_{side}_passes*"), base / "none"))
            for side in ("server", "client")
        }
    figures = [
        _figure(f"MCP server, revision {CURRENT}", seen[SERVER].good, checks["server"]),
        _figure(f"MCP client, revision {CURRENT}", seen[CLIENT].good, checks["client"]),
        _figure("HTTP API by schemathesis", seen[OPENAPI].good, "every operation but streams"),
        _figure(
            "JSON-Schema-Test-Suite, five drafts",
            seen[SCHEMAS].good and seen[SCHEMAS].passed == len(JUDGED),
            f"{sum(JUDGED.values())} cases judged as the suite says",
        ),
    ]
    lock = json.loads((ROOT / "tests" / "mcp" / "conformance" / "package.json").read_text())
    mcp = lock["dependencies"]["@modelcontextprotocol/conformance"]
    excused = sum(len(each) for each in EXCEPTIONS.values())
    return Row(
        name="Conformance suites",
        source="npm @modelcontextprotocol/conformance; PyPI schemathesis; JSON-Schema-Test-Suite "
        "as the source package of jsonschema carries it",
        version=f"conformance {mcp}, schemathesis {importlib.metadata.version('schemathesis')}, "
        "jsonschema 4.23.0",
        left_out=f"MCP client: {len(EXTENSIONS)} scenarios of extensions that it does not have "
        f"({', '.join(sorted(EXTENSIONS))}), which the revision does not require. "
        f"JSON Schema: {excused} groups whose schema would have to be fetched; all are refused. "
        "schemathesis: event streams and stop-all, which have tests of their own.",
        figures=figures,
        repeat="make proof ARGS=conformance",
    )


def _figure(what: str, good: bool, told: str) -> Figure:
    return Figure(what, f"{'passed' if good else 'failed'}: {told}", "passed", good)


def _checks(folder: Path) -> str:
    found = results(folder) if folder.exists() else {}
    good = sum(len(each["SUCCESS"]) for each in found.values())
    bad = sum(len(each["FAILURE"]) for name, each in found.items() if name not in EXTENSIONS)
    return f"{good} checks passed, {bad} failed, in {len(found)} scenarios"
