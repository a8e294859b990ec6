"""The repository map: symbols, imports, history, owners, rank and budget."""

import json

import pytest

from leadhand.fleet.planning import symbols
from leadhand.fleet.planning.languages import GRAMMARS, QUERIES
from leadhand.fleet.planning.map_cache import FactsCache
from leadhand.fleet.planning.map_document import TOKEN_CHARS, entry_text, map_document
from leadhand.fleet.planning.map_history import history_of
from leadhand.fleet.planning.repository_map import (
    ModuleIndex,
    RepositoryMap,
    is_test,
    read_owners,
)
from leadhand.fleet.planning.survey import survey
from leadhand.fleet.planning.symbols import PATTERNS, TREE_SITTER, FileFacts, Symbol, facts_of
from leadhand.fleet.repository.hub import Hub
from tests.fleet.places import commit_all, write
from tests.support.need import need

SOURCES = {
    "a.py": "import os\nfrom shop.cart import (\n    Cart,\n    total,\n)\nLIMIT = 3\n\n\n"
    "class Shop:\n    def open(self):\n        pass\n",
    "a.js": "const x = require('./b');\nclass Shop {\n  open() {}\n}\nfunction sell() {}\n",
    "a.ts": "import { y } from './b';\nexport interface Shop { n: number }\n"
    "export function sell(): void {}\n",
    "a.tsx": "import y from './b';\nexport function Sell() { return <b/>; }\n",
    "a.go": 'package a\n\nimport (\n\t"fmt"\n)\n\ntype Shop struct{}\n\nfunc (s Shop) Open() {}\n'
    "func Sell() {}\n",
    "a.rs": "use crate::cart::Cart;\npub struct Shop;\nimpl Shop {\n    pub fn open(&self) {}\n}\n",
    "A.java": "import shop.Cart;\npublic class Shop {\n    public void open() {}\n}\n",
    "a.rb": "require_relative 'cart'\nclass Shop\n  def open\n  end\nend\n",
    "a.c": '#include "cart.h"\nstruct shop { int n; };\nint sell(int n) {\n  return n;\n}\n',
    "a.cpp": '#include "cart.hpp"\nclass Shop {\n public:\n  void open();\n};\n'
    "void Shop::open() {\n}\n",
    "a.php": "<?php\nuse Shop\\Cart;\nclass Shop {\n    public function open() {}\n}\n",
    "a.cs": "using Shop.Cart;\npublic class Shop {\n    public void Open() {}\n}\n",
}
FIRST = {"a.c": "shop", "a.tsx": "Sell"}


@pytest.mark.parametrize("how", [TREE_SITTER, PATTERNS])
@pytest.mark.parametrize("path", SOURCES)
def test_symbols_and_imports_of_each_language(path, how):
    if how == TREE_SITTER:
        need(symbols.reader() == TREE_SITTER, "the extra map (tree-sitter)")
    found = facts_of(path, SOURCES[path].encode(), how)
    names = {each.name for each in found.symbols}
    assert FIRST.get(path, "Shop") in names
    assert names & {"open", "Open", "sell", "Sell"}
    assert found.imports
    assert found.lines == SOURCES[path].count("\n")


def test_every_grammar_reads_its_own_query():
    need(symbols.reader() == TREE_SITTER, "the extra map (tree-sitter)")
    assert set(QUERIES) == set(GRAMMARS)
    assert [name for name in GRAMMARS if symbols._parser(name) is None] == []


def test_the_line_of_a_symbol_is_the_same_by_either_reader():
    need(symbols.reader() == TREE_SITTER, "the extra map (tree-sitter)")
    data = SOURCES["a.py"].encode()
    exact = {(each.name, each.line) for each in facts_of("a.py", data, TREE_SITTER).symbols}
    assert exact == {(each.name, each.line) for each in facts_of("a.py", data, PATTERNS).symbols}


