"""Published mask functions, written for these tests from their descriptions. Each is a mask_mod(b, h, q_idx, kv_idx) for up to `LENGTH` tokens.

`PUBLISHED` has (name, function, true if noren finds an expression). Names are those of attention-gym, of transformers, and of the papers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LENGTH, BATCH, HEADS = 1024, 2, 4
MaskMod = Callable[[Any, Any, Any, Any], Any]


def _runs(lengths: list[int]) -> torch.Tensor:
    """Returns the number of the run of each position, for runs of the given lengths."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def both(*functions: MaskMod) -> MaskMod:
    """FlexAttention's and_masks."""

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        result = q.new_ones((), dtype=torch.bool)
        for part in functions:
            result = result & part(b, h, q, k)
        return result

    return function


def either(*functions: MaskMod) -> MaskMod:
    """FlexAttention's or_masks."""

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        result = q.new_zeros((), dtype=torch.bool)
        for part in functions:
            result = result | part(b, h, q, k)
        return result

    return function


def sliding_window(size: int) -> MaskMod:
    """attention-gym: the keys at most `size` positions before the query."""
    return lambda b, h, q, k: (q >= k) & (q - k <= size)


def mistral(size: int) -> MaskMod:
    """transformers' sliding_window_overlay with its causal function."""

    def overlay(b: Any, h: Any, q: Any, k: Any) -> Any:
        return k > q - size

    return both(overlay, causal)


def bidirectional_window(size: int) -> MaskMod:
    """ModernBERT's local layers."""
    return lambda b, h, q, k: torch.abs(q - k) <= size // 2


def prefix_lm(length: int) -> MaskMod:
    return either(lambda b, h, q, k: k < length, causal)


def prefix_by_row(lengths: list[int]) -> MaskMod:
    """PaliGemma: the prefix of each batch row is read by every query."""
    ends = torch.tensor(lengths)
    return lambda b, h, q, k: (k < ends[b]) | (q >= k)


def document(lengths: list[int], inner: MaskMod) -> MaskMod:
    """attention-gym's document mask: `inner` sees positions inside of the document."""
    ids = _runs(lengths)
    starts = torch.cumsum(torch.tensor([0, *lengths]), 0)

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        same = ids[q] == ids[k]
        return same & inner(b, h, q - starts[ids[q]], k - starts[ids[k]])

    return function


def packed_rows(rows: list[list[int]]) -> MaskMod:
    """transformers' packed_sequence_mask_function: other documents in each batch row."""
    ids = torch.stack([_runs(row) for row in rows])
    return both(lambda b, h, q, k: ids[b, q] == ids[b, k], causal)


