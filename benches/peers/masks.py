"""The masks of the comparison, in the forms the peers want. q and k count from 0."""

import numpy as np

WINDOW = 256
DOCUMENT_SHARES = (1, 2, 1, 3, 4, 2, 2, 1)  # sixteenths of the sequence
MASKS = ("full", "causal", "swa256", "padding", "docs8", "perhead")
GROUPS = ("causal", "swa256", "docs8", "padding")  # perhead: four equal groups of heads


def document_borders(n):
    return np.concatenate([[0], np.cumsum(DOCUMENT_SHARES)]) * n // 16


def document_ids(n):
    return np.searchsorted(document_borders(n)[1:], np.arange(n), side="right").astype(np.int32)


def row_ranges(mask, n):
    """The allowed keys [lo, hi) of each row; every mask here but perhead is one range a row."""
    q = np.arange(n, dtype=np.int64)
    lo, hi = np.zeros(n, np.int64), np.full(n, n, np.int64)
    if mask == "causal":
        hi = q + 1
    elif mask == "swa256":
        lo, hi = np.maximum(0, q - WINDOW + 1), q + 1
    elif mask == "padding":
        hi = np.full(n, n // 2, np.int64)
    elif mask == "docs8":
        lo, hi = document_borders(n)[document_ids(n)[q]], q + 1
    elif mask != "full":
        raise ValueError(mask)
    return lo, hi


def head_masks(mask, heads):
    return [GROUPS[h * 4 // heads] for h in range(heads)] if mask == "perhead" else [mask] * heads


def allowed_pairs(mask, heads, n):
    """Allowed pairs, summed over heads."""
    sums = {name: int(np.subtract(*row_ranges(name, n)[::-1]).sum()) for name in set(head_masks(mask, heads))}
    return sum(sums[name] for name in head_masks(mask, heads))


def dense_keep(mask, heads, n):
    """bool [1, 1 or heads, n, n], True where the query may attend."""
    names = head_masks(mask, heads) if mask == "perhead" else [mask]
    k = np.arange(n)
    out = np.empty((1, len(names), n, n), np.bool_)
    for h, name in enumerate(names):
        lo, hi = row_ranges(name, n)
        out[0, h] = (k >= lo[:, None]) & (k < hi[:, None])
    return out
