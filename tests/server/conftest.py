"""One server for the tests that do not need their own."""

import pytest

from tests.support.serving import project, served


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    project(folder)
    with served(folder) as up:
        yield up
