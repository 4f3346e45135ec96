"""Measures configurations of the kernels on a GPU of this machine, and writes the fastest ones as a table.

    python -m noren.gpu.tune TABLE.json [--dims 64,128] [--types bfloat16,float16,float32] [--len 4096]
    NOREN_GPU_TABLE=TABLE.json python your_program.py

Another block size changes the last bits of results: use one table for all machines whose results must be equal to the bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .. import _noren
from .._call import Call, Extras
from .._noren import Error, Shape
from . import _attention, _launch
from ._launch import Config

BLOCKS: dict[str, tuple[tuple[int, int], ...]] = {
    "forward": ((128, 128), (128, 64), (128, 32), (64, 128), (64, 64), (64, 32), (32, 32)),
    "query_gradients": ((128, 64), (64, 64), (64, 32), (32, 64), (32, 32)),
    "key_gradients": ((64, 128), (64, 64), (32, 64), (64, 32), (32, 128), (32, 32)),
    "decode": ((16, 128), (16, 64), (16, 32)),
}
RUNS = 7


def candidates(name: str) -> Iterator[Config]:
    """Yields the configurations to measure for the pass `name`."""
    for block in BLOCKS[name]:
        for warps in (4, 8):
            for stages in (1, 2, 3, 4):
                yield Config(block, warps, stages)


def fastest(choices: Sequence[Config], time: Callable[[Config], float]) -> tuple[Config, float]:
    """Returns (configuration with the shortest time, this time). `time` measures a configuration; its unit is that of the returned
    time. Configurations for which `time` raises an exception, because they do not fit the device, are left out. Raises `Error` if
    none is left.
    """
    best: tuple[Config, float] | None = None
    for chosen in choices:
        try:
            took = time(chosen)
        except Exception as error:
            # Triton raises errors of many types for too much shared memory and too many registers.
            print(f"  {chosen}: {type(error).__name__}", file=sys.stderr)
            continue
        if best is None or took < best[1]:
            best = chosen, took
    if best is None:
        raise Error("no configuration runs on this device")
    return best


def _calls(dtype: torch.dtype, dim: int, length: int) -> dict[str, Callable[[], Any]]:
    """Returns a function for each pass, by its name. Each function runs the pass once."""
    q, k, v, dout = (torch.randn(1, 16, length, dim, dtype=dtype, device="cuda") for _ in range(4))
    call, none = Call(_noren.causal().plan(Shape.square(length, heads=16))), Extras([])
    out, lse = _attention.forward(call, q, k, v, none)
    one = Call(_noren.causal().plan(Shape.cached(length - 1, 1, heads=16)))
    both = lambda: _attention.gradients(call, q, k, v, none, (out, lse, dout), [])  # noqa: E731
    return {
        "forward": lambda: _attention.forward(call, q, k, v, none),
        "query_gradients": both,
        "key_gradients": both,
        "decode": lambda: _attention.forward(one, q[:, :, :1], k, v, none),
    }


def _milliseconds(run: Callable[[], Any]) -> float:
    run()
    times: list[float] = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def tune(types: Sequence[torch.dtype], dims: Sequence[int], length: int) -> _launch.Table:
    """Returns the fastest configuration for each pass, type and head dimension, and prints each configuration with its time."""
    target = _launch.target(torch.device("cuda"))
    table: _launch.Table = {}
    for dtype in types:
        for dim in dims:
            wide = next(width for width in _launch.DIMS if dim <= width)
            calls = _calls(dtype, dim, length)
            for name in _launch.PASSES:
                key = (target, name, dtype.itemsize, wide)

                def time(chosen: Config, name: str = name, key: tuple[str, str, int, int] = key) -> float:
                    with _launch.replaced(key, chosen):
                        return _milliseconds(calls[name])

                chosen, took = fastest(list(candidates(name)), time)
                table[key] = chosen
                print(f"{name}, {dtype}, head_dim {dim}: {chosen} ({took:.3f} ms)", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m noren.gpu.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="the file to which the table is written")
    parser.add_argument("--dims", default="64,128,256", help="head dimensions [default: 64,128,256]")
    parser.add_argument("--types", default="bfloat16,float32", help="types [default: bfloat16,float32]")
    parser.add_argument("--len", type=int, default=4096, help="the number of tokens of the measured calls [default: 4096]")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "error: no CUDA device was found: run this command on the machine with the GPU\n")
    table = tune([getattr(torch, name) for name in given.types.split(",")], [int(dim) for dim in given.dims.split(",")], given.len)
    _launch.write_table(given.table, table, torch.cuda.get_device_name())
    print(f"{given.table}: {len(table)} configurations were written; set {_launch.VARIABLE}={given.table} to use them")


if __name__ == "__main__":
    main()
