"""The form of a plan document, as JSON Schema 2020-12.

One schema serves three readers: `leadhand schema` prints it, editors complete and explain from it,
and `core/lint/plan.py` validates against it. So every field has a description, and the descriptions
use the words of the documentation. Rules beyond a schema (does that step exist, is that a duration)
are in `core/lint/plan.py`.

A plan may contain no field that is not described here: a misspelt field that is silently ignored is
a step without its success criteria.
"""

from __future__ import annotations

from typing import Any

from leadhand.core.plan.model import MODES, RISKS

PLAN_VERSION = 1
STEPS_MAX = 100_000
ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"

Schema = dict[str, Any]


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _ref(name: str, description: str = "") -> Schema:
    return {"$ref": f"#/$defs/{name}"} | ({"description": description} if description else {})


def _object(description: str, properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    found: Schema = {"type": "object", "description": description}
    if required:
        found["required"] = list(required)
    return found | {"properties": properties, "additionalProperties": False}


def _list(description: str, items: Schema, **more: Any) -> Schema:
    return {"type": "array", "description": description, "items": items, **more}


def _map(description: str, values: Schema) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": values}


def _any(description: str, *branches: Schema) -> Schema:
    return {"description": description, "anyOf": list(branches)}


_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_NAMES: Schema = {"type": "array", "items": _NAME}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_AMOUNT: Schema = {"type": "number", "minimum": 0}
_MODE: Schema = {"enum": list(MODES), "description": "How far ahead to plan."}

_SMALL: Schema = {
    "id": {
        "type": "string",
        "title": "Id",
        "description": "A name that is unique in the plan.",
        "pattern": ID_PATTERN,
        "patternErrorMessage": "must be 1 to 100 letters, digits, '_', '-' or '.', "
        "and start with neither '-' nor '.'",
    },
    "duration": {
        "title": "Duration",
        "description": 'Such as "90s", "15 minutes", "1h30m", "PT15M", or a number of seconds.',
        "type": ["string", "number"],
        "minimum": 0,
        "minLength": 1,
    },
    "risk": {
        "title": "Risk",
        "description": "The highest of what plan, step and worker declare counts.",
        "type": "string",
        "enum": list(RISKS),
    },
    "criteria": {
        "title": "Criteria",
        "description": "A named check of the worker (all_tests_pass), an expression over the "
        "report (data.failed == 0), or a list of both; all must hold.",
        "anyOf": [
            {"type": "string", "minLength": 1, "maxLength": 2000},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 2000},
                "minItems": 1,
            },
        ],
    },
    "retry": _any(
        "How often to try in all, or how often and with what pauses.",
        {"type": "integer", "minimum": 1, "maximum": 1000},
        _object(
            "Attempts and backoff.",
            {
                "attempts": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 1000,
                    "description": "Tries in all.",
                },
                "backoff": _ref("duration", "The pause before the second try."),
                "factor": {
                    "type": "number",
                    "minimum": 1,
                    "maximum": 100,
                    "description": "Growth of the pause.",
                },
                "max_backoff": _ref("duration", "The longest pause."),
            },
        ),
    ),
    "budget": _any(
        "The most that may be spent.",
        _AMOUNT,
        _object(
            "A budget by kind.", {"cost": _AMOUNT | {"description": "The most that may be spent."}}
        ),
    ),
    "uses": _any(
        "The named resources it holds while it runs: a name, a list of names, or amounts by name.",
        _NAME,
        _NAMES,
        _map("Amounts by name.", _COUNT),
    ),
    "window": _any(
        'The hours in which it may start, every day: "22:00-02:00 Europe/Berlin".',
        {"type": "string", "minLength": 1},
        _object(
            "The same in parts.",
            {
                "from": _text('When it opens, such as "22:00".'),
                "to": _text('When it closes, such as "02:00".'),
                "zone": _text('A time zone, such as "Europe/Berlin".'),
            },
            ("from", "to"),
        ),
    ),
    "facts": _any(
        "Names of facts.",
        _NAME,
        _NAMES,
        {"type": "object", "description": "Facts with what they must be."},
    ),
    "deadline": {
        "title": "Deadline",
        "description": "When it must be done: an instant, a local time with zone, or a duration.",
        "type": ["string", "number"],
        "minimum": 0,
        "minLength": 1,
    },
    "dependency": _any(
        "The id of a step, or the id with a condition.",
        {"type": "string", "minLength": 1},
        _object(
            "A dependency with a condition.",
            {
                "step": _text("The id of a step.", minLength=1),
                "if": {
                    "description": "succeeded (the default), or finished: well or not.",
                    "enum": ["succeeded", "finished"],
                },
            },
            ("step",),
        ),
    ),
}

_TASK: Schema = {
    "worker": _text("Who does it: the name of a registered worker.", minLength=1, maxLength=200),
    "action": _text("What the worker is asked to do.", maxLength=200),
    "description": _text("What it is for, for people."),
    "parameters": {
        "type": "object",
        "description": "What the worker is given. Values may be ${{ steps.ID.data.path }} "
        "or ${{ params.NAME }}; in a rollback plan also ${{ run.steps.ID.data.path }}.",
    },
    "success_criteria": _ref("criteria", "How we know that it is done."),
    "retry": _ref("retry"),
    "timeout": _ref("duration", "The longest one attempt may take."),
    "risk_level": _ref("risk"),
    "effects": _NAMES | {"description": "What it changes in the world."},
    "reads": _NAMES | {"description": "What it reads."},
    "writes": _NAMES | {"description": "What it writes."},
    "idempotent": {"type": "boolean", "description": "Whether doing it twice is as good as once."},
    "uses": _ref("uses"),
}

