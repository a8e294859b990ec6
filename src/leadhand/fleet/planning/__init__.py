"""From an epic in words to waves of tasks: backends, prompt, reply, checks and steps."""
