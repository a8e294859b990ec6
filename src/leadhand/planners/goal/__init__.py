"""The goal planner: from what is there to what is wanted, with workers that say what they need
and give. No key, no network, no chance: the same state always gets the same answer.

Read in this order: operators (what workers can do), world (which facts are true), memory (what
they cost after what happened), task and relaxed (the problem in numbers), cheapest and search
(the two ways to a plan), order (what can start now), methods (splitting what was too complex),
explain (why there is no way), steps (the documents), lint (which of them are refused), planner
(the decision).
"""
