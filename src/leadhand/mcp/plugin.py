"""The MCP server's part of the command line: its command, found without importing it."""

from leadhand.plugins import CommandPart

COMMAND = CommandPart(
    "leadhand.mcp.commands:mcp",
    "Serve Leadhand to agents over MCP; use tools of MCP servers",
    "More",
)
