"""The web sites of four firms that do not exist.

    python server.py          a free port on this machine; prints its address
    python server.py 8124     that port

Nordwind took its pricing page down and kept its brochure. Kestrel and Halden have
both. Fernlicht is no more.
"""

import contextlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

PAGES = {
    "/search/Nordwind": {
        "firm": "Nordwind",
        "open": True,
        "pricing": "/nordwind/pricing",
        "brochure": "/nordwind/brochure",
    },
    "/search/Kestrel": {
        "firm": "Kestrel",
        "open": True,
        "pricing": "/kestrel/pricing",
        "brochure": "/kestrel/brochure",
    },
    "/search/Halden": {
        "firm": "Halden",
        "open": True,
        "pricing": "/halden/pricing",
        "brochure": "/halden/brochure",
    },
    "/search/Fernlicht": {"firm": "Fernlicht", "open": False, "note": "taken over by Nordwind"},
    "/nordwind/brochure": {"price": 12.50, "source": "brochure, last spring"},
    "/kestrel/pricing": {"price": 9.90, "source": "pricing page"},
    "/halden/pricing": {"price": 11.40, "source": "pricing page"},
    "/halden/brochure": {"price": 11.90, "source": "brochure, last spring"},
    "/kestrel/brochure": {"price": 10.90, "source": "brochure, last spring"},
}


class Sites(BaseHTTPRequestHandler):
    """Answers with a page, or 404."""

    def do_GET(self) -> None:
        """One page for each path."""
        page = PAGES.get(unquote(self.path))
        body = json.dumps(page if page is not None else {"error": "page not found"}).encode()
        self.send_response(200 if page is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the run tells the story."""


def serve(port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine only; `serve_forever` starts it."""
    return ThreadingHTTPServer(("127.0.0.1", port), Sites)


if __name__ == "__main__":
    with serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
