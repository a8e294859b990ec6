"""Workers carry out one step each and report. They cannot plan: see the layers."""
