"""The masks of the comparison, in the forms that the peers need. The n queries are the last of the m keys, which count from 0."""

import numpy as np

WINDOW = 256
DOCUMENT_SHARES = (1, 2, 1, 3, 4, 2, 2, 1)  # sixteenths of the sequence
MASKS = ("full", "causal", "swa256", "padding", "docs8", "perhead")
GROUPS = ("causal", "swa256", "docs8", "padding")  # perhead: four equal groups of heads


def document_borders(m):
    return np.concatenate([[0], np.cumsum(DOCUMENT_SHARES)]) * m // 16


def document_ids(m):
    return np.searchsorted(document_borders(m)[1:], np.arange(m), side="right").astype(np.int32)


def batch_lengths(batch, m):
    """Returns the number of non-padding tokens of each row of a padded batch: at least a quarter of the longest row; the first row is the longest."""
    return [m - (37 * b % 96) * 3 * m // 4 // 96 for b in range(batch)]


def row_ranges(mask, n, m):
    """Returns the allowed keys [lo, hi) of each row; every mask here except perhead has one range per row."""
    q = np.arange(m - n, m, dtype=np.int64)
    lo, hi = np.zeros(n, np.int64), np.full(n, m, np.int64)
    if mask == "causal":
        hi = q + 1
    elif mask == "swa256":
        lo, hi = np.maximum(0, q - WINDOW + 1), q + 1
    elif mask == "padding":
        hi = np.full(n, m // 2, np.int64)
    elif mask == "docs8":
        lo, hi = document_borders(m)[document_ids(m)[q]], q + 1
    elif mask != "full":
        raise ValueError(mask)
    return lo, hi


def head_masks(mask, heads):
    return [GROUPS[h * 4 // heads] for h in range(heads)] if mask == "perhead" else [mask] * heads


def allowed_pairs(mask, heads, n, m):
    """Returns the number of allowed pairs, summed over heads."""
    sums = {name: int(np.subtract(*row_ranges(name, n, m)[::-1]).sum()) for name in set(head_masks(mask, heads))}
    return sum(sums[name] for name in head_masks(mask, heads))


def dense_keep(mask, heads, n, m):
    """Returns the mask as bool [1, 1 or heads, n, m], True where the query may attend."""
    names = head_masks(mask, heads) if mask == "perhead" else [mask]
    k = np.arange(m)
    out = np.empty((1, len(names), n, m), np.bool_)
    for h, name in enumerate(names):
        lo, hi = row_ranges(name, n, m)
        out[0, h] = (k >= lo[:, None]) & (k < hi[:, None])
    return out
