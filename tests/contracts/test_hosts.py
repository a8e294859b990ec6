"""Each implementation of the ports of hosts and runs has what its port names."""

import ast
import inspect
import textwrap

import pytest

from leadhand.app.host_status import LocalStatus
from leadhand.app.hosting_service import HostingService, ServiceStatus
from leadhand.engine.guest.host_side import GuestRun
from leadhand.engine.host import EmbeddedHost
from leadhand.engine.perform import AttemptHost, AttemptRun
from leadhand.engine.run import Run
from leadhand.ports import Host, RunHandle
from leadhand.temporal.cluster import Cluster
from leadhand.temporal.host import TemporalHost
from leadhand.temporal.host_status import TemporalStatus
from leadhand.temporal.remote import RemoteHost, RemoteRun
from leadhand.temporal.run import TemporalRun
from tests.simulation.host import SimHost

PORTS = {
    Host: (EmbeddedHost, TemporalHost, SimHost),
    RunHandle: (Run, GuestRun, TemporalRun),
    AttemptHost: (EmbeddedHost, RemoteHost, SimHost),
    AttemptRun: (Run, RemoteRun),
    HostingService: (Cluster,),
    ServiceStatus: (LocalStatus, TemporalStatus),
}


def named(port) -> set[str]:
    """Return the members of a protocol."""
    return {name for name in (*vars(port), *port.__annotations__) if not name.startswith("_")}


def known(kind) -> set[str]:
    """Return the attributes of a class, and those that its methods set."""
    found = set(dir(kind))
    for each in kind.__mro__[:-1]:
        if each.__module__.partition(".")[0] not in ("leadhand", "tests"):
            continue
        found |= {
            node.attr
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each))))
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and getattr(node.value, "id", "") == "self"
        }
    return found


@pytest.mark.parametrize("port", PORTS)
def test_each_implementation_has_what_its_port_names(port):
    assert named(port)
    assert {kind.__name__: named(port) - known(kind) for kind in PORTS[port]} == {
        kind.__name__: set() for kind in PORTS[port]
    }