def llama4_chunks(size: int) -> MaskMod:
    """transformers' chunked_overlay, without left padding."""
    left = torch.zeros(BATCH, dtype=torch.long)
    return both(lambda b, h, q, k: (q - left[b]) // size == (k - left[b]) // size, causal)


def chunks(size: int) -> MaskMod:
    return lambda b, h, q, k: (q // size == k // size) & (q >= k)


def block_causal(size: int) -> MaskMod:
    """Block diffusion: a query reads its own block and all earlier ones."""
    return lambda b, h, q, k: q // size >= k // size


def dilated(size: int, step: int) -> MaskMod:
    """A dilated sliding window (Longformer, attention-gym)."""
    return lambda b, h, q, k: (q >= k) & (q - k <= size) & ((q - k) % step == 0)


def longformer(size: int, global_tokens: int) -> MaskMod:
    return lambda b, h, q, k: (torch.abs(q - k) <= size) | (q < global_tokens) | (k < global_tokens)


def sink(size: int, sinks: int) -> MaskMod:
    """StreamingLLM."""
    return lambda b, h, q, k: (q >= k) & ((q - k < size) | (k < sinks))


def strided(size: int) -> MaskMod:
    """The strided pattern of sparse transformers."""
    return lambda b, h, q, k: (q >= k) & ((q - k < size) | ((q - k) % size == 0))


def fixed(size: int, summary: int) -> MaskMod:
    """The fixed pattern of sparse transformers: the last `summary` keys of each block are read by later queries."""
    return lambda b, h, q, k: (q >= k) & ((q // size == k // size) | (k % size >= size - summary))


def natten(width: int, size: int) -> MaskMod:
    """attention-gym's NATTEN: windows of a grid, moved inward at the edges."""

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        row, column = q // width, q % width
        centre_row = row.clamp(size // 2, (LENGTH // width - 1) - size // 2)
        centre_column = column.clamp(size // 2, (width - 1) - size // 2)
        return ((centre_row - k // width).abs() <= size // 2) & ((centre_column - k % width).abs() <= size // 2)

    return function


def tiled_natten(width: int, tile: int, size: int) -> MaskMod:
    """attention-gym's NATTEN over tokens in the order of square tiles."""

    def place(index: Any) -> tuple[Any, Any]:
        number, inside = index // (tile * tile), index % (tile * tile)
        across = width // tile
        return number // across * tile + inside // tile, number % across * tile + inside % tile

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        (row, column), (key_row, key_column) = place(q), place(k)
        return (torch.abs(row - key_row) <= size) & (torch.abs(column - key_column) <= size)

    return function


def transfusion(starts: list[list[tuple[int, int]]]) -> MaskMod:
    """attention-gym's transfusion: causal, and the tokens of one image read each other. `starts` is (first, count) by batch row."""
    images = torch.tensor(starts)

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        result = q >= k
        for number in range(images.shape[1]):
            first, end = images[b, number, 0], images[b, number, 0] + images[b, number, 1]
            result = result | ((q >= first) & (q < end) & (k >= first) & (k < end))
        return result

    return function


def gemma3_images(types: torch.Tensor) -> MaskMod:
    """Gemma 3: causal, and the tokens of one image read each other; `types` is [batch, length] with 1 for image tokens."""
    begins = torch.diff(types, dim=1, prepend=torch.zeros(len(types), 1, dtype=types.dtype)) == 1
    groups = torch.where(types == 1, torch.cumsum(begins, 1) - 1, -1)

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        same = (groups[b, q] == groups[b, k]) & (groups[b, q] >= 0)
        return (q >= k) | same

    return function


def padded(real: torch.Tensor) -> MaskMod:
    """transformers' padding_mask_function with a causal mask; `real` is [batch, length] of booleans."""
    return both(causal, lambda b, h, q, k: real[b, k])


def global_local(globals_: torch.Tensor, size: int) -> MaskMod:
    """ETC: tokens of a list are global."""
    return lambda b, h, q, k: globals_[q] | globals_[k] | (torch.abs(q - k) <= size)


def big_bird(block: int, size: int) -> MaskMod:
    """BigBird: window blocks, first and last blocks, and blocks chosen at random."""
    count = LENGTH // block
    chosen = torch.rand(count, count, generator=_random(5)) < 0.08

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        own, other = q // block, k // block
        window = torch.abs(own - other) <= size
        edge = (own == 0) | (other == 0) | (own == count - 1) | (other == count - 1)
        return window | edge | chosen[own, other]

    return function


def by_head(size: int) -> MaskMod:
    """Local and global heads."""
    return lambda b, h, q, k: torch.where(h < HEADS // 2, (q >= k) & (q - k < size), q >= k)


def dilation_by_head() -> MaskMod:
    """Dilated windows with another step for each head (LongNet)."""
    steps = torch.tensor([1, 2, 4, 8])
    return lambda b, h, q, k: (q >= k) & ((q - k) % steps[h] == 0)


def logarithmic() -> MaskMod:
    """LogSparse: distances that are powers of two."""
    near = torch.zeros(LENGTH, dtype=torch.bool)
    near[[0, *(1 << i for i in range(10))]] = True
    return lambda b, h, q, k: near[(q - k).clamp(min=0)] & (q >= k)


def shared_prefix(prompt: int, answer: int) -> MaskMod:
    """Several answers of one prompt in one row: an answer reads the prompt and itself."""
    return lambda b, h, q, k: (q >= k) & ((k < prompt) | ((q - prompt) // answer == (k - prompt) // answer))


def tree(seed: int, size: int) -> MaskMod:
    """A draft tree after a text (speculative decoding), as an array of ancestors."""
    start = LENGTH - size
    ancestors = torch.zeros(size, size, dtype=torch.bool)
    for node in range(size):
        ancestors[node, node] = True
        if node:
            ancestors[node] |= ancestors[int(torch.randint(node, (), generator=_random(seed + node)))]

    def function(b: Any, h: Any, q: Any, k: Any) -> Any:
        inside = (q >= start) & (k >= start)
        return torch.where(inside, ancestors[(q - start).clamp(0), (k - start).clamp(0)], (k < start) & (q >= k))

    return function


def multimodal_reference(lengths: list[int]) -> MaskMod:
    """Flux-like joint attention: text, image and reference tokens; references do not read the rest."""
    kinds = _runs(lengths)
    return lambda b, h, q, k: (kinds[q] == kinds[k]) | ((kinds[q] < 2) & (kinds[k] <= 2))


def anti_causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q <= k


def stick_breaking(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Stick-breaking attention: strictly earlier keys."""
    return k < q


def plain_python(b: int, h: int, q: int, k: int) -> bool:
    """A function of numbers, with conditions."""
    if k < 4:
        return True
    return 0 <= q - k < 64 and q // 128 == k // 128


_IDS = [[300, 500, 224], [700, 24, 300]]
_TYPES = torch.zeros(BATCH, LENGTH, dtype=torch.long)
_TYPES[0, 100:356], _TYPES[0, 600:700], _TYPES[1, 3:259] = 1, 1, 1
_REAL = torch.ones(BATCH, LENGTH, dtype=torch.bool)
_REAL[1, 800:] = False
_GLOBALS = torch.rand(LENGTH, generator=_random(1)) < 0.02

PUBLISHED: list[tuple[str, MaskMod, bool]] = [
    ("causal", causal, True),
    ("anti_causal", anti_causal, True),
    ("stick_breaking", stick_breaking, True),
    ("sliding_window", sliding_window(128), True),
    ("mistral", mistral(200), True),
    ("bidirectional_window", bidirectional_window(128), True),
    ("prefix_lm", prefix_lm(100), True),
    ("paligemma", prefix_by_row([256, 17]), True),
    ("document_causal", document([300, 500, 224], causal), False),
    ("document_window", document([300, 500, 224], sliding_window(50)), False),
    ("packed_rows", packed_rows(_IDS), True),
    ("llama4", llama4_chunks(256), False),
    ("chunks", chunks(256), True),
    ("block_diffusion", block_causal(32), True),
    ("dilated", dilated(256, 4), True),
    ("longformer", longformer(64, 3), True),
    ("streaming", sink(128, 4), True),
    ("sparse_strided", strided(32), True),
    ("sparse_fixed", fixed(64, 4), False),
    ("natten", natten(32, 7), False),
    ("tiled_natten", tiled_natten(32, 8, 3), False),
    ("transfusion", transfusion([[(10, 256), (500, 64)], [(0, 100), (900, 124)]]), False),
    ("gemma3", gemma3_images(_TYPES), False),
    ("padded", padded(_REAL), False),
    ("etc", global_local(_GLOBALS, 32), False),
    ("big_bird", big_bird(64, 1), False),
    ("local_global_heads", by_head(64), False),
    ("longnet", dilation_by_head(), False),
    ("log_sparse", logarithmic(), False),
    ("rollouts", shared_prefix(256, 96), False),
    ("draft_tree", tree(7, 60), False),
    ("flux", multimodal_reference([100, 824, 100]), False),
    ("plain_python", plain_python, True),
]
