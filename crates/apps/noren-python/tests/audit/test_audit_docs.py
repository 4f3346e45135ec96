"""The Python in docs/audit.md runs, from top to bottom."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

PAGE = ROOT / "docs/audit.md"


def test_the_page_has_every_check() -> None:
    from noren.battery import BATTERY

    assert re.findall(r"^\| `(\w+)` \| .* \| .* \|$", PAGE.read_text(encoding="utf-8").partition("## The checks")[2], re.M) == list(BATTERY)


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    names: dict[str, object] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        torch.set_num_threads(before)
    said = capsys.readouterr().out
    for line in ("sliding(8) in 2 layers; length 72", "first in `model.layers.1.self_attn` (MistralAttention)", "changed  ■■■"):
        assert line in said and line in PAGE.read_text(encoding="utf-8")
