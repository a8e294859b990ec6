"""The coding fleet: many agents on one codebase, and main always green."""
