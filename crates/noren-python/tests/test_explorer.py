"""The Python code that the explorer exports is a complete program."""

import runpy
from pathlib import Path

import noren

SNIPPET = Path(__file__).resolve().parents[3] / "testdata" / "explorer" / "mask.py"


def test_the_snippet_in_python_runs(capsys) -> None:
    names = runpy.run_path(str(SNIPPET))
    assert names["spec"] == noren.Spec("causal & padding + softcap(30)")
    assert [names["bound"].allowed(1, 0, q, k) for q, k in [(4, 2), (4, 3), (1, 2)]] == [True, False, False]
    assert "allowed" in capsys.readouterr().out
