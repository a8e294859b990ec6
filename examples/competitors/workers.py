"""Three workers: one searches, one reads a page, one writes. None knows of a plan."""

import json
import urllib.error
import urllib.request
from urllib.parse import quote

from leadhand import Permanent, Transient, worker


def get(url: str) -> dict:
    """What an address answers; a page that is not there will not be there at the next try."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the sites' address
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500:
                raise Transient(f"{error.code} {error.reason}: {url}") from None
            raise Permanent(f"page not found: {url}") from None


@worker(idempotent=True)
def search(site: str, firm: str) -> dict:
    """Find a firm's pages."""
    return get(f"{site}/search/{quote(firm)}")


@worker(idempotent=True, checks={"has_price": lambda page: page["price"] > 0})
def read_page(site: str, page: str) -> dict:
    """Read what a page says of the price."""
    return get(f"{site}{page}")


@worker
def write(prices: dict[str, dict], note: str = "") -> str:
    """Compare what was found, in words."""
    lines = [f"{firm}: {found['price']:.2f} ({found['source']})" for firm, found in prices.items()]
    if len(prices) > 1:
        cheapest = min(prices, key=lambda firm: prices[firm]["price"])
        lines.append(f"{cheapest} is cheaper.")
    return "\n".join([*lines, *([note] if note else [])])
