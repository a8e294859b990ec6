"""An MCP server over stdio that says exactly what a test gives it, malformed or not.

    mcp_malformed.py FILE

FILE is a JSON document: `tools` is the list of tools as it goes over the wire; `answers` has, for
each tool, the text of its result, which may be no JSON at all.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    said = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method = request["method"]
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "malformed", "version": "1"}
            result = json.dumps(
                {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            )
        elif method == "tools/list":
            result = json.dumps({"tools": said["tools"]})
        elif method == "tools/call":
            result = said["answers"][request["params"]["name"]]
        else:
            error = {"code": -32601, "message": "no such method"}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
            continue
        head = json.dumps({"jsonrpc": "2.0", "id": request["id"]})[:-1]
        print(f'{head}, "result": {result}}}', flush=True)


if __name__ == "__main__":
    main()
