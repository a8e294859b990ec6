"""Agents on other machines: orders by Temporal, commits by git, one lease for each attempt."""
