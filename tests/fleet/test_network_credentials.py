"""Each who may use the network has a door of its own: nobody works with another's key or hosts."""

import asyncio
import json
import sys
from functools import partial

import pytest

from leadhand.fleet.configuration import config_of, crew_of
from leadhand.fleet.service import Fleet
from leadhand.settings import load_settings
from leadhand.testing.endpoint import Endpoint, Loop, Say
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import commit_all, run_git, write

pytestmark = pytest.mark.real
KEYS = {"MY_KEY": "the-key-of-fast"}
SETTINGS = """
[fleet]
gate = ["true"]
setup = ["python3 ask.py setup"]
setup_hosts = ["127.0.0.1:{index}"]
planner = ["python3", "plan.py"]
plan_hosts = ["127.0.0.1:{model}"]
publish = "leadhand/main"
sandbox = "{kind}"

[coders.house]
kind = "command"
command = ["python3", "{{root}}/agent.py", "{{brief_file}}"]
hosts = ["127.0.0.1:{house}"]

[coders.fast]
kind = "claude"
tier = 2
program = "{program}"
url = "http://127.0.0.1:{house}"
key = "MY_KEY"
"""
# Whom each of them asks: all hosts, and the route that adds a key.
ASK = """
import json, pathlib, socket, sys
PLACES = {"house": "http://127.0.0.1:HOUSE/", "index": "http://127.0.0.1:INDEX/",
          "model": "http://127.0.0.1:MODEL/", "key": "/fast/v1/messages"}

def status(place):
    with socket.create_connection(("127.0.0.1", 3128), 20) as link:
        link.sendall(f"GET {place} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        return int(link.makefile("rb").readline().split()[1])

def found():
    return {name: status(place) != 403 for name, place in PLACES.items()}

if __name__ == "__main__":
    pathlib.Path(".found-" + sys.argv[1]).write_text(json.dumps(found()))
"""
AGENT = """
import json, pathlib, sys
sys.path.insert(0, ".")
from ask import found
brief = pathlib.Path(sys.argv[1]).read_text()
planned = json.loads(brief.split("<<")[1].split(">>")[0])
setup = json.loads(pathlib.Path(".found-setup").read_text())
pathlib.Path("found.json").write_text(
    json.dumps({"agent": found(), "planner": planned, "setup": setup})
)
"""
PLAN = """
told = json.load(sys.stdin)
task = {"id": "a", "goal": "Write <<" + json.dumps(found()) + ">>.", "writes": ["found.json"]}
task["acceptance"] = [["test", "-s", "found.json"]]
done = {"kind": "done", "because": "x", "summary": "x", "changelog": "x"}
print(json.dumps(done if told["tasks"] else {"kind": "wave", "because": "x", "tasks": [task]}))
"""


async def test_nobody_goes_through_the_door_of_another(tmp_path, user, kind, bwrap, monkeypatch):
    """An agent, a set-up command and a planner each reach what was named for them, and no key."""
    monkeypatch.setattr("leadhand.fleet.service.choose", partial(choose, bwrap=bwrap))
    answer = [Loop(Say("hello"))]
    async with Endpoint(answer) as house, Endpoint(answer) as index, Endpoint(answer) as model:
        ports = {
            name: each.url.rpartition(":")[2].rstrip("/")
            for name, each in (("house", house), ("index", index), ("model", model))
        }
        ask = ASK
        for name, port in ports.items():
            ask = ask.replace(name.upper(), port)
        plan = ask.partition("if __name__")[0] + PLAN
        text = SETTINGS.format(kind=kind, program=sys.executable, **ports)
        write(tmp_path, {"leadhand.toml": text, "agent.py": AGENT, "plan.py": plan})
        write(user, {"ask.py": ask, ".gitignore": "__pycache__\n"})
        commit_all(user, "A set-up")
        settings = load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
        (tmp_path / "wish.md").write_text("# Wish\n\nWho can reach whom.\n")
        async with Fleet(config_of(settings, user, KEYS), crew_of(settings, KEYS)) as fleet:
            ident = fleet.submit(tmp_path / "wish.md")
            async with asyncio.timeout(100):
                await fleet.idle()
            state = fleet._runs[ident].state
            assert state.ended is not None, [q.text for q in state.questions.values()]
            assert state.ended.status == "succeeded"
        heard = [each.headers for one in (house, index, model) for each in one.requests]
    found = json.loads(run_git(user, "show", "leadhand/main:found.json"))
    whom = {name: [place for place, let in said.items() if let] for name, said in found.items()}
    assert whom == {"agent": ["house"], "planner": ["model"], "setup": ["index"]}
    assert "the-key-of-fast" not in str(heard)
