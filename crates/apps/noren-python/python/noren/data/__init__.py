"""Data for models with masks: packing and folding.

>>> import noren as nr
>>> from noren.data import pack
>>> packed = pack([[5, 6, 7], [8, 9]])
>>> packed.mask, packed.position_ids.tolist(), packed.labels.tolist()
(causal & documents, [[0, 1, 2, 0, 1]], [[-100, 6, 7, -100, 9]])

The core is NumPy. PyTorch is imported only if tensors are given or requested. Pooling is in `noren.torch`.
"""

from ._fold import Fold as Fold, fold as fold
from ._layout import Piece as Piece
from ._packing import Packed as Packed, pack as pack
