"""Structural mistakes of the second generator, and how an array stores a mask.

`sick_structure` puts a wrong mask (`outsider_alternatives.py`) into all batch rows and heads, into one of them, or into the last
rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outsider_alternatives import alternatives
from outsider_scenes import SCENES, with_redactions

FAULTY: list = []  # pairs (function that draws a case, weight)


def weighted(pool, weight):
    """Adds a function that draws a case to `pool`."""

    def add(draw):
        pool.append((draw, weight))
        return draw

    return add


def encode(s, rng, keep, need=None, empties_ok=False):
    """Choose convention, dtype, shape. keep [B,H,Q,K]. Returns the array, and the declared keys."""
    conv = need or rng.choice(
        ["keep_bool", "keep_bool", "keep_bool", "ignore_bool", "keep_01", "additive", "additive", "additive"]
    )
    d = {"convention": str(conv)}
    empty = (keep.sum(-1) == 0).any()
    if conv == "keep_bool":
        a = keep.copy()
        if rng.random() < 0.6:
            d["api"] = "sdpa"
    elif conv == "ignore_bool":
        a = ~keep
        if rng.random() < 0.5:
            d["api"] = (
                "torch.nn.MultiheadAttention.attn_mask"
                if s.role != "key_padding"
                else "torch.nn.MultiheadAttention.key_padding_mask"
            )
    elif conv == "keep_01":
        a = keep.astype(rng.choice(["int64", "int32", "uint8", "float32"]))
    else:
        t = rng.choice(["float32", "float32", "float16"])
        fills = {"float32": [-np.inf, np.finfo("float32").min, -1e9, -1e4], "float16": [-np.inf, -1e4]}[str(t)]
        if empty and not empties_ok:
            fills = fills[1:]
        a = np.where(keep, 0.0, fills[int(rng.integers(len(fills)))]).astype(t)
        d["compute_dtype"] = str(t)
        if rng.random() < 0.4:
            d["api"] = "sdpa"
    return a, d


def shape(s, rng, a):
    """Drops dimensions without information. a [B,H,Q,K]."""
    B = len(a)

    def same(x, ax):
        return all(
            (np.array_equal(np.take(x, 0, ax), np.take(x, i, ax), equal_nan=a.dtype.kind == "f"))
            for i in range(x.shape[ax])
        )

    if same(a, 1) and rng.random() < 0.85:
        a = a[:, :1]
    if B > 1 and same(a, 0) and s.redact is None and rng.random() < 0.5:
        a = a[:1]
        if a.shape[1] == 1 and rng.random() < 0.5:
            return a[0, 0]
        return a
    if a.shape[0] == 1 and a.shape[1] == 1:
        r = rng.random()
        if r < 0.35:
            return a[0, 0]
        if r < 0.5 and s.heads is None:
            return a[0]
    if a.shape[1] == 1 and a.shape[0] > 1 and s.heads is None and rng.random() < 0.3:
        return a[:, 0]
    return a


@dataclass
class Case:
    """One question for the doctor, with its answer."""

    s: Any
    name: str
    mask: np.ndarray
    keys: dict  # what is declared of values and function
    intended: np.ndarray
    effective: np.ndarray
    classes: list[str]  # empty: a correct mask
    accept: tuple[str, ...] | list[str] = ()  # other classes that are right answers, "*" for any
    repair: bool = True
    value: bool = False  # wrong in values or companions: a blind case may always know
    blind: bool = True
    open_q: bool = False
    joined: bool = False  # a row of keys, joined with a causal slot or not
    must_conv: bool = False

    @property
    def care(self) -> np.ndarray:
        return self.s.care()[:, None, :, None]


def heads4(s, m):
    return np.repeat(m[:, None], s.H, 1) if m.ndim == 3 else m


def rowstyle(s, rng, *ms):
    """Padding rows: they see themselves, or are left as they come."""
    style = "self" if rng.random() < 0.6 and s.selfatt and s.written is None else "plain"
    return style, [s.padrows(m, style) for m in ms]


def same_care(s, a, b):
    c = s.care()[:, :, None]
    return bool(((a == b) | ~c).all())


def draw_scene(rng, only=None, **kw):
    while True:
        n = only or list(SCENES)[int(rng.integers(len(SCENES)))]
        s = SCENES[n](rng, **kw)
        if s is None:
            continue
        if (
            s.fam in ("causal", "full", "sliding")
            and s.Q == s.K
            and s.selfatt
            and s.segs is None
            and rng.random() < 0.15
        ):
            r = with_redactions(s)
            if r is None:
                continue
        return n, s


def finish(s, rng, name, good, bad, classes, accept, **kw):
    """Encode `bad` and make the case."""
    G, X = heads4(s, good), heads4(s, bad)
    need = kw.pop("need", None)
    a, keys = encode(s, rng, X, need)
    a = shape(s, rng, a)
    return Case(s, name, a, keys, G, X, classes, accept, **kw)


@weighted(FAULTY, 14)
def faulty_structure(rng):
    """One structural mistake; in all rows, one row, one head, or late."""
    n, s = draw_scene(rng)
    alts = alternatives(s)
    good = s.build()
    names = list(alts)
    if not names:
        return None
    cls = names[int(rng.integers(len(names)))]
    bad = alts[cls][int(rng.integers(len(alts[cls])))]
    if same_care(s, good, bad):
        return None
    acc = [k for k in names if k != cls and any(same_care(s, m, bad) for m in alts[k])]
    how = rng.random()
    square = s.Q == s.K
    of_rows = cls in ("batch_row_wrong", "stale_or_bucketed_mask")
    scope = "all"
    if s.B > 1 and how < 0.15 and not of_rows:
        scope = "row"
        bad, acc = in_row(s, alts, cls, good, bad, int(rng.integers(s.B)))
    elif how < 0.22 and square and not of_rows and cls != "padding_side" and s.segs is None:
        return in_head(s, rng, f"{cls}/{n}/head", good, bad, [cls], acc)
    elif how < 0.27 and square and s.Q > 8:
        scope = "late"
        t = int(rng.integers(s.Q // 2, s.Q - 1))
        bad = np.concatenate([good[:, :t], bad[:, t:]], 1)
        if cls in ("padding_side", "padding_keys_visible", "broadcast_wrong_axis"):
            return None
        acc = acc + ["causal_leak"] * (cls == "causal_dropped") + ["unexplained_difference"]
    if same_care(s, good, bad):
        return None
    gg, bb, also = with_padding_rows(s, rng, cls, good, bad)
    if cls == "batch_row_wrong" and same_care(s, gg, bb):
        return None
    late = scope == "late"
    acc = acc + also + also_right(s, cls, bb)
    return finish(s, rng, f"{cls}/{n}/{scope}", gg, bb, [cls], acc, repair=not late, blind=not late)


def in_row(s, alts, cls, good, bad, b):
    """A mistake in batch row `b` only: the mask, and the other classes that are right answers."""
    chosen = (np.arange(s.B) == b)[:, None, None]
    bad = np.where(chosen, bad, good)
    acc = sorted(
        k for k in alts if k != cls and any(same_care(s, np.where(chosen, m, good), bad) for m in alts[k])
    )
    if b > 0:
        acc.append("batch_row_wrong")  # C30: "row 0 fits the family and some b > 0 does not"
    if cls in ("padding_keys_visible", "broadcast_wrong_axis", "padding_side"):
        # one row with other lengths: C50 and C16 hold by their rules
        acc += ["stale_or_bucketed_mask", "padding_keys_visible"]
    return bad, acc


def in_head(s, rng, name, good, bad, classes, accept):
    """A case with the mistake in one of several heads."""
    s.H = s.heads = s.obvious["heads"] = int(rng.integers(2, 5))
    h = int(rng.integers(s.H))
    g4 = heads4(s, good).copy()
    b4 = g4.copy()
    b4[:, h] = bad
    style, _ = rowstyle(s, rng, good)
    if style == "self":
        g4, b4 = (np.stack([s.padrows(m[:, i], style) for i in range(s.H)], 1) for m in (g4, b4))
    return finish(s, rng, name, g4, b4, classes, accept)


def with_padding_rows(s, rng, cls, good, bad):
    """The right and the faulty mask with their padding rows, and other classes that are right answers."""
    if cls == "broadcast_wrong_axis":
        return good, bad, []
    if cls != "batch_row_wrong":
        _, (gg, bb) = rowstyle(s, rng, good, bad)
        return gg, bb, []
    _, (gg,) = rowstyle(s, rng, good)
    if rng.random() < 0.5:
        return gg, np.repeat(gg[:1], s.B, 0), []
    return gg, np.roll(gg, 1, 0), ["stale_or_bucketed_mask"]


def also_right(s, cls, bad):
    """Classes that are true of the faulty mask as well."""
    acc = []
    if cls == "cross_document" and any((d == 1).any() for d in s.docs):
        # a border lost beside a document of one token is a border shifted by one
        acc.append("document_boundary_off_by_one")
    if cls == "causal_self_excluded" and s.Q == 1:
        acc.append("stale_decode_mask")
    if (bad.sum(-1) == 0)[s.care()].any():
        acc.append("fully_masked_row")  # a real row without keys: catalogue C07
    return acc


@weighted(FAULTY, 2)
def sick_pair(rng):
    """Two mistakes at once: one in what is built, one in padding or documents."""
    n, s = draw_scene(rng, str(rng.choice(["causal", "sliding", "packed"])))
    good = s.build()
    first = str(rng.choice(["causal_leak", "causal_self_excluded", "causal_dropped", "sliding_window_off_by_one"]))
    second = "cross_document" if s.segs is not None else "padding_keys_visible"
    kw = {"cross_document": {"docs": False}, "padding_keys_visible": {"pad": False}}[second]
    if first == "sliding_window_off_by_one":
        if s.fam != "sliding":
            return None
        k1 = {"window": s.window + 1}
    else:
        k1 = {"causal_leak": {"off": 1}, "causal_self_excluded": {"off": -1}, "causal_dropped": {"causal": False}}[
            first
        ]
    bad = s.build(**kw, **k1)
    if same_care(s, bad, s.build(**kw)) or same_care(s, bad, s.build(**k1)) or same_care(s, good, bad):
        return None
    if any(same_care(s, m, bad) for ms in alternatives(s).values() for m in ms):
        return None
    _, (gg, bb) = rowstyle(s, rng, good, bad)
    acc = [second, "fully_masked_row"] if (bb.sum(-1) == 0)[s.care()].any() else [second]
    return finish(s, rng, f"pair:{first}+{second}/{n}", gg, bb, [first], acc)


@weighted(FAULTY, 2)
def sick_flip(rng):
    """Some cells are wrong, by no rule."""
    n, s = draw_scene(rng)
    good = s.build()
    _, (gg,) = rowstyle(s, rng, good)
    bad = gg.copy()
    b, q = np.nonzero(s.care())
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(len(b)))
        k = int(rng.integers(s.K))
        bad[b[i], q[i], k] ^= True
    if same_care(s, gg, bad) or any(same_care(s, m, bad) for ms in alternatives(s).values() for m in ms):
        return None
    acc = ["fully_masked_row"] if (bad.sum(-1) == 0)[s.care()].any() else []
    # a rule may explain one or two cells by accident (a border, a single sibling): any class is taken, what counts is the finding
    return finish(s, rng, f"flip/{n}", gg, bad, ["unexplained_difference"], acc + ["*"], repair=False, blind=False)


@weighted(FAULTY, 2)
def sick_invert(rng):
    n, s = draw_scene(rng, str(rng.choice(["causal", "full", "sliding", "packed", "cached", "cross", "prefix"])))
    good = s.build()
    if good.all():
        return None
    _, (gg,) = rowstyle(s, rng, good)
    X = heads4(s, gg)
    conv = str(rng.choice(["keep_bool", "ignore_bool", "keep_01"]))
    a, keys = encode(s, rng, ~X, conv)
    a = shape(s, rng, a)
    acc = []
    alts = alternatives(s)
    acc += [k for k in alts if any(same_care(s, m, ~gg) for m in alts[k])]
    return Case(
        s,
        f"inverted_polarity/{n}",
        a,
        keys,
        X,
        ~X,
        ["inverted_polarity"],
        acc,
        must_conv=True,
    )
