"""The structure of the source tree in figures: files, lines, importers, class names, suppressions.

    python bench/structure.py [SOURCE]    figures of one tree; without SOURCE, of this checkout

Nothing is imported: the figures come from the syntax trees, so any checkout can be measured.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def modules(source: Path) -> dict[str, Path]:
    """Return every module of a package folder by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        if "_npm" in path.parts:
            continue
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers(found: dict[str, Path], trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return for each module the modules that import it or a name of it."""
    by: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    by[whole if whole in found else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    by[alias.name].add(name)
    return by


def figures(source: Path) -> dict[str, object]:
    """Return the figures of one tree."""
    found = modules(source)
    texts = {name: path.read_text() for name, path in found.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    sizes = [text.count("\n") for text in texts.values()]
    by = importers(found, trees)
    classes: dict[str, set[str]] = defaultdict(set)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].add(name)
    gerunds = [name for name in found if re.search(r"(?:^|[._])[a-z]+ing$", name)]
    return {
        "files": len(found),
        "lines": sum(sizes),
        "median lines": statistics.median(sizes),
        "modules with one importer": sum(len(by[name]) == 1 for name in found),
        "class names used twice": sum(len(homes) > 1 for homes in classes.values()),
        "modules named by a gerund": len(gerunds),
        "type: ignore": sum(text.count("type: ignore") for text in texts.values()),
        "casts": sum(len(re.findall(r"\bcast\(", text)) for text in texts.values()),
    }


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "src" / "leadhand"
    print(json.dumps(figures(chosen), indent=2))
