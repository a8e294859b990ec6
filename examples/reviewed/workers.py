"""Four workers: search, read a page, write, and ask by letter. None of them knows the plan."""

import json
from pathlib import Path

from leadhand import Permanent, worker

SITE = json.loads(Path(__file__).with_name("site.json").read_text())


@worker(effects=[], idempotent=True)
def search(firm: str) -> dict:
    """Find the pages of a firm."""
    return SITE["search"][firm]


@worker(effects=[], idempotent=True, checks={"has_price": lambda page: page["price"] > 0})
def read_page(page: str) -> dict:
    """Read the price on a page. A page that is gone is gone for good."""
    if page not in SITE["pages"]:
        raise Permanent(f"page not found: {page}")
    return SITE["pages"][page]


@worker(effects=[])
def write(a: dict, b: dict, note: str = "") -> str:
    """Compare two prices, in words."""
    cheaper = min(a, b, key=lambda found: found["price"])
    lines = [f"{found['firm']}: {found['price']:.2f} ({found['source']})" for found in (a, b)]
    return "\n".join([*lines, f"{cheaper['firm']} is cheaper.", *([note] if note else [])])


@worker(effects=["post"])
def ask_by_letter(firm: str) -> dict:
    """Ask a firm for its price. This reaches somebody outside."""
    return {"firm": firm, "price": 11.0, "source": "by letter"}
