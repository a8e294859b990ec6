"""The documentation site: every page in a real browser, and what the build refuses."""

import re
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from scripts import docs_site
from tests.support.need import need
from tests.web.conftest import AXE, WIDE
from tests.web.test_gallery import faults

ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "index.html",
    "how-to/index.html",
    "reference/plans.html",
    "reference/settings.html",
    "explanation/pattern.html",
    "releases/0.1.0.html",
    "files/examples/fleet/leadhand.toml.html",
)
"""One page of each kind, for axe-core."""


class Reader:
    """A reader of the site who notes whatever goes wrong."""

    def __init__(self, browser, look, script=None):
        self.context = browser.new_context(viewport=WIDE, color_scheme=look)
        self.context.set_default_timeout(60_000)
        if script is not None:
            self.context.add_init_script(path=script)
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request):
        if not request.url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:")):
            self.wrong.append(f"asks for {request.url}")

    def open(self, address):
        before = len(self.wrong)
        self.page.goto(address)
        self.wrong[before:] = [f"{address}: {each}" for each in self.wrong[before:]]


BROKEN = "[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"


@contextmanager
def served(folder):
    handler = partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.real
def test_every_page_in_a_browser(site, browser):
    """No error, no request to another host, no broken picture; axe finds nothing serious."""
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    wrong = opened_as_files(site, browser)
    with served(site) as address:
        wrong += looked_at(address, browser)
        found = [found_by_search(browser, each) for each in (address, site.as_uri())]
    assert not wrong, "\n".join(wrong)
    assert found[0] == found[1]


def opened_as_files(site, browser):
    """Open every page from the file system, where nothing helps: no server, no other host."""
    reader = Reader(browser, "light")
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    files = [path for path in pages if (site / "files") in path.parents]
    assert len(pages) - len(files) > 90
    # Pages that show a file differ only in its text: a few of them are enough.
    for path in [path for path in pages if path not in files[8:]]:
        reader.open(path.as_uri())
        reader.wrong += [f"{path.name}: broken {src}" for src in reader.page.evaluate(BROKEN)]
    reader.context.close()
    return reader.wrong


def looked_at(address, browser):
    """Look at one page of each kind with axe-core, in both looks."""
    wrong = []
    for look in ("light", "dark"):
        reader = Reader(browser, look, AXE)
        for kind in KINDS:
            reader.open(f"{address}/{kind}")
            reader.wrong += [f"{kind}, {look}: {each}" for each in faults(reader.page)]
        reader.context.close()
        wrong += reader.wrong
    return wrong


def found_by_search(browser, address):
    """Return what search offers for some words that are typed."""
    reader = Reader(browser, "light")
    reader.open(f"{address}/index.html")
    reader.page.wait_for_function("!document.documentElement.classList.contains('no-js')")
    field = reader.page.get_by_placeholder("Search")
    for _ in range(60):  # the script of the page may not listen yet
        reader.page.keyboard.press("Control+k")
        with suppress(PlaywrightTimeout):
            field.wait_for(timeout=2000)
            break
    field.press_sequentially("circuit breaker")
    offered = reader.page.get_by_role("option")
    offered.filter(has_text="Circuit breakers").first.wait_for()
    assert field.input_value() == "circuit breaker"
    text, before = offered.all_inner_texts(), []
    while text != before:  # results come in parts
        reader.page.wait_for_timeout(500)
        text, before = offered.all_inner_texts(), text
    reader.context.close()
    assert not reader.wrong, "\n".join(reader.wrong)
    return text


# --- the text is not changed on the way ----------------------------------------------------------


class Shape(HTMLParser):
    """How often HTML has each element that Markdown can mean in two ways."""

    COUNTED = frozenset(
        ("li", "pre", "table", "tr", "h2", "h3", "ul", "ol", "blockquote", "strong", "em")
    )

    def __init__(self, text):
        super().__init__()
        self.counts = Counter()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in self.COUNTED:
            self.counts[tag] += 1


def test_pages_mean_what_they_mean_on_code_hosts(site):
    """Lists, tables and blocks are those of CommonMark, by another parser than the builder's."""
    markdown = MarkdownIt("commonmark").enable("table")
    differ = []
    for path in sorted(site.rglob("*.md")):
        article = path.with_suffix(".html").read_text().partition("<article")[2]
        shown = Shape(article.partition("</article>")[0]).counts
        meant = Shape(markdown.render(path.read_text())).counts
        if shown != meant:
            differ.append(f"{path.relative_to(site)}: {shown - meant} more, {meant - shown} less")
    assert not differ, "\n".join(differ)