@pytest.mark.parametrize("how", [TREE_SITTER, PATTERNS])
def test_hostile_files_cost_little_and_break_nothing(how):
    for path in SOURCES:
        assert facts_of(path, b"\xff\xfe" * 100, how).imports == ()
        assert facts_of(path, b"from a import (" * 2000, how).lines == 1
        assert facts_of(path, b"a b " * 5000 + b"(" * 500, how).lines == 1
        assert facts_of(path, b"x\0y = 1\n", how).symbols == ()
        assert facts_of(path, b"", how).lines == 0


def test_imports_find_their_files():
    files = [
        "src/shop/__init__.py",
        "src/shop/cart.py",
        "src/shop/till/cash.py",
        "web/app.ts",
        "web/ui/index.ts",
        "lib/cart.h",
        "lib/use.c",
        "tests/test_cart.py",
    ]
    known = ModuleIndex(files)
    assert known.find("tests/test_cart.py", "shop.cart") == "src/shop/cart.py"
    assert known.find("tests/test_cart.py", "shop.cart.Cart") == "src/shop/cart.py"
    assert known.find("src/shop/till/cash.py", "..cart") == "src/shop/cart.py"
    assert known.find("src/shop/cart.py", ".till.cash") == "src/shop/till/cash.py"
    assert known.find("web/app.ts", "./ui") == "web/ui/index.ts"
    assert known.find("web/ui/index.ts", "../app.js") == "web/app.ts"
    assert known.find("lib/use.c", "cart.h") == "lib/cart.h"
    assert known.find("web/app.ts", "react") == ""
    assert known.find("tests/test_cart.py", "os.path") == ""


def test_co_change_counts_small_commits_only():
    wide = [f"f{n}" for n in range(40)]
    found = history_of([["a", "b"], ["a", "b"], ["a"], ["a", "c"], wide])
    assert (found.commits, found.churn["a"], found.churn.get("f1")) == (4, 4, None)
    assert found.together["a"] == (("b", 2),)
    assert (found.share("a", "b"), found.share("b", "a"), found.share("a", "c")) == (0.5, 1.0, 0.0)


def test_owners_are_those_of_the_last_rule_that_matches():
    rules = read_owners("* @all # everybody\n/src/shop/ @shop @till\n*.md @docs\nbuild/\n")
    made = RepositoryMap({}, owners=rules)
    assert made.owners_of("src/shop/cart.py") == ("@shop", "@till")
    assert made.owners_of("src/other.py") == ("@all",)
    assert made.owners_of("deep/README.md") == ("@docs",)
    assert made.owners_of("x/build/y") == ()


def test_tests_are_known_by_name_and_import():
    assert [p for p in ("tests/test_a.py", "a_test.go", "a.spec.ts", "src/a.py") if is_test(p)] == [
        "tests/test_a.py",
        "a_test.go",
        "a.spec.ts",
    ]
    made = small_map()
    assert made.tests["shop/cart.py"] == ("tests/test_cart.py",)
    assert made.tests["shop/till.py"] == ("tests/test_money.py",)


def small_map(more=0):
    files = {
        "shop/cart.py": "from shop.till import Till\n\n\nclass Cart:\n    def add_item(self):\n"
        "        return Till()\n",
        "shop/till.py": "class Till:\n    pass\n\n\ndef round_money(x):\n    return x\n",
        "shop/mail.py": "def send_receipt():\n    pass\n",
        "tests/test_cart.py": "from shop.cart import Cart\n",
        "tests/test_money.py": "from shop.till import round_money\n",
        "CHANGELOG.md": "",
    } | {f"other/file_{n}.py": f"def unrelated_{n}():\n    pass\n" for n in range(more)}
    facts = {path: facts_of(path, text.encode(), PATTERNS) for path, text in files.items()}
    history = history_of([["shop/mail.py", "CHANGELOG.md"]] * 4 + [["shop/cart.py"]])
    sizes = {path: len(text) for path, text in files.items()}
    owners = read_owners("/shop/ @shop")
    return RepositoryMap(sizes, facts, history, owners, PATTERNS)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Change shop/mail.py", {"shop/mail.py"}),
        ("`round_money` rounds down", {"shop/till.py"}),
        ("Receipts are sent twice", {"shop/mail.py"}),
        ("The cart has a limit", {"shop/cart.py", "tests/test_cart.py"}),
    ],
)
def test_what_an_epic_names_comes_first(text, first):
    rank = list(small_map(50).rank(text))
    assert set(rank[: len(first)]) == first
    assert len(rank) == 56


