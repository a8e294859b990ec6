"""The page of `make proof` is made from what was measured, and from nothing else."""

import msgspec

from tests.proof import table
from tests.proof.__main__ import ROWS


def test_the_page_is_written_from_the_results():
    """A change by hand is found; `make proof` writes it again."""
    assert table.PAGE.read_text() == table.page(table.load())


def test_every_row_says_how_to_repeat_it():
    """Source, version, omissions and date stand beside each figure."""
    for name, row in table.load().items():
        assert name in ROWS
        assert all(
            msgspec.structs.asdict(row)[key] for key in ("source", "version", "left_out", "date")
        )
        assert row.repeat == f"make proof ARGS={name}"
        assert row.figures


def test_a_missed_figure_is_shown_as_missed():
    """On the page and in the terminal."""
    figure = table.Figure("attacks", "1 of 2", "0", met=False)
    row = table.Row(
        name="X", source="s", version="1", left_out="n", figures=[figure], repeat="r", date="d"
    )
    assert "| attacks | 1 of 2 | 0 | **no** |" in table.page({"x": row})
    assert "MISSED attacks" in table.text_table(row)
