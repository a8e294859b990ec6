"""Whether a goal was reached: by the archive and the outbox, whatever the run says of itself."""

import json
import sys
from pathlib import Path

import archive

told = json.load(sys.stdin)
kind, result = told["goal"][-1], told["result"]
true = {name: archive.amount(name) for name in archive.ids(kind)}
if told["goal"].startswith("bill"):
    outbox = Path("outbox.jsonl")
    sent = [json.loads(line) for line in outbox.read_text().splitlines()] if outbox.exists() else []
    print("sent", sent, "wanted", sum(true.values()))
    sys.exit(0 if sent == [{"total": sum(true.values())}] else 1)
found = result if isinstance(result, dict) else {}
found = {name: each["amount"] if isinstance(each, dict) else each for name, each in found.items()}
print("wrong or missing:", sorted(name for name in true if found.get(name) != true[name]))
sys.exit(0 if found == true else 1)
