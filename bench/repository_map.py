"""The repository map, measured: the time to build it, and the overlaps it predicts.

    python -m bench.repository_map projects ARCHIVE...      unpacked sources of published packages
    python -m bench.repository_map overlaps [--back N] [--changes N]
    python -m bench.repository_map generated

`projects` takes archives (`pip download --no-binary :all: --no-deps NAME`, `npm pack NAME`). Each
is unpacked, committed to a new repository and surveyed twice: without a cache, and with one.

`overlaps` takes changes of this repository's own history as epics: the message is the epic, the
files that existed before are what it really touched. A scripted planner takes the first files of a
rank for each; two epics overlap if their files do. The map is that of the commit before the first
change: it knows nothing of them. File names alone are the yardstick: the rank by words of paths.
`generated` does the same for made-up projects, where each feature has files that change together.
"""

import argparse
import asyncio
import os
import random
import subprocess
import tarfile
import tempfile
import time
from collections import defaultdict
from itertools import combinations
from math import log
from pathlib import Path

from leadhand.fleet.planning.languages import ENDINGS, language_of
from leadhand.fleet.planning.map_cache import FactsCache
from leadhand.fleet.planning.map_history import history_of
from leadhand.fleet.planning.overlaps import predicted_share
from leadhand.fleet.planning.repository_map import COMMON, RepositoryMap, root_of, words_of
from leadhand.fleet.planning.survey import survey
from leadhand.fleet.planning.symbols import facts_of, reader
from leadhand.fleet.repository.hub import Hub

ROOT = Path(__file__).resolve().parents[1]
FILES_MAX = 12
"""Files of a change that counts as one epic."""
FIRST = (3, 5, 10)
"""How many files the scripted planner takes."""


def git(*words, cwd=ROOT, data=None):
    said = subprocess.run(["git", *words], cwd=cwd, input=data, capture_output=True, check=True)
    return said.stdout


# Time


def unpack(archive, into):
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    for place in into.rglob(".git*"):
        if place.is_file():
            place.unlink()
    git("init", "-q", "-b", "main", cwd=into)
    git("add", "-A", "-f", cwd=into)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    git(*who, "-c", "gc.auto=0", "commit", "-qm", "all", cwd=into)


def clock():
    """Return wall-clock seconds and seconds of the processors, git's included."""
    spent = os.times()
    return time.perf_counter(), sum(spent[:4])


async def timed(folder, place):
    """Return the survey, and the seconds of a build without a cache and of one with it."""
    async with await Hub.open(place / "fleet", folder) as hub:
        seconds = []
        for _ in range(2):
            begun = clock()
            cache = FactsCache(place / "map.jsonl", reader())
            cache.load()
            seen = await survey(hub, cache)
            _ = seen.map.edges
            seconds += [now - then for now, then in zip(clock(), begun, strict=True)]
    return seen, seconds


def main_language(sizes):
    bytes_of = defaultdict(int)
    for path, size in sizes.items():
        if path.rpartition(".")[2] in ENDINGS:
            bytes_of[language_of(path)] += size
    return max(bytes_of, key=bytes_of.get, default="-")


def projects(archives):
    print(f"symbols by {reader()}; seconds: wall clock, and of the processors in brackets")
    print(
        f"{'project':24} {'language':11} {'files':>6} {'read':>6} build per 1,000 | cached | rank"
    )
    for archive in map(Path, archives):
        with tempfile.TemporaryDirectory(prefix="leadhand-map-") as place:
            folder = Path(place) / "user"
            folder.mkdir()
            unpack(archive, folder)
            seen, (cold, cold_cpu, warm, warm_cpu) = asyncio.run(timed(folder, Path(place)))
        begun = time.perf_counter()
        seen.told("Parse options and print an error")
        rank = time.perf_counter() - begun
        name = archive.name.removesuffix(".tar.gz").removesuffix(".tgz")
        files, each = len(seen.files), 1000 / len(seen.files)
        print(
            f"{name:24} {main_language(seen.map.sizes):11} {files:6,} {len(seen.map.facts):6,} "
            f"{cold * each:5.2f} ({cold_cpu * each:.2f}) | {warm:.2f} ({warm_cpu:.2f}) |"
            f" {rank:.2f}",
            flush=True,
        )


# Overlaps


