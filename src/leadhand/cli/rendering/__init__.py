"""What commands print: plans, runs, reviews and recoveries in lines of text."""
