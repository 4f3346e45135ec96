"""Compiles the GPU kernels for a target that need not be present, and prints what the code contains as JSON.

    python gpu_code.py sm_90 [--dims 128] [--dtype bf16] [--change spill]

The arguments are those of real calls: a recorder takes the place of launches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import noren as nr
import noren.torch as nt
from noren.arguments import _call
from noren.gpu import _attention, _kernels, _launch

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}  # fmt: skip
SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10, "gfx942": 64 << 10}
"""Bytes of shared memory that a program may use."""
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int32: "i32"}
COUNTED = {
    "mma.sync": r"\bmma\.sync", "wgmma": r"\bwgmma\.mma_async", "tcgen05": r"\btcgen05\.mma", "mfma": r"\bv_mfma",
    "copies": r"\bcp\.async\.c[ag]|\bcp\.async\.bulk", "buffer_loads": r"\bbuffer_load|\bglobal_load",
    "local": r"\b(?:ld|st)\.local|\bscratch_(?:load|store)", "atomics": r"\b(?:red|atom)\.|\b(?:global|buffer)_atomic",
}  # fmt: skip


def calls(dtype: Any, dim: int, target: str = "sm_80") -> list[Any]:
    """Returns the launches of a training step with packed documents, and of a decoding step."""
    _launch.target = lambda _: target
    found: list[Any] = []
    _launch.launch = lambda *call: found.append(call)
    _call.simulated = True
    shape = nr.Shape.square(256, heads=4, kv_heads=2)
    plan = (nr.causal() & nr.documents()).plan(shape, nr.Facts(documents=[100, 156]))
    q, k = (torch.zeros(1, heads, 256, dim, dtype=dtype).requires_grad_() for heads in (4, 2))
    nt.attention(q, k, k, plan).sum().backward()
    with torch.no_grad():
        nt.attention(q[:, :, :1], k, k, nr.causal().plan(nr.Shape.cached(255, 1, heads=4, kv_heads=2)))
    return found


def source(kernel: Any, arguments: dict[str, Any], constants: dict[str, Any]) -> ASTSource:
    """Returns the source with the types that Triton gives these arguments."""
    types: dict[str, str] = {}
    fixed: dict[str, Any] = dict(constants)
    attributes = {}
    for place, name in enumerate(kernel.arg_names):
        value = constants.get(name, arguments.get(name))
        divisible = False
        if name in constants:
            types[name] = "constexpr"
        elif isinstance(value, torch.Tensor):
            types[name] = "*" + TYPES[value.dtype]
            divisible = value.data_ptr() % 16 == 0
        elif isinstance(value, float):
            types[name] = "fp32"
        elif value == 1 and name not in _kernels.COUNTS:
            types[name], fixed[name] = "constexpr", 1
        else:
            types[name] = "i32"
            divisible = value % 16 == 0 and name not in _kernels.COUNTS
        if divisible:
            attributes[(place,)] = [["tt.divisibility", 16]]
    return ASTSource(fn=kernel, signature=types, constexprs=fixed, attrs=attributes)


def measured(target: str, call: Any) -> dict[str, Any]:
    kernel, _, arguments, constants, chosen = call
    begin = time.perf_counter()
    options: dict[str, Any] = {"num_warps": chosen.warps, "num_stages": chosen.stages, "enable_fp_fusion": True}
    compiled = triton.compile(source(kernel, arguments, constants), target=TARGETS[target], options=options)
    code = compiled.asm.get("ptx") or compiled.asm.get("amdgcn") or ""
    found: dict[str, Any] = {name: len(re.findall(pattern, code)) for name, pattern in COUNTED.items()}
    spilled = re.search(r"\.private_segment_fixed_size:?\s+(\d+)", code)
    found |= {"kernel": kernel.__name__, "shared": compiled.metadata.shared, "limit": SHARED[target]}
    found |= {"stack": int(spilled[1]) if spilled else stack_of(compiled), "seconds": round(time.perf_counter() - begin, 1)}
    return found


def stack_of(compiled: Any) -> int:
    """Returns the bytes of local memory of each thread that the assembler reserved for spills and the stack."""
    import subprocess
    import tempfile

    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(compiled.asm["ptx"])
        file.flush()
        arch = compiled.metadata.target.arch
        name = f"sm_{arch}a" if arch >= 90 else f"sm_{arch}"
        done = subprocess.run([get_ptxas(arch).path, "-v", f"--gpu-name={name}", file.name, "-o", os.devnull], capture_output=True, text=True)
    numbers = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", done.stderr)
    if not numbers:
        raise RuntimeError(done.stderr)
    return sum(map(int, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--change", choices=["one_stage", "large_blocks"], help="a deliberate change that the tests must find")
    given = parser.parse_args()
    found = calls(getattr(torch, given.dtype), given.dim, given.target)
    if given.change:
        found = [changed(call, given.change) for call in found if call[0].__name__ == "forward"]
    print(json.dumps([measured(given.target, call) for call in found]))


def changed(call: Any, change: str) -> Any:
    """Returns the launch with one pipeline stage (no copies in the background) or with blocks that do not fit into registers."""
    *rest, constants, chosen = call
    if change == "one_stage":
        return (*rest, constants, _launch.Config(chosen.block, chosen.warps, 1))
    return (*rest, constants | {"BM": 128, "BN": 128}, _launch.Config((128, 128), 4, chosen.stages))


if __name__ == "__main__":
    main()
