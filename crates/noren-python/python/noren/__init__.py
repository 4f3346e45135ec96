"""Attention masking: say any mask, plan it exactly, compute attention with it, hand it to every other system.

>>> import noren as nr
>>> mask = nr.causal() & nr.sliding(1024) | nr.keys(range(4))
>>> mask
causal & sliding(1024) | keys(0..4)
>>> print(nr.parse("causal & documents([3, 2])").picture(5))  # doctest: +ELLIPSIS
causal & documents([3, 2])
...

`noren.torch`, `noren.hf` and `noren.onnx` are for PyTorch, transformers and ONNX; they are imported by name, so that
`import noren` needs nothing but itself.
"""

import os as _os

from ._attention import attention as attention
from ._doctor import (
    Finding as Finding,
    Recognised as Recognised,
    Report as Report,
    check as check,
    check_classes as check_classes,
    recognise as recognise,
)
from ._noren import (
    Array as Array,
    BoundMask as BoundMask,
    Error as Error,
    ExportError as ExportError,
    Facts as Facts,
    Mask as Mask,
    ParseError as ParseError,
    Plan as Plan,
    Score as Score,
    Shape as Shape,
    Spec as Spec,
    __version__ as __version__,
    after_fork as _after_fork,
    alibi as alibi,
    batch as batch,
    bias as bias,
    causal as causal,
    chunk as chunk,
    clearance as clearance,
    dense as dense,
    documents as documents,
    full as full,
    global_ as global_,
    heads as heads,
    keys as keys,
    layers as layers,
    levels as levels,
    neighborhood as neighborhood,
    none as none,
    padding as padding,
    parse as parse,
    prefix as prefix,
    queries as queries,
    random as random,
    random_blocks as random_blocks,
    relative as relative,
    sinks as sinks,
    sliding as sliding,
    soft as soft,
    softcap as softcap,
    spans as spans,
    stride as stride,
    tree as tree,
    window as window,
)
from ._views import Difference as Difference, Explanation as Explanation, Stats as Stats

if hasattr(_os, "register_at_fork"):  # worker threads do not come along into a forked process
    _os.register_at_fork(after_in_child=_after_fork)
