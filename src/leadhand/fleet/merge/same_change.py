"""The same-change check: a merge must change exactly the lines that the change itself did.

A merge that works is not yet the right one. It may put an edit into a file that was renamed
meanwhile, and a change made on an old copy of the files takes back what others have landed. Both
pass every test there is. So what a merge does to its target is compared with what the change did
to its base, path by path:

    in the change, in the merge, same file before     it must be the same file after
    in the change, in the merge, both had changed it  line by line (below)
    in the change only                                its result must be in the target already
    in the merge only                                 nobody asked for it

Where both sides changed a file, lines are counted: how many more (or fewer) of each line the merge
leaves in the target is at most how many more (or fewer) the change made, and of a line that the
change left alone exactly as many. At most, since both sides may have made the same edit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path that differs between two trees; a blob of zeros: not there."""

    path: str
    status: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str


def strangers(
    change: Iterable[TreeEntry], merged: Iterable[TreeEntry], target: Iterable[TreeEntry]
) -> tuple[list[str], list[tuple[TreeEntry, TreeEntry]]]:
    """Return the paths on which a merge does something else, and the pairs to compare by lines.

    `change` is from the base to the head, `merged` from the target to the result, `target` from the
    base to the target.
    """
    wanted = {entry.path: entry for entry in change}
    done = {entry.path: entry for entry in merged}
    before = {entry.path: entry for entry in target}
    odd, both = [path for path in done if path not in wanted], []
    for path, entry in wanted.items():
        now = done.get(path)
        if now is None:
            held = before.get(path)
            if held is None or (held.mode, held.blob) != (entry.mode, entry.blob):
                odd.append(path)
        elif (now.old_mode, now.old_blob) == (entry.old_mode, entry.old_blob):
            if (now.mode, now.blob) != (entry.mode, entry.blob):
                odd.append(path)
        elif now.mode != (entry.mode if entry.mode != entry.old_mode else now.old_mode):
            odd.append(path)
        elif (now.old_blob, now.blob) != (entry.old_blob, entry.blob):
            both.append((entry, now))
    return odd, both


def same_lines(entry: TreeEntry, now: TreeEntry, blobs: Mapping[str, bytes]) -> bool:
    """Return whether a merge changes the count of each line as the change did, or less."""
    old, new, target, result = (
        blobs.get(sha, b"") for sha in (entry.old_blob, entry.blob, now.old_blob, now.blob)
    )
    asked, made = _difference(old, new), _difference(target, result)
    return all(min(0, asked[line]) <= count <= max(0, asked[line]) for line, count in made.items())


def _difference(before: bytes, after: bytes) -> Counter[bytes]:
    """Return by how much the count of each line grows; negative if it shrinks."""
    found = Counter(_lines(after))
    found.subtract(_lines(before))
    return found


def _lines(text: bytes) -> list[bytes]:
    # A last line without its end is the same line as one with it.
    return text.removesuffix(b"\n").split(b"\n") if text else []
