"""The official JSON-Schema-Test-Suite: our adapter says what the authors of the standard say.

The cases come from the source package of jsonschema, by its hash (requirements/suite.txt); they
are unpacked for the tests and never committed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.core.jsonschema import problems, unusable
from tests.support.need import need

ROOT = Path(__file__).resolve().parents[2]
SET_UP_SECONDS_MAX = 300
DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}

FETCHED = "refers to a document that would have to be fetched, and nothing is"
DIALECT = "names a dialect of its own, which would have to be fetched"

REMOTE = (
    "remote ref", "fragment within remote ref", "ref within remote ref", "base URI change",
    "base URI change - change folder", "base URI change - change folder in subschema",
    "root ref in remote ref", "Location-independent identifier in remote ref",
)  # fmt: skip
REMOTE_6 = (
    *REMOTE, "remote ref with ref to definitions",
    "retrieved nested refs resolve relative to their URI not $id",
    "$ref to $ref finds location-independent $id",
)  # fmt: skip
REMOTE_2019 = (
    *REMOTE, "anchor within remote ref", "remote ref with ref to defs",
    "retrieved nested refs resolve relative to their URI not $id",
    "remote HTTP ref with different $id", "remote HTTP ref with different URN $id",
    "remote HTTP ref with nested absolute ref", "$ref to $ref finds detached $anchor",
)  # fmt: skip
DYNAMIC = (
    "strict-tree schema, guards against misspelled properties",
    "tests for implementation dynamic anchor and reference link",
    "$ref and $dynamicAnchor are independent of order - $defs first",
    "$ref and $dynamicAnchor are independent of order - $ref first",
    "$ref to $dynamicRef finds detached $dynamicAnchor",
)
DIALECTS = (
    "schema that uses custom metaschema with with no validation vocabulary",
    "ignore unrecognized optional vocabulary",
)


def _named(file, names, reason):
    return {f"{file}: {name}": reason for name in names}


EXCEPTIONS = {
    "draft2020-12": _named("refRemote", REMOTE_2019, FETCHED)
    | _named("dynamicRef", DYNAMIC, FETCHED)
    | _named("vocabulary", DIALECTS, DIALECT),
    "draft2019-09": _named("refRemote", REMOTE_2019, FETCHED)
    | _named("vocabulary", DIALECTS, DIALECT),
    "draft7": _named("refRemote", REMOTE_6, FETCHED),
    "draft6": _named("refRemote", REMOTE_6, FETCHED),
    "draft4": _named("refRemote", REMOTE, FETCHED),
}
"""Every case that is not judged. All of them are unmet: the test checks that too."""
JUDGED = {
    "draft2020-12": 1196,
    "draft2019-09": 1184,
    "draft7": 883,
    "draft6": 799,
    "draft4": 593,
}
"""How many tests the cases have that are judged, so that none is lost unseen."""


@pytest.fixture(scope="session")
def suite():
    """The folder of the suite."""
    command = [sys.executable, ROOT / "scripts" / "environment.py", "suite"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SET_UP_SECONDS_MAX, check=False
    )
    need(done.returncode == 0, f"the JSON-Schema-Test-Suite: {done.stderr.strip()[-500:]}")
    (folder,) = (ROOT / ".venv-suite").glob("jsonschema-*/json")
    return folder


def cases(folder, draft):
    """Every case of a draft: where it stands, its schema, its tests."""
    for path in sorted((folder / "tests" / draft).glob("*.json")):
        for case in json.loads(path.read_text()):
            yield f"{path.stem}: {case['description']}", case["schema"], case["tests"]


def excused(schema):
    """Why a schema is refused that the suite takes, or an empty text; each reason has its list."""
    reason = unusable(schema)
    if "no reference is fetched" in reason:
        return FETCHED
    return DIALECT if "no draft that is known" in reason else reason


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_suite_passes(suite, draft):
    """What is not refused by name is judged as the suite says, every test of it."""
    judged, refused, wrong = 0, {}, []
    for name, schema, tests in cases(suite, draft):
        if isinstance(schema, dict):
            schema.setdefault("$schema", DRAFTS[draft])
        if reason := excused(schema):
            refused[name] = reason
            assert all(problems(test["data"], schema) for test in tests), name
            continue
        for test in tests:
            judged += 1
            if (not problems(test["data"], schema)) != test["valid"]:
                wrong.append(f"{name}: {test['description']}")
    assert wrong == [], f"{len(wrong)} of {judged}"
    assert refused == EXCEPTIONS[draft]
    assert judged == JUDGED[draft]
