"""A small mutation tester: break the core on purpose, and count what its tests notice.

    python tests/support/mutants.py                        every mutant of every file
    python tests/support/mutants.py --sample 40 --seed 7   some, always the same
    python tests/support/mutants.py --file decide.decide --show   one file, with every mutant's fate

A mutant is the module with one thing changed: a comparison, a boolean operator, a constant, a
sum, a `not`, a returned value, a statement left out, a condition turned round. It is killed
when a test fails, or does not end in time. A mutant that cannot change what the module does is
equivalent; each of those is named in EQUIVALENT, with the reason.

How it is quick. The tests are loaded once, and run once under a tracer to see which of them
reach which line. Each mutant then gets a forked process of its own: the changed code is put
into the functions where they are (every reference to them stays good), and only the tests
that reach the changed line are run, the quickest first, until one fails. A change outside of
functions (a table, a default) needs everything imported again.
"""

import argparse
import ast
import copy
import gc
import importlib
import importlib.abc
import importlib.machinery
import itertools
import os
import random
import resource
import signal
import sys
import time
import types
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "leadhand.core"
FILES = (
    "state.model",
    "state.evolve",
    "state.ready",
    "decide.decide",
    "decide.recovery",
    "decide.planner_answer",
    "decide.circuit_breaker",
    "review.decisions",
    "review.holds",
    "commands",
    "facts",
    "host_events",
)
TESTS = (
    "test_ready",
    "test_answers",
    "test_breaker",
    "test_facts",
    "test_outages",
    "test_human_steps",
    "test_review",
    "test_holds",
    "test_permits",
    "test_protected_change",
    "test_host_stream",
    "test_evolve",
    "test_recovery",
    "test_revise",
    "test_control",
    "test_redo",
    "test_decide",
    "test_views",
    "test_properties",
)
SCORE_MIN = 85.0
MEMORY_BYTES_MAX = 3 << 30

STALE = "the entry is stale from the next line on, and the loop drops stale entries"

LAZY = "what no longer counts is passed over when `decide` meets it"
NEVER = "nothing comes before the start of a run: `evolve` refuses it"
UNNAMED = "an action that a worker does not name is answered by its unnamed offer"
POST_INIT = "`__post_init__` writes it"
NOBODY = "no step is called so"
IN_LIST = "a step to skip stands in the list until it ends"
ONCE = "a plan has no circles: it saves the second look"
EITHER_NO = "its callers ask only whether it is so, or whether there are some"
SOON_READY = "all that counts is that it is not settled; a moment later it is ready"
FAILED = "whoever comes here has failed, so there is a failure"
UNREAD = "a type, or a number nobody compares: nothing that runs depends on it"

EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("state.ready", "if not heap:", "heappop(heads)  →  pass"): STALE,
    ("state.ready", "return heap[0][2]", "heappop(heads)  →  pass"): STALE,
    (
        "decide.circuit_breaker",
        '"""How long a circuit stays open that opens for the nth time in a row."""',
        "30  →  31",
    ): "either is far beyond the longest time",
    ("host_events", "", "True  →  False"): "nobody writes to an event, frozen or not",
    ("state.model", "", "False  →  True"): UNREAD,
    ("decide.planner_answer", "", "'StepState'  →  'XXStepState'"): UNREAD,
    (
        "decide.decide",
        "move = _recover(state, now)",
        "move is None and state.to_skip  →  move is None",
    ): "`_skip` finds nothing in an empty list",
    (
        "decide.decide",
        "ident, epoch = state.lost_in_flight[0]",
        "not ident and state.planner.epoch == epoch  →  state.planner.epoch == epoch",
    ): "an epoch is given out once, to the planner or to a step",
    (
        "decide.decide",
        "step = state.steps.get(ident)",
        (
            "step is not None and state.in_flight.get(ident) == epoch"
            "  →  state.in_flight.get(ident) == epoch"
        ),
    ): "what is in flight is in the plan",
    (
        "decide.decide",
        "step = state.steps[heappop(calendar)[1]]",
        "step.status in STARTABLE and (not step.ticket)  →  step.status in STARTABLE",
    ): "queued again, a step gets a new ticket, and its old entry no longer counts",
    (
        "decide.decide",
        "timers = state.timers",
        "timers and timers[0][0] <= now.at  →  timers",
    ): "it only saves the tidying",
    (
        "decide.decide",
        "return _expire(state, kind, ident, epoch)",
        "heappop(timers)  →  pass",
    ): "a step in the queue has a ticket, and its timer no longer counts",
    (
        "decide.decide",
        "step = state.steps[state.undecided[0]]",
        "step.failure or {}  →  step.failure",
    ): FAILED,
    (
        "decide.decide",
        "def _over_budget(state: State, step: StepState, budget: float) -> bool:",
        "9  →  10",
    ): "costs have fewer digits",
    (
        "decide.decide",
        "committed = round(state.spent + state.reserved, 9)  # Three times 0.1 is within 0.3.",
        "9  →  10",
    ): "costs have fewer digits",
    (
        "decide.decide",
        "offer = spec.offer(step.action) if spec else None",
        "spec is None or offer is None  →  offer is None",
    ): "without a worker there is no offer",
    (
        "decide.decide",
        "stopping = state.stopping",
        "stopping is None or state.in_flight  →  state.in_flight",
    ): "it is called only for a run that stops",
    (
        "decide.decide",
        "planner = state.planner",
        (
            "state.in_flight or planner.epoch or state.pending is not None"
            "  →  state.in_flight or planner.epoch"
        ),
    ): "a revision that waits has an open review, and that keeps the run open",
    (
        "decide.decide",
        "return _stalled(state, now, room)",
        "state.questions or not state.revision  →  state.questions",
    ): "without a revision the planner is asked, due, or has asked",
    (
        "state.evolve",
        "state.goal_findings = event.findings",
        (
            "event.met or state.started is None or (not state.started.replans)"
            "  →  event.met or not state.started.replans"
        ),
    ): NEVER,
    ("state.evolve", "state.planner.epoch = 0", "''  →  'XX'"): LAZY,
    (
        "state.evolve",
        'if state.lost_in_flight and state.lost_in_flight[0] == ("", epoch):',
        "state.lost_in_flight.popleft()  →  pass",
    ): LAZY,
    (
        "state.evolve",
        "if state.lost_in_flight and state.lost_in_flight[0] == (step.id, epoch):",
        "state.lost_in_flight.popleft()  →  pass",
    ): LAZY,
    ("state.evolve", "return", "step.failure or {}  →  step.failure"): FAILED,
    (
        "decide.recovery",
        "wait = backoff(state.run, step.id, step.attempts, tries, retry, state.policy.jitter)",
        "step.failure or {}  →  step.failure",
    ): FAILED,
    (
        "decide.recovery",
        "def _simplify(state: State, step: StepState, message: str) -> Recovery | None:",
        (
            "state.started is None or not state.started.splits or "
            "step.depth >= state.policy.splits_max  →  "
            "not state.started.splits or step.depth >= state.policy.splits_max"
        ),
    ): NEVER,
    (
        "decide.recovery",
        'action = failure_action_of(step.doc.get("failure_action"))',
        "state.started is not None and state.started.replans  →  state.started.replans",
    ): NEVER,
    (
        "decide.decide",
        'if "window" not in step.doc:',
        "return 0  →  return None",
    ): "either means: it is not too early",
    (
        "state.evolve",
        "for doc in docs:",
        "''  →  'XX'",
    ): "an action that a worker does not name is answered by its unnamed offer",
    (
        "decide.recovery",
        (
            "def _unseen(state: State, step: StepState, message: str, offer: Offer | None)"
            " -> Recovery:"
        ),
        "step.failure or {}  →  step.failure",
    ): FAILED,
    (
        "decide.recovery",
        'if failure_action_of(step.doc.get("failure_action")) in HARMLESS:',
        "'class'  →  'XXclass'",
    ): "none of these actions speaks of the class",
    (
        "decide.recovery",
        'if failure_action_of(step.doc.get("failure_action")) in HARMLESS:',
        "''  →  'XX'",
    ): "none of these actions speaks of the class",
    (
        "decide.recovery",
        "if action is None:",
        "'escalate'  →  'XXescalate'",
    ): "whatever is no other action escalates",
    (
        "decide.planner_answer",
        'kept: Doc = {key: answer[key] for key in ("kind", "notes") if key in answer}',
        "0  →  1",
    ): "the second event speaks of the same revision",
    (
        "commands",
        "revision = state.pending",
        "state.ended is not None or revision is None  →  state.ended is not None",
    ): "there is nothing to have looked at, and `reviewing` says so too",
    (
        "decide.planner_answer",
        '"""What follows from the planner\'s last answer."""',
        "state.planner.answer or {}  →  state.planner.answer",
    ): "it is called only when there is an answer",
    (
        "decide.planner_answer",
        'return ["it proposes nothing, and nothing is under way"]',
        (
            "add and (not state.steps) and state.started and (digest(canonical(add)) == "
            "state.started.linted)  →  add and (not state.steps) and (digest(canonical(add)) == "
            "state.started.linted)"
        ),
    ): NEVER,
    (
        "decide.recovery",
        "return _unseen(state, step, message, offer)",
        (
            "repeatable and lost_with_host(failure) and (_restarts(step) <= "
            "state.policy.restarts_free)  →  lost_with_host(failure) and _restarts(step) <= "
            "state.policy.restarts_free"
        ),
    ): "what nobody saw and must not be repeated was answered above",
    (
        "decide.decide",
        'case "ask":',
        "state.started is not None and state.started.replans  →  state.started.replans",
    ): NEVER,
    (
        "decide.decide",
        "offer = spec.offer(step.action)",
        "offer is None or offer.silence is None  →  offer.silence is None",
    ): "a step whose worker does not offer its action is refused before",
    (
        "decide.decide",
        'return _ask_planner(state, "nothing is left", now.at)',
        (
            "state.blocking and state.started is not None and state.started.replans"
            "  →  state.blocking and state.started.replans"
        ),
    ): NEVER,
    ("state.model", "cost: float = 0.0", "''  →  'XX'"): POST_INIT,
    ("state.model", '"""Its id in the plan."""', "''  →  'XX'"): POST_INIT,
    ("decide.decide", "", "1  →  2"): "either is far more than anybody runs at once",
    ("decide.decide", "", "30  →  31"): "either is far more than anybody runs at once",
    ("state.model", "self.awake = False", "self.ready = Ready()  →  pass"): LAZY,
    ("state.model", "self.ready = Ready()", "self.timers.clear()  →  pass"): LAZY,
    ("state.model", "self.timers.clear()", "self.calendar.clear()  →  pass"): LAZY,
    ("state.model", "if question.until:", "0  →  1"): UNREAD,
    ("state.evolve", 'elif step.status == "backing_off":', "0  →  1"): UNREAD,
    ("state.evolve", "if event.until:", "0  →  1"): UNREAD,
    ("state.evolve", '"""', "0  →  1"): NEVER,
    (
        "state.evolve",
        "step.started = at",
        "state.started is not None and state.started.replans  →  state.started.replans",
    ): NEVER,
    (
        "state.evolve",
        "state.planner.surprising.append(event.step)",
        (
            "event.surprise and state.started is not None and state.started.replans"
            "  →  event.surprise and state.started.replans"
        ),
    ): NEVER,
    (
        "state.evolve",
        'else keeps them from running, or a person skipped them."""',
        "'waiting'  →  'XXwaiting'",
    ): SOON_READY,
    ("state.evolve", "step.tolerated = False", "'waiting'  →  'XXwaiting'"): SOON_READY,
    (
        "state.evolve",
        "if not lost or step.tolerated:",
        "return False  →  return None",
    ): EITHER_NO,
    (
        "state.evolve",
        "if not any(other.id in causes for other in others):",
        "return False  →  return None",
    ): EITHER_NO,
    (
        "state.evolve",
        "other = state.follow(name)",
        "other is None or other.status in SETTLED  →  other.status in SETTLED",
    ): "what a step waits for is in the plan: a revision that says otherwise does not fit",
    (
        "state.evolve",
        "planner = state.planner",
        "planner.answer or {}  →  planner.answer",
    ): "a wait is an answer of the planner's, so there is one",
    (
        "state.evolve",
        "step.parked_s += (event.until - at) / 1e6",
        "step.tries or {}  →  step.tries",
    ): FAILED,
    (
        "state.evolve",
        "state.backing_off.pop(step.id, None)",
        "step.lost_dependency and step.id in state.to_skip  →  step.id in state.to_skip",
    ): "only a step to skip stands in the list; it saves the search",
    (
        "state.evolve",
        "state.backing_off.pop(step.id, None)",
        (
            "step.lost_dependency and step.id in state.to_skip"
            "  →  step.lost_dependency or step.id in state.to_skip"
        ),
    ): IN_LIST,
    (
        "state.evolve",
        "state.backing_off.pop(step.id, None)",
        "step.lost_dependency and step.id in state.to_skip  →  step.lost_dependency",
    ): IN_LIST,
    (
        "review.holds",
        "found = ruling(state, reach_of(state, [step.doc for step in several], catalog), None)",
        "0  →  1",
    ): "nobody asks about no steps",
    ("review.holds", "if state.started is None:", "return ''  →  return None"): NEVER,
    ("review.holds", "if state.started is None:", "''  →  'XX'"): NEVER,
    ("review.holds", "", "0  →  1"): "nothing ends in the first microsecond of 1970",
    (
        "decide.planner_answer",
        "for name, tolerant in state.steps[stack.pop()].dependents:",
        (
            "not tolerant and name not in gone and (state.steps[name].status == 'waiting')"
            "  →  not tolerant and state.steps[name].status == 'waiting'"
        ),
    ): "who is reached twice is given up once",
    (
        "decide.planner_answer",
        "for name, tolerant in state.steps[stack.pop()].dependents:",
        (
            "not tolerant and name not in gone and (state.steps[name].status == 'waiting')"
            "  →  not tolerant and name not in gone"
        ),
    ): "who does not wait has ended, and is not asked about",
    ("decide.planner_answer", "if not state.blocking:", "return []  →  return None"): EITHER_NO,
    (
        "decide.planner_answer",
        (
            '"""Whether the goal planner can take over; a document that names no planner '
            'is never revised."""'
        ),
        "''  →  'XX'",
    ): NEVER,
    (
        "decide.planner_answer",
        "for step, _, _, failure in state.failed_attempts",
        "'none'  →  'XXnone'",
    ): "it saves the look at steps that `_is_unseen` passes over",
    (
        "decide.planner_answer",
        "for doc in add if unseen else ():",
        "''  →  'XX'",
    ): UNNAMED,
    (
        "decide.planner_answer",
        "theirs = facts_given(",
        "''  →  'XX'",
    ): UNNAMED,
    (
        "decide.planner_answer",
        'for ident in answer.get("cancel", ()):',
        (
            "state.steps[ident].doc.get('supersedes') or ''"
            "  →  state.steps[ident].doc.get('supersedes')"
        ),
    ): NOBODY,
    (
        "decide.planner_answer",
        'for ident in answer.get("cancel", ()):',
        "''  →  'XX'",
    ): NOBODY,
    (
        "decide.planner_answer",
        "started = state.started",
        (
            "started is None or (not state.steps and digest(canonical(add)) == started.linted)"
            "  →  not state.steps and digest(canonical(add)) == started.linted"
        ),
    ): NEVER,
    (
        "decide.planner_answer",
        "started = state.started",
        (
            "not state.steps and digest(canonical(add)) == started.linted"
            "  →  digest(canonical(add)) == started.linted"
        ),
    ): "the plan that was linted is added once: no id is used twice",
    (
        "decide.planner_answer",
        "if started is None or (not state.steps and digest(canonical(add)) == started.linted):",
        "return []  →  return None",
    ): EITHER_NO,
    (
        "facts",
        "answers_flags = isinstance(value, dict) or not artefacts",
        (
            "flags and answers_flags and (not all((each is True for each in said)))"
            "  →  answers_flags and (not all((each is True for each in said)))"
        ),
    ): "without flags there is nothing to be said of them",
    ("facts", "for fact in dict.fromkeys(goal.want):", "''  →  'XX'"): NOBODY,
    ("facts", "needs = {", "''  →  'XX'"): UNNAMED,
    ("facts", "if old is None or not old.wait_idle:", "''  →  'XX'"): UNNAMED,
    (
        "facts",
        '"""The giver of the facts a run was started with."""',
        "'answer'  →  'XXanswer'",
    ): "who writes it and who reads it take it from there",
    (
        "facts",
        '"""Whether an attempt of a step that has ended broke its promise."""',
        (
            "step.wait_idle and any((each.get('class') in BROKEN for each in step.failures))"
            "  →  step.wait_idle"
        ),
    ): "`_taken_away` finds nothing in other failures",
    (
        "facts",
        "for other, tolerant in dependencies(doc).items():",
        "other not in seen and (not tolerant)  →  not tolerant",
    ): ONCE,
    ("facts", "if other not in seen and not tolerant:", "seen.add(other)  →  pass"): ONCE,
    (
        "facts",
        "stack.append(other)",
        "name == ident or not doc  →  name == ident",
    ): "what a step waits for is in the plan, or the proposal was refused before",
    (
        "decide.planner_answer",
        "def _replaced(doc: Doc) -> str:",
        "doc.get('supersedes') or ''  →  doc.get('supersedes')",
    ): NOBODY,
    ("decide.planner_answer", "def _replaced(doc: Doc) -> str:", "''  →  'XX'"): NOBODY,
    ("commands", "", "True  →  False"): "nobody writes to a word, frozen or not",
    (
        "review.decisions",
        (
            "planners = (state.started.planner, state.planner_name) "
            "if state.started is not None else ()"
        ),
        "bool(planners) and revision.author not in planners  →  revision.author not in planners",
    ): NEVER,
    (
        "review.decisions",
        'return [requested], [Notify("waiting", text)]',
        "found.inside and envelope  →  found.inside",
    ): "what is inside is inside an envelope",
    (
        "review.decisions",
        "started = state.started",
        (
            "started is None or number != 1 or (not started.approvals) or (not add)"
            "  →  number != 1 or not started.approvals or (not add)"
        ),
    ): NEVER,
    (
        "review.decisions",
        "started = state.started",
        (
            "started is None or number != 1 or (not started.approvals) or (not add)"
            "  →  started is None or number != 1 or (not add)"
        ),
    ): "without approvals none is found",
    (
        "review.decisions",
        "started = state.started",
        (
            "started is None or number != 1 or (not started.approvals) or (not add)"
            "  →  started is None or number != 1 or (not started.approvals)"
        ),
    ): "a plan that was linted has steps",
    (
        "review.decisions",
        "if started is None or number != 1 or not started.approvals or not add:",
        "return []  →  return None",
    ): EITHER_NO,
    (
        "review.decisions",
        "if digest(canonical(add)) != started.linted:",
        "return []  →  return None",
    ): EITHER_NO,
    (
        "review.decisions",
        "if versions(add, state.catalog) != versions(add, Catalog(started.catalog)):",
        "return []  →  return None",
    ): EITHER_NO,
    (
        "review.decisions",
        "return []",
        "state.started is not None and state.started.replans  →  state.started.replans",
    ): NEVER,
}
"""(file, the line before the changed one, what is changed) to why nothing can notice."""


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    line: int
    kind: str
    site: int
    variant: int
    function: tuple[int, int] | None
    """The lines of the function it stands in, whose code can be put in place."""
    before: str
    """The line above it, which names it together with the change."""
    after: str


