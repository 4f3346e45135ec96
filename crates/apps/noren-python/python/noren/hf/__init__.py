"""An attention implementation for Hugging Face transformers.

>>> import noren.hf
>>> noren.hf.register()
>>> model.set_attn_implementation("noren")  # doctest: +SKIP

Mask functions of transformers are converted to expressions of noren, so that no array of length x length is made. A mask or a mask
function can be given for one call (`model(..., noren_mask=...)`), for a model (`set_mask`) or for all models (`register(mask=...)`).
"""

from ._attention import NAMES as NAMES, attention_forward as attention_forward, register as register
from ._calls import set_mask as set_mask
from ._masks import Masked as Masked, make_mask as make_mask
from ._support import unsupported as unsupported
