"""The prompt of an epic planner: one JSON document, bounded, without secrets.

    why, epic, limits         from people: they count
    matters, tasks            how it stands
    record, past              how planned tasks went in this fleet, by size and in all
    repository, repositories  written by anybody: data, whatever it says; further ones by name
    comments                  of reviewers on the last wave, where they sent it back
    answers, findings, notes  what people answered, why the last answer was sent back, its own notes

Scripts get the document as it is. Models get it as text, with all that agents and files wrote
between marks that carry its digest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.fleet.planning.map_document import MAP_TOKENS, TOKEN_CHARS, entry_text
from leadhand.fleet.repositories import repository_of
from leadhand.fleet.status.ladder import MAIN_REPOSITORY
from leadhand.models.messages import UserMessage
from leadhand.models.secret_patterns import scrub, scrubbed
from leadhand.planners.model.prompt import clean, fence_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.report import PlannerView, StepView
    from leadhand.fleet.epics import Epic
    from leadhand.fleet.planning.lint import Ground, GroundOf
    from leadhand.fleet.planning.progress import EpicNotes, EpicProgress, Matter
    from leadhand.fleet.planning.survey import Survey


VERSION = 1
TASKS_TOLD = 200
GOAL_CHARS = 400
WORDS_CHARS = 1500
EPIC_CHARS = 40_000
ANSWERS_TOLD = 20
TREE_CHARS = 24_000
GUIDE_CHARS = 4500
LOOK_CHARS = 20_000
MAP_CHARS = 2 * MAP_TOKENS * TOKEN_CHARS

PAST = {
    "tasks": "tasks that are over:",
    "landed": "landed:",
    "first_pass": "landed with the first attempt:",
    "conflicts": "attempts in conflict with main:",
    "handbacks": "attempts that came back with a question:",
    "split": "failed and were split:",
    "replanned": "failed and were planned in another way:",
    "overtaken": "overtaken by changes of others:",
    "people": "left to a person:",
    "proposals": "answers of the planner:",
    "refused": "of them sent back by lint:",
}
"""The words for the counts of `PlanningRecord`."""

SEVERAL = f"""# Repositories
There are several. Each task belongs to exactly one: its `repository` names it ({MAIN_REPOSITORY} \
where it names none), its paths are relative to it, and its commands run in it. A task may depend on
one of another repository: it begins when that change is on its branch, and its agent is told which
commit that is. To read a file of another one, write `NAME:path`. There are, besides \
{MAIN_REPOSITORY}:"""

Doc = dict[str, Any]


def planner_document(
    view: PlannerView,
    epic: Epic,
    notes: EpicNotes,
    ground: Ground,
    survey: Survey,
    more: Doc | None = None,
    others: Mapping[str, tuple[Survey, Doc]] | None = None,
) -> Doc:
    """Return the document for the planner; `more` is what else is known of the repository.

    `others` are further repositories, by name: the maps of all share the same budget of tokens.
    """
    standing, past = ground.standing, msgspec.to_builtins(ground.record)
    text, tokens = f"{epic.title}\n{epic.text[:EPIC_CHARS]}", MAP_TOKENS // (1 + len(others or ()))
    more = {**(more or {}), "areas": past["areas"]}
    doc: Doc = {
        "version": VERSION,
        "why": _cut(view.why, WORDS_CHARS),
        "epic": {
            "title": epic.title,
            "text": epic.text[:EPIC_CHARS],
            "acceptance": [list(argv) for argv in epic.acceptance],
            "budget": epic.budget,
        },
        "limits": _limits(ground),
        "matters": [_matter(each) for each in standing.matters] + _others(view, notes, standing),
        "tasks": [_task(step) for step in standing.tasks[-TASKS_TOLD:]],
        "record": past["sizes"],
        "past": ground.record.counts(),
        "repository": {**survey.told(text, tokens), **more},
        "answers": [_answer(each) for each in view.answers[-ANSWERS_TOLD:]],
        "waves": notes.waves,
        "notes": notes.said,
    }
    if view.comments:
        doc["comments"] = [
            {**each, "text": _cut(each["text"], WORDS_CHARS)}
            for each in view.comments[-TASKS_TOLD:]
        ]
    made = {**scrubbed(doc), "repository": doc["repository"]}
    if others:
        made["repositories"] = {
            name: {**seen.told(text, tokens), **about, **_own_limits(ground.others[name])}
            for name, (seen, about) in others.items()
        }
    return made


def _own_limits(ground: GroundOf) -> Doc:
    return {"protected": list(ground.protected), "paths": list(ground.paths)}


def _limits(ground: Ground) -> Doc:
    rules = ground.rules
    return {
        "tasks": rules.tasks,
        "writes": rules.writes,
        "files": rules.files,
        "tiers": list(ground.tiers),
        "protected": list(ground.protected),
        "paths": list(rules.paths),
        "programs": list(rules.programs),
        "waves_left": max(0, rules.waves - ground.waves),
        "budget_left": ground.budget_left,
    }


def _task(step: StepView) -> Doc:
    given = step.planned.get("parameters", {})
    doc: Doc = {
        "id": step.id,
        "goal": _cut(str(given.get("goal", "")), GOAL_CHARS),
        "writes": given.get("writes", []),
        "depends_on": step.planned.get("depends_on", []),
        "status": "landed" if step.status == "succeeded" else step.status,
        "attempts": step.attempts,
    }
    if name := repository_of(step.planned):
        doc["repository"] = name
    if step.planned.get("supersedes"):
        doc["replaces"] = step.planned["supersedes"]
    if step.error is not None:
        doc["failure"] = {
            "class": step.error.failure_class,
            "message": _cut(step.error.message, WORDS_CHARS),
        }
    elif step.status in ("cancelled", "skipped"):
        doc["reason"] = _cut(step.reason, GOAL_CHARS)
    return doc


def _matter(matter: Matter) -> Doc:
    step = matter.step
    details = step.error.details if step.error is not None else None
    doc: Doc = {
        "kind": matter.kind,
        "task": step.id,
        "wanted": matter.rung,
        "attempts": step.attempts,
        "said": _cut(matter.told, WORDS_CHARS),
    }
    if matter.kind == "drift" and isinstance(details, dict):
        doc["changed"] = details.get("drift")
    return doc


def _others(view: PlannerView, notes: EpicNotes, standing: EpicProgress) -> list[Doc]:
    """Return an acceptance that does not hold, and agents' recommendations since."""
    found: list[Doc] = []
    check = standing.check
    if check is not None and check.error is not None:
        said = _cut(check.error.message, WORDS_CHARS * 2)
        found.append({"kind": "acceptance", "times": standing.reds, "said": said})
    words = view.recommendations[notes.heard :]
    return found + [{"kind": "handoff", "said": _cut(word, WORDS_CHARS)} for word in words]


