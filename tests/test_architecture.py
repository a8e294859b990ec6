"""Promises about the whole: the public surface, every event's place, every error's exit code."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import msgspec
import pytest

import leadhand
from leadhand import errors
from leadhand.codec.events import EVENTS, decode, encode
from leadhand.core import events as ev
from leadhand.core import host_events as hosting
from leadhand.core import library
from leadhand.core.decide import effects
from leadhand.core.decide.recovery import LADDER
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.state.evolve import HANDLERS
from leadhand.core.views.ledger import LINES, describe, ledger_of
from leadhand.engine.host import EmbeddedHost

SOURCE = Path(leadhand.__file__).resolve().parent

# --- the public surface --------------------------------------------------------------------

PUBLIC = [
    "Agent",
    "Ambiguous",
    "Approval",
    "Ask",
    "CommandTool",
    "Conflict",
    "Context",
    "Denied",
    "Failure",
    "Finish",
    "GiveUp",
    "Goal",
    "GoalPlanner",
    "HandedStep",
    "Human",
    "Hybrid",
    "InvalidOutput",
    "Lead",
    "LeadhandError",
    "McpServer",
    "ModelPlanner",
    "NeedsInfo",
    "NextStep",
    "NotAllowed",
    "Outcome",
    "Permanent",
    "Plan",
    "PlanInvalid",
    "PlannerView",
    "Policy",
    "Propose",
    "RateLimited",
    "Report",
    "Rule",
    "ScriptPlanner",
    "Step",
    "StepLease",
    "StepReceipt",
    "TooComplex",
    "Transient",
    "Unavailable",
    "UsageError",
    "Wait",
    "WorkerFailure",
    "method",
    "worker",
]


def test_the_public_names_are_these():
    """A name is added or taken away here first, on purpose."""
    assert leadhand.__all__ == PUBLIC == sorted(PUBLIC)
    assert dir(leadhand) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_loads_and_says_what_it_is(name):
    """Each comes from where it is written, with a docstring."""
    found = getattr(leadhand, name)
    assert found.__name__ == name
    assert inspect.getdoc(found)


def test_the_type_checker_sees_what_runs():
    """The names imported for types are those that load when first used."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module.removeprefix("leadhand.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == leadhand._HOMES


def test_an_unknown_name_is_an_attribute_error():
    """As in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        leadhand.Nobody  # noqa: B018 - looking is the test


HEAVY = ("asyncio", "click", "httpx2", "msgspec", "rich", "simpleeval", "sqlite3", "yaml")


def modules_after(code):
    """What is loaded after some code ran in a fresh interpreter."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_leadhand_is_light():
    """Nothing heavy is loaded before it is used."""
    loaded = modules_after("import leadhand")
    assert "leadhand" in loaded
    assert not loaded & set(HEAVY)
    assert [name for name in loaded if name.startswith("leadhand.")] == []


PROVIDERS = (
    "pydantic_ai",
    "pydantic",
    "anthropic",
    "openai",
    "genai_prices",
    "mcp",
    "opentelemetry",
)


def test_who_asks_no_model_loads_no_provider():
    """Not to plan, not to run, not to name one."""
    run = """
from leadhand import Goal, Lead, worker
from leadhand.stores.memory import MemoryStore

@worker(gives="x")
async def one():
    return 1

Lead([one], "openai:gpt-5", MemoryStore())
outcome = Lead([one], store=MemoryStore()).run_sync(Goal(want="x"))
assert outcome.status == "succeeded", outcome
"""
    assert not modules_after(run) & set(PROVIDERS)


def test_the_base_install_brings_no_provider():
    """`pip install leadhand` is what base.txt locks."""
    lines = (Path(__file__).parents[1] / "requirements" / "base.txt").read_text().splitlines()
    named = {line.partition("==")[0].replace("-", "_") for line in lines if "==" in line}
    assert len(named) > 5
    assert not named & {*PROVIDERS, "pydantic_ai_slim", "fastapi", "uvicorn", "playwright"}


def test_a_plan_costs_no_event_loop():
    """Who only builds plans and reports loads neither the engine nor the store."""
    loaded = modules_after("from leadhand import Plan, Report, Step")
    assert not loaded & {"asyncio", "sqlite3", "httpx2", "rich"}


