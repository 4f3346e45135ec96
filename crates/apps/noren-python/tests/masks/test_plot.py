"""Pictures with matplotlib and the interactive view: what they show is compared with the cells."""

from __future__ import annotations

from typing import Any

import pytest

import noren as nr

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import numpy as np  # noqa: E402
from matplotlib import pyplot  # noqa: E402

MASK = nr.parse("heads(0: causal & documents, else: sliding(3))")
SHAPE = nr.Shape.square(10, batch=2, heads=2)
FACTS: dict[str, Any] = {"documents": [[4, 6], [10]]}


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    pyplot.close("all")


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("head", [0, 1])
def test_the_image_has_the_cells(batch: int, head: int) -> None:
    ax = MASK.plot(SHAPE, FACTS, batch=batch, head=head)
    assert (np.asarray(ax.images[0].get_array()) == MASK.dense(SHAPE, FACTS)[batch, head]).all()
    ax.figure.canvas.draw()


def test_axes_tokens_and_titles() -> None:
    _, ax = pyplot.subplots()
    names = [f"t{i}" for i in range(10)]
    assert nr.causal().plot(10, ax=ax, tokens=names) is ax
    assert [label.get_text() for label in ax.get_xticklabels()] == names and ax.get_title() == "causal"
    ax = nr.causal().plot(nr.Shape.cached(7, 3), tokens=names)
    assert [label.get_text() for label in ax.get_yticklabels()] == names[7:]
    ax = nr.full().plot(nr.Shape.cross(2, 3), tokens=(["a", "b"], ["x", "y", "z"]))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["x", "y", "z"]


def test_tiles_are_outlined() -> None:
    plan = nr.causal().plan(100)
    ax = plan.bound.plot(tiles=(32, 32))
    full, mixed = (len(collection.get_paths()) for collection in ax.collections)
    assert (full, mixed) == (6, 4)
    assert len(nr.causal().bind(100).plot(tiles=True).collections) == 2


def test_weights_are_a_heat_map_of_the_allowed_cells() -> None:
    weights = np.random.default_rng(0).random((2, 2, 10, 10))
    ax = MASK.plot(SHAPE, FACTS, batch=1, head=1, weights=weights)
    shown = ax.images[0].get_array()
    assert (np.ma.getmaskarray(shown) == ~MASK.dense(SHAPE, FACTS)[1, 1]).all()
    assert (shown.data == weights[1, 1]).all()
    ax = nr.causal().plot(10, weights=weights[0, 0])
    ax.figure.canvas.draw()


def test_what_does_not_fit_is_refused() -> None:
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"head": 2}, nr.Error, "head is 2: give an index from 0 to 1"),
        ({"batch": -1}, nr.Error, "batch is -1"),
        ({"batch": "x"}, nr.Error, "batch is 'x'"),
        ({"tokens": ["a"]}, nr.Error, "`tokens` has 1 names of queries, but the mask has 10 queries"),
        ({"tokens": "abc"}, TypeError, "`tokens` is one text"),
        ({"weights": np.ones((3, 3))}, nr.Error, r"`weights` has shape \[3, 3\]: give \[q_len, kv_len\] = \[10, 10\]"),
        ({"tiles": (0, 3)}, nr.Error, r"tiles\[0\] is 0: give a whole number from 1"),
        ({"tiles": 3}, TypeError, r"`tiles` is 3: give True, or two numbers above 0, \(rows, keys\)"),
        ({"ax": [1]}, TypeError, r"`ax` is \[1\]: give axes of matplotlib"),
        ({"tokens": range(10**12)}, nr.Error, "give at most 16777216 entries"),
        ({"weights": "x"}, TypeError, "`weights` is 'x': give an array of numbers"),
    ]
    for arguments, kind, message in bad:
        with pytest.raises(kind, match=message):
            MASK.plot(SHAPE, FACTS, **arguments)
    with pytest.raises(nr.Error, match="a picture can have at most 16777216"):
        nr.causal().plot(1 << 20)
    with pytest.raises(nr.Error, match="tiles of 1 x 1 cells would be more than 65536"):
        nr.causal().plot(4000, tiles=(1, 1))


def test_the_interactive_view_explains_a_cell() -> None:
    widgets = pytest.importorskip("ipywidgets")
    view = nr.explore(MASK, SHAPE, FACTS)
    sliders, picture, reason = view.children
    assert isinstance(sliders, widgets.HBox) and picture.value.startswith("<svg")
    for slider, value in zip(sliders.children, (0, 1, 9, 2), strict=True):
        slider.value = value
    assert MASK.bind(SHAPE, FACTS).explain(9, 2, batch=0, head=1).text.splitlines()[0].replace("&", "&amp;") in reason.value
