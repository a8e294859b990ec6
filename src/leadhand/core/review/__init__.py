"""Review: required approvals, the content they cover, and the decisions of people."""