# --- the core ------------------------------------------------------------------------------

PURE = {
    "__future__", "ast", "bisect", "collections", "confusable_homoglyphs", "dataclasses",
    "datetime", "difflib", "enum",
    "functools", "hashlib", "heapq", "itertools", "json", "leadhand", "math", "msgspec",
    "operator", "re", "string", "typing", "unicodedata", "zoneinfo",
}  # fmt: skip


ADAPTER = SOURCE / "core" / "jsonschema.py"
"""The one door to a library that could fetch what a schema refers to, and is told not to."""


def test_one_module_reaches_the_validator_and_lets_it_fetch_nothing():
    """Each way to make a validator is closed but one, which is offline."""
    others = [path for path in SOURCE.rglob("*.py") if path != ADAPTER]
    reaching = re.compile(r"(import|from) +jsonschema_rs\b|import_module\(.jsonschema_rs")
    assert not [path for path in others if reaching.search(path.read_text())]
    calls = [
        node
        for node in ast.walk(ast.parse(ADAPTER.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and getattr(node.func.value, "id", "") == "jsonschema_rs"
    ]
    made = {node.func.attr: {word.arg: word.value for word in node.keywords} for node in calls}
    assert set(made) == {"validator_for", "RegexOptions"}
    assert made["validator_for"]["offline"].value is True
    assert not {"retriever", "registry", "http_options"} & set(made["validator_for"])


@pytest.mark.parametrize(
    "address", ["https://schemas.example.com/x", "file:///etc/hostname", "/etc/hostname"]
)
def test_the_validator_opens_no_file_and_no_connection(address):
    """Seen by the interpreter's own audit hook, and by the answer."""
    code = f"""
import sys
from leadhand.core.jsonschema import problems, unusable
unusable(True)
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(("socket", "open")) else 0)
assert unusable({{"$ref": {address!r}}})
assert problems(5, {{"properties": {{"a": {{"$ref": {address!r}}}}}}})
assert not seen, seen
"""
    assert "jsonschema_rs" in modules_after(code)


def test_naming_models_loads_no_http_library():
    """It takes 30 ms to load."""
    assert "httpx2" not in modules_after("import leadhand.models.registry, leadhand.app.lead")


def test_what_judges_nothing_loads_no_validator():
    """It takes 20 ms to load."""
    assert "jsonschema_rs" not in modules_after("import leadhand.cli.main, leadhand.engine.verdict")


FLEET = (
    "capacity",
    "forge.origin",
    "merge.train",
    "status.figures",
    "status.ladder",
)
TRAIN = [(SOURCE / "fleet" / name.replace(".", "/")).with_suffix(".py") for name in FLEET]
INSIDE = ("leadhand.core", "leadhand.errors", *(f"leadhand.fleet.{name}" for name in FLEET))


@pytest.mark.parametrize(
    "path", [*sorted((SOURCE / "core").rglob("*.py")), *TRAIN], ids=lambda p: p.stem
)
def test_the_core_uses_only_what_is_pure(path):
    """No clock, chance, process, network or database: only these modules may be imported."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            pure = PURE | ({"jsonschema_rs"} if path == ADAPTER else set())
            assert name.split(".")[0] in pure, f"{path.name} imports {name}"
            inside = not name.startswith("leadhand") or name.startswith(INSIDE)
            assert inside, f"{path.name} imports {name}, which is outside the core"


def test_every_module_says_what_it_is():
    """A docstring at the top; an empty `__init__` may be silent."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    assert not [path for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)]


# --- events --------------------------------------------------------------------------------


def defined(module, base):
    """The classes of a kind that a module defines."""
    return {
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, base) and found is not base and found.__module__ == module.__name__
    }


def test_every_event_is_listed():
    """What is defined belongs to runs, to the host or to the library, and can be stored."""
    assert defined(ev, ev.Event) == set(ev.RUN_EVENTS)
    assert defined(hosting, ev.Event) == set(hosting.HOST_EVENTS)
    assert defined(library, ev.Event) == set(library.LIBRARY_EVENTS)
    assert set(EVENTS) == {*ev.RUN_EVENTS, *hosting.HOST_EVENTS, *library.LIBRARY_EVENTS}
    assert len(EVENTS) == len({event.__name__ for event in EVENTS})


@pytest.mark.parametrize("kind", ev.RUN_EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_of_a_run_has_its_places(kind):
    """One handler, one ledger of the two, one line, one sentence that explains it."""
    assert kind in HANDLERS
    assert (kind in ev.INTENT) != (kind in ev.EXECUTION)
    assert (ev.INTENT + ev.EXECUTION).count(kind) == 1
    assert kind in LINES
    assert inspect.getdoc(kind)
    event = sample(kind)
    assert ledger_of(event) == ("intent" if kind in ev.INTENT else "execution")


def test_nothing_is_handled_that_is_no_event():
    """The tables hold events and nothing else."""
    assert set(HANDLERS) == set(ev.RUN_EVENTS)
    assert set(LINES) == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_survives_its_codec(kind, monkeypatch):
    """Whole and bare, back to itself, under its own name, with a line for people."""
    newest = sample(ev.RunStarted).decide_version
    monkeypatch.setattr("leadhand.codec.events.DECIDE_VERSION", newest)
    for event in (sample(kind), sample(kind, bare=True)):
        body = encode(event)
        assert decode(ev.EVENT_VERSION, body) == event
        assert msgspec.json.decode(body)["type"] == kind.__name__
        assert describe(event)
        assert "\n" not in describe(event)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_cannot_be_changed(kind):
    """A fact is a fact."""
    event = sample(kind)
    for field in msgspec.structs.fields(kind)[:1]:
        with pytest.raises(AttributeError):
            setattr(event, field.name, None)


def sample(kind, *, bare=False):
    """An event with every field set, or with those only that must be."""
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: value_of(hints[field.name])
            for field in msgspec.structs.fields(kind)
            if field.required or not bare
        }
    )


