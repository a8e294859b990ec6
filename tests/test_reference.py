"""The generated pages of docs/reference are current, complete, and the same on every machine."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from leadhand.core.lint.plan import lint
from leadhand.core.lint.rules import RULES
from leadhand.core.plan.canonical import canonical_plan
from leadhand.models.names import TIERS
from leadhand.settings.schema import SCHEMAS
from tests.support.cli import Folder

ROOT = Path(__file__).resolve().parents[1]


def generator():
    """Import scripts/reference.py, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = generator()


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_current_and_complete(name):
    """`make reference` writes it; descriptions are written at the source."""
    reference.missing.clear()
    made = reference.PAGES[name]()
    assert made == (reference.FOLDER / name).read_text(), f"{name} is out of date: make reference"
    assert not reference.missing


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_names_nothing_of_this_machine(name):
    text = (reference.FOLDER / name).read_text()
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert not re.search(r"0x[0-9a-f]{8,}", text), "the address of an object"


def test_a_missing_description_is_found():
    """A rule that cannot fail protects nothing."""
    reference.missing.clear()
    reference.described("settings.md: [x] y", " ")
    assert reference.missing == ["settings.md: [x] y"]


def test_a_parameter_without_a_description_is_found():
    """In a signature of the Python API every parameter is described, or the test above fails."""

    class Part:
        """Has a method.

        - `shared`: a parameter of several methods.
        """

        def told(self, listed, spoken, shared, silent):
            """Use `spoken` well.

            Args:
                listed: stands in a list.
            """

    reference.missing.clear()
    args = reference.docstring(Part).args
    page = "\n".join(reference._function("Part.told", Part.told, args))
    assert reference.missing == ["python-api.md: Part.told(silent)"]
    assert "| `listed` |  | required | Stands in a list. |" in page
    assert "| `spoken` |  | required | Use `spoken` well. |" in page
    assert "| `shared` |  | required | A parameter of several methods. |" in page


def test_every_variable_that_the_code_reads_is_on_the_page_of_settings():
    page = (reference.FOLDER / "settings.md").read_text()
    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"environ(?:\.get\(|\[)\"(LEADHAND_[A-Z_]+)\"", path.read_text()):
            assert f"`{name}`" in page, f"{path.name} reads {name}"


def test_the_example_of_each_lint_rule_breaks_that_rule():
    """An example that lint accepts would explain nothing."""
    examples = reference.lint_examples()
    assert examples.keys() == RULES.keys()
    for name, example in examples.items():
        assert ("plan" in example) != ("instead" in example), name
        found = reference.finding_of(name, example)
        assert (found is not None) == ("plan" in example), name


def test_lint_rules_are_listed_by_their_codes():
    codes = [rule.code for rule in RULES.values()]
    assert codes == sorted(set(codes))


def test_every_tier_has_a_key():
    assert set(SCHEMAS["tiers"].__struct_fields__) == set(TIERS)


def test_the_published_schema_is_what_the_command_prints(tmp_path):
    published = (reference.FOLDER / "plan.schema.json").read_text()
    assert Folder(tmp_path).run("schema").out == published
    assert json.loads(published)["$schema"].endswith("/draft/2020-12/schema")
    assert json.loads(published)["$id"]


def test_a_plan_may_name_its_schema_and_means_the_same():
    """`$schema` is for editors: no finding, and no part of the canonical plan."""
    plan = {"steps": [{"id": "a", "worker": "w"}]}
    named = {"$schema": "./plan.schema.json", **plan}
    assert lint(named, None) == lint(plan, None)
    assert canonical_plan(named) == canonical_plan(plan)
