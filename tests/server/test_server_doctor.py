"""The server's checks of `leadhand doctor`."""

import pytest

from tests.support.cli import Folder


@pytest.mark.parametrize(
    ("server", "warned"),
    [
        ('address = "http://127.0.0.1:9000"', True),
        ('address = "http://localhost"', True),
        ('address = "http://localhost:9000"\nport = 9000', False),
        ('address = "https://leadhand.example.com"', False),
        ("port = 9000", False),
    ],
)
def test_links_to_another_port_of_this_machine_are_warned_of(tmp_path, server, warned):
    """Behind a proxy ports differ, which is not warned of."""
    folder = Folder(tmp_path)
    folder.write("leadhand.toml", f"[server]\n{server}\n")
    checks = folder.run("doctor", "--json").doc["checks"]
    found = [each for each in checks if "leadhand serve listens on" in (each["problem"] or "")]
    assert [each["status"] for each in found] == (["warning"] if warned else [])
