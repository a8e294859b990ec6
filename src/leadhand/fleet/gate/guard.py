"""What a change touches that the gate depends on, and what it must not hold at all.

Two answers, both from git alone, before anything of the change is run:

    guarded     paths that a person must look at, each with the reason: gate files
    (`deciding_files.py`),
                code that reaches for the machinery of tests (`tamper_scan.py`), tests of main that
                are changed and tests that change others (`test_edits.py`), links in code's place
    findings    what is refused and goes back to the agent, each by file and line: links that
                leave the repository, commands in .gitmodules, filters in .gitattributes, names
                that differ from others by case only, secrets. A secret itself is never part of
                a finding.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from typing import TYPE_CHECKING

from leadhand.fleet.gate import deciding_files, tamper_scan, test_edits
from leadhand.fleet.gate.secret_scan import secrets_in, text_of
from leadhand.fleet.path_patterns import within
from leadhand.fleet.repository.git import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.gate.gate import GateRules
    from leadhand.fleet.merge.same_change import TreeEntry
    from leadhand.fleet.repository.hub import Hub


LINK, FILES = "120000", ("100644", "100755")
READ_BYTES = 20 << 20
"""As much as is taken of one file from a slot."""
_COMMAND = re.compile(r"^\s*update\s*=\s*!", re.MULTILINE | re.IGNORECASE)
_REMOTE = re.compile(r"^\s*url\s*=\s*(-|ext::|fd::)", re.MULTILINE | re.IGNORECASE)
_FILTER = re.compile(r"(?:^|\s)(filter|merge|diff)=(?!lfs\b)([A-Za-z0-9_-]+)", re.MULTILINE)
BUILT_IN = frozenset(
    {"text", "union", "binary", "ours", "python", "markdown", "html", "css", "java"}
)
"""Drivers of git's own, which run no program."""


async def guarded(hub: Hub, rules: GateRules, base: str, head: str) -> dict[str, str]:
    """Return the paths of a change that a person must look at, each with the reason."""
    entries = await hub.entries(base, head)
    if not entries:
        return {}
    found = await _gate_files(hub, rules, base, head, entries)
    blobs = await _contents(hub, entries)
    for entry in entries:
        if entry.path not in found and (why := _reason(entry, blobs, code=rules.tampering)):
            found[entry.path] = why
    return found


def _reason(entry: TreeEntry, blobs: Mapping[str, bytes], *, code: bool) -> str:
    """Why a person should look at a file that is none of the gate's own.

    `code`: whether code that reaches for the machinery of tests counts; links and edits of tests
    always do.
    """
    path, old, new = entry.path, blobs.get(entry.old_blob), blobs.get(entry.blob)
    if entry.mode == LINK:
        return _link_to_code(path, new or b"")
    if deciding_files.is_test(path):
        return test_edits.reason(path, old, None if entry.status == "D" else new or b"")
    return tamper_scan.reason(path, old or b"", new or b"") if code else ""


def _link_to_code(path: str, data: bytes) -> str:
    """A link that is code, or leads to tests, under a name that does not say so."""
    target = data.decode("utf-8", "replace")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    codes = any(tamper_scan.is_code(each) or deciding_files.is_test(each) for each in (path, end))
    if codes or deciding_files.is_test(f"{end}/x"):
        return "a link in the place of code"
    return deciding_files.by_name(f"{path}/__init__.py", {path})


async def judged_by(
    hub: Hub, rules: GateRules, main: str, tree: str
) -> tuple[list[TreeEntry], list[TreeEntry]]:
    """Return what differs from main of the gate's own files, and of the tests."""
    entries = await hub.entries(main, tree)
    own = await _gate_files(hub, rules, main, tree, entries) if entries else {}
    return (
        [entry for entry in entries if entry.path in own],
        [
            entry
            for entry in entries
            if entry.path not in own and deciding_files.is_test(entry.path)
        ],
    )


async def _gate_files(
    hub: Hub, rules: GateRules, base: str, head: str, entries: Sequence[TreeEntry]
) -> dict[str, str]:
    own = await own_files(hub, rules, base)
    there, before = await _names(hub, head), await _names(hub, base)
    packages = {posixpath.dirname(name) for name in there if name.endswith("/__init__.py")}
    known = _modules(before)
    blobs = await _contents(hub, entries)
    found: dict[str, str] = {}
    for entry in entries:
        why = deciding_files.by_name(entry.path, packages, known)
        old, new = blobs.get(entry.old_blob, b""), blobs.get(entry.blob, b"")
        counts = deciding_files.part_that_counts(entry.path, old, new)
        if within(entry.path, own):
            why = deciding_files.IS_NAMED
        elif counts is not None:
            why = deciding_files.CONFIGURES if counts else ""
        if why:
            found[entry.path] = why
    gone = _uncovered(entries, there)
    changed = {entry.path for entry in entries}
    return found | {name: deciding_files.SHADOWS for name in gone if name in changed}