class Case(NamedTuple):
    """One call of a test function."""

    label: str
    call: types.FunctionType
    arguments: dict


# --- making mutants ------------------------------------------------------------------------

COMPARISONS = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SUMS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
EFFECTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue)


def changes(node):
    """Every way to break a node: (kind, what takes its place)."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in COMPARISONS.get(type(op), ()):
                    yield "comparison", with_item(node, "ops", i, other())
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "boolean", with_field(node, "op", other)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                left_out = rest[0] if len(rest) == 1 else with_field(node, "values", rest)
                yield "operand left out", left_out
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.Constant(value=value):
            yield from (("constant", ast.Constant(other)) for other in other_values(value))
        case ast.BinOp(op=op) if type(op) in SUMS:
            yield "sum", with_field(node, "op", SUMS[type(op)]())
        case ast.AugAssign(op=op) if type(op) in SUMS:
            yield "sum", with_field(node, "op", SUMS[type(op)]())
            yield "statement left out", ast.Pass()
        case ast.Return(value=value) if value is not None and not is_none(value):
            yield "return", ast.Return(ast.Constant(None))
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "condition", with_field(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Continue():
            yield "statement left out", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield "statement left out", ast.Pass()


def other_values(value):
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield f"XX{value}"


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def with_field(node, field, value):
    other = copy.copy(node)
    setattr(other, field, value)
    return other


def with_item(node, field, index, value):
    items = list(getattr(node, field))
    items[index] = value
    return with_field(node, field, items)


def sites(tree):
    """The nodes that may be broken: (parent, field, index, node, the function around them)."""
    stack = [(tree, None)]
    while stack:
        parent, around = stack.pop()
        if isinstance(parent, ast.FunctionDef) and around is None:
            around = (parent.lineno, parent.end_lineno)
        below = []
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "type_comment", "keywords_doc"):
                continue
            for index, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or not worth_breaking(parent, field, index, node):
                    continue
                yield parent, field, index if isinstance(value, list) else None, node, around
                below.append((node, around))
        stack.extend(reversed(below))


def worth_breaking(parent, field, index, node):
    """Not words for people, not types, not what exists for the type checker."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return False
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return False
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def source_of(file):
    return (ROOT / "src" / Path(*PACKAGE.split("."), *file.split("."))).with_suffix(".py")


