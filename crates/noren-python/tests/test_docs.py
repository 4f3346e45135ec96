"""Examples of the guide, of docstrings, and the notebook: they run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"
FLAGS = doctest.ELLIPSIS


def test_the_guide() -> None:
    pytest.importorskip("transformers")
    failed, run = doctest.testfile(str(DOCS / "python.md"), module_relative=False, optionflags=FLAGS)
    assert run > 20 and failed == 0


@pytest.mark.parametrize("name", ["noren", "noren._doctor", "noren._flow", "noren.formats.dense", "noren.torch", "noren.distributed"])
def test_docstrings(name: str) -> None:
    if name in ("noren.torch", "noren.distributed"):
        pytest.importorskip("torch")
    failed, run = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert run > 0 and failed == 0


def test_the_notebook_trains_a_model() -> None:
    pytest.importorskip("torch")
    cells = json.loads((DOCS / "from-mask-to-model.ipynb").read_text())["cells"]
    scope: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    assert scope["losses"][-1] < 0.5 * scope["losses"][0] and scope["accuracy"] > 0.8
    assert scope["certificate"].verify().holds


def test_notebooks_show_pictures() -> None:
    import noren as nr

    bound = nr.parse("causal & documents([3, 2])").bind(5)
    for shown in (nr.causal(), bound, bound.plan(), nr.causal().diff("full", 4)):
        assert shown._repr_svg_().startswith("<svg")
    assert nr.padding()._repr_svg_() is None  # it needs facts, so its text is shown
