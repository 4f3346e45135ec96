"""Differences between batch rows: redactions of one row, masks in which only row 0 is correct, prefixes and blocks opened over padding.

The declared redactions are `{"batch": row, "keys": [...], "queries": [...]}`; without `batch` they hold for all rows, without
`queries` for all queries.
"""

from __future__ import annotations

import numpy as np

from build import EOS, PAD, Intent, batch, chance, intent, length, of_intent, padding, pick, say, settle, tokens, tri
from companions import softmax
from healthy import fine, well
from scenes import images
from faulty import bug, made


def redacted(rng, kinds=("causal", "bidirectional", "sliding")) -> tuple[Intent, np.ndarray]:
    """An intent with keys hidden from some queries of one batch row (or of two), and its mask before they were hidden."""
    it = intent(rng, pick(rng, *kinds), pick(rng, None, "left", "right"), b=int(rng.integers(2, 5)), n_tok=length(rng, 8, 48))
    b, _, q, k = it.keep.shape
    before = it.keep.copy()
    said = []
    for row in rng.choice(b, size=int(rng.integers(1, 3)), replace=False):
        real = np.flatnonzero(it.real[row])
        if len(real) < 5:
            continue
        keys = np.sort(rng.choice(real[:-2], size=int(rng.integers(1, 3)), replace=False))
        later = real[real > keys.max()]
        everywhere = chance(rng, 0.3)
        queries = real if everywhere else np.sort(rng.choice(later, size=int(rng.integers(1, len(later) + 1)), replace=False))
        for key in keys:
            own = it.keep[row, 0, key, key]
            it.keep[row, 0, queries, key] = False
            if everywhere:
                it.keep[row, 0, key, key] = own
        one = {"batch": int(row), "keys": [int(x) for x in keys]}
        said.append(one if everywhere else {**one, "queries": [int(x) for x in queries]})
        if everywhere:
            # The content of a redacted key reaches no output: the row of that key is not compared.
            it.real = it.real.copy()
            it.real[row, keys] = False
    # Without further layers a hidden key stays hidden.
    it.context |= {"redactions": said[0] if len(said) == 1 and chance(rng, 0.5) else said, "layers": 1}
    return it, before


# ---- correct --------------------------------------------------------------------------------------------------------


@well
def h_redacted_row(rng):
    it, before = redacted(rng)
    return fine(rng, "H.redacted_row", "keys of one batch row are hidden on purpose", it) if (before != it.keep).any() else None


@well(fine, "H.redacted_ends", "a redacted end of a turn, where padding has the same id")
def h_redacted_ends(rng):
    """A redacted token whose id also pads: no hole."""
    b, n_tok = batch(rng, 2), length(rng, 8, 40)
    v = padding(rng, b, n_tok, "right")
    ids = tokens(rng, v, EOS)
    row = int(rng.integers(b))
    real = np.flatnonzero(v[row])
    if len(real) < 5:
        return None
    key = int(rng.choice(real[1:-2]))
    ids[row, key] = EOS
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, n_tok, n_tok)).copy()
    keep[row, 0, :, key] = False
    care = v.copy()
    care[row, key] = False
    ctx = {"pad_token_id": EOS, "eos_token_id": EOS, "redactions": [{"batch": row, "keys": [key]}]}
    inputs = {"input_ids": ids, "lengths": v.sum(1).astype(np.int64)}
    it = Intent(keep, care, "bidirectional", v, "right", 0, ctx, inputs)
    return it,


@well
def h_redacted_probabilities(rng):
    it, before = redacted(rng, ("causal",))
    if (before == it.keep).all() or not it.keep.any(-1).all():
        return None
    p = softmax(np.where(it.keep, rng.normal(size=it.keep.shape), -np.inf))
    return fine(rng, "H.redacted_probabilities", "the backend obeys", it, inputs={"probabilities": p.astype(np.float32)})


# ---- redactions that are not kept -----------------------------------------------------------------------------------


@bug(made, "C46.row_not_redacted", ["multi_hop_leak"], "the redactions of a batch row have no effect")
def c46_redaction_of_a_row_ignored(rng):
    it, before = redacted(rng)
    return it, before


@bug(made, "C31.holes_beside_redaction", ["pad_equals_eos_holes"], "ids != pad where pad ends turns too")
def c31_holes_beside_a_redaction(rng):
    """Texts that hold their end's id inside, one of these tokens redacted on purpose; the mask hides all of them."""
    b, n_tok = batch(rng, 2), length(rng, 10, 40)
    v = padding(rng, b, n_tok, "right")
    ids = tokens(rng, v, EOS)
    row = int(rng.integers(b))
    real = np.flatnonzero(v[row])
    if len(real) < 7:
        return None
    ends = np.sort(rng.choice(real[1:-2], size=3, replace=False))
    ids[row, ends] = EOS
    key = int(ends[1])
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, n_tok, n_tok)).copy()
    keep[row, 0, :, key] = False
    wrong = np.broadcast_to((ids != EOS)[:, None, None, :], keep.shape).copy()
    care = v.copy()
    care[row, key] = False
    ctx = {"pad_token_id": EOS, "eos_token_id": EOS, "redactions": [{"batch": row, "keys": [key]}]}
    inputs = {"input_ids": ids, "lengths": v.sum(1).astype(np.int64)}
    it = Intent(keep, care, "bidirectional", v, "right", 0, ctx, inputs)
    return it, wrong