def mutants_of(file):
    """Every mutant of a file."""
    text = source_of(file).read_text()
    tree, lines = ast.parse(text), text.splitlines()
    for number, (_, _, _, node, around) in enumerate(sites(tree)):
        if not hasattr(node, "lineno"):
            continue
        for variant, (kind, other) in enumerate(changes(node)):
            after = shown(node, other)
            before = lines[node.lineno - 2].strip()
            yield Mutant(file, node.lineno, kind, number, variant, around, before, after)


def shown(node, other):
    """What is changed, and into what, in one line."""
    ast.copy_location(other, node)
    text = (
        ast.unparse(ast.fix_missing_locations(other)) if not isinstance(other, ast.Pass) else "pass"
    )
    return f"{ast.unparse(node).splitlines()[0]}  →  {text.splitlines()[0]}"


def broken(mutant):
    """The tree of a file with one thing changed."""
    tree = ast.parse(source_of(mutant.file).read_text())
    parent, field, index, node, _ = next(itertools.islice(sites(tree), mutant.site, None))
    _, other = next(itertools.islice(changes(node), mutant.variant, None))
    ast.copy_location(other, node)
    if index is None:
        setattr(parent, field, other)
    else:
        getattr(parent, field)[index] = other
    return ast.fix_missing_locations(tree)


