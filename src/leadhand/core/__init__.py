"""The pure core. Its laws:

1. Nothing here performs I/O, reads a clock, draws a random number, or logs.
2. `decide(state, now)` returns moves, `evolve(state, event)` applies events, the engine performs
   effects.
3. `evolve` holds no policy: the event carries the decision (attempt, deadline, backoff), so a
   changed constant never rewrites the meaning of an old log.
4. Intent before act: the start of an attempt is durable before its worker is called.
5. Everything in flight has a deadline; every loop has a maximum.
6. Reports are fenced: a report for an attempt or epoch that is no longer current changes nothing
   but the cost.
7. A step succeeded when its criteria were checked and held. Unsure is unmet.
8. `decide` cannot reach a step of a revision that has not been approved.
9. The cost of an event does not grow with the plan: ready steps, timers and counters are kept up to
   date, never searched for.

Read in this order: plan, jsonschema, catalog, lint, events, state, decide, review, views, host,
logcheck.
"""
