"""Two agents: one finds out what a firm asks for its service, one writes it up.

Each is told its own step and nothing else, and has no tools but the ones it is given here.
"""

from leadhand import Agent, Permanent, worker

PAGES = {
    "/nordwind/brochure": "Nordwind, spring brochure. Parcels to 5 kg: 12.50 a piece.",
    "/kestrel/pricing": "Kestrel. Our prices: parcels to 5 kg 9.90, to 10 kg 14.20.",
}
FOUND = {
    "Nordwind": ["/nordwind/pricing", "/nordwind/brochure"],
    "Kestrel": ["/kestrel/pricing"],
}


@worker(effects=())
def search(firm: str) -> list[str]:
    """Find the pages of a firm."""
    return FOUND.get(firm, [])


@worker(effects=())
def read_page(path: str) -> str:
    """Read a page."""
    if path not in PAGES:
        raise Permanent(f"page not found: {path}")
    return PAGES[path]


PRICE = {
    "type": "object",
    "properties": {
        "firm": {"type": "string"},
        "price": {"type": "number"},
        "source": {"type": "string"},
    },
    "required": ["firm", "price", "source"],
    "additionalProperties": False,
}

researcher = Agent(
    "researcher",
    "hand",
    tools=[search, read_page],
    instructions="Find out what a firm asks for a parcel of 5 kg, and on which page it says so.",
    returns=PRICE,
    description="finds the price of a firm: give it the name of the firm as `firm`",
    risk="low",
    max_turns=8,
)
writer = Agent(
    "writer",
    "hand",
    instructions="Compare the prices you are given in two or three plain sentences.",
    description="writes a comparison of prices: give it the findings as `findings`",
    risk="low",
)