# --- the tests -----------------------------------------------------------------------------


def load_tests():
    """Every case of the core's tests, as plain calls."""
    cases = []
    for name in TESTS:
        if not (ROOT / "tests" / "core" / f"{name}.py").exists():
            continue
        module = importlib.import_module(f"tests.core.{name}")
        for key, value in vars(module).items():
            if key.startswith("test_") and callable(value):
                cases += cases_of(f"{name}::{key}", value)
    return cases


def cases_of(label, function):
    """The calls that `pytest.mark.parametrize` asks for."""
    tables = []
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0]
            names = names.replace(",", " ").split() if isinstance(names, str) else list(names)
            tables.append([row(names, values) for values in mark.args[1]])
    for number, rows in enumerate(itertools.product(*tables)):
        arguments = {key: value for each in rows for key, value in each.items()}
        yield Case(f"{label}[{number}]" if tables else label, function, arguments)


def row(names, values):
    if type(values).__name__ == "ParameterSet":  # pytest.param(...)
        values = values.values if len(names) > 1 else values.values[0]
    return dict(zip(names, values if len(names) > 1 else [values], strict=True))


def measure(cases):
    """Which lines of the files each case reaches, and how long it takes."""
    paths = {str(source_of(file)): file for file in FILES}
    reached, seconds = {}, {}
    for case in cases:
        found = set()

        def local(frame, event, _arg, found=found):
            if event == "line":
                found.add((paths[frame.f_code.co_filename], frame.f_lineno))
            return local

        def trace(frame, _event, _arg, local=local, found=found):
            file = paths.get(frame.f_code.co_filename)
            if file is None:
                return None
            found.add((file, frame.f_lineno))
            return local

        sys.settrace(trace)
        try:
            case.call(**case.arguments)
        finally:
            sys.settrace(None)
        begun = time.perf_counter()
        case.call(**case.arguments)
        seconds[case.label] = time.perf_counter() - begun
        for place in found:
            reached.setdefault(place, set()).add(case.label)
    return reached, seconds


