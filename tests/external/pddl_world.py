"""The judge of planning problems: the world of one problem, read from its PDDL, step by step.

    world = World(domain_text, problem_text)
    world.do("stack", ["a", "b"])      # what stands in its way; nothing: it was done
    world.reached                      # whether everything that is wanted is true now

It shares no code with what it judges, nor with what makes workers out of PDDL for it: it has its
own reader, keeps facts as tuples, and never grounds anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Atom = tuple[str, ...]


class World:
    """What is true in one problem, and what happens when something is done."""

    def __init__(self, domain: str, problem: str) -> None:
        parts = _sections(problem)
        self._actions = {part[1]: part for part in _read(domain)[1:] if part[0] == ":action"}
        self._above = dict(_kinds(_sections(domain).get(":types", [])))
        self._kind = dict(_kinds(parts[":objects"]))
        self.facts: set[Atom] = {tuple(atom) for atom in parts[":init"]}
        self._wanted = _split(parts[":goal"][0])
        self.done: list[str] = []

    @property
    def reached(self) -> bool:
        """Whether the goal is true."""
        yes, no = self._wanted
        return self.facts.issuperset(yes) and self.facts.isdisjoint(no)

    def do(self, name: str, objects: Sequence[str]) -> list[str]:
        """Do something if it can be done; otherwise all that stands in its way."""
        action = self._actions.get(name)
        if action is None:
            return [f"there is no {name}"]
        fields = dict(zip(action[2::2], action[3::2], strict=True))
        variables = _kinds(fields[":parameters"])
        if len(variables) != len(objects):
            return [f"{name} takes {len(variables)} objects, not {len(objects)}"]
        wrong = [
            f"{word} is no {kind}"
            for word, (_, kind) in zip(objects, variables, strict=True)
            if not self._is(word, kind)
        ]
        names = {variable: word for (variable, _), word in zip(variables, objects, strict=True)}
        yes, no = _split(fields.get(":precondition", []), names)
        wrong += [f"{' '.join(atom)} is not true" for atom in yes if atom not in self.facts]
        wrong += [f"{' '.join(atom)} is true" for atom in no if atom in self.facts]
        if wrong:
            return wrong
        adds, deletes = _split(fields[":effect"], names)
        self.facts = (self.facts - set(deletes)) | set(adds)
        self.done.append(" ".join([name, *objects]))
        return []

    def _is(self, word: str, kind: str) -> bool:
        found: str | None = self._kind.get(word)
        if found is None:
            return False
        while found is not None and found != kind:
            found = self._above.get(found)
        return kind in (found, "object")


def _read(text: str) -> Any:
    """Brackets as nested lists."""
    words = re.findall(r"\(|\)|[^\s()]+", re.sub(r";.*", "", text).lower())

    def level(at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while words[at] != ")":
            if words[at] == "(":
                inner, at = level(at + 1)
                found.append(inner)
            else:
                found.append(words[at])
            at += 1
        return found, at

    return level(1)[0]


def _sections(text: str) -> dict[str, Any]:
    return {part[0]: part[1:] for part in _read(text)[1:]}


def _kinds(words: Sequence[str]) -> list[tuple[str, str]]:
    """`a b - block`: each name with its kind."""
    text = " ".join(words)
    found = []
    for names, kind in re.findall(r"((?:(?!-\s)\S+\s*)+)(?:-\s+(\S+))?", text):
        found += [(name, kind or "object") for name in names.split()]
    return found


def _split(tree: Any, names: dict[str, str] | None = None) -> tuple[list[Atom], list[Atom]]:
    """A conjunction as what is to be true and what is not."""
    yes: list[Atom] = []
    no: list[Atom] = []
    stack = [tree] if tree else []
    while stack:
        part = stack.pop()
        if part[0] == "and":
            stack += part[1:]
        elif part[0] == "not":
            no.append(tuple((names or {}).get(word, word) for word in part[1]))
        else:
            yes.append(tuple((names or {}).get(word, word) for word in part))
    return yes, no
