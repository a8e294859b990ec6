"""A request loads no code that was not trusted when the server was started."""

import pytest

from leadhand.errors import NotTrusted
from leadhand.server.run_supervisor import RunSupervisor
from leadhand.settings import load_settings
from leadhand.settings.trust import Trust, entries_of, require

WORKERS = "from leadhand import worker\n\n@worker\ndef say() -> str:\n    return 'x'\n"
SETTINGS = "[project]\nworkers = [{}]\n[context.staging]\n"


def test_settings_that_name_more_code_since_the_start_are_refused(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "one.py").write_text(WORKERS)
    (tmp_path / "two.py").write_text(
        f"{WORKERS.replace('say', 'more')}\nopen({str(mark)!r}, 'w')\n"
    )
    (tmp_path / "leadhand.toml").write_text(SETTINGS.format("'one.py'"))
    trust = Trust(tmp_path / "state" / "trust.json")
    settings = load_settings(environ={}, folder=tmp_path)
    with pytest.raises(NotTrusted):
        require(settings, trust)
    trust.remember(entries_of(settings))
    served = RunSupervisor(require(settings, trust), "ann", print)
    assert served.place("")[1].get("say") is not None
    (tmp_path / "leadhand.toml").write_text(SETTINGS.format("'one.py', 'two.py'"))
    with pytest.raises(NotTrusted, match=r"two\.py"):
        served.place("staging")
    assert not mark.exists()