def test_language_models_find_every_page(site):
    """llms.txt names every page as Markdown that is there; llms-full.txt holds them all."""
    index, whole = (site / "llms.txt").read_text(), (site / "llms-full.txt").read_text()
    named = re.findall(r"^- \[.+?\]\(([^)]+)\)", index, re.MULTILINE)
    assert all((site / name).exists() for name in named)
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    pages = {str(path).replace("README.md", "index.md") for path in sources}
    assert pages - {"decisions/0000-template.md"} <= set(named)
    for name in named:
        assert (site / name).read_text().strip() in whole, name


def test_a_release_has_the_changes_of_its_version(site):
    text = (site / "releases" / "0.1.0.md").read_text()
    assert docs_site.CHANGES not in text
    assert "## Added" in text


# --- what the build refuses ----------------------------------------------------------------------


def test_a_new_page_appears_under_the_heading_that_links_it():
    def page(name, text):
        return docs_site.Page(name, None, text)

    index = (
        "# Guides\n\n## First steps\n- [Begin](begin.md)\n\n## Then\nSee [more](more.md#part).\n"
    )
    pages = {
        "how-to/index.md": page("how-to/index.md", index),
        "how-to/begin.md": page("how-to/begin.md", "# Begin at once\n"),
        "how-to/more.md": page("how-to/more.md", "# More of it\n"),
        "how-to/new.md": page("how-to/new.md", "# A new page\n\nIt is new. It is short.\n"),
    }
    assert docs_site.entries(pages, "how-to", "Guides") == [
        "how-to/index.md",
        {"First steps": [{"Begin": "how-to/begin.md"}]},
        {"Then": [{"More of it": "how-to/more.md"}]},
        {"A new page": "how-to/new.md"},
    ]
    assert pages["how-to/index.md"].text.endswith("- [A new page](new.md): It is new.\n")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[x](missing.md)", "missing.md does not exist"),
        ("[x](../../../outside.md)", "outside.md does not exist"),
        ("![x](../img/review.svg)", "review.svg is not committed"),
        ("<!-- picture nothing: x -->", "makes no picture nothing"),
        ("![](../img/run.svg)", "picture run has no words"),
        ("`[x](missing.md)`", ""),
        ("`<!-- picture nothing: x -->`", ""),
        ("```\n[x](missing.md)\n```", ""),
        ("[x](https://example.org/a)", ""),
    ],
)
def test_a_link_that_leads_nowhere_is_named(text, wrong):
    page = docs_site.Page("team/page.md", ROOT / "docs" / "team" / "page.md", f"# Page\n\n{text}\n")
    stage = docs_site.Stage({page.target: page}, draft=True)
    stage.rewrite(page)
    assert [wrong in each for each in stage.problems] == ([True] if wrong else [])
    if not wrong:
        assert text in page.text


def test_links_to_files_of_the_repository_show_them():
    source = ROOT / "docs" / "team" / "page.md"
    page = docs_site.Page("team/page.md", source, "[it](../../examples/release/plan.yaml)\n")
    stage = docs_site.Stage({page.target: page})
    stage.rewrite(page)
    assert page.text == "[it](../files/examples/release/plan.yaml.md)\n"
    assert "release-auth-service" in stage.pages["files/examples/release/plan.yaml.md"].text


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="b.html">', ""),
        ('<a href="b.html#here">', ""),
        ('<a href="https://example.org">', ""),
        ('<a href="c.html">', "c.html leads nowhere"),
        ('<a href="b.html#there">', "no such anchor"),
        ('<a href="#there">', "no such anchor"),
        ('<img alt="a" src="c.png">', "c.png leads nowhere"),
        ('<img src="b.html">', "no alt text"),
        ('<script src="https://example.org/a.js">', "another host"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "another host"),
        ('<i id="x"></i><i id="x"></i>', "two elements have the id x"),
    ],
)
def test_what_is_wrong_with_the_html_is_named(tmp_path, body, wrong):
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h1 id="here">')
    found = docs_site.check(tmp_path)
    assert [wrong in each for each in found] == ([True] if wrong else [])


def test_a_style_sheet_loads_nothing_from_another_host(tmp_path):
    (tmp_path / "a.css").write_text("a { background: url(https://example.org/a.png) }")
    assert docs_site.check(tmp_path) == ["a.css: loads https://example.org/a.png from another host"]


def test_a_console_block_is_copied_without_prompts_and_output():
    code = '<span class="gp">$ </span>echo &quot;a&quot; \\\n  b\nab\n$ ls\n'
    block = f'<div class="language-console highlight"><span>T</span><pre><code>{code}</code></pre>'
    copied = docs_site.CONSOLE.sub(docs_site.copied, block)
    assert 'highlight" data-copy="echo &quot;a&quot; \\\n  b\nls"><span>T</span>' in copied


@pytest.mark.parametrize("label", ["", "**Goal.** ", "About 10 minutes. "])
def test_the_summary_of_a_page_leaves_out_the_label_before_it(label):
    page = docs_site.Page("a.md", None, f"# A\n\n{label}A run ends. It is shown.\n")
    assert page.summary == "A run ends."
