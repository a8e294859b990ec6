"""Build the documentation site: `make docs`. The result is build/site, readable without a server.

1. Stage. Every page of docs/, the Markdown files beside README.md and the READMEs of examples/ are
   copied to build/site-src. Links to anything else in the repository lead to a page that shows
   the file, so that no link depends on where the repository is hosted.
2. Navigate. A section of the site is a folder of docs/. The headings and links of its index.md
   give the order and the groups; a page that index.md does not name is added at the end.
3. Build, with Zensical, strict: a broken link or anchor is a failure.
4. Check the HTML: each link, anchor and picture leads somewhere, and nothing is loaded from
   another host.
5. Write llms.txt and llms-full.txt, and each page as Markdown beside its HTML.

Pictures come from build/pictures, which `make pictures` fills from real runs (scripts/pictures.py).
The site shows the light or the dark one. A page names one as `<!-- picture NAME: words -->`, which
code hosts leave out; one that is committed in docs/img, also as `![words](../img/NAME.svg)`.
With `--draft`, every picture is left empty, so that none must be made.
"""

import argparse
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import pictures  # noqa: E402 - found by the line above

DOCS = ROOT / "docs"
BUILD = ROOT / "build"
PICTURES = pictures.OUT
LOOKS = pictures.LOOKS
EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 5"/>'