# --- running a mutant ----------------------------------------------------------------------


def put_in_place(mutant):
    """Give the functions of a loaded module the code of the mutant."""
    module = sys.modules[f"{PACKAGE}.{mutant.file}"]
    fresh = types.ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    exec(compile(broken(mutant), module.__file__, "exec"), fresh.__dict__)
    for name, old in vars(module).items():
        if getattr(old, "__module__", None) != module.__name__:
            continue
        new = vars(fresh).get(name)
        if isinstance(old, types.FunctionType):
            swap(old, new)
        elif isinstance(old, type):
            for key, member in list(vars(old).items()):
                theirs = vars(new).get(key)
                if isinstance(member, types.FunctionType) and isinstance(
                    theirs, types.FunctionType
                ):
                    swap(member, theirs)
                elif isinstance(member, property):
                    swap(member.fget, theirs.fget)


def swap(old, new):
    if old.__code__.co_freevars == new.__code__.co_freevars:
        old.__code__ = new.__code__
        old.__defaults__ = new.__defaults__
        old.__kwdefaults__ = new.__kwdefaults__


class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module as a mutant."""

    def __init__(self, mutant):
        self.mutant = mutant
        self.name = f"{PACKAGE}.{mutant.file}"

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=str(source_of(self.mutant.file))
        )

    def exec_module(self, module):
        module.__file__ = str(source_of(self.mutant.file))
        exec(compile(broken(self.mutant), module.__file__, "exec"), module.__dict__)


def import_again(mutant):
    """Load the package and the tests from the start, with the mutant among them."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("leadhand", "tests"):
            del sys.modules[name]
    sys.meta_path.insert(0, Broken(mutant))
    return {case.label: case for case in load_tests()}


