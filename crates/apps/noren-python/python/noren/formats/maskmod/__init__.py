"""Converts mask functions (`mask_mod`) and score functions (`score_mod`), written for FlexAttention, NumPy or plain Python, to
masks and biases of noren.

`_trace` records the operations of a function as an expression (`_nodes`), `_recognise` finds the expression of noren that has the same
cells, `_evaluate` calls the function for many cells, and `_tiles` computes full tiles, empty tiles and the bits of mixed tiles. `_score`
finds the numbers that a score function adds.
"""

from ._mask import from_mask_mod as from_mask_mod
from ._score import ScoreMod as ScoreMod, from_score_mod as from_score_mod
