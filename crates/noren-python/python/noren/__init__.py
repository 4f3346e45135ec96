"""Attention masks for transformers: expressions for masks, exact block-sparse plans, attention on CPUs, and other systems' formats.

>>> import noren as nr
>>> mask = nr.causal() & nr.sliding(1024) | nr.keys(range(4))
>>> mask
causal & sliding(1024) | keys(0..4)
>>> print(nr.parse("causal & documents([3, 2])").picture(5))  # doctest: +ELLIPSIS
causal & documents([3, 2])
...

`noren.private` finds private text and hides it. `noren.torch`, `noren.hf`, `noren.onnx` and `noren.distributed` serve PyTorch,
transformers, ONNX and process groups. These four modules must be imported by their names: `import noren` alone needs none of
these packages.
"""

import os as _os
from typing import TYPE_CHECKING, Any as _Any

from ._attention import attention as attention
from ._cache import KvCache as KvCache
from ._code import code as code
from ._doctor import (
    Finding as Finding,
    Question as Question,
    Recognised as Recognised,
    Report as Report,
    check as check,
    check_classes as check_classes,
    recognise as recognise,
)
from ._flow import (
    Certificate as Certificate,
    Cut as Cut,
    Flow as Flow,
    Path as Path,
    RuleVerdict as RuleVerdict,
    Ruling as Ruling,
    flow as flow,
)
from ._noren import (
    Array as Array,
    BoundMask as BoundMask,
    Equivalence as Equivalence,
    Error as Error,
    ExportError as ExportError,
    Facts as Facts,
    Mask as Mask,
    ParseError as ParseError,
    Plan as Plan,
    Score as Score,
    Shape as Shape,
    Spec as Spec,
    StepPlan as StepPlan,
    __version__ as __version__,
    after_fork as _after_fork,
    alibi as alibi,
    batch as batch,
    bias as bias,
    causal as causal,
    chunk as chunk,
    clearance as clearance,
    dense as dense,
    distances as distances,
    documents as documents,
    full as full,
    global_ as global_,
    heads as heads,
    isas as isas,
    keys as keys,
    layers as layers,
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
from ._plot import explore as explore
from ._views import Difference as Difference, Explanation as Explanation, Stats as Stats

if hasattr(_os, "register_at_fork"):  # a forked process has no worker threads
    _os.register_at_fork(after_in_child=_after_fork)

if TYPE_CHECKING:
    from . import private as private
    from ._guard import MaskFault as MaskFault, guard as guard
    from ._hf_formats import from_transformers as from_transformers, to_transformers as to_transformers
    from .battery import audit as audit
    from ._batch import FactsFound as FactsFound, facts_from as facts_from
    from .data import Fold as Fold, fold as fold
    from .formats.blocks import (
        BsrMask as BsrMask,
        FlashInferMask as FlashInferMask,
        SplashMaskInfo as SplashMaskInfo,
        from_flashinfer as from_flashinfer,
        from_flashinfer_bsr as from_flashinfer_bsr,
        from_splash as from_splash,
        to_flashinfer as to_flashinfer,
        to_flashinfer_bsr as to_flashinfer_bsr,
        to_splash as to_splash,
    )
    from .formats.dense import (
        LlamaCppMask as LlamaCppMask,
        from_additive as from_additive,
        from_drop as from_drop,
        from_jax as from_jax,
        from_keep as from_keep,
        from_keras as from_keras,
        from_llama_cpp as from_llama_cpp,
        from_onnx as from_onnx,
        to_additive as to_additive,
        to_drop as to_drop,
        to_jax as to_jax,
        to_keep as to_keep,
        to_keras as to_keras,
        to_llama_cpp as to_llama_cpp,
        to_onnx as to_onnx,
    )
    from .formats.fa4 import (
        Fa4Blocks as Fa4Blocks,
        from_fa4 as from_fa4,
        to_fa4 as to_fa4,
    )
    from .formats.flex import (
        from_flex as from_flex,
        to_flex as to_flex,
    )
    from .formats.intervals import (
        FlashMask as FlashMask,
        MagiSlices as MagiSlices,
        from_cudnn as from_cudnn,
        from_flashmask as from_flashmask,
        from_magi as from_magi,
        to_cudnn as to_cudnn,
        to_flashmask as to_flashmask,
        to_magi as to_magi,
    )
    from .formats.queries import (
        FlashInferRanges as FlashInferRanges,
        SglangMask as SglangMask,
        from_flashinfer_ranges as from_flashinfer_ranges,
        from_sglang as from_sglang,
        to_flashinfer_ranges as to_flashinfer_ranges,
        to_sglang as to_sglang,
    )
    from .formats.scores import (
        to_score_mod as to_score_mod,
    )
    from .formats.varlen import (
        Varlen as Varlen,
        XformersBias as XformersBias,
        from_varlen as from_varlen,
        from_xformers as from_xformers,
        to_varlen as to_varlen,
        to_xformers as to_xformers,
    )
    from .maskmod import (
        MaskMod as MaskMod,
        ScoreMod as ScoreMod,
        describe_mask_mod as describe_mask_mod,
        from_mask_mod as from_mask_mod,
        from_score_mod as from_score_mod,
    )
    from .probing import probe as probe

_FORMATS = {
    "blocks": """BsrMask FlashInferMask SplashMaskInfo from_flashinfer from_flashinfer_bsr from_splash to_flashinfer to_flashinfer_bsr to_splash""",
    "dense": """LlamaCppMask from_additive from_drop from_jax from_keep from_keras from_llama_cpp from_onnx to_additive to_drop to_jax to_keep to_keras to_llama_cpp to_onnx""",
    "fa4": """Fa4Blocks from_fa4 to_fa4""",
    "flex": """from_flex to_flex""",
    "intervals": """FlashMask MagiSlices from_cudnn from_flashmask from_magi to_cudnn to_flashmask to_magi""",
    "queries": """FlashInferRanges SglangMask from_flashinfer_ranges from_sglang to_flashinfer_ranges to_sglang""",
    "scores": """to_score_mod""",
    "varlen": """Varlen XformersBias from_varlen from_xformers to_varlen to_xformers""",
}
_WHERE = {name: f"formats.{module}" for module, names in _FORMATS.items() for name in names.split()}
_WHERE |= {"Fold": "data", "fold": "data", "audit": "battery", "guard": "_guard", "MaskFault": "_guard", "probe": "probing"}
_WHERE |= dict.fromkeys(("MaskMod", "ScoreMod", "describe_mask_mod", "from_mask_mod", "from_score_mod"), "maskmod")
_WHERE |= dict.fromkeys(("FactsFound", "facts_from"), "_batch")
_WHERE |= {"from_transformers": "_hf_formats", "to_transformers": "_hf_formats"}
_MODULES = ("private",)
"""Names of submodules of `noren` that are imported on first use."""


def __getattr__(name: str) -> _Any:
    """Returns the attribute `name` of `noren`, whose module is imported when the attribute is first used: a conversion of a
    format or of a mask function, `facts_from`, `audit`, `guard`, `MaskFault`, or a submodule such as `private`.
    """
    if name in _WHERE:
        from importlib import import_module

        try:
            return getattr(import_module(f"noren.{_WHERE[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"noren.{name} needs PyTorch: pip install 'noren-attention[torch]'") from None
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"noren.{name}")
    raise AttributeError(f"module 'noren' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
