"""The names of `noren`. `__init__.py` reads from this file in which module each name is, and imports the module when the name is first used."""

from . import private as private
from ._noren import (
    Array as Array,
    BoundMask as BoundMask,
    Certificate as Certificate,
    Error as Error,
    ExportError as ExportError,
    Facts as Facts,
    Flow as Flow,
    Mask as Mask,
    ParseError as ParseError,
    Plan as Plan,
    Score as Score,
    Shape as Shape,
    Spec as Spec,
    StepPlan as StepPlan,
    __version__ as __version__,
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
from .battery import audit as audit
from .battery.guard import MaskFault as MaskFault, guard as guard
from .cpu._attention import attention as attention
from .cpu._cache import KvCache as KvCache
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
from .formats.maskmod import (
    ScoreMod as ScoreMod,
    from_mask_mod as from_mask_mod,
    from_score_mod as from_score_mod,
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
from .hf._formats import from_transformers as from_transformers, to_transformers as to_transformers
from .masks._batch import FactsFound as FactsFound, facts_from as facts_from
from .masks._code import code as code
from .masks._doctor import (
    Finding as Finding,
    Question as Question,
    Recognised as Recognised,
    Report as Report,
    check as check,
    recognise as recognise,
)
from .masks._flow import (
    Cut as Cut,
    Path as Path,
    RuleVerdict as RuleVerdict,
    Ruling as Ruling,
    flow as flow,
)
from .masks._plot import explore as explore
from .masks._views import Difference as Difference, Equivalence as Equivalence, Explanation as Explanation, Stats as Stats
from .probing import probe as probe

__all__: list[str]
