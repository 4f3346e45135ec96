"""Functions for training over a group of processes: `join` joins the group, the other functions add values of all processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous
from torch import Tensor

from ._split import Split


def join(timeout: float = 60.0) -> None:
    """Joins the gloo group of the processes that torchrun started, or that another launcher with the same environment variables
    started.

    Use this instead of `init_process_group("gloo")`, which may use the addresses of ended processes after a restart: torchrun
    keeps its key-value store, and PyTorch 2.15 reads the addresses of the previous processes from it. `join` does not use these
    addresses. Only for processes of one machine, because torchrun counts attempts on each machine separately. `timeout` is in
    seconds.
    """
    store, rank, ranks = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    fresh = dist.distributed_c10d.PrefixStore(f"noren/{attempt}", store)
    dist.init_process_group("gloo", store=fresh, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout))


def total(value: Tensor, split: Split) -> Tensor:
    """Returns the sum of a tensor over all ranks, added in the order of ranks, for example to report a loss. The sum has no
    gradient.

    For training, do not differentiate this sum: every rank differentiates its part of the loss, divided by a number that is
    equal on all ranks, such as the number of labels in the whole batch. Then `reduce_gradients` adds the gradients of all
    ranks.
    """
    split.wire.agree("a sum", {"shape": tuple(value.shape), "types": value.dtype})
    parts = split.wire.gather(value.detach())
    out = torch.zeros_like(parts[0])
    for part in parts:
        out += part
    return out


def reduce_gradients(parameters: Iterable[torch.nn.Parameter], split: Split) -> None:
    """Replaces the gradient of each parameter by its sum over all ranks; every rank must have a copy of all parameters.

    A gradient that is None on some ranks counts as 0 there. A gradient that is None on all ranks stays None.
    """
    wanted = [p for p in parameters if p.requires_grad]
    by_type: dict[torch.dtype, list[torch.nn.Parameter]] = {}
    for parameter in wanted:
        by_type.setdefault(parameter.dtype, []).append(parameter)
    sizes = [(str(dtype), [tuple(p.shape) for p in found]) for dtype, found in by_type.items()]
    split.wire.agree("the sum of gradients", {"parameters": sizes})
    for found in by_type.values():
        counts = [p.numel() for p in found]
        given = torch.tensor([p.grad is not None for p in found], dtype=found[0].dtype)
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in found]
        flat = torch.cat([*parts, given])
        split.wire.sum("the sum of gradients", flat)
        *sums, given = torch.split(flat, [*counts, len(found)])
        for parameter, part, ranks in zip(found, sums, given.tolist(), strict=True):
            parameter.grad = part.view(parameter.shape).clone() if ranks else None
