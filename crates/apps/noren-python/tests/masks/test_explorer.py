"""The notebook cell that the explorer exports runs."""

from conftest import TESTDATA


def test_the_notebook_cell_shows_the_mask() -> None:
    *lines, last = (TESTDATA / "explorer/cell.py").read_text().strip().split("\n")
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    shown = eval(last, names)  # a notebook shows the value of the last line
    assert shown._repr_svg_().startswith("<svg") and str(shown.mask) == "causal & padding"
    assert [bool(shown.explain(q, k, batch=1)) for q, k in [(4, 2), (4, 3), (1, 2)]] == [True, False, False]
