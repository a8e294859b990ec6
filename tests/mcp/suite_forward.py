"""What the conformance suite starts as its client: passes the request on to `suite_client.Clients`.

python -I -S tests/mcp/suite_forward.py SOCKET URL
"""

import json
import os
import socket
import sys

place, url = sys.argv[1:]
request = {
    "url": url,
    "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
    "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
}
with socket.socket(socket.AF_UNIX) as there:
    there.connect(place)
    there.sendall(json.dumps(request).encode())
    there.shutdown(socket.SHUT_WR)
    answer = json.loads(b"".join(iter(lambda: there.recv(1 << 16), b"")))
print("\n".join(answer["said"]))
sys.exit(answer["code"])
