"""Review: which approvals a plan needs, what they cover, and what people decide."""
