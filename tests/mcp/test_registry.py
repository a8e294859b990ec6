"""`server.json`, by which the MCP registry lists the server: by the rules of its schema."""

import json
import re
import tomllib
from pathlib import Path

import click

from leadhand.mcp.commands import mcp

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
SCHEMA = re.compile(
    r"https://static\.modelcontextprotocol\.io/schemas/\d{4}-\d{2}-\d{2}/server\.schema\.json"
)
TRANSPORTS = ("stdio", "streamable-http", "sse")
KINDS = ("npm", "pypi", "oci", "nuget", "mcpb")


def test_it_has_the_form_that_the_registry_takes():
    """Name, lengths, exact versions, package, transport and arguments."""
    doc = json.loads((ROOT / "server.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SCHEMA.fullmatch(doc["$schema"])
    assert NAME.fullmatch(doc["name"])
    assert 3 <= len(doc["name"]) <= 200
    assert 1 <= len(doc["description"]) <= 100
    assert 1 <= len(doc["title"]) <= 100
    assert doc["version"] == project["version"]
    (package,) = doc["packages"]
    assert package["registryType"] in KINDS
    assert (package["identifier"], package["version"]) == (project["name"], doc["version"])
    assert package["transport"]["type"] in TRANSPORTS
    for each in [*package["runtimeArguments"], *package["packageArguments"]]:
        assert each["type"] in ("positional", "named")
        assert each.get("name") or each["type"] == "positional"
        assert isinstance(each["value"], str)
    for each in package["environmentVariables"]:
        assert each["name"]
        assert {type(each["isRequired"]), type(each["isSecret"])} == {bool}


def test_it_starts_what_there_is_and_the_package_names_it():
    """The registry looks for the server's name in the description of the package on PyPI."""
    doc = json.loads((ROOT / "server.json").read_text())
    (package,) = doc["packages"]
    words = [each["value"] for each in package["packageArguments"]]
    assert words == ["mcp", "serve"]
    assert isinstance(mcp, click.Group)
    assert words[1] in mcp.commands
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert package["runtimeArguments"][0]["value"] == "leadhand[mcp]"
    assert "mcp" in project["optional-dependencies"]
    assert f"mcp-name: {doc['name']}" in (ROOT / project["readme"]).read_text()
