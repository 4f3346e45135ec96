"""A step of decoding over a cache whose keys are shared out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._noren import Error, Plan
from ..torch._function import Extras, forward as compute
from ._attention import Options
from ._merge import Results, nothing
from ._split import Runs, check_tensors, count, indices, merged, said_of
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
        ranks, kv_len = self.wire.ranks, plan.shape.kv_len
        if keys is None:
            keys = [[(kv_len * rank // ranks, kv_len * (rank + 1) // ranks)] for rank in range(ranks)]
        self._held: list[Runs] = [merged(run for run in map(list, runs) if run[0] < run[1]) for runs in keys]
        everything = [run for runs in self._held for run in runs]
        if len(keys) != ranks or merged(everything) != [[0, kv_len]] or count(everything) != kv_len:
            raise Error(f"keys must give each of the {kv_len} keys to one of {ranks} ranks: {len(keys)} lists are {self._held}")
        mine = self._held[self.wire.rank]
        rows = [(0, plan.shape.q_len)]
        self._part = plan.bound.select(rows, [(a, z) for a, z in mine]).plan() if mine else None
        self._said = said_of(plan.bound) | {"keys by rank": json.dumps(self._held)}

    @property
    def traffic(self) -> Traffic:
        """What this rank sent and received so far."""
        return self.wire.traffic

    def keys(self, rank: int | None = None) -> Tensor:
        """The keys that this rank, or another, holds: indices, ascending."""
        return indices(self._held[self.wire.rank if rank is None else rank])

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
    options = Options.of(scale, softcap, alibi)
    shape, said = shards.plan.shape, dict[str, Any]()
    with shards.wire.checked("a step of decoding", said):
        if torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
            raise Error("a step of decoding has no gradients: call it under torch.no_grad(), or attention(...) to train")
        held = len(shards.keys())
        sizes = (shape.batch, shape.heads, shape.q_len), (shape.batch, shape.kv_heads, held)
        check_tensors((q, k, v), sizes, f"rank {shards.wire.rank} holds {held} keys (Shards.keys)")
        said |= shards._said | {"types": q.dtype, "head_dim and v_dim": (q.shape[3], v.shape[3]), "options": options}
        options.check(shape.heads, shape.kv_heads)
        said["q"] = hashlib.blake2b(q.detach().contiguous().view(torch.uint8).numpy().tobytes(), digest_size=16).hexdigest()
    size = shape.batch, shape.heads, shape.q_len, v.shape[3]
    out, lse = nothing(*size)
    if shards._part is not None:
        out, sums = compute(options.call(shards._part), q.float(), k.float(), v.float(), Extras([]), lse=True)
        assert sums is not None
        lse = sums
    results = Results(*size)
    for part in shards.wire.collect("the exchange of partial outputs", torch.cat((out, lse.unsqueeze(-1)), -1)):
        results.add(None, (part[..., :-1], part[..., -1]))
    found = results.out.to(q.dtype)
    return (found, results.lse) if return_lse else found
