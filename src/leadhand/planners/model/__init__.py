"""A language model as planner: it proposes, and everything it proposes is rehearsed first."""
