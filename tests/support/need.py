"""What a test cannot do without."""

import os

import pytest


def need(condition: object, why: str) -> None:
    """Go on only if `condition` holds. Otherwise skip, or fail where `CI` is set.

    A skip nobody sees is a test that does not exist; so on CI, where the machine is ours to
    equip, what is needed must be there.
    """
    __tracebackhide__ = True
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"needed here and missing: {why}", pytrace=False)
    pytest.skip(why, allow_module_level=True)
