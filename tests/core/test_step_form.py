"""The fields of a step: typed by the schema of its worker, and read back as what they are."""

import pytest

from leadhand.codec.edits import typed_value
from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.plan.amend import edit
from leadhand.core.review.step_form import step_form

SCHEMA = {
    "type": "object",
    "properties": {
        "version": {"type": "string"},
        "replicas": {"type": "integer"},
        "careful": {"type": "boolean"},
        "mode": {"enum": ["blue", "green"]},
        "hosts": {"type": "array", "items": {"type": "string"}},
        "tags": {"type": "object"},
    },
    "required": ["version"],
}
CATALOG = Catalog(
    [
        WorkerSpec(name="deploy", offers={"": Offer(parameters=SCHEMA)}),
        WorkerSpec(name="other", offers={"": Offer()}),
        WorkerSpec(name="named", offers={"act": Offer()}),
    ]
)
STEP = {
    "id": "ship",
    "worker": "deploy",
    "parameters": {"version": "1.10", "hosts": ["a"], "extra": 5, "mode": "red"},
    "depends_on": [{"step": "look", "if": "finished"}],
    "retry": 3,
}


def fields(step=STEP, others=("look", "bill")):
    return {each.label: each for each in step_form(step, list(others), CATALOG, 3600).fields}


def test_each_field_has_its_kind_and_its_choices():
    found = fields()
    kinds = {name: each.kind for name, each in found.items()}
    assert kinds == {
        "version": "text",
        "replicas": "number",
        "careful": "boolean",
        "mode": "choice",
        "hosts": "list",
        "tags": "json",
        "extra": "json",
        "worker": "choice",
        "depends on": "steps",
        "not before": "text",
        "timeout": "text",
        "retry": "text",
        "failure action": "choice",
    }
    assert found["mode"].choices == ["red", "blue", "green"]  # the present value stays choosable
    assert found["worker"].choices == ["deploy", "other"]
    assert found["depends on"].choices == [{"step": "look", "if": "finished"}, "bill"]
    assert [name for name, each in found.items() if each.required] == ["version", "worker"]


def test_a_reference_is_edited_as_a_text():
    step = {**STEP, "parameters": {"replicas": "${{ params.n }}"}}
    assert fields(step)["replicas"].kind == "text"


@pytest.mark.parametrize(
    ("label", "text", "value"),
    [
        ("version", "2.0", "2.0"),
        ("replicas", "4", 4),
        ("careful", "true", True),
        ("mode", "green", "green"),
        ("timeout", "30s", "30s"),
        ("retry", "5", 5),
        ("tags", '{"a": 1}', {"a": 1}),
    ],
)
def test_what_is_typed_is_read_by_the_type_of_its_field(label, text, value):
    plan, path = {"steps": [STEP]}, fields()[label].path
    found = edit(plan, [(path, typed_value(plan, path, text, None, CATALOG))])["steps"][0]
    key = label.replace(" ", "_")
    assert found["parameters"].get(key, found.get(key)) == value


def test_a_hint_is_not_taken_for_a_value_and_names_the_timeout_that_holds():
    hint = fields()["timeout"].hint
    assert hint == "default: 1h"
    assert fields()["not before"].hint.startswith("such as ")
