"""Plans the epic in three waves. A model would be told the same, and answer in the same form."""

from typing import Any

TEST = "python3 -m unittest tests/test_{0}.py"
WAVES = [
    {
        "words": "Split a text into words, in small letters.",
        "common": "Tell words that say nothing from words that count.",
        "excerpt": "Cut the place out of a text where a word stands.",
    },
    {
        "index": "Say in which notes a word stands, and how often. Use words.py and common.py.",
        "rank": "Put notes in order: rare words count more than words that are everywhere.",
    },
    {"find": "The command find.py: look words up, and print the best notes with excerpts."},
]
ANSWER = "Sixty characters, and … where something is left out."


def next_wave(told: dict[str, Any]) -> dict[str, Any]:
    """The next tasks, the answer to an agent, or that nothing is left to do."""
    asked = [each["task"] for each in told["matters"] if each["kind"] == "question"]
    if asked:
        answers = [{"task": task, "text": ANSWER} for task in asked]
        return {"kind": "wave", "because": "an agent asks", "answers": answers, "tasks": []}
    if told["matters"]:
        matter = told["matters"][0]
        said = matter["said"].partition("\n")[0].rstrip(": ")
        question = f"What should an agent know about task {matter['task']}? It failed: {said}."
        return {"kind": "ask", "because": "it failed", "question": question}
    known = {task["id"] for task in told["tasks"]}
    for number, wave in enumerate(WAVES, 1):
        if not known.issuperset(wave):
            tasks = [_task(name, goal) for name, goal in wave.items()]
            return {"kind": "wave", "because": f"wave {number}", "tasks": tasks}
    return {
        "kind": "done",
        "because": "every part is on main",
        "summary": "Notes can be searched: python3 find.py WORDS.",
        "changelog": "Notes can be searched with find.py.",
    }


def _task(name: str, goal: str) -> dict[str, Any]:
    return {
        "id": name,
        "goal": goal,
        "writes": [f"{name}.py", f"tests/test_{name}.py"],
        "reads": ["AGENTS.md"],
        "acceptance": [TEST.format(name)],
    }
