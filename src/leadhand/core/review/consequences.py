"""What happens when steps are approved: what starts, changes, asks, costs, and can be undone. Pure.

The same lines stand on the page, in `leadhand review` and in its document, so that a person can
answer "what will happen if I approve?" from any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from leadhand.core.calendar import utc
from leadhand.core.catalog import able_workers
from leadhand.core.durations import text
from leadhand.core.hashing import canonical
from leadhand.core.plan.graph import written_dependencies
from leadhand.core.plan.model import failure_action_of
from leadhand.core.visible import visible_name
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc

NAMED_MAX = 8
VALUES_MAX = 4
"""The number of parameters of a step that are told in its line."""
VALUE_MAX = 40
"""The length of such a parameter."""
NOT_VERIFIED = "not verified: it has no check of its result"
"""Said of a rollback plan in which nothing tells whether its goal is reached."""
SHORT_MAX = 5
"""A plan with no more steps is told in its order in the short form, too."""
ORDER_MAX = 4
"""The number of lines in which steps are told in order; later ones share a line."""
UNITS = "dollars and units together"
"""What a budget counts: money, and the cost units that workers declare."""
ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
TOPICS = {
    "approvals": "Approvals",
    "start": "What runs",
    "changes": "Side effects",
    "undo": "Rollback",
    "failure": "If a step fails",
    "cost": "Cost",
    "asks": "Asks again",
    "covers": "Covers",
    "reject": "If rejected",
}
"""By topic: its label, in the order in which they are told."""
WHEN_FAILED = {
    "abort": "the run stops",
    "rollback": "the run stops and is rolled back",
    "continue": "the run continues without it",
    "escalate": "a person is asked",
}
"""By failure action, once the retries are used up."""


class Consequence(Struct, kw_only=True):
    """One thing that an approval leads to."""

    topic: str
    """`approvals`, `start`, `changes`, `undo`, `failure`, `cost`, `asks`, `covers` or `reject`."""
    text: str
    """What happens, in words, without the names of the steps."""
    steps: list[str]
    """The steps that it is about; empty: the plan."""


class StepFacts(Struct, kw_only=True):
    """What a reviewer should know of one step beyond its document."""

    effects: list[str]
    """What it changes, as the step and its workers declare it."""
    silent: list[str]
    """Its workers that declare no effects."""
    person: bool
    """Whether a person carries it out."""
    undo: str
    """How it is undone, in words; "" if it cannot be, or is not declared."""
    first: bool
    """Whether it waits for no other step."""
    doing: str
    """Its worker and action with its parameters, shortened."""


class Approved(NamedTuple):
    """What is known of steps that would run."""

    steps: list[Doc]
    plan: Doc
    """The plan without its steps."""
    catalog: Catalog
    instants: Mapping[str, int]
    """By step: when it starts at the earliest."""
    cost: float
    budget: float | None
    now: int = 0
    """The present; 0 for a plan that does not run yet."""
    settled: Collection[str] = ()
    """The steps of earlier revisions that nothing needs to wait for any more."""
    cancel: Collection[str] = ()
    spent: float = 0.0
    planner: str = ""
    """The planner that may revise the plan, or continue it."""
    final: bool = True
    kept: Sequence[Doc] = ()
    """The steps of earlier revisions that are still to run, unchanged."""
    heirs: Mapping[str, str] = {}
    """By step that was replaced: the step that took its place."""
    people: int = 0
    """How many must approve; 0 where that is not known yet, or nothing waits."""
    given: Sequence[str] = ()
    """The people who have approved so far."""
    approvers: Collection[str] = ()
    """The people who may approve; empty: the policy names none."""
    starter: str = ""
    """The person who started the run: may be the first of several approvers, not a later one."""
    approval_s: float | None = None
    done: int = 0
    """How many steps have ended with success."""


def step_facts(known: Approved) -> dict[str, StepFacts]:
    """Return the facts of each step."""
    return {str(step["id"]): _facts(step, known) for step in known.steps}


def _facts(step: Doc, known: Approved) -> StepFacts:
    names = able_workers(step, known.catalog.workers)
    effects, silent = set[str](step.get("effects") or ()), list[str]()
    for name in names:
        offer = known.catalog.offer(name, step.get("action", ""))
        if offer is not None and offer.effects is not None:
            effects.update(offer.effects)
        elif not step.get("effects"):
            silent.append(name)
    specs = [known.catalog.workers.get(name) for name in names]
    return StepFacts(
        effects=sorted(effects),
        silent=silent,
        person=bool(specs) and specs[0] is not None and specs[0].kind == "human",
        undo=_undo(step, known.plan),
        first=not [each for each in written_dependencies(step) if each not in known.settled],
        doing=_with_values(step),
    )


def _with_values(step: Doc) -> str:
    """Return what a step does: its worker and action, with its parameters, each shortened."""
    given = step.get("parameters")
    told = []
    for name, value in given.items() if isinstance(given, dict) else ():
        said = value if isinstance(value, str) else canonical(value).decode()
        said = " ".join(said.split())
        told.append(f"{name} {said if len(said) <= VALUE_MAX else f'{said[: VALUE_MAX - 1]}…'}")
    words = f"{step.get('worker', '')} {step.get('action', '')}".strip()
    return f"{words}: {listed(told, VALUES_MAX)}" if told else words


def _undo(step: Doc, plan: Doc) -> str:
    undo = step.get("undo")
    if isinstance(undo, dict):
        return f"undo by {undo.get('worker', '')} {undo.get('action', '')}".strip()
    named = plan.get("rollback_plan")
    if isinstance(named, str):
        return f"by the rollback plan {visible_name(named)}, if the library has it"
    if not named:
        return ""
    return f"by the rollback plan{'' if _is_checked(named) else f', {NOT_VERIFIED}'}"


def _is_checked(plan: object) -> bool:
    """Return whether something in a rollback plan tells that its goal is reached (LH604)."""
    if not isinstance(plan, dict):
        return False
    goal, steps = plan.get("goal"), [step for step in plan.get("steps") or () if _has_id(step)]
    if isinstance(goal, dict) and (goal.get("acceptance") or goal.get("want")):
        return True
    waited_for = {name for step in steps for name in written_dependencies(step)}
    last = [step for step in steps if step["id"] not in waited_for]
    return any(step.get("success_criteria") for step in last)


def _has_id(step: object) -> bool:
    return isinstance(step, dict) and "id" in step


def consequences(known: Approved, facts: Mapping[str, StepFacts]) -> list[Consequence]:
    """Return what an approval leads to, the most important first.

    The steps that were approved before and are still to run count too.
    """
    known, apart = _without_apart(known)
    facts = _with_kept(known, facts)
    return [
        *_approvals(known),
        *_start(known, apart),
        *_changes(known, facts),
        *_way_back(known, facts),
        *_failure(known, facts),
        *_cost(known),
        *_asks(known, facts),
        *_covers(known),
        *_reject(known),
    ]


def in_short(known: Approved, facts: Mapping[str, StepFacts]) -> str:
    """Return what an approval leads to, in a few short sentences."""
    known, _apart = _without_apart(known)
    count, facts = len(known.steps) + len(known.kept), _with_kept(known, facts)
    when = f"after the {_last(known)} approval" if known.people > 1 else "once it is approved"
    if not count:
        return f"No step is added{', and some are removed' if known.cancel else ''}."
    size = f"{count} step{'s' if count != 1 else ''} run{'s' if count == 1 else ''} {when}"
    if known.kept:
        size += f" ({len(known.steps)} to approve, {len(known.kept)} approved before)"
    return (
        f"{size}{_order_in_short(known, count)}. {_effects_in_short(facts)} {_cost_in_short(known)}"
    )


def _order_in_short(known: Approved, count: int) -> str:
    """Return the few steps of a plan in their order, each with its time; of many only the times."""
    later = {step: at for step, at in known.instants.items() if at > known.now}

    def told(step: str) -> str:
        at = later.get(step)
        return visible_name(step) + (f" not before {_instant(at, step, known)}" if at else "")

    if count <= SHORT_MAX:
        waves = _waves(_waits([*known.steps, *known.kept], known.heirs))
        return f": {', then '.join(' and '.join(map(told, wave)) for wave in waves)}"
    if len(later) == 1:
        return f", {told(*later)}"
    return f", {len(later)} of them not before {utc(min(later.values()))}" if later else ""


def _instant(at: int, ident: str, known: Approved) -> str:
    """Return a time in UTC, and as the step has it if that names a time zone."""
    docs = (step for step in (*known.steps, *known.kept) if step["id"] == ident)
    own = str(next(docs, {}).get("not_before") or "")
    return f"{utc(at)} ({visible_name(own)})" if "/" in own else utc(at)


def _without_apart(known: Approved) -> tuple[Approved, list[str]]:
    """Return what is known without the kept steps that do not wait for any step to be approved.

    Also return the ids of those steps.
    """
    waits = _waits([*known.steps, *known.kept], known.heirs)
    behind = {str(step["id"]) for step in known.steps}
    for wave in _waves(waits):
        behind.update(step for step in wave if not behind.isdisjoint(waits[step]))
    kept = [step for step in known.kept if str(step["id"]) in behind]
    apart = [str(step["id"]) for step in known.kept if str(step["id"]) not in behind]
    return known._replace(kept=kept), apart


def _with_kept(known: Approved, facts: Mapping[str, StepFacts]) -> Mapping[str, StepFacts]:
    return {**facts, **{str(step["id"]): _facts(step, known) for step in known.kept}}


def _effects_in_short(facts: Mapping[str, StepFacts]) -> str:
    effects = sorted({effect for each in facts.values() for effect in each.effects})
    lasting = [step for step, each in facts.items() if each.effects and not each.undo]
    silent = [step for step, each in facts.items() if each.silent]
    told = []
    if effects:
        back = f"cannot be rolled back: {listed(map(visible_name, lasting), NAMED_MAX)}"
        if not lasting:
            unsure = any(NOT_VERIFIED in each.undo for each in facts.values() if each.effects)
            back = f"can be rolled back{' (not verified)' if unsure else ''}"
        told.append(f"Side effects: {listed(map(visible_name, effects), NAMED_MAX)}; {back}.")
    if silent:
        told.append(f"Side effects not known: {listed(map(visible_name, silent), NAMED_MAX)}.")
    return " ".join(told) or "No side effects, as the workers declare."


def _cost_in_short(known: Approved) -> str:
    return "No cost limit." if known.budget is None else f"Cost limit: {known.budget:g} {UNITS}."


def consequence_line(each: Consequence) -> str:
    """Return a consequence with the names of its steps."""
    named = listed(map(visible_name, each.steps), NAMED_MAX)
    return f"{each.text}: {named}" if named else each.text


def _told(topic: str, text: str, steps: Iterable[str] = ()) -> Consequence:
    return Consequence(topic=topic, text=text, steps=[*steps])


def _approvals(known: Approved) -> Iterator[Consequence]:
    if known.people == 1:
        yield _told("approvals", "one is enough")
    elif known.people:
        by = f" (by {listed(map(visible_name, known.given))})" if known.given else ""
        left = known.people - len(known.given)
        who = "another person" if left == 1 else f"{left} other people" * bool(known.given)
        may = f"; approvers: {listed(map(visible_name, known.approvers))}"
        yield _told(
            "approvals",
            f"{len(known.given)} of {known.people} given{by}: {who or f'{left} different people'} "
            f"must approve before anything starts{may if known.approvers else ''}{_starter(known)}",
        )


def _starter(known: Approved) -> str:
    """Return whether the approval of the person who started the run counts."""
    if not known.starter or known.starter in known.given:
        return ""
    name = visible_name(known.starter)
    if known.given:
        return f"; not {name}, who started the run and can only be the first"
    if known.approvers and known.starter not in known.approvers:
        return ""
    return f"; {name}, who started the run, counts only as the first"


def _last(known: Approved) -> str:
    return ORDINALS.get(known.people, "last")


def _start(known: Approved, apart: list[str]) -> Iterator[Consequence]:
    """Yield the steps in the order in which they start, then what does not start any more."""
    first = f"after the {_last(known)} approval" if known.people > 1 else "at once"
    waves = _waves(_waits([*known.steps, *known.kept], known.heirs))
    lines: list[tuple[str, list[str]]] = []
    for number, wave in enumerate(waves):
        when = "then" if number else first
        timed = {step: at for step in wave if (at := known.instants.get(step, 0)) > known.now}
        if rest := [step for step in wave if step not in timed]:
            lines.append((when, rest))
        for step, at in sorted(timed.items(), key=lambda item: (item[1], item[0])):
            after = "" if when == "at once" else f"{when}, "
            when_at = f"{after}at {_instant(at, step, known)}, or at once if that has passed"
            lines.append((when_at, [step]))
    if len(lines) > ORDER_MAX:
        plain = [step for when, wave in lines[ORDER_MAX:] if when == "then" for step in wave]
        timed_later = [line for line in lines[ORDER_MAX:] if line[0] != "then"]
        more = [("then, each after the steps that it depends on", plain)] if plain else []
        lines = [*lines[:ORDER_MAX], *more, *timed_later]
    for when, steps in lines:
        yield _told("start", when, steps)
    if known.kept:
        named = (str(step["id"]) for step in known.kept)
        yield _told("start", "of these, approved before and unchanged", named)
    if apart:
        yield _told("start", "approved before, do not wait for this approval", apart)
    replaced = [str(step["supersedes"]) for step in known.steps if step.get("supersedes")]
    if replaced:
        yield _told("start", "replaced", replaced)
    if known.cancel:
        yield _told("start", "removed", known.cancel)


def _waits(steps: Sequence[Doc], heirs: Mapping[str, str]) -> dict[str, set[str]]:
    """Return, by step, those of the steps that it waits for."""
    names = {str(step["id"]) for step in steps}
    return {
        str(step["id"]): {heirs.get(each, each) for each in written_dependencies(step)} & names
        for step in steps
    }


def _waves(waits: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the steps by how many others must end before them, one after the other."""
    left = {step: len(before) for step, before in waits.items()}
    behind: dict[str, list[str]] = {}
    for step, before in waits.items():
        for each in before:
            behind.setdefault(each, []).append(step)
    waves: list[list[str]] = []
    ready = [step for step, count in left.items() if not count]
    while ready:
        waves.append(ready)
        after: list[str] = []
        for step in ready:
            del left[step]
            for each in behind.get(step, ()):
                left[each] -= 1
                if not left[each]:
                    after.append(each)
        ready = after
    return [*waves, [*left]] if left else waves  # a cycle: the linter reports it