_CONTEXT: Schema = _object(
    "A step, and what of it is told.",
    {
        "step": _text("The id of a step.", minLength=1),
        "as": {
            "description": "result (the default): its data; summary: who did it, how it ended, "
            "its data in brief, and what it recommends.",
            "enum": ["result", "summary"],
        },
    },
    ("step",),
)

_STEP: Schema = _object(
    "One bounded task: who does what, with what, after what, and how we know it is done.",
    {"id": _ref("id")}
    | _TASK
    | {
        "depends_on": _list("The steps that must come before.", _ref("dependency")),
        "failure_action": _text(
            "What follows when it cannot be done: abort (or any word that begins so), "
            "rollback, continue, replan or escalate.",
            examples=["abort", "rollback", "continue", "replan", "escalate"],
        ),
        "expect": _ref(
            "criteria",
            "What a success should look like; otherwise it is a surprise, not a failure.",
        ),
        "alternatives": _NAMES | {"description": "Other workers that may do it."},
        "not_before": _text(
            'The earliest start: an instant, or a local time with zone ("02:00 America/New_York").'
        ),
        "window": _ref("window"),
        "undo": _object("The task that takes it back.", _TASK, ("worker",)),
        "needs": _ref("facts", "Facts that must be true before it."),
        "gives": _ref("facts", "Facts that are true after it."),
        "drops": _ref("facts", "Facts that are no longer true after it."),
        "est": _ref("duration", "How long it will probably take."),
        "tier": _text("The tier of model it asks for."),
        "context": _any(
            "The steps whose results, or summaries, its worker is told.",
            _NAME,
            _list("Several.", _any("The id of a step, or the id with a form.", _NAME, _CONTEXT)),
        ),
        "supersedes": _text("The id of the step that it takes the place of."),
        "because": _text("Why it is there, and what was not chosen instead; for people."),
    },
    ("id", "worker"),
)

_GOAL: Schema = _any(
    "What a person wants: a sentence, or an object that says more.",
    {"type": "string"},
    _object(
        "A goal with more to say.",
        {
            "text": _text("The goal in a sentence."),
            "want": _NAMES | {"description": "Facts that should be true in the end."},
            "have": {
                "type": "object",
                "description": "Facts that are true already, with their values.",
            },
            "acceptance": _list(
                "Expressions that must hold in the end.",
                {"type": "string", "minLength": 1, "maxLength": 2000},
            ),
            "budget": _ref("budget"),
            "deadline": _ref("deadline"),
            "mode": _MODE,
        },
    ),
)

_PLAN: Schema = _object(
    "A plan: a step graph with the goal it serves.",
    {
        "$schema": _text("The schema this document follows; for editors."),
        "plan_id": _text("A name for the plan.", maxLength=200),
        "goal": _GOAL,
        "description": _text("What it is for, for people."),
        "steps": _list("What is to be done.", _ref("step"), minItems=1),
        "final": {
            "type": "boolean",
            "description": "False: ask the planner again when these steps are done.",
        },
        "params": {
            "type": "object",
            "description": "Parameters that make the plan a template: a declaration "
            "(type, default, ...) or simply a default value.",
            "propertyNames": {
                "pattern": r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$",
                "patternErrorMessage": "the name of a parameter must start with a letter "
                "and hold only letters, digits, '_' and '-'",
            },
        },
        "rollback_plan": _any(
            "The name of a library plan, or a plan, run after an abort that asks for it.",
            {"type": "string", "minLength": 1},
            _ref("plan"),
        ),
        "estimated_duration": _ref("duration", "How long it will probably take."),
        "risk_level": _ref("risk"),
        "budget": _ref("budget"),
        "deadline": _ref("deadline"),
        "envelope": {
            "type": "object",
            "description": "What an approval covers: workers, effects, risk, scope, cost, expiry.",
        },
        "resources": _map("Named resources, and how many of each there are.", _COUNT),
        "limits": _object(
            "How much may run at once.",
            {
                "concurrency": _COUNT | {"description": "Steps at once."},
                "workers": _map("Steps at once by worker.", _COUNT),
            },
        ),
        "mode": _MODE,
        "consult": {
            "enum": ["every_report", "on_surprise"],
            "description": "When the planner is asked again.",
        },
        "base": _text("Digest of the workers it was planned against."),
        "planner": _text(
            "Who planned it, and may revise it when a step fails or surprises: goal, a model "
            "(anthropic:…) or a tier, or module:function. Without it the plan is never revised.",
            minLength=1,
            maxLength=200,
        ),
        "outlook": _list(
            "Steps expected later; shown, never executed.", {"type": ["object", "string"]}
        ),
    },
    ("steps",),
)

PLAN_SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": f"leadhand:plan:{PLAN_VERSION}",
    "title": "Leadhand plan",
    "$ref": "#/$defs/plan",
    "$defs": _SMALL | {"step": _STEP, "plan": _PLAN},
}

STEP_SCHEMA: Schema = {"$ref": "#/$defs/step", "$defs": PLAN_SCHEMA["$defs"]}
"""One step on its own, as planners propose them."""
