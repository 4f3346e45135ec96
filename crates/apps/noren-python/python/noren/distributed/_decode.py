"""A decoding step over a key-value cache whose keys are distributed over processes (ranks)."""

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
    """A key-value cache whose keys are distributed over the ranks (processes) of a group. Every rank has all queries.

    `plan` is the plan of one step, for example with `Shape.cached(past, new)`. `keys` lists for each rank its ranges of keys,
    as (first key, key after the last) [default: ranges of equal length]. The step for the next token needs a new `Shards` for
    one more key.
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
        """Returns the numbers of bytes that this rank has sent and received up to now."""
        return self.wire.traffic

    def keys(self, rank: int | None = None) -> Tensor:
        """Returns the indices of the keys that rank `rank` stores [default: this rank], in ascending order."""
        return indices(self.portion.held(self.wire.rank if rank is None else rank))

    def predicted(self, v_dim: int) -> Traffic:
        """Returns the numbers of bytes that this rank sends and receives in one decoding step. `v_dim` is the width of a value."""
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
    """Computes attention of a few new queries over a distributed cache; every rank gets all outputs, with equal bits.

    `q` is `[batch, heads, new, head_dim]`, equal on every rank; `k` and `v` are `[batch, kv_heads, held, head_dim or v_dim]`,
    the keys that this rank holds. Each rank computes with its own keys. Ranks send each other their outputs and log-sum-exps,
    and each rank merges them in the order of ranks; no key is sent. The result has no gradient. Raises the errors of
    `attention`.
    """
    shape = shards.plan.shape
    with shards.wire.checked():
        if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
            raise Error("a step of decoding has no gradients: call decode under torch.no_grad(), or call attention(...) to train")
        held = len(shards.keys())
        sizes = (shape.batch, shape.heads, shape.q_len), (shape.batch, shape.kv_heads, held)
        check_tensors((q, k, v), sizes, f"rank {shards.wire.rank} holds {held} keys (Shards.keys)")
    attended = shards.portion.decode(lent(q, k, v), scores_of(scale, softcap, alibi))
    out, lse = results(attended, q, v)
    return (out, lse) if return_lse else out
