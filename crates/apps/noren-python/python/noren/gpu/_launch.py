"""Configurations of kernels (block sizes, warps and pipeline stages), and the function that starts every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch


@dataclass(frozen=True)
class Config:
    """The configuration of a kernel. The block sizes determine the order of sums, and therefore the last bits of results."""

    block: tuple[int, int]
    """The size of a block as (query rows, keys). The query rows may belong to several heads (see `packed`)."""
    warps: int
    stages: int

    def packed(self, group: int) -> int:
        """Returns the number of query heads whose rows one tile contains. `group` is the number of query heads that share a
        key-value head; these must have equal masks.

        The number divides `group`, and each head has at least 32 query rows of the tile (16 if `block[0]` is 32 or less).
        """
        rows = 32 if self.block[0] > 32 else 16
        several = 1
        while group % (2 * several) == 0 and 2 * several * rows <= self.block[0]:
            several *= 2
        return several


PASSES = ("forward", "query_gradients", "key_gradients", "decode")
DIMS = (64, 128, 256)
"""The head dimensions for which configurations exist. For another head dimension, the configuration of the next larger one is
used."""

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
"""The kinds of devices for which separate configurations exist: Ampere and Ada, Hopper, Blackwell, and AMD's CDNA 3."""

_Four = tuple[int, int, int, int]
_Three = tuple[_Four, _Four, _Four]
Table = dict[tuple[str, str, int, int], Config]
"""The configurations of kernels by (kind of device in `TARGETS`, pass in `PASSES`, bytes of a number, head dimension)."""


def _rows(target: str, size: int, forward: _Three, query: _Three, key: _Three, decode: _Three) -> Table:
    """Returns the configurations of a kind of device for numbers of `size` bytes. For each pass, the argument has one tuple
    (query rows, keys, warps, stages) for each head dimension in `DIMS`.
    """
    passes = zip(PASSES, (forward, query, key, decode), strict=True)
    return {
        (target, name, size, dim): Config((rows, keys), warps, stages)
        for name, three in passes
        for dim, (rows, keys, warps, stages) in zip(DIMS, three, strict=True)
    }


_F32: dict[str, _Three] = {  # products in f32 have no matrix instructions: small blocks
    "forward": ((32, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 1)),
    "query": ((32, 32, 4, 1), (32, 32, 4, 1), (32, 32, 8, 1)),
    "key": ((32, 32, 4, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    "decode": ((16, 32, 4, 2), (16, 32, 4, 1), (16, 32, 4, 1)),
}

TABLE: Table = {
    **{key: value for target in TARGETS for key, value in _rows(target, 4, **_F32).items()},
    **_rows(
        "sm_80", 2,
        forward=((128, 32, 8, 2), (64, 64, 8, 2), (32, 32, 8, 2)),
        query=((64, 32, 4, 2), (64, 64, 8, 2), (64, 32, 8, 2)),
        key=((32, 32, 8, 2), (32, 32, 8, 2), (32, 32, 8, 2)),
        decode=((16, 64, 4, 3), (16, 64, 4, 2), (16, 64, 4, 3)),
    ),
    **_rows(
        "sm_90", 2,
        forward=((128, 64, 8, 3), (128, 64, 8, 3), (64, 32, 8, 2)),
        query=((128, 64, 8, 2), (64, 32, 8, 2), (32, 32, 8, 2)),
        key=((32, 64, 8, 2), (32, 32, 8, 2), (32, 32, 8, 2)),
        decode=((16, 64, 4, 3), (16, 64, 4, 2), (16, 64, 8, 2)),
    ),
    **_rows(
        "sm_100", 2,
        forward=((128, 64, 8, 3), (128, 32, 8, 3), (64, 32, 8, 2)),
        query=((128, 64, 8, 2), (64, 64, 8, 2), (32, 32, 8, 2)),
        key=((64, 32, 8, 2), (32, 32, 8, 2), (32, 32, 8, 2)),
        decode=((16, 64, 4, 3), (16, 64, 4, 2), (16, 64, 8, 2)),
    ),
    **_rows(
        "gfx942", 2,
        forward=((128, 32, 8, 1), (128, 32, 8, 1), (64, 32, 8, 1)),
        query=((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)),
        key=((32, 32, 4, 1), (32, 32, 4, 1), (32, 32, 4, 1)),
        decode=((16, 64, 4, 1), (16, 64, 4, 1), (16, 64, 4, 1)),
    ),
}  # fmt: skip
"""Configurations of kernels that were chosen without measuring on a GPU: the largest blocks that Triton compiles without spilled
registers."""

CHUNK = 512
"""The number of keys of a chunk in decoding."""


@lru_cache(maxsize=64)
def target(device: torch.device) -> str:
    """Returns the kind of a device: a name in `TARGETS`. For Triton's interpreter, on CPUs, the kind is `sm_80`."""
    if device.type == "cpu":
        return "sm_80"
    if torch.version.hip is not None:
        return "gfx942"
    major = torch.cuda.get_device_capability(device)[0]
    return "sm_100" if major >= 10 else "sm_90" if major == 9 else "sm_80"


def config(name: str, x: torch.Tensor, dim: int) -> Config:
    """Returns the configuration of the pass `name` for tensors with the type and the device of `x`. `dim` is the largest head
    dimension of the call."""
    key = (target(x.device), name, x.element_size(), next(width for width in DIMS if dim <= width))
    return TABLE[key]


def launch(kernel: Any, programs: int, arguments: dict[str, Any], constants: dict[str, Any], chosen: Config) -> None:
    """Starts `programs` programs of a kernel on the current stream of the device."""
    # Fused multiply-add is named, because its default differs between versions of Triton and changes bits.
    kernel[(programs,)](**arguments, **constants, num_warps=chosen.warps, num_stages=chosen.stages, enable_fp_fusion=True)
