"""The HTTP server: everything the command line can see and do, an event stream, and a page.

    request ─► gate ─► rule ─► person ─► route ─► reader (threads) ─► document
                                           └────► host (the loop)  ─► durable, then answered

Laws of this folder
1. Deny by default. `rules.py` holds one rule for each route and method; what has none is refused
   by the gate before any route is looked at, and a test fails.
2. Localhost is not a wall. Host, Origin and Sec-Fetch-Site are checked on every request, tokens
   travel in a header or a cookie and never in an address, and bodies are JSON or nothing.
3. Nothing is answered before it is durable, and documents show only what is: they are read from
   the file by threads of their own. The loop belongs to the engine.
4. One follower of the store feeds all streams. A slow reader costs itself, never a commit.
5. What is refused is refused before anything was accepted, with a problem document that says why.

FastAPI, uvicorn and the rest come with the extra `server` and are imported by `leadhand serve`
alone.
"""
