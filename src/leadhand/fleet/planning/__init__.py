"""From an epic in words to waves of tasks: who plans, what it is told, and what is let through."""
