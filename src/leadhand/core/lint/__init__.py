"""Lint: errors, warnings and notes about a plan, before it runs."""