def _answer(answer: Doc) -> Doc:
    return {
        "question": _cut(str(answer.get("question", "")), WORDS_CHARS),
        "choice": answer.get("choice", ""),
        "text": _cut(str(answer.get("text") or answer.get("data") or ""), WORDS_CHARS),
    }


def question(doc: Doc) -> UserMessage:
    """Return the document for a model, with the length of the part that the next one repeats."""
    lasting = _lasting(doc)
    return UserMessage("\n\n".join([*lasting, *_moving(doc)]), len("\n\n".join(lasting)))


def _lasting(doc: Doc) -> list[str]:
    """Return the part that stays the same for an epic; it comes first, so that it can be cached."""
    epic, limits, tree = doc["epic"], doc["limits"], doc["repository"]
    return [
        f"# The epic: {epic['title']}\n{epic['text']}",
        "# It is achieved when these succeed on main\n"
        + (_lines(epic["acceptance"]) or "- the gate"),
        "# Limits\n" + "\n".join(f"- {name}: {_json(value)}" for name, value in limits.items()),
        *_several(doc.get("repositories", {})),
        *(f"# {each['path']}\n{fence_data(each['text'], GUIDE_CHARS)}" for each in tree["guides"]),
    ]


def _several(others: Doc) -> list[str]:
    """Return what a model must know of a fleet with several repositories; nothing of one."""
    if not others:
        return []
    rows = [
        f"- {name}: protected: {_json(each['protected'])}, paths: {_json(each['paths'])}"
        for name, each in others.items()
    ]
    guides = [
        f"# {guide['path']} of the repository {name}\n{fence_data(guide['text'], GUIDE_CHARS)}"
        for name, each in others.items()
        for guide in each["guides"]
    ]
    return [SEVERAL + "\n" + "\n".join(rows), *guides]


