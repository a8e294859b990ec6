"""A coding agent that needs no model: it copies its answer out of `answers/`, and errs on the way.

`python3 agent.py NAME TASK ATTEMPT BRIEF SESSION`, in a clone of the repository. A real agent
reads the brief; this one only looks for what it has been told. Its mistakes are those of real ones:

    common    says that it is done, and has changed nothing
    excerpt   does not know enough, and asks
    rank      the small agent gets it wrong again and again; the able one does not
"""

import json
import shutil
import sys
import time
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers")
SECONDS = 1.5
WRONG = "def rank(index, wanted, notes):\n    return sorted(index)\n"


def say(kind: str, **more: object) -> None:
    """A line in the form that `leadhand fleet log` and the page show."""
    print(json.dumps({"type": kind, **more}), flush=True)
    time.sleep(SECONDS / 3)


def change_log(brief: str) -> None:
    """The last task of all: the entry stands in the brief."""
    entry = brief.partition("The entry says: ")[2].partition("\n")[0]
    with Path("CHANGES.md").open("a") as file:
        file.write(f"- {entry}\n")


def main(name: str, task: str, attempt: str, brief: str) -> None:
    """One attempt; what is left in the files is what counts."""
    part = task.partition("-")[0]  # a task that was planned again is called NAME-2
    say("text", text=f"I am {name}, at {task} for the {attempt}. time")
    say("tool", tool="read", path="AGENTS.md")
    say("usage", cost=0.02 if name == "small" else 0.08, turn=True)
    if part == "common" and attempt == "1":
        say("result", text="Done! All tests pass.")
    elif part == "excerpt" and "characters" not in brief:
        say("result", text="needs: how long may an excerpt be?")
    elif part == "changelog":
        change_log(brief)
    else:
        shutil.copytree(ANSWERS / part, ".", dirs_exist_ok=True)
        if part == "rank" and name == "small":
            Path("rank.py").write_text(WRONG)
        say("file", path=f"{part}.py")
        say("result", text="Done.")


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]).read_text())