async def own_files(hub: Hub, rules: GateRules, base: str) -> tuple[str, ...]:
    """Return the gate's own files: configured, named by its commands, shadowing, included."""
    commands = (*rules.commands, *rules.setup)
    words = {name for argv in commands for name in deciding_files.named(argv)}
    kinds = await kinds_of(hub, base, words)
    found = [name for name, kind in kinds.items() if kind == "blob"]
    shadows = {name for argv in commands for name in deciding_files.shadowing(argv)}
    shadows -= {*await kinds_of(hub, base, shadows)}
    makefiles = [name for name in found if name.rpartition("/")[2] in deciding_files.MAKEFILES]
    seen: set[str] = set()
    while makefiles:
        name = makefiles.pop()
        if name in seen:
            continue
        seen.add(name)
        text = await _text(hub, base, name)
        more = deciding_files.included(text, "")
        makefiles += more
        found += more
    return tuple(
        dict.fromkeys(
            [*rules.gate_paths, *found, *sorted(shadows), *deciding_files.on_path(rules.env)]
        )
    )


async def kinds_of(hub: Hub, commit: str, names: Iterable[str]) -> dict[str, str]:
    """Return which of these names are there, and what each is."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    said = await hub.git("ls-tree", "-z", commit, "--", *wanted)
    lines = [line.partition("\t") for line in said.names()]
    return {name: about.split(" ")[1] for about, _, name in lines}


async def findings(hub: Hub, base: str, head: str) -> list[str]:
    """Return what must not land, each as one line that names file and line and no secret."""
    entries = [entry for entry in await hub.entries(base, head) if entry.status != "D"]
    blobs = await _contents(hub, entries)
    found = _by_case(await _names(hub, head), entries) if entries else []
    for entry in entries:
        data = blobs.get(entry.blob, b"")
        found += secrets_in("the name of a file", "", entry.path)
        if entry.mode == LINK:
            found += _link(entry.path, data)
            found += secrets_in(shown(entry.path), "", text_of(data))
        elif entry.mode in FILES:
            text = text_of(data[:READ_BYTES])
            found += _git_file(entry.path, text)
            old = text_of(blobs.get(entry.old_blob, b"")[:READ_BYTES])
            found += await asyncio.to_thread(secrets_in, shown(entry.path), old, text)
    return found


def _by_case(there: Sequence[str], entries: Sequence[TreeEntry]) -> list[str]:
    """New names that differ from others by case only: on some machines they are one file."""
    seen: dict[str, set[str]] = {}
    for name in there:
        seen.setdefault(name.casefold(), set()).add(name)
    return [
        f"{shown(entry.path)}: a name that differs from another one by case only"
        for entry in entries
        if entry.status == "A" and len(seen[entry.path.casefold()]) > 1
    ]


def _link(path: str, data: bytes) -> list[str]:
    target = data.decode("utf-8", "replace")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    leaves = target.startswith("/") or end.split("/")[0] == ".." or ".git" in end.split("/")
    return [f"{shown(path)}: a link that leaves the repository"] if leaves else []


def _git_file(path: str, text: str) -> list[str]:
    name, where = posixpath.basename(path), shown(path)
    if name == ".gitmodules":
        pairs = ((_COMMAND, "a submodule that runs a command"), (_REMOTE, "such an address"))
        return [f"{where}:{_line(text, m.start())}: {w}" for p, w in pairs if (m := p.search(text))]
    if name == ".gitattributes":
        return [
            f"{where}:{_line(text, match.start())}: a {match[1]} that runs a program"
            for match in _FILTER.finditer(text)
            if match[2] not in BUILT_IN
        ]
    return []


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at + 1) + 1


async def _contents(hub: Hub, entries: Sequence[TreeEntry]) -> dict[str, bytes]:
    """What stands in the files of a change, before and after; submodules have nothing."""
    shas = [
        sha
        for entry in entries
        for sha, mode in ((entry.old_blob, entry.old_mode), (entry.blob, entry.mode))
        if mode in (LINK, *FILES)
    ]
    return await hub.blobs(dict.fromkeys(shas)) if shas else {}


async def _names(hub: Hub, commit: str) -> list[str]:
    return (await hub.git("ls-tree", "-r", "-z", "--name-only", commit)).names()


async def _text(hub: Hub, commit: str, name: str) -> bytes:
    said = await hub.git("cat-file", "blob", f"{commit}:{name}", codes=(0, 128))
    return said.out if said.code == 0 else b""


def _modules(names: Iterable[str]) -> set[str]:
    """Files and packages, by their paths."""
    found: set[str] = set()
    for name in names:
        found.add(name)
        if name.endswith("/__init__.py"):
            found.add(posixpath.dirname(name))
    return found


def _uncovered(entries: Sequence[TreeEntry], there: Sequence[str]) -> list[str]:
    """Modules that begin to shadow something since the `__init__.py` beside them is gone."""
    gone = {
        posixpath.dirname(entry.path)
        for entry in entries
        if entry.status == "D" and entry.path.endswith("/__init__.py")
    }
    return [
        name for name in there if posixpath.dirname(name) in gone and deciding_files.by_name(name)
    ]
