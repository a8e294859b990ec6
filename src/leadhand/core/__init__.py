"""The pure core. Its laws:

1. Nothing here performs I/O, reads a clock, draws a random number, or logs.
2. `decide(state, now)` wishes, `evolve(state, event)` remembers, the shell performs.
3. `evolve` holds no policy: what was decided stands in the event (attempt, deadline,
   backoff), so that a changed constant never rewrites the meaning of an old log.
4. Intent before act: an attempt's start is durable before its worker is called.
5. Everything in flight has a deadline; every loop has a maximum.
6. Reports are fenced: one whose attempt or epoch is not the current one changes nothing
   but the cost.
7. A step succeeded when its criteria were checked and held. Unsure is unmet.
8. No step of a revision that nobody let through can be reached by `decide`.
9. The cost of an event does not grow with the plan: ready steps, timers and counters
   are kept, never searched for.

Read in this order: plan, shape, catalog, graph, refs, check, events, effects, state,
recovery, decide, views, host, invariants.
"""
