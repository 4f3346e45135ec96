"""Data for all tests: the corpus and the stored results."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import noren as nr

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Triton's interpreter runs the GPU kernels on the CPU. Triton reads this when it is first imported, which PyTorch may do.
if not os.environ.get("NOREN_GPU"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Two processes of tests with the threads of all cores each are slower than with one thread: the tensors of the tests are small.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests send themselves interrupts, which a process in the background of a shell ignores.
signal.signal(signal.SIGINT, signal.default_int_handler)

NIGHTLY = os.environ.get("NOREN_NIGHTLY", "") not in ("", "0")
"""True in `.ci/nightly`, which runs every test with many more random cases."""


def runs(few: int, many: int) -> int:
    """Returns the number of random cases of a test: `few` for every change, `many` in `.ci/nightly`."""
    return many if NIGHTLY else few


def sampled(values: Iterable[Any], step: int, first: int = 0) -> list[Any]:
    """Returns the parameters of a test. All but every `step`-th, from the one with the index `first` on, are marked as nightly. A
    tuple has one value for each argument."""
    late = pytest.mark.nightly
    tuples = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=[] if at % step == first else [late]) for at, value in enumerate(tuples)]


ROOT = Path(__file__).resolve().parents[4]
TESTDATA = ROOT / "testdata"


@dataclass
class Drawn:
    """A case of `testdata/*.toml`: a mask, its shape and facts, and its allowed cells or its error."""

    id: str
    case: dict[str, Any]

    @property
    def shape(self) -> nr.Shape:
        case = self.case
        sizes = {"batch": case.get("batch", 1), "heads": case.get("heads", 1), "kv_heads": case.get("kv_heads")}
        if "len" in case:
            return nr.Shape.square(case["len"], **sizes)
        if "past" in case:
            return nr.Shape.cached(case["past"], case["new"], **sizes)
        return nr.Shape(case["q"], case["kv"], query_offset=case["offset"], **sizes)

    def bind(self) -> nr.BoundMask:
        mask = nr.Mask(self.case["mask"])
        if "layer" in self.case:
            mask = mask.at_layer(self.case["layer"])
        return mask.bind(self.shape, nr.Facts.from_json(self.case.get("facts") or "{}"))

    def drawn(self, batch: int, head: int) -> str:
        case = self.case
        if "cells" in case:
            return str(case["cells"]).strip()
        if case.get("cells_by_batch"):
            return str(case["cells_by_batch"][batch]).strip()
        if case.get("cells_by_head"):
            return str(case["cells_by_head"][head]).strip()
        return str(case["cells_by_batch_and_head"][batch][head]).strip()


def corpus() -> list[Drawn]:
    cases = []
    for path in sorted(TESTDATA.glob("*.toml")):
        for case in tomllib.loads(path.read_text())["case"]:
            cases.append(Drawn(f"{path.stem}: {case['name']}", case))
    return cases


def stored() -> list[dict[str, Any]]:
    """Returns the cases with results that PyTorch computed in float64."""
    import json

    return list(json.loads((TESTDATA / "conformance/attention/cases.json").read_text()))


def tensors(name: str) -> dict[str, Any]:
    """Reads the arrays of a safetensors file: a JSON header, then the bytes of the arrays."""
    import json

    import numpy as np

    blob = (TESTDATA / f"conformance/attention/{name}.safetensors").read_bytes()
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    types = {"F32": np.float32, "U8": np.uint8, "I64": np.int64, "F64": np.float64, "BOOL": np.bool_}
    out = {}
    for key, entry in header.items():
        if key != "__metadata__":
            start, end = entry["data_offsets"]
            data = np.frombuffer(blob[8 + size + start : 8 + size + end], types[entry["dtype"]])
            out[key] = data.reshape(entry["shape"]).copy()
    return out


@pytest.fixture(autouse=True)
def _no_process_group_stays() -> Iterator[None]:
    """Ends a process group that a test did not end, because other tests need a process without a group."""
    yield
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