def value_of(hint):
    """A value of a type that is not the default of any field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return value_of(next(each for each in arguments if each is not type(None)))
    if origin is list:
        return [value_of(arguments[0])]
    if origin is tuple:
        return (value_of(arguments[0]),)
    if origin is dict:
        return {"key": value_of(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return sample(hint)
    plain = {str: "text", int: 7, float: 0.5, bool: True, typing.Any: {"text": "any"}}
    return plain[hint]


# --- effects -------------------------------------------------------------------------------


def test_every_effect_is_performed():
    """What the core may wish, the host does."""
    performed = inspect.getsource(EmbeddedHost.perform)
    for effect in defined(effects, effects.Effect):
        assert f"case {effect.__name__}()" in performed
        assert inspect.getdoc(effect)


# --- errors --------------------------------------------------------------------------------

ERRORS = sorted(defined(errors, errors.LeadhandError), key=lambda each: each.__name__)
EXITS = {1, 2, 3, 4, 5, 6, 7, 8, 70}


@pytest.mark.parametrize("error", [errors.LeadhandError, *ERRORS], ids=lambda e: e.__name__)
def test_every_error_has_an_exit_code_and_a_message(error):
    """A code that the command line knows, and a docstring that helps."""
    assert error.exit_code in EXITS
    assert inspect.getdoc(error)


def test_the_error_tree_is_as_drawn():
    """The picture at the top of the file names every class, with its exit code."""
    drawn = errors.__doc__
    for error in ERRORS:
        line = next(
            line for line in drawn.splitlines() if re.search(rf"\b{error.__name__}\b", line)
        )
        code = re.search(rf"\b{error.__name__}\s+(\d+)\s", line)
        if code:
            assert int(code.group(1)) == error.exit_code, line
        else:
            assert issubclass(error, errors.WorkerFailure), line


def test_every_worker_failure_has_a_row_in_the_ladder():
    """The class decides what follows, so it must be one that is known."""
    for error in ERRORS:
        if issubclass(error, errors.WorkerFailure):
            assert error.failure_class in FAILURE_CLASSES
    assert set(LADDER) == set(FAILURE_CLASSES)


def test_errors_raised_outside_have_a_code_too():
    """Whatever else is derived from them anywhere in the package."""
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        if "__main__" in name or path.name == "__init__.py" or path.parent.name == "reporter":
            continue  # the reporter runs in Pythons of others, and imports what is beside it there
        if ".templates." in name:
            continue  # files of users' projects, which import each other
        module = importlib.import_module(name)
        for _, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, errors.LeadhandError):
                assert found.exit_code in EXITS
