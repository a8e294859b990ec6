"""Workers that find out why customers leave: they read sources, count, ask, and write.

Each worker says what it needs (its parameters) and what it gives. No plan is written down: the
planner decides after each report which worker comes next.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from leadhand import Context, Human, RateLimited, worker

SOURCES = Path(__file__).resolve().parent / "sources"
THEMES = {
    "price": ("price", "expensive", "cheaper"),
    "delivery": ("delivery", "late", "slow"),
    "support": ("support", "reply", "answer"),
}


def read(name: str) -> list[str]:
    """Return the lines of a source."""
    return (SOURCES / name).read_text(encoding="utf-8").splitlines()


@worker(gives="reviews", effects=(), idempotent=True, cost=1)
def fetch_reviews(context: Context) -> list[str]:
    """Fetch reviews from a source that limits requests: the first one is refused."""
    if context.attempt == 1:  # stands in for a real rate limit; remove these two lines
        raise RateLimited("too many requests", retry_after_s=1)
    return read("reviews.txt")


@worker(gives="tickets", effects=(), idempotent=True, cost=1)
def fetch_tickets() -> list[str]:
    """Fetch support tickets."""
    return read("tickets.txt")


@worker(gives="themes", effects=(), idempotent=True, cost=1, check=lambda themes: len(themes) > 0)
def find_themes(reviews: list[str], tickets: list[str]) -> dict[str, int]:
    """Count what people complain about. A language model could do this: see README.md."""
    found: Counter[str] = Counter()
    for line in [*reviews, *tickets]:
        found.update(
            name for name, words in THEMES.items() if any(w in line.lower() for w in words)
        )
    return dict(found.most_common())


reader = Human(
    "reader",
    "Who will read the report?",
    needs="themes",
    gives="audience",
    timeout="3s",  # then the default counts as the answer, and the log says so
    default="the product team",
)


@worker(
    gives="report", effects=(), idempotent=True, cost=1, check=lambda text: "most often" in text
)
def write_report(themes: dict[str, int], audience: str) -> str:
    """Write the report."""
    (first, count), *rest = themes.items()
    lines = [f"For {audience}: customers complain most often about {first} ({count} times)."]
    return "\n".join([*lines, *(f"- {name}: {number}" for name, number in rest)])
