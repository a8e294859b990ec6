"""The goal planner: from the given facts to the wanted ones, by the needs and gives of workers.

No key, no network, no randomness: the same state always gets the same answer.

Read in this order: operators (the abilities of workers), world (the true facts), operator_costs
(prices after failures), task (the problem in numbers), search (the ways to a plan), methods
(splitting tasks that were too complex), explain (why there is no plan), steps (the order of steps
and their documents), planner (the decision).
"""
