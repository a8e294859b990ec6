"""The `$library` stream: named plans in versions."""

import pytest

from leadhand.codec.events import decode, encode
from leadhand.core import events as ev
from leadhand.core.library import (
    LIBRARY_EVENTS,
    LIBRARY_STREAM,
    LibraryState,
    evolve_library,
    export_plan,
    find,
    import_plan,
    is_name,
    parse_label,
    plan_hash,
    remove,
    save,
)
from leadhand.core.lint.plan import lint
from leadhand.errors import Bug, Conflict, UsageError

PLAN = {"goal": "Deploy", "steps": [{"id": "a", "worker": "w"}]}
OTHER = {"goal": "Deploy", "steps": [{"id": "a", "worker": "v"}]}


class Shelf:
    """A library that is spoken to; each event goes through its stored form."""

    def __init__(self):
        self.state = LibraryState()

    def take(self, event):
        if event is not None:
            stored = decode(ev.EVENT_VERSION, encode(event))
            evolve_library(self.state, stored, self.state.seq + 1)
        return event

    def save(self, name, document):
        return self.take(save(self.state, name, document, "ann", "a file"))

    def remove(self, name):
        return self.take(remove(self.state, name, "ann"))


def test_versions_count_up_and_the_same_content_makes_none():
    """Whatever the order of its keys; a version keeps what it was."""
    shelf = Shelf()
    assert shelf.save("deploy", PLAN).version == 1
    assert shelf.save("deploy", dict(reversed(PLAN.items()))) is None
    assert shelf.save("deploy", OTHER).version == 2
    assert shelf.save("deploy", PLAN).version == 3
    assert find(shelf.state, "deploy").document == PLAN
    assert find(shelf.state, "deploy@2").document == OTHER
    assert find(shelf.state, "deploy").label == "deploy@3"
    assert find(shelf.state, "deploy@1")[4:] == ("ann", "a file", 1)


def test_a_number_is_never_given_twice():
    """A name that was removed and saved again goes on counting."""
    shelf = Shelf()
    shelf.save("deploy", PLAN)
    shelf.remove("deploy")
    with pytest.raises(UsageError, match='no plan "deploy"; it is empty'):
        find(shelf.state, "deploy")
    assert shelf.save("deploy", PLAN).version == 2
    with pytest.raises(UsageError, match=r"no deploy@1; its versions: 2"):
        find(shelf.state, "deploy@1")


def test_what_is_not_there_is_said_with_what_is():
    """Misspelt names, versions, and names with a version where none can be."""
    shelf = Shelf()
    shelf.save("deploy", PLAN)
    with pytest.raises(UsageError, match='did you mean "deploy"'):
        find(shelf.state, "depoly")
    with pytest.raises(UsageError, match="there are: deploy"):
        find(shelf.state, "x")
    with pytest.raises(UsageError, match="leave out the @"):
        shelf.remove("deploy@1")
    with pytest.raises(UsageError, match="the library has no plan"):
        shelf.remove("gone")


@pytest.mark.parametrize("name", ["deploy", "a.b-c_1", "v2.1.4", "9"])
def test_names(name):
    """Letters, digits and a few signs."""
    assert is_name(name)
    assert parse_label(name) == (name, 0)
    assert parse_label(f"{name}@12") == (name, 12)


@pytest.mark.parametrize(
    "name", ["", "-x", "a b", "a@1", "plan.yaml", "PLAN.JSON", "x" * 101, "$h"]
)
def test_no_names(name):
    """What could be a file, an option, a version or a sentence."""
    assert not is_name(name)
    with pytest.raises(UsageError, match="cannot be the name of a plan"):
        save(LibraryState(), name, PLAN, "ann")


def test_an_exported_file_carries_its_hash():
    """It is refused when anything that counts was changed: the plan, or its name."""
    shelf = Shelf()
    shelf.save("deploy", PLAN)
    doc = export_plan(find(shelf.state, "deploy"))
    assert doc["hash"] == plan_hash("deploy", PLAN)
    assert import_plan(doc, "f.json") == ("deploy", PLAN)
    for change in ({"document": OTHER}, {"name": "other"}, {"hash": "0"}):
        with pytest.raises(Conflict, match=r"f.json: its hash does not match"):
            import_plan({**doc, **change}, "f.json")
    with pytest.raises(UsageError, match="is no exported plan"):
        import_plan(PLAN, "f.json")
    with pytest.raises(UsageError, match="newer"):
        import_plan({**doc, "leadhand_plan": 2}, "f.json")
    with pytest.raises(UsageError, match="has no name"):
        import_plan({**doc, "name": 3}, "f.json")


def test_other_events_are_refused():
    """The stream has its own."""
    with pytest.raises(Bug, match="no event of the library"):
        evolve_library(LibraryState(), ev.RunPaused("ann"), 0)
    assert not set(LIBRARY_EVENTS) & set(ev.RUN_EVENTS)
    assert LIBRARY_STREAM == "$library"


def test_lint_knows_whether_there_is_a_plan_to_roll_back_with():
    """By name, also with a version; an inner plan's too; without a library nothing is said."""
    plan = {**PLAN, "rollback_plan": "undo-it@2"}

    def rules(doc, library):
        return [each.rule for each in lint(doc, None, library=library, advice=False)]

    assert rules(plan, {"undo-it": {"steps": []}}) == []
    assert rules(plan, {}) == ["rollback-unknown"]
    assert rules(plan, None) == []
    inner = {**PLAN, "rollback_plan": plan}
    (found,) = lint(inner, None, library={}, advice=False)
    assert found.place == "rollback_plan.rollback_plan"
    assert found.level == "warning"