SECTIONS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "team": "For teams",
}
PROJECT = {
    "releases": "Releases",
    "contributing": "Contributing",
    "decisions": "Decisions",
    "project": "About",
}
"""Folders under the last tab, "Project"."""

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2`*$\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?([^)\s>]+)>?\s*\)")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$", re.MULTILINE)
MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LABEL = re.compile(r"^(\*\*\w+\.\*\*|About \d+ minutes\.) ")
"""What stands before the first sentence of a page: `**Goal.**`, or how long a tutorial takes."""
CHANGES = "<!-- changelog -->"
CONSOLE = re.compile(r'(<div class="language-console highlight")>(.*?</code></pre>)', re.DOTALL)
PICTURE = re.compile(r"<!-- picture ([\w-]+): (.*?) -->", re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".sh": "sh",
    ".js": "js",
    ".sql": "sql",
    ".md": "markdown",
}


class Broken(Exception):
    """What is wrong with the site, one line each."""


# --- pages -------------------------------------------------------------------


@dataclass
class Page:
    target: str
    """Its place in the site, such as `reference/plans.md`."""
    source: Path | None
    """The file it is made from; none for a page that the build writes."""
    text: str
    hidden: bool = False
    """Whether it is outside of navigation, search and llms.txt: a file of the repository."""

    @property
    def title(self) -> str:
        found = HEADING.search(blank(self.text))
        return plain(found[2]) if found else Path(self.target).stem

    @property
    def summary(self) -> str:
        """The first sentence below the title, without a label before it."""
        body = MATTER.sub("", COMMENT.sub("", self.text))
        for part in re.split(r"\n\s*\n", FENCE.sub("", body)):
            words = plain(LABEL.sub("", " ".join(part.split())))
            if words and not part.lstrip().startswith(("#", "|", "!", "-", "<", ">")):
                return re.split(r"(?<=[.!?]) (?=[A-Z])", words)[0]
        return ""


def plain(markdown: str) -> str:
    """Return the text without links, emphasis and code marks."""
    return re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", LINK.sub(r"\2", markdown)).strip()


def blank(text: str) -> str:
    """Return the text with front matter and fenced blocks blanked, every other place unmoved."""

    def spaces(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return FENCE.sub(spaces, MATTER.sub(spaces, text))


def collect() -> dict[str, Page]:
    """Return the pages by their target."""
    sources = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    sources = {name.replace("README.md", "index.md"): path for name, path in sources.items()}
    sources.pop("decisions/0000-template.md", None)
    for path in sorted(ROOT.glob("*.md")):
        if path.name not in ("README.md", "CLAUDE.md"):
            sources[f"project/{path.stem.lower().replace('_', '-')}.md"] = path
    for path in sorted((ROOT / "examples").rglob("README.md")):
        name = path.parent.relative_to(ROOT / "examples").as_posix().replace("/", "-")
        sources[f"how-to/examples/{name}.md"] = path
    return {name: Page(name, path, path.read_text()) for name, path in sources.items()}


@dataclass
class Stage:
    """The pages on their way to the site: links rewritten, missing index pages written."""

    pages: dict[str, Page]
    draft: bool = False
    problems: list[str] = field(default_factory=list)
    pictures: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = {page.source: page.target for page in self.pages.values() if page.source}
        self.places[ROOT / "README.md"] = "index.md"
        self.places[DOCS] = "index.md"
        for page in list(self.pages.values()):
            if page.source and page.source.name in ("README.md", "index.md"):
                self.places.setdefault(page.source.parent, page.target)

    def rewrite(self, page: Page) -> None:
        """Point every link of a page to its place in the site."""
        assert page.source is not None
        source = page.source
        marked = blank(page.text)
        code = [found.span() for found in CODE.finditer(marked)]
        parts, last = [], 0
        for found in re.finditer(f"{LINK.pattern}|{PICTURE.pattern}", marked, re.DOTALL):
            if any(start <= found.start() and found.end() <= end for start, end in code):
                continue
            parts.append(page.text[last : found.start()])
            if found[4]:
                parts.append(self.picture(page, found[4], found[5]))
            else:
                parts.append(self.link(page, source, page.text[found.start() : found.end()], found))
            last = found.end()
        page.text = "".join(parts) + page.text[last:]

    def link(self, page: Page, source: Path, written: str, found: re.Match[str]) -> str:
        mark, label, address = found[1], found[2], found[3]
        if urlsplit(address).scheme or address.startswith("#"):
            return written
        name, _, anchor = address.partition("#")
        path = Path(os.path.normpath(source.parent / unquote(name)))
        if mark:
            if not path.exists():
                self.problems.append(f"{page.target}: {address} is not committed: <!-- picture")
            return self.picture(page, path.stem, label)
        label = written[1 : written.rindex("](")]
        target = self.place(path)
        if target is None:
            self.problems.append(f"{source.relative_to(ROOT)}: {address} does not exist")
            return label
        away = os.path.relpath(target, Path(page.target).parent)
        return f"[{label}]({away}{'#' + anchor if anchor else ''})"

    def picture(self, page: Page, name: str, label: str) -> str:
        """Write a picture as two, for the light and for the dark look."""
        label = " ".join(label.split())
        known = name in pictures.NAMES_ALL
        ending = ".svg" if name in pictures.TERMINAL or self.draft else ".png"
        made = all((PICTURES / f"{name}-{look}{ending}").exists() for look in LOOKS)
        if not label:
            self.problems.append(f"{page.target}: picture {name} has no words beside it")
        if not known:
            self.problems.append(f"{page.target}: scripts/pictures.py makes no picture {name}")
        elif not made and not self.draft:
            self.problems.append(f"{page.target}: picture {name} is not made: make pictures")
        self.pictures.add(name)
        up = os.path.relpath("pictures", Path(page.target).parent)
        return "".join(f"![{label}]({up}/{name}-{look}{ending}#only-{look})" for look in LOOKS)

    def write_pictures(self, folder: Path) -> None:
        """Copy the pictures that pages show."""
        folder.mkdir()
        for name in sorted(self.pictures & set(pictures.NAMES_ALL)):
            for look in LOOKS:
                made = [*PICTURES.glob(f"{name}-{look}.*")]
                if self.draft:
                    (folder / f"{name}-{look}.svg").write_text(EMPTY)
                elif made:
                    shutil.copy(made[0], folder)

    def place(self, path: Path) -> str | None:
        """Return the page for a file or folder of the repository, made if there is none."""
        if path in self.places:
            return self.places[path]
        if not path.exists() or ROOT not in path.parents:
            return None
        if DOCS in path.parents and path.is_file():
            return path.relative_to(DOCS).as_posix()
        name = path.relative_to(ROOT).as_posix()
        target = f"files/{name}/index.md" if path.is_dir() else f"files/{name}.md"
        self.places[path] = target
        text = self.listing(path, target) if path.is_dir() else shown(path)
        page = Page(target, None, text, hidden=True)
        self.pages[target] = page
        return target

    def listing(self, folder: Path, target: str) -> str:
        name = folder.relative_to(ROOT).as_posix()
        rows = []
        for path in sorted(folder.iterdir()):
            if path.name.startswith((".", "__")) or ignored(path):
                continue
            place = self.place(path)
            assert place is not None
            away = os.path.relpath(place, Path(target).parent)
            rows.append(f"- [`{path.name}{'/' if path.is_dir() else ''}`]({away})")
        return f"# `{name}/`\n\n" + "\n".join(rows) + "\n"


def ignored(path: Path) -> bool:
    command = ["git", "check-ignore", "--quiet", str(path)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def shown(path: Path) -> str:
    """Return a page that shows a file."""
    name = path.relative_to(ROOT).as_posix()
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return f"# `{name}`\n\nA file that is not text.\n"
    fence = "`" * (2 + max([1, *(len(run) for run in re.findall(r"`{2,}", text))]))
    language = LANGUAGES.get(path.suffix, "text")
    head = f"# `{name}`\n\nThe file as it is in the repository.\n\n"
    return f"{head}{fence}{language}\n{text}\n{fence}\n"


# --- navigation --------------------------------------------------------------


def index_page(pages: dict[str, Page], folder: str, title: str) -> Page:
    """Return the index page of a folder, written where there is none."""
    name = f"{folder}/index.md"
    if name not in pages:
        pages[name] = Page(name, None, f"# {title}\n")
    return pages[name]


def members(pages: dict[str, Page], folder: str) -> list[str]:
    """Return the pages of a folder, without its index, in the order of their names."""
    inside = [name for name in pages if name.startswith(f"{folder}/") and not pages[name].hidden]
    return sorted(name for name in inside if name != f"{folder}/index.md")


def groups(pages: dict[str, Page], folder: str, title: str) -> list[tuple[str, dict[str, str]]]:
    """Return the pages of a folder, with their labels, by the headings of its index page.

    A link at the beginning of a list item or a table cell gives the label. Pages that the index
    page does not name are added to it.
    """
    index = index_page(pages, folder, title)
    left = members(pages, folder)
    found: list[tuple[str, dict[str, str]]] = [("", {})]
    marked = blank(index.text)
    for token in re.finditer(f"{HEADING.pattern}|{LINK.pattern}", marked, re.MULTILINE):
        if token[1]:
            found.append((plain(token[2]), {}))
        elif token[5]:
            name = os.path.normpath(f"{folder}/{token[5].partition('#')[0]}")
            if name in left:
                left.remove(name)
                before = marked[: token.start()].rpartition("\n")[2].strip()
                first = before in ("-", "|")
                found[-1][1][name] = plain(token[4]) if first else pages[name].title
    found = [(heading, names) for heading, names in found if names]
    if left:
        rows = "\n".join(row(pages[name], folder) for name in left)
        heading = "\n## More\n\n" if found else "\n"
        index.text = f"{index.text.rstrip()}\n{heading}{rows}\n"
        found.append(("", {name: pages[name].title for name in left}))
    return found


def row(page: Page, folder: str) -> str:
    """Return a line of a list of pages."""
    about = f": {page.summary}" if page.summary else ""
    return f"- [{page.title}]({os.path.relpath(page.target, folder)}){about}"


def entries(pages: dict[str, Page], folder: str, title: str) -> list[Any]:
    """Return what navigation shows below a section."""
    found: list[Any] = [f"{folder}/index.md"]
    grouped = groups(pages, folder, title)
    for heading, names in grouped:
        listed: list[Any] = [{label: name} for name, label in names.items()]
        if heading and len(grouped) > 1:
            found.append({heading: listed})
        else:
            found.extend(listed)
    return found


def navigation(pages: dict[str, Page]) -> list[Any]:
    nav: list[Any] = [{"Home": "index.md"}]
    for folder, title in SECTIONS.items():
        nav.append({title: entries(pages, folder, title)})
    about = index_page(pages, "project", "Project")
    project: list[Any] = ["project/index.md"]
    for folder, title in PROJECT.items():
        if folder == "project":
            project.extend(entries(pages, folder, title)[1:])
        else:
            project.append({title: entries(pages, folder, title)})
            link = os.path.relpath(f"{folder}/index.md", "project")
            about.text = f"{about.text.rstrip()}\n\n- [{title}]({link})"
    nav.append({"Project": [*project, *(name for name in ("proof.md",) if name in pages)]})
    return nav


def outline(nav: list[Any]) -> list[tuple[str, list[str]]]:
    """Return the pages of each tab, in the order of navigation."""

    def flat(item: Any) -> list[str]:
        if isinstance(item, str):
            return [item]
        if isinstance(item, dict):
            return [name for value in item.values() for name in flat(value)]
        return [name for each in item for name in flat(each)]

    return [(title, flat(value)) for entry in nav for title, value in entry.items()]


# --- releases ----------------------------------------------------------------


def changes() -> dict[str, str]:
    """Return the parts of CHANGELOG.md by version, `Unreleased` among them."""
    parts = re.split(r"^## +(.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    names = [re.sub(r"[\[\]]", "", name).split(" ")[0] for name in parts[1::2]]
    return dict(zip(names, parts[2::2], strict=True))


def fill_release(page: Page) -> None:
    """Put the part of CHANGELOG.md where the page of a release asks for it."""
    version = Path(page.target).stem
    known = changes()
    if version not in known and version == project()["version"]:
        version = "Unreleased"
    if CHANGES in page.text:
        # Its links are relative to the repository; they are rewritten from there.
        text = re.sub(r"\]\((?!\w+:|#)", "](../../", known[version].strip())
        page.text = page.text.replace(CHANGES, re.sub(r"^###", "##", text, flags=re.MULTILINE))


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


# --- build -------------------------------------------------------------------


def config(nav: list[Any]) -> dict[str, Any]:
    """Return the settings of Zensical, in the form of MkDocs."""
    about = project()
    address = about.get("urls", {})
    palette = [
        {
            "media": f"(prefers-color-scheme{': ' + media if media else ''})",
            **({"scheme": scheme} if scheme else {}),
            "toggle": {"icon": f"lucide/{icon}", "name": f"Switch to {then}"},
        }
        for media, scheme, icon, then in (
            ("", "", "sun-moon", "the light look"),
            ("light", "default", "sun", "the dark look"),
            ("dark", "slate", "moon", "the look of the system"),
        )
    ]
    features = ["navigation.tabs", "navigation.indexes", "navigation.sections", "navigation.top"]
    features += ["navigation.footer", "navigation.path", "content.code.copy", "search.highlight"]
    return {
        "site_name": "Leadhand",
        "site_description": about["description"],
        **({"site_url": address["Documentation"]} if "Documentation" in address else {}),
        **({"repo_url": address["Source"]} if "Source" in address else {}),
        "docs_dir": "site-src",
        "site_dir": "site",
        "use_directory_urls": False,
        "nav": nav,
        "theme": {"language": "en", "features": features, "font": False, "palette": palette},
        "extra": {"generator": False},
        "extra_css": ["assets/site.css"],
        "plugins": [{"search": {}}, {"offline": {}}],
        "validation": {"invalid_links": True, "invalid_link_anchors": True},
        "markdown_extensions": [
            "admonition",
            "attr_list",
            "md_in_html",
            "tables",
            # The same anchors as on code hosts.
            {"toc": {"permalink": True, "slugify": {"kwds": {"case": "lower"}}}},
            "pymdownx.details",
            {"pymdownx.highlight": {"pygments_lang_class": True}},
            "pymdownx.inlinehilite",
            "pymdownx.superfences",
            {"pymdownx.tabbed": {"alternate_style": True}},
        ],
    }


def dialect(text: str) -> str:
    """Return Markdown of code hosts as the builder's Markdown means the same.

    A list may follow a paragraph there without a blank line, and be nested by two spaces.
    """
    lines: list[str] = []
    marked = blank(text).split("\n")
    item = re.compile(r"^( *)([-*+]|\d+[.)]) +")
    levels: list[tuple[int, int]] = []  # indentation of items: as written, as meant
    for line, mark in zip(text.split("\n"), marked, strict=True):
        lead = len(line) - len(line.lstrip(" "))
        found = item.match(mark)
        if not line.strip():
            lines.append(line)
            continue
        before = lines[-1] if lines else ""
        if not found and lead == 0 and not before.strip():
            levels = []
        if found:
            while levels and lead < levels[-1][0]:
                levels.pop()
            if not levels or lead > levels[-1][0]:
                levels.append((lead, 4 * len(levels)))
            if len(levels) == 1 and before.strip() and not item.match(before) and before[0] != " ":
                lines.append("")
            lines.append(" " * levels[-1][1] + line[lead:])
        elif levels and lead > levels[0][0]:
            # What belongs to an item is indented by four more than the item.
            inner = [meant for written, meant in levels if lead > written]
            extra = lead - max(written for written, _ in levels if lead > written) - 2
            own = max(inner) + 4
            lines.append(" " * (own + max(0, extra) if is_fenced(mark) else own) + line[lead:])
        else:
            lines.append(line)
    return "\n".join(lines)


def is_fenced(mark: str) -> bool:
    return not mark.strip()


def stage(into: Path, *, draft: bool = False) -> tuple[dict[str, Page], list[Any]]:
    pages = collect()
    for page in pages.values():
        if page.target.startswith("releases/"):
            fill_release(page)
    staged = Stage(pages, draft)
    for page in list(pages.values()):
        staged.rewrite(page)
    nav = navigation(pages)
    if staged.problems:
        raise Broken("\n".join(staged.problems))
    folder = into / "site-src"
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages.values():
        path = folder / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        matter = "---\nsearch:\n  exclude: true\n---\n" if page.hidden else ""
        path.write_text(matter + dialect(page.text))
    for path in DOCS.rglob("*"):
        if path.is_file() and path.suffix != ".md" and path.parent.name != "img":
            (folder / path.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path.relative_to(DOCS))
    staged.write_pictures(folder / "pictures")
    return pages, nav


def build(into: Path, nav: list[Any]) -> None:
    # JSON is YAML.
    (into / "site.yml").write_text(json.dumps(config(nav), indent=1))
    shutil.rmtree(into / "site", ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--clean", "--config-file", "site.yml"]
    done = subprocess.run(command, cwd=into, check=False, capture_output=True, text=True)
    if done.returncode:
        said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
        found = re.findall(r"^Warning: (.+)\n.*\[ (\S+) \]", said, re.MULTILINE)
        raise Broken("\n".join(f"{place}: {what}" for what, place in found) or said)
    for path in (into / "site").rglob("*.html"):
        # Zensical has pages load this from another host, for search from the file system.
        up = os.path.relpath(into / "site" / "assets" / "worker.js", path.parent)
        text = path.read_text().replace("https://unpkg.com/iframe-worker/shim", up)
        path.write_text(CONSOLE.sub(copied, text))


def copied(block: re.Match[str]) -> str:
    """Have the copy button of a console block copy its commands, without prompts and output."""
    text = html.unescape(re.sub(r"<[^>]+>", "", block[2].partition("<code>")[2]))
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    if not commands:
        return block[0]
    return f'{block[1]} data-copy="{html.escape(chr(10).join(commands))}">{block[2]}'


# --- for language models -----------------------------------------------------


def write_llms(site: Path, pages: dict[str, Page], nav: list[Any]) -> None:
    """Write llms.txt, llms-full.txt and the pages as Markdown."""
    about = project()
    index = [f"# Leadhand\n\n> {about['description']}\n"]
    whole = [f"# Leadhand {about['version']}: all pages\n"]
    for tab, names in outline(nav):
        index.append(f"\n## {'Optional' if tab == 'Project' else tab}\n")
        for name in names:
            page = pages[name]
            about_it = f": {page.summary}" if page.summary else ""
            index.append(f"- [{page.title}]({name}){about_it}")
            whole.append(f"\n<!-- {name} -->\n\n{page.text.strip()}\n")
    for page in pages.values():
        path = site / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.text)
    (site / "llms.txt").write_text("\n".join(index) + "\n")
    (site / "llms-full.txt").write_text("".join(whole))


# --- check -------------------------------------------------------------------


class Seen(html.parser.HTMLParser):
    """What a page of the site names: anchors, links, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.silent: list[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if "id" in known:
            self.ids.append(known["id"])
        if tag == "a" and "href" in known:
            self.links.append(known["href"])
        elif tag == "link" and "href" in known:
            if known.get("rel") not in ("canonical", "next", "prev"):
                self.loads.append(known["href"])
        elif "src" in known:
            self.loads.append(known["src"])
            if tag == "img" and not known.get("alt"):
                self.silent.append(known["src"])


def check(site: Path) -> list[str]:
    """Return what is wrong with the HTML of a site."""
    seen: dict[Path, Seen] = {}
    for path in sorted(site.rglob("*.html")):
        parser = Seen()
        parser.feed(path.read_text())
        seen[path] = parser
    problems = []
    for path, page in seen.items():
        name = path.relative_to(site)
        # The page for wrong addresses is shown at any address; its links begin at the root.
        base = site if name.name == "404.html" else path.parent
        twice = {each for each in page.ids if page.ids.count(each) > 1}
        problems += [f"{name}: two elements have the id {each}" for each in sorted(twice)]
        problems += [f"{name}: picture {each} has no alt text" for each in page.silent]
        for address in dict.fromkeys([*page.links, *page.loads]):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    problems.append(f"{name}: loads {address} from another host")
                continue
            local = unquote(parts.path)
            where = site / local.lstrip("/") if local.startswith("/") else base / local
            target = Path(os.path.normpath(where)) if local else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                problems.append(f"{name}: {address} leads nowhere")
            elif parts.fragment and target in seen and address in page.links:
                anchor = unquote(parts.fragment)
                if anchor not in seen[target].ids:
                    problems.append(f"{name}: {address}: there is no such anchor")
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(
            r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", path.read_text()
        ):
            problems.append(f"{path.relative_to(site)}: loads {address} from another host")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site into build/site.")
    parser.add_argument("--draft", action="store_true", help="leave every picture empty")
    parser.add_argument("--into", type=Path, default=BUILD, help="another folder than build")
    options = parser.parse_args()
    into: Path = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    try:
        pages, nav = stage(into, draft=options.draft)
        build(into, nav)
        write_llms(into / "site", pages, nav)
        problems = check(into / "site")
        if problems:
            raise Broken("\n".join(problems))
    except Broken as trouble:
        print(f"leadhand: the site is broken\n{trouble}", file=sys.stderr)
        return 1
    listed = sum(not page.hidden for page in pages.values())
    print(f"{listed} pages: {into / 'site' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
