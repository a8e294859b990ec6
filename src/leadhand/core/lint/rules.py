"""Every rule of `leadhand lint`: its code, name, level and summary.

Codes and names are permanent: people put them into scripts and searches. A code is never reused,
even when its rule is gone. The first digit is the kind of rule:

    1 structure    2 semantics (facts)    3 contract    4 granularity
    5 coupling and parallelism            6 resilience and budget

Errors keep a plan from running, so only certain problems are errors. Warnings are for most authors,
notes for some. Wording never blocks: measured on good and on bad plans it tells them apart poorly
(`docs/reference/lint.md`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["error", "warning", "note"]


class LintRule(NamedTuple):
    """One lint rule."""

    code: str
    level: Level
    """Its usual level; a finding may be of a lower one."""
    meaning: str


KINDS = {
    "1": "structure",
    "2": "facts",
    "3": "contract of a step",
    "4": "size of steps",
    "5": "coupling and parallelism",
    "6": "resilience and budget",
}
"""The kinds of rules, by the first digit of their codes."""

_E, _W, _N = ("error", "warning", "note")

_STRUCTURE = {
    "cycle": ("LH101", _E, "steps wait for each other in a circle"),
    "dependency-missing": ("LH102", _E, "a step depends on one that is not in the plan"),
    "dependency-self": ("LH103", _E, "a step depends on itself"),
    "id-duplicate": ("LH104", _E, "two steps have one id"),
    "step-orphan": ("LH105", _N, "a step has no part in the rest of the plan"),
    "worker-unknown": ("LH106", _E, "no worker of this name is registered"),
    "parameter-wrong": ("LH107", _E, "a parameter is not what the worker takes"),
    "reference-unresolved": ("LH108", _E, "a reference to something that is not there"),
    "result-unfit": ("LH109", _E, "the result of a step is not of the type that its user takes"),
    "plan-empty": ("LH110", _E, "no steps, or no step that gives what the goal wants"),
    "parameter-missing": ("LH111", _E, "the worker needs a parameter that the step does not give"),
    "parameter-unknown": ("LH112", _E, "the worker does not know this parameter"),
    "action-unknown": ("LH113", _E, "the worker does not offer this action"),
    "alternative-unfit": ("LH114", _E, "an alternative worker cannot do what the step asks"),
    "check-unknown": ("LH115", _E, "the worker has no check of this name"),
    "dependency-failed": ("LH116", _E, "a step depends on one that has already failed"),
    "expression-wrong": ("LH117", _E, "a criterion is not an expression that is allowed"),
    "failure-action-unknown": ("LH118", _E, "not something that can follow a failure"),
    "field-missing": ("LH119", _E, "a field that must be there is not"),
    "field-unknown": ("LH120", _E, "a field that plans do not have"),
    "field-wrong": ("LH121", _E, "a field holds something it cannot"),
    "id-taken": ("LH122", _E, "a new step has the id of one that is in the run already"),
    "id-unclear": ("LH123", _E, "an id that references could not name"),
    "param-missing": ("LH124", _E, "a parameter of the plan has no value"),
    "param-unknown": ("LH125", _E, "a value for a parameter that the plan does not have"),
    "param-wrong": ("LH126", _E, "a parameter of the plan has a value it cannot have"),
    "reference-misplaced": ("LH127", _E, "a reference stands where none can"),
    "reference-uncertain": (
        "LH128",
        _W,
        "a reference to the result of a step that may have failed",
    ),
    "reference-wrong": ("LH129", _E, "not a reference"),
    "resource-exceeded": ("LH130", _E, "a step uses more of a resource than there is"),
    "resource-unknown": ("LH131", _E, "a step uses a resource that is not declared"),
    "risk-unknown": ("LH132", _E, "not a risk level"),
    "duration-wrong": ("LH133", _E, "not a duration"),
    "time-wrong": ("LH134", _E, "not a moment or a window"),
    "zone-fixed": ("LH135", _W, "a time zone that does not follow the seasons"),
    "steps-too-many": ("LH136", _E, "the plan has more steps than the limit"),
    "supersedes-unknown": ("LH137", _E, "a step takes the place of one that is not there"),
    "findings-cut": ("LH138", _N, "there is more to report than is shown"),
    "field-later": ("LH139", _W, "a field that has no effect in a plan that names no planner"),
    "secret-misplaced": ("LH140", _E, "a secret where it would be shown or stored"),
    "secret-exposed": ("LH141", _W, "a secret in the arguments of a command"),
    "reference-rollback": (
        "LH142",
        _E,
        "a reference to the run that is taken back, outside a rollback plan",
    ),
    "planner-unknown": ("LH143", _E, "the plan names a planner that cannot be used here"),
    "planner-unfit": (
        "LH144",
        _E,
        "the goal planner cannot revise a plan whose goal names no facts",
    ),
    "schema-unusable": ("LH145", _E, "the schema of a worker judges nothing"),
    "program-missing": ("LH146", _E, "the program of a command worker is not on this machine"),
    "worker-unavailable": ("LH147", _E, "the worker cannot work on this machine"),
}

_SEMANTICS = {
    "need-unmet": ("LH201", _E, "a step needs a fact that nothing before it gives"),
    "goal-undone": ("LH202", _E, "a wanted fact is given and may be taken back before the end"),
    "gives-useless": ("LH203", _W, "a step gives only facts that are there or not needed"),
    "fact-dropped": ("LH204", _E, "a step takes back a fact that a later or concurrent one needs"),
    "rollback-partial": ("LH205", _W, "a rollback is asked for, and a step cannot be taken back"),
    "fact-unchecked": ("LH206", _N, "a step needs a fact that is claimed and never checked"),
    "promise-widened": ("LH210", _W, "a step claims more than its worker promises"),
}

_CONTRACT = {
    "criteria-missing": ("LH301", _W, "nothing tells whether a step is done"),
    "criteria-idle": ("LH302", _W, "a criterion that does not look at the report"),
    "result-undeclared": ("LH303", _N, "a result is used whose form its worker does not declare"),
    "boundary-undeclared": ("LH304", _N, "a step with effects does not say what it writes"),
    "dependency-outside": ("LH309", _W, "a description names an address that no field declares"),
    "step-repeated": ("LH310", _W, "two steps do the same thing at the same point"),
}

_GRANULARITY = {
    "step-fine": ("LH402", _N, "a step takes hardly longer than starting it"),
    "step-dominant": ("LH403", _N, "one step is most of the plan"),
    "estimate-missing": ("LH405", _N, "a step has no estimate, and others have"),
    "estimate-over-timeout": ("LH406", _W, "a step is expected to take longer than it may"),
}

_COUPLING = {
    "write-conflict": ("LH501", _E, "two steps that may run at once write the same thing"),
    "read-conflict": ("LH502", _W, "a step may read what another is writing"),
    "wait-needless": ("LH503", _N, "a step waits for one it has nothing to do with"),
    "parallel-none": ("LH504", _N, "every step waits for the one before it"),
    "write-hot": ("LH505", _W, "three steps or more write the same thing"),
}

_RESILIENCE = {
    "provider-single": ("LH601", _N, "only one worker can give what the goal wants"),
    "timeout-missing": (
        "LH602",
        _N,
        "neither a step with effects nor its worker has a timeout of its own",
    ),
    "budget-short": ("LH603", _E, "the plan needs more than its budget or its deadline allows"),
    "goal-unchecked": ("LH604", _N, "no check in the plan tells whether its goal is reached"),
    "rollback-absent": (
        "LH606",
        _W,
        "a step asks for a rollback, and there is nothing to roll back with",
    ),
    "rollback-unknown": ("LH607", _W, "the plan to roll back with is not in the library"),
    "replan-absent": ("LH608", _W, "a step asks for a replan, and the plan names no planner"),
}

RULES: dict[str, LintRule] = {
    name: LintRule(*row)  # type: ignore[arg-type]  # the levels are the three above
    for group in (_STRUCTURE, _SEMANTICS, _CONTRACT, _GRANULARITY, _COUPLING, _RESILIENCE)
    for name, row in group.items()
}
