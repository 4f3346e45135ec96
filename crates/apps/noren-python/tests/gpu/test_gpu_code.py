"""The code that Triton makes for devices that are not present: matrix instructions, copies in the background, no spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import sampled

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the GPU kernels are not compiled: Triton is not installed")

MATRIX = {"sm_80": ("mma.sync",), "sm_90": ("wgmma", "mma.sync"), "sm_100": ("tcgen05", "mma.sync"), "gfx942": ("mfma",)}
"""The matrix instructions of each target. Blocks of fewer than 64 rows use mma.sync."""
WIDE = {"sm_90": "wgmma", "sm_100": "tcgen05"}
"""The matrix instructions of the forward pass of the newer targets."""


def compiled(target: str, *more: str) -> dict[str, dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).with_name("gpu_code.py")), target, *more]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return {found["kernel"]: found for found in json.loads(done.stdout)}


def faults(target: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Returns what is wrong with the code of the kernels."""
    wrong = []
    for name, code in found.items():
        if code["atomics"]:
            wrong.append(f"{name}: {code['atomics']} atomic operations")
        if code["stack"] or code["local"]:
            wrong.append(f"{name}: {code['stack']} bytes of spilled registers")
        if code["shared"] > code["limit"]:
            wrong.append(f"{name}: {code['shared']} bytes of shared memory, more than {code['limit']}")
        if name in ("row_sums", "chunks_join"):
            continue  # sums without products
        if not any(code[instruction] for instruction in MATRIX[target]):
            wrong.append(f"{name}: no matrix instructions")
        if not code["buffer_loads" if target == "gfx942" else "copies"]:
            wrong.append(f"{name}: no copies in the background")
    if target in WIDE and not found["forward"][WIDE[target]]:
        wrong.append(f"forward: no {WIDE[target]}")
    return wrong


@pytest.mark.parametrize("target", sampled(MATRIX, 4, 1))
def test_code_of_every_target(target: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        for dim, found in zip((64, 128), pool.map(lambda dim: compiled(target, "--dim", str(dim)), (64, 128)), strict=True):
            assert len(found) == 6 and faults(target, found) == [], f"head dimension {dim}"


@pytest.mark.nightly
def test_deliberate_changes_are_found() -> None:
    assert "forward: no copies in the background" in faults("sm_80", compiled("sm_80", "--change", "one_stage"))
    assert any("spilled registers" in fault for fault in faults("sm_80", compiled("sm_80", "--change", "large_blocks")))
