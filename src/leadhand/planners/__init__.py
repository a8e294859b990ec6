"""Planners read the state and answer with a decision. They cannot execute: see the layers."""
