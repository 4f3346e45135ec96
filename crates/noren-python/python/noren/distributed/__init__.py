"""Attention over a process group: any mask, split exactly, over `torch.distributed`.

Each rank owns some query rows and some keys of the sequence; a partition, made from the mask, says which, and which keys (or
queries) travel to whom. `Split` holds it as one rank sees it:

>>> import noren as nr, noren.distributed as nd
>>> nd.join(timeout=30)                                   # the processes of torchrun  # doctest: +SKIP
>>> plan = (nr.causal() & nr.documents([700, 324])).plan(nr.Shape.square(1024, batch=1, heads=8, kv_heads=2))
>>> split = nd.Split(plan, timeout=30)                                                 # doctest: +SKIP
>>> tokens = split.take_rows(ids, dim=1)                  # this rank's tokens         # doctest: +SKIP
>>> out = nd.attention(q, k, v, split)                    # of q's rows over all keys  # doctest: +SKIP
>>> out.sum().backward()                                  # gradients of own q, k, v   # doctest: +SKIP

`decode` is a step of generation over a cache whose keys are shared out, `hf.register` makes it an attention implementation of
transformers. Ranks that disagree, die or stall are an error on every rank, within the time-out.
"""

from .._noren import Disagreement as Disagreement, GroupError as GroupError, Partition as Partition, partition as partition
from ._attention import attention as attention
from ._decode import Shards as Shards, decode as decode
from ._split import Split as Split
from ._training import join as join, reduce_gradients as reduce_gradients, total as total
from ._wire import Traffic as Traffic
