"""Output of commands: plans, runs, reviews and recoveries in lines of text."""