def _changes(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    effects: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for step, each in facts.items():
        for effect in each.effects:
            effects.setdefault(effect, []).append(step)
        for name in each.silent:
            silent.setdefault(name, []).append(step)
    for effect in sorted(effects):
        yield _told("changes", visible_name(effect), effects[effect])
    for name in sorted(silent):
        told = f"unknown: worker {visible_name(name)} declares no effects"
        yield _told("changes", told, silent[name])
    if not effects and not silent and known.steps:
        yield _told("changes", "none, as the workers declare")


def _way_back(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    changing = {step: each for step, each in facts.items() if each.effects or each.silent}
    if lasting := [s for s, each in changing.items() if not each.undo and each.effects]:
        yield _told("undo", "cannot be rolled back", lasting)
    ways: dict[str, list[str]] = {}
    for step, each in changing.items():
        if each.undo:
            ways.setdefault(each.undo, []).append(step)
    for way, steps in ways.items():
        yield _told("undo", f"can be rolled back, {way}", steps)
    if any(not isinstance(step.get("undo"), dict) for step in (*known.steps, *known.kept)) and ways:
        yield from _rollback_plan(known.plan.get("rollback_plan"))
    if unknown := [s for s, each in changing.items() if not each.undo and not each.effects]:
        yield _told("undo", "not known: neither side effects nor an undo are declared", unknown)
    if not changing and facts:
        yield _told("undo", "nothing to undo")


def _rollback_plan(plan: object) -> Iterator[Consequence]:
    """Yield what a rollback plan does, step by step."""
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(steps, list):
        return
    by_id = {str(each["id"]): each for each in steps if isinstance(each, dict) and "id" in each}
    order = (step for wave in _waves(_waits([*by_id.values()], {})) for step in wave)
    doing = (f"{visible_name(step)} ({_doing(by_id[step])})" for step in order)
    yield _told("undo", f"the rollback plan runs {listed(doing, NAMED_MAX)}")


def _doing(step: Doc) -> str:
    words = (str(step.get(field) or "") for field in ("worker", "action"))
    return " ".join(visible_name(word) for word in words if word)


def _failure(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    """Yield what happens when a step fails, after its retries."""
    waits = _waits([*known.steps, *known.kept], known.heirs)
    lasting = [step for step, each in facts.items() if each.effects and not each.undo]
    found: dict[str, list[str]] = {}
    for step in (*known.steps, *known.kept):
        ident, told = str(step["id"]), _when_failed(step, known)
        if told == WHEN_FAILED["rollback"] and lasting:
            behind = {ident}
            for wave in _waves(waits):
                behind.update(each for each in wave if not behind.isdisjoint(waits[each]))
            stays = [each for each in lasting if each not in behind]
            named = listed(map(visible_name, stays), NAMED_MAX)
            told += f", but what {named} did stays" if stays else ""
        found.setdefault(told, []).append(ident)
    for told, steps in found.items():
        yield _told("failure", told, steps if len(found) > 1 else ())


def _when_failed(step: Doc, known: Approved) -> str:
    action = failure_action_of(step.get("failure_action"))
    if action in (None, "replan"):
        action = "replan" if known.planner else "escalate"
    if action == "replan":
        return f"planner {visible_name(known.planner)} may revise the plan"
    return WHEN_FAILED[action]


def _cost(known: Approved) -> Iterator[Consequence]:
    if known.budget is not None:
        spent = f", {known.spent:g} of it spent" if known.spent else ""
        told = f"at most {known.budget:g} {UNITS}, the budget of the run{spent}"
    else:
        told = "no limit: the run has no budget"
    which = "the steps to approve" if known.kept else "the steps"
    about = f"{which} declare {known.cost:g} units" if known.cost else f"{which} declare no cost"
    yield _told("cost", f"{told}; {about}")


def _asks(known: Approved, facts: Mapping[str, StepFacts]) -> Iterator[Consequence]:
    people = [step for step, each in facts.items() if each.person]
    if people:
        yield _told("asks", "a person carries it out", people)
    if known.planner:
        name = visible_name(known.planner)
        more = "" if known.final else f"planner {name} continues after these steps; asked again "
        beyond = f"only if planner {name} goes beyond this approval"
        yield _told("asks", f"{more}{beyond}; it may revise the plan within it")
    elif not people and known.steps:
        yield _told("asks", "no, unless a step fails")


def _covers(known: Approved) -> Iterator[Consequence]:
    if not known.steps:
        return
    yield _told(
        "covers",
        "exactly these steps, inputs and worker versions; anything else needs another approval",
    )
    if known.approval_s:
        yield _told(
            "covers",
            f"an approval expires {text(known.approval_s)} after it was given: "
            "what has not started by then is held",
        )


def _reject(known: Approved) -> Iterator[Consequence]:
    if known.people:
        done = f"; what {known.done} finished step{'s' * (known.done != 1)} did stays" * bool(
            known.done
        )
        yield _told("reject", f"none of these steps runs, and the run ends as rejected{done}")
