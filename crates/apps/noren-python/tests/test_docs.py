"""The examples of the README, the guide, the docstrings and the notebook run and print the output that they show."""

from __future__ import annotations

import doctest
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import noren as nr

PACKAGE = Path(nr.__file__).parent
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS


def test_the_readme() -> None:
    torch = pytest.importorskip("torch")
    [code] = re.findall(r"^```python\n(.*?)^```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    q, k, v = torch.randn(3, 1, 2, 1024, 16)
    scope: dict[str, Any] = {"q": q, "k": k, "v": v, "array": torch.ones(4, 4, dtype=torch.bool).tril(1).numpy()}
    exec(code, scope)
    assert scope["out"].shape == q.shape and q.grad is not None and scope["block_mask"].shape[-2:] == (1024, 1024)


def test_the_guide() -> None:
    pytest.importorskip("transformers")
    failed, run = doctest.testfile(str(DOCS / "python.md"), module_relative=False, optionflags=FLAGS)
    assert run > 20 and failed == 0


def test_masks_written_by_hand() -> None:
    pytest.importorskip("torch")
    failed, run = doctest.testfile(str(DOCS / "from-your-mask.md"), module_relative=False, optionflags=FLAGS)
    assert run > 50 and failed == 0


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
"""The files of the package that have examples."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_docstrings(source: Path) -> None:
    for package in ("torch", "transformers", "tokenizers", "onnx"):
        if re.search(rf"\b{package}\b", source.read_text(encoding="utf-8")):
            pytest.importorskip(package)
    name = ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(importlib.import_module(name), optionflags=FLAGS).failed == 0


@pytest.mark.nightly
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
    bound = nr.parse("causal & documents([3, 2])").bind(5)
    for shown in (nr.causal(), bound, bound.plan(), nr.causal().diff("full", 4)):
        assert shown._repr_svg_().startswith("<svg")
    assert nr.padding()._repr_svg_() is None  # it needs facts, so its text is shown