def dies(mutant, labels, cases):
    """Whether a test notices. Runs in a process of its own."""
    try:
        if mutant.function:
            put_in_place(mutant)
        else:
            cases = import_again(mutant)
    except Exception:
        return True
    for label in labels:
        try:
            cases[label].call(**cases[label].arguments)
        except BaseException:
            return True
    return False


def start(mutant, labels, cases, limit_s):
    """Fork a process for a mutant: 1 when it dies, 0 when it lives, a signal when it hangs."""
    child = os.fork()
    if child:
        return child
    signal.alarm(limit_s)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os._exit(int(dies(mutant, labels, cases)))


def near(mutant, reached, everything):
    """The tests that reach its line; for a default value, those that reach its function."""
    if mutant.function is None:
        return everything
    first, last = mutant.function
    found = reached.get((mutant.file, mutant.line), set())
    for line in range(first, last + 1) if not found else ():
        found = found | reached.get((mutant.file, line), set())
    return found


def run(mutants, cases, reached, seconds, *, jobs, limit_s):
    """The fate of each mutant: killed, hangs, lives, or not reached."""
    by_label = {case.label: case for case in cases}
    everything = sorted(seconds, key=seconds.get)
    waiting, flying, fates = list(reversed(mutants)), {}, {}
    while waiting or flying:
        while waiting and len(flying) < jobs:
            mutant = waiting.pop()
            labels = sorted(near(mutant, reached, everything), key=seconds.get)
            if not labels:
                fates[mutant] = "not reached"
                continue
            patience_s = 3 + int(10 * sum(seconds[label] for label in labels))
            flying[start(mutant, labels, by_label, min(limit_s, patience_s))] = mutant
        if flying:
            child, status = os.waitpid(-1, 0)
            mutant = flying.pop(child)
            code = os.waitstatus_to_exitcode(status)
            fates[mutant] = {0: "lives", 1: "killed"}.get(code, "hangs")
    return fates