def map_at(commit):
    sizes, blobs = {}, {}
    for entry in git("ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
        about, _, path = entry.partition(b"\t")
        words = about.split()
        if len(words) == 4 and words[1] == b"blob":
            sizes[path.decode()], blobs[path.decode()] = int(words[3]), words[2]
    said, at, facts = git("cat-file", "--batch", data=b"\n".join(blobs.values()) + b"\n"), 0, {}
    for path in blobs:
        end = said.index(b"\n", at)
        size = int(said[at:end].split()[2])
        facts[path] = facts_of(path, said[end + 1 : end + 1 + size])
        at = end + 2 + size
    touched = [paths for _, paths in changes("--max-count=1000", commit)]
    return RepositoryMap(sizes, facts, history_of(touched), reader=reader())


def changes(*which):
    """Return messages and touched files of commits."""
    said = git("log", "-z", "--no-merges", "--name-only", "--format=%x01%B%x02", *which)
    for entry in said.split(b"\1")[1:]:
        text, _, names = entry.partition(b"\2")
        paths = (name.strip(b"\n").decode() for name in names.split(b"\0"))
        yield text.decode(), [path for path in paths if path]


def by_names(made):
    """Return a rank by the words of paths alone."""
    having = defaultdict(set)
    for path in made.sizes:
        for word in words_of(path):
            having[root_of(word)].add(path)

    def rank(text):
        found = defaultdict(float)
        for word in sorted({root_of(word) for word in words_of(text)} - COMMON):
            for path in having.get(word, ()):
                found[path] += log(1 + len(made.sizes) / len(having[word]))
        return sorted(found, key=lambda path: (-found[path], path))

    return rank


def scores(hits, said, real):
    precision, recall = hits / said if said else 0.0, hits / real if real else 0.0
    both = 2 * hits / (said + real) if said + real else 0.0
    return f"{precision:9.2f} {recall:6.2f} {both:5.2f}"


def overlap_row(label, chosen, epics):
    hits = said = real = pairs = inside = told = touched = 0
    for files, (_, truth) in zip(chosen, epics, strict=True):
        inside, told, touched = inside + len(files & truth), told + len(files), touched + len(truth)
    for (a, (_, x)), (b, (_, y)) in combinations(zip(chosen, epics, strict=True), 2):
        pairs, guess, truth = pairs + 1, bool(a & b), bool(x & y)
        hits, said, real = hits + (guess and truth), said + guess, real + truth
    files = scores(inside, told, touched)
    print(f"{label:34} {files}   {scores(hits, said, real)}   {real} of {pairs}")


def table(made, epics):
    print(" " * 35 + "files: precision recall F1   overlaps: precision recall F1   real pairs")
    names = by_names(made)
    ranks = [(list(names(text)), list(made.rank(text))) for text, _ in epics]
    for first in FIRST:
        for label, which in (("file names alone", 0), ("repository map", 1)):
            chosen = [set(each[which][:first]) for each in ranks]
            overlap_row(f"{label}, first {first} from the text", chosen, epics)
    # A planner that says one file of each task: what else will it touch?
    several = [(text, truth) for text, truth in epics if len(truth) > 1]
    given = [{min(truth, key=lambda path: (-made.sizes[path], path))} for _, truth in several]
    overlap_row("one file of each given, alone", given, several)
    for least in (0.5, 0.33, 0.2):
        wider = [_wider(made, files, least) for files in given]
        overlap_row(f"the same, with co-change from {least:.2f}", wider, several)


def _wider(made, files, least):
    found = set(files)
    for path in files:
        for other, _ in made.history.together.get(path, ()):
            if other in made.sizes and predicted_share(made.history, path, other) >= least:
                found.add(other)
    return found


def overlaps(back, wanted):
    base = git("rev-parse", f"HEAD~{back}").decode().strip()
    made = map_at(base)
    epics = []
    for text, paths in reversed(list(changes(f"{base}..HEAD"))):
        truth = {path for path in paths if path in made.sizes}
        if 1 <= len(truth) <= FILES_MAX:
            epics.append((text, truth))
    epics = epics[:wanted]
    print(f"{len(epics)} changes after {base[:12]}, map of {len(made.sizes):,} files")
    table(made, epics)


class MadeUp:
    """A project of features with three to five files each, and a registry that a third touch."""

    def __init__(self, seed):
        self._chance = random.Random(seed)
        starts, ends = ("zor", "mip", "tal", "ven", "kul"), ("ax", "ibo", "une", "erd")
        self.texts, self._features = {"app/registry.py": "REGISTRY = []\n"}, {}
        for word in (a + b for a in starts for b in ends):
            self._feature(word)

    def _feature(self, word):
        parts = ("model", "view", "store", "wire")[: self._chance.randint(2, 4)]
        own = [f"app/{part}_{self._chance.randint(100, 999)}.py" for part in parts]
        for path in own:
            text = f"def {word}_{Path(path).stem}():\n    pass\n\n\n"
            self.texts[path] = self.texts.get(path, "") + text
        test = f"tests/test_{word}.py"
        self.texts[test] = f"from {own[0][:-3].replace('/', '.')} import *\n"
        self._features[word] = [*own, test]

    def change(self):
        """Return a text and the files of one change."""
        chance, word = self._chance, self._chance.choice(sorted(self._features))
        some = chance.sample(self._features[word], chance.randint(2, len(self._features[word])))
        hot = ["app/registry.py"] if chance.random() < 0.3 else []
        return f"{word}: another rule", {*some, *hot}


def generated(seeds=3):
    for seed in range(seeds):
        project = MadeUp(seed)
        past = [sorted(project.change()[1]) for _ in range(300)]
        facts = {path: facts_of(path, text.encode()) for path, text in project.texts.items()}
        sizes = {path: len(text) for path, text in project.texts.items()}
        print(f"generated project {seed}, 40 changes, {len(sizes)} files")
        table(RepositoryMap(sizes, facts, history_of(past)), [project.change() for _ in range(40)])


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.repository_map")
    parts = parser.add_subparsers(dest="what", required=True)
    parts.add_parser("projects").add_argument("archives", nargs="+")
    part = parts.add_parser("overlaps")
    part.add_argument("--back", type=int, default=150)
    part.add_argument("--changes", type=int, default=100)
    parts.add_parser("generated")
    given = parser.parse_args()
    if given.what == "projects":
        projects(given.archives)
    elif given.what == "overlaps":
        overlaps(given.back, given.changes)
    else:
        generated()


if __name__ == "__main__":
    main()
