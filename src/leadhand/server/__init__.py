"""The HTTP server: everything the command line can see and do, an event stream, and a page.

    request ─► gate ─► rule ─► person ─► route ─► reader (threads) ─► document
                                           └────► host (the loop)  ─► durable, then answered

Laws of this folder
1. Deny by default. `rules.py` holds one rule for each route and method; a request without a rule is
   refused by the gate before any route is looked at, and a test fails for a route without one.
2. Localhost is no protection. Host, Origin and Sec-Fetch-Site are checked on every request, tokens
   travel in a header or a cookie and never in a URL, and bodies are JSON or empty.
3. Nothing is answered before it is durable, and documents show only durable state: they are read
   from the file by threads of their own. The loop belongs to the engine.
4. One follower of the store feeds all streams. A slow reader delays itself, never a commit.
5. A request is refused before anything was accepted, with a problem document that says why.

FastAPI, uvicorn and the rest come with the extra `server` and are imported only by `leadhand
serve`.
"""
