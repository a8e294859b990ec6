"""Leadhand as an MCP server: agents propose plans, follow runs, and answer what they may answer."""
