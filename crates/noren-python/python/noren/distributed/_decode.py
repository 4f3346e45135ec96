"""A step of decoding over a cache whose keys are shared out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import Error, Plan, RankShards
from ._attention import lent, results, scores_of
from ._split import check_tensors, indices
from ._wire import Traffic, Wire


class Shards:
    """Who holds which keys of a cache: the ranks of a group, each its own; queries are everywhere.

    `plan` is that of the step, `Shape.cached(past, new)` say; `keys` lists for each rank the ranges `(first, after)` of keys
    that it holds, equal runs unless given. A step of the next token is another `Shards`, with a key more somewhere.
    """

    def __init__(
        self,
        plan: Plan,
        keys: Sequence[Sequence[tuple[int, int]]] | None = None,
        *,
        group: dist.ProcessGroup | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.plan, self.wire = plan, Wire(group, timeout)
        held = None if keys is None else [sorted((start, end) for start, end in runs) for runs in keys]
        self.portion = RankShards(plan, held, self.wire.link)

    @property
    def traffic(self) -> Traffic:
        """What this rank sent and received so far."""
        return self.wire.traffic

    def keys(self, rank: int | None = None) -> Tensor:
        """The keys that this rank, or another, holds: indices, ascending."""
        return indices(self.portion.held(self.wire.rank if rank is None else rank))

    def predicted(self, v_dim: int) -> Traffic:
        """Bytes that this rank sends and receives in a step."""
        shape = self.plan.shape
        size = shape.batch * shape.heads * shape.q_len * (v_dim + 1) * 4 * (self.wire.ranks - 1)
        return Traffic(size, size)


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shards: Shards,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    alibi: Sequence[float] | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention of a few new queries over a cache that is shared out: every rank gets all outputs, to the same bits.

    `q` is `[batch, heads, new, head_dim]`, the same on every rank; `k` and `v` are `[batch, kv_heads, held, head_dim or v_dim]`,
    the keys that this rank holds. Each rank reads these; outputs and log-sum-exps go to all others, no key does, and are
    merged in the order of ranks. Not differentiable; raises as `attention` does.
    """
    shape = shards.plan.shape
    with shards.wire.checked():
        if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
            raise Error("a step of decoding has no gradients: call it under torch.no_grad(), or attention(...) to train")
        held = len(shards.keys())
        sizes = (shape.batch, shape.heads, shape.q_len), (shape.batch, shape.kv_heads, held)
        check_tensors((q, k, v), sizes, f"rank {shards.wire.rank} holds {held} keys (Shards.keys)")
    attended = shards.portion.decode(lent(q, k, v), scores_of(scale, softcap, alibi))
    out, lse = results(attended, q, v)
    return (out, lse) if return_lse else out
