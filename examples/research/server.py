"""A small server with the bicycles of a town that does not exist. It is not a reliable one.

python server.py          a free port on this machine; prints its address
python server.py 8123     that port

/stations          the first request is refused with 429 and Retry-After; then it answers
/rides             gone for good (410)
/archive/rides     the same rides, from the archive: it works
"""

import contextlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_S = 0.7
STATIONS = [
    {"name": "Harbour", "docks": 18, "bikes": 9},
    {"name": "Old Mill", "docks": 20, "bikes": 16},
    {"name": "University", "docks": 24, "bikes": 6},
    {"name": "Castle Park", "docks": 12, "bikes": 8},
]
# Bikes that leave (-) or arrive (+) in each hour of a day, by station.
FLOWS = {
    "Harbour": {7: +5, 8: +3, 16: -7, 17: -9, 18: -3, 22: +6},
    "Old Mill": {7: -3, 8: -2, 17: +3, 18: +2},
    "University": {8: +6, 9: +7, 15: -6, 16: -9, 17: -7, 20: +8},
    "Castle Park": {11: -2, 14: +3, 19: -2, 21: +1},
}
DAYS = 7


def rides() -> list[dict]:
    """How many bikes stood at each station in each hour of a week."""
    rows = []
    for station in STATIONS:
        for day in range(DAYS):
            bikes = station["bikes"] - day % 3
            for hour in range(24):
                bikes += FLOWS[station["name"]].get(hour, 0)
                bikes = max(0, min(station["docks"], bikes))
                rows.append({"station": station["name"], "day": day, "hour": hour, "bikes": bikes})
    return rows


class Town(BaseHTTPRequestHandler):
    """Answers requests."""

    refused = False

    def do_GET(self) -> None:
        """Each path has its own mood."""
        time.sleep(SLOW_S)
        if self.path == "/stations" and not Town.refused:
            Town.refused = True
            self.answer(429, {"error": "too many requests"}, {"Retry-After": "1"})
        elif self.path == "/stations":
            self.answer(200, STATIONS)
        elif self.path == "/rides":
            self.answer(410, {"error": "gone: see the archive"})
        elif self.path == "/archive/rides":
            self.answer(200, rides())
        else:
            self.answer(404, {"error": "not found"})

    def answer(self, status: int, data: object, headers: dict[str, str] | None = None) -> None:
        """Send JSON."""
        body = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the run tells the story."""


def serve(port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine only; `serve_forever` starts it."""
    return ThreadingHTTPServer(("127.0.0.1", port), Town)


if __name__ == "__main__":
    with serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
