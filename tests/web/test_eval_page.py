"""The page of `leadhand eval` in a real browser: both themes, wide and on a phone, by itself."""

import msgspec
import pytest
from playwright.sync_api import expect

from leadhand.evals.comparison import Comparison, page
from scripts.plan_figures import MEASURED
from tests.support.need import need
from tests.web.conftest import AXE, PHONE, WIDE, shot
from tests.web.test_gallery import faults, too_wide

pytestmark = [pytest.mark.slow, pytest.mark.real]
HOSTILE = '<img src="https://127.0.0.1/x" onerror="alert(1)"><script>alert(2)</script>'


def comparison():
    """The results of examples/eval, with names and errors that somebody made up to harm."""
    found = msgspec.json.decode((MEASURED / "comparison.json").read_bytes(), type=Comparison)
    arm = msgspec.structs.replace(found.arms[0], arm=HOSTILE)
    return msgspec.structs.replace(
        found,
        suite=HOSTILE,
        arms=[arm, *found.arms[1:]],
        errors=[f"one-a, flat: {HOSTILE}"],
        by_goal={HOSTILE: {HOSTILE: 1.0} | next(iter(found.by_goal.values()))},
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_it_fits_is_accessible_and_loads_nothing(browser, tmp_path, theme, size):
    need(AXE.exists(), "axe-core, which `make test` fetches by npm")
    file = tmp_path / "page.html"
    file.write_text(page(comparison()))
    context = browser.new_context(viewport=size, color_scheme=theme)
    context.add_init_script(path=AXE)
    asked, said = [], []
    shown = context.new_page()
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("console", lambda message: said.append(message.text))
    shown.on("dialog", lambda dialog: said.append(dialog.message))
    shown.goto(file.as_uri())
    expect(shown.get_by_role("heading", level=1)).to_contain_text("<img")
    expect(shown.get_by_role("region", name="Arm: how it went")).to_contain_text("fine/on/shaky")
    expect(shown.get_by_text("simulated models")).to_be_visible()
    shot(shown, f"eval-{theme}-{size['width']}")
    wrong = faults(shown)
    assert not wrong, "\n".join(wrong)
    assert too_wide(shown) <= 0
    assert asked == [file.as_uri()]
    assert said == []
    context.close()