@bug
def c12_redaction_ignored_by_backend(rng):
    it, before = redacted(rng, ("causal",))
    if not it.keep.any(-1).all():
        return None
    lost = ((before != it.keep) & it.care).any()
    if not lost:
        return None
    mask, ctx = say(rng, it.keep)
    p = softmax(np.where(before, rng.normal(size=before.shape), -np.inf))
    return of_intent("C12.row_not_redacted", ["mask_ignored_by_backend"], "probabilities are given to redacted keys of one batch row", it, mask, ctx, inputs={"probabilities": p.astype(np.float32)}, values_only=True)


# ---- only row 0 -----------------------------------------------------------------------------------------------------


@bug
def c30_only_row_zero(rng):
    """Row 0 is built as it should be; the loop over the other rows does not run, or runs with another mask."""
    kind = pick(rng, "causal", "causal", "sliding", "bidirectional")
    it = intent(rng, kind, pick(rng, "left", "right"), b=int(rng.integers(2, 5)))
    k = it.keep.shape[-1]
    if it.valid[0].all() and kind == "bidirectional":
        return None
    how = pick(rng, "open", "empty", "unpadded", "wide")
    wrong = it.keep.copy()
    if how == "open":
        wrong[1:] = True
    elif how == "empty":
        wrong[1:] = False
    elif how == "unpadded":
        # Row 0 must have padding that a real query could read, or it shows nothing.
        if it.valid[0].all() or (kind != "bidirectional" and not (~it.valid[0] & (np.arange(k) < k - 1))[: it.valid[0].argmax()].any()):
            return None
        base, _ = {"causal": (tri(k, k, 0), 0), "bidirectional": (np.ones((k, k), bool), 0)}.get(kind, (None, 0))
        if base is None:
            return None
        wrong[1:] = base
    else:
        if kind != "causal":
            return None
        wrong[1:] = settle(rng, tri(k, k, 0, 1) & it.valid[1:, None, None, :], it.real[1:], 0)
    rows = ((wrong != it.keep) & it.care).any((1, 2, 3))
    if rows[0] or not rows[1:].all():
        return None
    return made(rng, f"C30.only_row_zero_{how}", ["batch_row_wrong"], "only row 0 of the batch is as declared", it, wrong)


# ---- opened over padding --------------------------------------------------------------------------------------------


@bug
def c27_prefix_over_padding(rng):
    b, n_tok = batch(rng), length(rng, 8, 64)
    v = padding(rng, b, n_tok, "left")
    p = int(rng.integers((~v).sum(1).max() + 1, n_tok))
    inside = np.arange(n_tok) < p
    real = v[:, None, None, :]
    causal = tri(n_tok, n_tok, 0)[None, None]
    within = chance(rng, 0.5)
    prefix = inside[None, :] & inside[:, None] if within else np.broadcast_to(inside[None, :], (n_tok, n_tok))
    keep = settle(rng, (causal | inside[None, None, None, :]) & real, v, 0)
    wrong = (causal & real) | prefix[None, None]
    ctx = {"prefix_len": p, "prefix_from": "slot", "pad_token_id": PAD, "padding_side": "left"}
    it = Intent(keep, v, "prefix_lm", v, "left", 0, ctx, {"input_ids": tokens(rng, v)})
    name = "C27.prefix_over_padding" + ("_within" if within else "")
    return made(rng, name, ["padding_unmasked_by_later_op"], "padding is hidden before the prefix is opened", it, wrong)


@bug(made, "C27.block_over_padding", ["padding_unmasked_by_later_op"], "padding is hidden before the blocks are opened")
def c27_block_over_padding(rng):
    it, base, same = images(rng)
    b, _, n_tok, _ = it.keep.shape
    group = next(iter(it.inputs.values()))
    lens = np.full(b, n_tok)
    for row in range(b):
        at = np.flatnonzero(group[row])
        if len(at):
            lens[row] = int(rng.integers(at[0] + 1, n_tok))
    v = np.arange(n_tok)[None, :] < lens[:, None]
    real = v[:, None, None, :]
    it.keep, it.real = settle(rng, it.keep & real, v, 0), v
    it.inputs["input_ids"] = tokens(rng, v)
    it.context |= {"pad_token_id": PAD}
    return it, (base[None, None] & real) | same[:, None]
