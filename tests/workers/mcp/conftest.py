"""A real MCP server, reached in both ways."""

import pytest

from leadhand import McpServer
from tests.support.commands import bounded
from tests.support.mcp_trial import PROGRAM, served


@pytest.fixture(autouse=True)
def limit():
    with bounded():
        yield


@pytest.fixture(scope="module")
def address():
    with served() as (_, port):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(params=["stdio", "http"])
async def server(request):
    """One server, reached in both ways."""
    how = {"command": PROGRAM}
    if request.param == "http":
        how = {"url": request.getfixturevalue("address")}
    made = McpServer(name="trial", **how, max_bytes=100_000)
    await made.load()
    yield made
    await made.close()


@pytest.fixture
async def program(tmp_path):
    """A server that is a program, and the log it keeps."""
    made = McpServer(name="trial", command=[*PROGRAM, "--log", str(tmp_path / "log")])
    await made.load()
    yield made, tmp_path / "log"
    await made.close()
