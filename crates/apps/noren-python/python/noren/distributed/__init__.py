"""Attention over a process group of `torch.distributed`: the computation of any mask is split over the ranks (processes), and
the results equal those of one process up to rounding.

Each rank owns some query rows and some keys of the sequence. A partition, made from the mask, lists these rows and keys for
each rank, and the keys (or queries) that the rank sends. `Split` is the partition with the link to the other ranks:

>>> import noren as nr, noren.distributed as nd
>>> nd.join(timeout=30)                                   # the processes of torchrun  # doctest: +SKIP
>>> plan = (nr.causal() & nr.documents([700, 324])).plan(nr.Shape.square(1024, batch=1, heads=8, kv_heads=2))
>>> split = nd.Split(plan, timeout=30)                                                 # doctest: +SKIP
>>> tokens = split.take_rows(ids, dim=1)                  # this rank's tokens         # doctest: +SKIP
>>> out = nd.attention(q, k, v, split)                    # of q's rows over all keys  # doctest: +SKIP
>>> out.sum().backward()                                  # gradients of own q, k, v   # doctest: +SKIP

`decode` is a step of generation over a cache whose keys are distributed over the ranks. `hf.register` makes an attention
implementation of transformers. If ranks disagree, end or stall, every rank raises an error within the time-out.
"""

from .._noren import Disagreement as Disagreement, GroupError as GroupError, Partition as Partition, partition as partition
from ._attention import attention as attention
from ._decode import Shards as Shards, decode as decode
from ._split import Split as Split
from ._training import join as join, reduce_gradients as reduce_gradients, total as total
from ._wire import Traffic as Traffic
