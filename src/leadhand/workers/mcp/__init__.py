"""Tools of MCP servers, as workers and for agents. The essay stands in `server`."""