def test_neighbours_of_what_an_epic_names_follow():
    rank = list(small_map(50).rank("Change shop/mail.py"))
    assert rank[1] == "CHANGELOG.md"  # it changes with it
    rank = list(small_map(50).rank("Change shop/cart.py"))
    assert set(rank[1:3]) == {"shop/till.py", "tests/test_cart.py"}


def test_the_map_is_deterministic_and_in_its_budget():
    made = small_map(400)
    docs = [map_document(each, "the cart", 1000) for each in (made, small_map(400))]
    assert docs[0] == docs[1]
    json.dumps(docs[0])
    text = "\n".join(map(entry_text, docs[0]["map"]))
    assert 0.8 * 1000 * TOKEN_CHARS < len(text) <= 1000 * TOKEN_CHARS
    assert docs[0]["folders"]
    assert docs[0]["symbols_by"] == PATTERNS
    cart = next(each for each in docs[0]["map"] if each["path"] == "shop/cart.py")
    assert cart["tests"] == ["tests/test_cart.py"]
    assert cart["imports"] == ["shop/till.py"]
    assert cart["owners"] == ["@shop"]
    assert {"name": "Cart", "kind": "class", "line": 4} in cart["symbols"]
    assert "Cart:4" in entry_text(cart)


def test_an_epic_that_names_nothing_and_an_empty_repository():
    assert RepositoryMap({}).rank("anything") == {}
    rank = small_map().rank("")
    assert abs(sum(rank.values()) - 1) < 1e-6


def test_facts_are_kept_by_content(tmp_path):
    path, facts = tmp_path / "map.jsonl", FileFacts("python", 1, (Symbol("a", "class", 1),))
    cache = FactsCache(path, PATTERNS)
    cache.load()
    cache.save({"1:python": facts}, {"1:python"})
    cache.save({"2:python": facts}, {"1:python", "2:python"})
    with path.open("ab") as file:
        file.write(b'["torn')
    again = FactsCache(path, PATTERNS)
    again.load()
    assert again.known == {"1:python": facts, "2:python": facts}
    other = FactsCache(path, TREE_SITTER)
    other.load()
    assert other.known == {}


def test_facts_of_contents_that_are_gone_leave_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("leadhand.fleet.planning.map_cache.SPARE", 2)
    path = tmp_path / "map.jsonl"
    cache = FactsCache(path, PATTERNS)
    for n in range(9):
        cache.save({f"{n}:python": FileFacts("python")}, {f"{n}:python"})
    again = FactsCache(path, PATTERNS)
    again.load()
    assert "8:python" in again.known
    assert len(again.known) <= 4


async def test_only_new_contents_are_read(tmp_path, user, monkeypatch):
    write(user, {"pkg/one.py": "def one(): pass\n", "pkg/AGENTS.md": "Inner rules."})
    commit_all(user, "More")
    cache = FactsCache(tmp_path / "map.jsonl", symbols.reader())
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        first = await survey(hub, cache)
        read = []
        monkeypatch.setattr(
            "leadhand.fleet.planning.survey.facts_of",
            lambda path, data: read.append(path) or facts_of(path, data),
        )
        kept = FactsCache(tmp_path / "map.jsonl", symbols.reader())
        kept.load()
        again = await survey(hub, kept)
    assert read == []
    assert again.map.facts == first.map.facts
    assert first.map.facts["pkg/one.py"].symbols[0].name == "one"
    told = first.told("Change pkg/one.py")
    assert told["map"][0]["path"] == "pkg/one.py"
    assert {"path": "pkg/AGENTS.md", "text": "Inner rules."} in told["guides"]