# --- the report ----------------------------------------------------------------------------


def report(fates, *, show, keys):
    """Print a table and the survivors; gives back the score."""
    print(f"{'file':<24}{'mutants':>8}{'killed':>8}{'hangs':>7}{'lives':>7}{'score':>8}")
    total = dead = 0
    for file in FILES:
        of_file = {mutant: fate for mutant, fate in fates.items() if mutant.file == file}
        if not of_file:
            continue
        counts = dict.fromkeys(("killed", "hangs", "lives", "not reached"), 0)
        for fate in of_file.values():
            counts[fate] += 1
        gone = counts["killed"] + counts["hangs"]
        lives = counts["lives"] + counts["not reached"]
        total, dead = total + len(of_file), dead + gone
        share = 100 * gone / len(of_file)
        print(
            f"{file:<24}{len(of_file):>8}{counts['killed']:>8}{counts['hangs']:>7}{lives:>7}{share:>7.1f}%"
        )
    score = 100 * dead / total if total else 100.0
    print(f"{'all':<24}{total:>8}{dead:>8}{'':>7}{total - dead:>7}{score:>7.1f}%")
    for mutant, fate in sorted(fates.items()):
        if show or fate in ("lives", "not reached"):
            print(f"{fate:<11} {mutant.file}:{mutant.line} {mutant.kind}: {mutant.after}")
            if keys:
                print(f"    {(mutant.file, mutant.before, mutant.after)!r}")
    return score


def parse(arguments):
    parser = argparse.ArgumentParser(description="Break the core and count what the tests notice.")
    parser.add_argument("--sample", type=int, help="so many mutants only")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit-s", type=int, default=30, help="for one mutant")
    parser.add_argument("--file", action="append", choices=FILES, help="this file only")
    parser.add_argument("--min", type=float, default=SCORE_MIN, help="the score to reach")
    parser.add_argument("--keys", action="store_true", help="with their names for EQUIVALENT")
    parser.add_argument("--show", action="store_true", help="every mutant, not only survivors")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    os.chdir(ROOT)
    from hypothesis import settings

    settings.register_profile(
        "mutants", max_examples=30, derandomize=True, database=None, deadline=None
    )
    settings.load_profile("mutants")
    begun = time.perf_counter()
    cases = load_tests()
    reached, seconds = measure(cases)
    known = [m for file in options.file or FILES for m in mutants_of(file)]
    names = {(m.file, m.before, m.after) for m in known}
    for name in EQUIVALENT:
        if name not in names and name[0] in (options.file or FILES):
            print(f"no longer there, take it out of EQUIVALENT: {name}")
    mutants = [m for m in known if (m.file, m.before, m.after) not in EQUIVALENT]
    if options.sample and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    print(
        f"{len(mutants)} of {len(known)} mutants, {len(cases)} tests, "
        f"ready after {time.perf_counter() - begun:.0f} s",
        flush=True,
    )
    gc.collect()
    gc.freeze()
    fates = run(mutants, cases, reached, seconds, jobs=options.jobs, limit_s=options.limit_s)
    score = report(fates, show=options.show, keys=options.keys)
    print(f"{time.perf_counter() - begun:.0f} s")
    return 0 if score >= options.min else 1


if __name__ == "__main__":
    sys.exit(main())
