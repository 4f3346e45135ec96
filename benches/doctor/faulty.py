"""Makes cases of bugs. The bugs are in `faulty_values.py`, `faulty_shape.py`, `faulty_structure.py`, `companions.py`, `more.py`
and `hard.py`, written like the mistakes in real code: one function per mistake, several mistakes per catalogue class.

`@bug` marks a function that takes a random generator and returns a `Case`, or None if this draw is harmless (no cell that a
real row reads is wrong); the caller then draws again. `@bug(made, name, classes, why)` marks a function that returns the
other arguments of `made`, and so for `plane_case` and `beside`.
"""

from __future__ import annotations

import numpy as np

from build import PAD, Case, Intent, chance, into, of_intent, reads, say, tokens, tri

FAULTY: list = []
bug = into(FAULTY)


def made(rng, name, classes, why, it: Intent, wrong, form=None, **more) -> Case | None:
    """Returns the case of a wrong keep mask in a correct form."""
    if not ((wrong != it.keep) & it.care).any():
        return None
    mask, ctx = say(rng, wrong, form)
    if not wrong[it.real[:, None, :].repeat(wrong.shape[1], 1)].any(-1).all() and "fully_masked_row" not in classes:
        classes = [*classes, "fully_masked_row"]
    return of_intent(name, classes, why, it, mask, ctx, wrong, **more)


def plane_case(rng, name, classes, why, v, mask, ctx, kind="bidirectional", pad=PAD, inputs=None, **more):
    b, n_tok = v.shape
    ctx = {**ctx, "kind": kind, "pad_token_id": pad}
    if chance(rng, 0.4):
        ctx["padding_side"] = "right" if v[:, 0].all() else "left"
    eff = reads(mask, ctx, (b, n_tok, n_tok), kind == "causal")
    keep = np.broadcast_to(v[:, None, None, :], (b, 1, n_tok, n_tok))
    keep = keep & tri(n_tok, n_tok, 0) if kind == "causal" else keep.copy()
    care = np.broadcast_to(v[:, None, :, None], keep.shape).copy()
    if not ((eff != keep) & care).any() and not more.get("values_only"):
        return None
    if not (eff.any(-1) | ~v[:, None, :]).all() and "fully_masked_row" not in classes:
        more.setdefault("accept", ())
    return Case(
        name, classes, why, mask, ctx, keep, care, eff, {"input_ids": tokens(rng, v, pad), **(inputs or {})}, **more
    )
