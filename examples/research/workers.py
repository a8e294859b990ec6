"""Workers that find out when a town runs out of bicycles: they fetch, compute, and write.

Each says what it needs (its parameters) and what it gives. None knows of the others, and none
plans: the goal planner looks at what is true and what has failed, and decides what is next.
"""

import asyncio
import json
import urllib.error
import urllib.request

from leadhand import Context, Human, RateLimited, TooComplex, Transient, Unavailable, method, worker

ROWS_MAX = 300
SLOW_S = 0.5  # each takes this long at least, so that it can be watched


# --- worker 1 retrieves: raw data, or an error with its class ------------------------------


def get(api: str, path: str) -> list[dict]:
    """What an address answers. What went wrong gets its class here, where it is known."""
    try:
        with urllib.request.urlopen(api + path, timeout=10) as answer:  # noqa: S310 - the town's
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            said = f"{path}: {error.code} {error.reason}"
            if error.code == 429:
                seconds = float(error.headers.get("Retry-After", 1))
                raise RateLimited(said, retry_after_s=seconds) from None
            if error.code >= 500:
                raise Transient(said) from None
            raise Unavailable(said) from None


@worker(gives="stations", idempotent=True, cost=1, est="2s")
def fetch_stations(api: str) -> list[dict]:
    """Fetch the stations."""
    return get(api, "/stations")


@worker(gives="rides", idempotent=True, cost=1, est="2s")
def fetch_rides(api: str) -> list[dict]:
    """Fetch a week of rides."""
    return get(api, "/rides")


@worker(gives="rides", idempotent=True, cost=2, est="2s")
def fetch_archive(api: str) -> list[dict]:
    """Fetch the same from the archive, which is dearer."""
    return get(api, "/archive/rides")


# --- worker 2 computes ---------------------------------------------------------------------


@worker(gives="usage", cost=1, est="1s")
async def measure(stations: list[dict], rides: list[dict]) -> list[dict]:
    """Measure all stations at once, if that is not too much."""
    await asyncio.sleep(SLOW_S)
    if len(rides) > ROWS_MAX:
        raise TooComplex(f"{len(rides)} rows, and {ROWS_MAX} are all that fit")
    return [measured(part) for part in parts(stations, rides)]


@method("usage")
def station_by_station() -> list[str]:
    """How to measure when it is too much at once: apart, each alone (*), and together again."""
    return ["split", "measure_one*", "merge"]


@worker(gives="parts", cost=0.1)
async def split(stations: list[dict], rides: list[dict]) -> list[dict]:
    """Put each station's rows apart."""
    await asyncio.sleep(SLOW_S)
    return parts(stations, rides)


@worker(gives="station_usage", cost=0.1, est="2s")
async def measure_one(part: dict, context: Context) -> dict:
    """Measure one station."""
    for done in (1, 2, 3):
        await asyncio.sleep(SLOW_S)
        context.progress(part["name"], done / 3)
    return measured(part)


@worker(gives="usage", cost=0.1, check=lambda usage: len(usage) > 0)
async def merge(measures: list[dict]) -> list[dict]:
    """Put the stations together, the worst one first."""
    await asyncio.sleep(SLOW_S)
    return sorted(measures, key=lambda each: -each["empty"])


def parts(stations: list[dict], rides: list[dict]) -> list[dict]:
    """The rows of each station."""
    return [
        {"name": name, "rows": [row for row in rides if row["station"] == name]}
        for name in (each["name"] for each in stations)
    ]


def measured(part: dict) -> dict:
    """In how many hours a station had no bike, and when mostly."""
    hours = [row["hour"] for row in part["rows"] if row["bikes"] == 0]
    worst = max(set(hours), key=lambda hour: (hours.count(hour), -hour)) if hours else None
    return {"station": part["name"], "empty": len(hours), "of": len(part["rows"]), "at": worst}


# --- a person is asked, and need not answer ------------------------------------------------

editor = Human(
    "editor",
    "Who will read the summary?",
    needs="usage",
    gives="reader",
    timeout="4s",
    default="the town council",
)


# --- worker 3 writes -----------------------------------------------------------------------


@worker(gives="summary", cost=1, est="1s", check=lambda text: "hours" in text)
async def summarise(usage: list[dict], reader: str) -> str:
    """Say it in words."""
    await asyncio.sleep(SLOW_S)
    empty = [each for each in usage if each["empty"]]
    fine = [each["station"] for each in usage if not each["empty"]]
    lines = [f"For {reader}: where a week of bicycles ran out."]
    lines += [
        f"- {each['station']} had none in {each['empty']} of {each['of']} hours, "
        f"most often at {each['at']}:00."
        for each in empty
    ]
    if fine:
        lines.append(f"- {' and '.join(fine)} always had one.")
    if empty and fine:
        worst = empty[0]
        lines.append(f"Move some from {fine[0]} to {worst['station']} before {worst['at']}:00.")
    return "\n".join(lines)
