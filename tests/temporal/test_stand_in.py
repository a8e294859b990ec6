"""What server and application ask of a host and its runs is answered where Temporal hosts them."""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

import leadhand
from leadhand.engine.host import EmbeddedHost
from leadhand.engine.run import Run
from leadhand.temporal.host import TemporalHost
from leadhand.temporal.run import TemporalRun

EMBEDDED = {
    "leadhand/app/commands.py": {"open"},
    "leadhand/fleet/service.py": {"spawn"},
    "leadhand/app/lead.py": {
        *("approvers", "not_before", "notice", "open"),
        *("refuse_altered", "reviewers", "successor"),
    },
    "leadhand/temporal/take_back.py": {"open"},
    "leadhand/temporal/service.py": {"open"},
    "leadhand/server/run_supervisor.py": {"is_idle", "unload", "update_workers", "workers"},
}
"""What is asked only of a host in this process, by file; whoever adds to it has made sure."""
NAMES = {EmbeddedHost: {"host", "_host"}, Run: {"run", "hosted", "spoken"}}


def known(kind) -> set[str]:
    """Attributes of a class and, as its own methods set them, of what it makes."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    own = {"self"}
    return set(dir(kind)) | {name for name, ctx in asked(tree, own) if isinstance(ctx, ast.Store)}


def asked(tree, names):
    """Attributes of what has one of these names, or is an attribute with one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of = getattr(node.value, "id", getattr(node.value, "attr", None))
            if of in names:
                yield node.attr, node.ctx


@pytest.mark.parametrize(("near", "far"), [(EmbeddedHost, TemporalHost), (Run, TemporalRun)])
def test_what_is_asked_of_a_host_is_answered_by_one_elsewhere(near, far):
    missing = known(near) - known(far)
    top = Path(leadhand.__file__).parent
    unanswered = {}
    for part in ("app", "cli", "server"):
        for file in sorted((top / part).rglob("*.py")):
            path = file.relative_to(top.parent).as_posix()
            found = {name for name, _ in asked(ast.parse(file.read_text()), NAMES[near])}
            if left := (found & missing) - EMBEDDED.get(path, set()):
                unanswered[path] = left
    assert unanswered == {}