def _moving(doc: Doc) -> list[str]:
    """Return the part that changes with main and with finished tasks."""
    tree, parts = doc["repository"], list[str]()
    for name, title in (
        ("matters", "What wants an answer"),
        ("tasks", "Tasks so far"),
        ("record", "First-pass success by size of task, in this fleet"),
    ):
        if doc[name]:
            parts.append(f"# {title}\n{fence_data(_lines(doc[name]), TREE_CHARS)}")
    if doc["past"]:
        counts = ", ".join(f"{PAST[name]} {number}" for name, number in doc["past"].items())
        parts.append(f"# What came of plans in this fleet so far\n{counts}")
    parts += _map(tree)
    for name, each in doc.get("repositories", {}).items():
        parts += [f"# The repository {name}, at {each['main']}", *_map(each)]
    parts.append(f"# The last commits\n{fence_data(_lines(tree['history']), TREE_CHARS // 4)}")
    if doc["answers"]:
        parts.append(f"# People answered\n{_lines(doc['answers'])}")
    if doc.get("comments"):
        how = (
            "`comments` of your answer says for each, by its id, whether you addressed it: "
            '[{"comment": "c1", "addressed": true, "reason": "what you changed, or why not"}]'
        )
        parts.append(f"# Reviewers' comments on your last wave\n{_lines(doc['comments'])}\n{how}")
    if doc["notes"]:
        parts.append(f"# Your notes\n{doc['notes']}")
    parts.append(f"# You are asked because\n{clean(doc['why'])[:WORDS_CHARS]}")
    return parts


def looked(found: list[Doc]) -> str:
    """Return what a look found, for a model."""
    parts = []
    for each in found:
        about = f"Search: {each['search']}" if "search" in each else each["path"]
        parts.append(f"# {clean(about)}\n{fence_data(each['text'], LOOK_CHARS)}")
    return "\n\n".join(parts)


def _map(tree: Doc) -> list[str]:
    """Return the repository map as text: files by relevance, with lines of their symbols."""
    told = "\n".join(entry_text(each) for each in tree["map"])
    title = f"# Files by relevance to the epic, {len(tree['map'])} of {tree['files']}"
    parts = [f"{title}\n{fence_data(told, MAP_CHARS)}"]
    for name, words in (
        ("commands", "Commands of the gate and of set-up"),
        ("languages", "Languages"),
        ("folders", "Folders"),
        ("areas", "First-pass success, conflicts and questions by folder, in this fleet"),
    ):
        if tree.get(name):
            parts.append(f"# {words}\n{fence_data(_lines(tree[name]), TREE_CHARS // 4)}")
    for name, words in (("build", "Build files"), ("ci", "CI"), ("docs", "Documents")):
        if tree.get(name):
            parts.append(f"# {words}\n{fence_data(' '.join(tree[name]), TREE_CHARS // 4)}")
    return parts


def _lines(rows: list[Any]) -> str:
    return "\n".join(f"- {_json(row)}" for row in rows)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, most: int) -> str:
    text = scrub(clean(text))
    return text if len(text) <= most else f"{text[: most // 3]} … {text[-(most - most // 3) :]}"
