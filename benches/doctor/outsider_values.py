"""Mistakes in values, shapes and padding planes of the second generator."""

from __future__ import annotations

import numpy as np

from outsider_alternatives import alternatives
from outsider_mistakes import Case, FAULTY, draw_scene, encode, finish, heads4, rowstyle, same_care, shape, weighted
from outsider_scenes import EOS, basic, heads_scene, kind, lengths, pad_scene, sc_packed, simple_kind, with_redactions


def value_scene(rng):
    n, s = draw_scene(rng, str(rng.choice(["causal", "full", "sliding", "packed", "cached", "prefix", "cross"])))
    good = s.build()
    if good.all():
        return None
    style, (gg,) = rowstyle(s, rng, good)
    return n, s, gg


@weighted(FAULTY, 3.5)
def faulty_values(rng):
    v = value_scene(rng)
    if v is None:
        return None
    n, s, gg = v
    X = heads4(s, gg)
    kindof = str(rng.choice(["fill", "fill", "nan", "int", "float01", "float01", "overflow_cast"]))
    keys = {"convention": "additive"}
    acc, mc = [], False
    if kindof == "fill":
        f = float(rng.choice([1e-9, -1e-9, 1e9, np.inf, -5.0, -50.0, -1.0, -30.0, 1e4]))
        a = np.where(X, 0, f).astype("float32")
        keys["compute_dtype"] = "float32"
        cls = "fill_value_wrong"
        eff = np.ones_like(X)
    elif kindof == "nan":
        with np.errstate(all="ignore"):
            a = ((1 - X.astype("float32")) * np.float32(-np.inf)).astype(rng.choice(["float32", "float16"]))
        cls = "mask_built_with_NaN_or_int_ops"
        eff = np.zeros_like(X)
    elif kindof == "int":
        if rng.random() < 0.5:
            a = ~X.astype(rng.choice(["int64", "int32"])) if rng.random() < 0.5 else ~(~X).astype("int64")
        else:
            a = ~X.astype("uint8") if rng.random() < 0.5 else ~(~X).astype("uint8")
        keys["convention"] = "keep_01"
        cls = "mask_built_with_NaN_or_int_ops"
        eff = np.ones_like(X)
    elif kindof == "float01":
        a = X.astype(rng.choice(["float32", "float16"]))
        keys["compute_dtype"] = str(a.dtype)
        if rng.random() < 0.5:
            keys["api"] = "sdpa"
        cls = "float01_added"
        mc = True
        eff = np.ones_like(X)
    else:
        a = np.where(X, 0, rng.choice([-1e9, float(np.finfo("float32").min), -1e10])).astype("float32")
        keys["compute_dtype"] = "float16"
        cls = "double_mask_overflow"
        acc = ["fill_value_wrong"]
        mc = True
        eff = X
    a = shape(s, rng, a)
    return Case(s, f"{cls}/{kindof}/{n}", a, keys, X, eff, [cls], acc, value=True, must_conv=mc)


@weighted(FAULTY, 1)
def sick_double(rng):
    n, s = draw_scene(rng, str(rng.choice(["causal", "sliding"])), pad=1.0, force=True)
    if s.redact is not None:
        return None
    t = str(rng.choice(["float16", "float32"]))
    lo = np.finfo(t).min
    A = np.where(s.build(pad=False), 0, lo).astype(t)
    P = np.where(s.V[:, None, :] & True, 0, lo).astype(t)
    with np.errstate(over="ignore"):
        a = (A + P).astype(t)[:, None]
    if not np.isinf(a).any():
        return None
    g = heads4(s, s.build())
    return Case(
        s,
        f"double_mask_overflow/{n}",
        shape(s, rng, a),
        {"convention": "additive", "compute_dtype": t},
        g,
        g,
        ["double_mask_overflow"],
        [],
        value=True,
    )


@weighted(FAULTY, 1.5)
def sick_empty(rng):
    """-inf rows: left padding with causality, or a real row without keys."""
    if rng.random() < 0.6:
        n, s = draw_scene(rng, str(rng.choice(["causal", "sliding", "chunked"])), pad=1.0, force=True, side="left")
        g = heads4(s, s.build())
        t = str(rng.choice(["float32", "float16"]))
        if s.redact is not None:
            return None
        a = np.where(g, 0, -np.inf).astype(t)
        i = g.copy()
        return Case(
            s,
            f"fully_masked_row/padding/{n}",
            shape(s, rng, a),
            {"convention": "additive", "compute_dtype": t},
            i,
            g,
            ["fully_masked_row"],
            [],
            value=True,
        )
    n, s = draw_scene(rng, str(rng.choice(["causal", "full", "sliding", "packed", "prefix"])))
    _, (gg,) = rowstyle(s, rng, s.build())
    bad = gg.copy()
    b, q = np.nonzero(s.care())
    x = int(rng.integers(len(b)))
    bad[b[x], q[x]] = False
    if any(same_care(s, m, bad) for k, ms in alternatives(s).items() for m in ms):
        return None
    return finish(s, rng, f"fully_masked_row/real/{n}", gg, bad, ["fully_masked_row"], [], value=True)


def plane_scene(rng):
    """A padding mask [B,K] in a slot for padding."""
    s = basic(rng)
    s.role = "key_padding"
    s.fam = str(rng.choice(["full", "causal"]))
    pad_scene(s, force=True)
    simple_kind(s)
    s.obvious["role"] = "key_padding"
    return s


def plane_case(s, rng, name, plane, classes, accept=(), need=None, **kw):
    """The plane, as [B,K] or [B,1,1,K]; its slot joins the rest."""
    conv = need or str(rng.choice(["keep_bool", "ignore_bool", "keep_01", "keep_01"]))
    a, keys = encode(s, rng, plane[:, None, None, :], conv, empties_ok=False)
    a = a[:, 0, 0] if rng.random() < 0.75 else a
    rest = s.build(pad=False)
    return Case(
        s,
        name,
        a,
        keys,
        s.build()[:, None],
        (rest & plane[:, None, :])[:, None],
        classes,
        accept,
        joined=True,
        **kw,
    )


@weighted(FAULTY, 3)
def sick_plane(rng):
    s = plane_scene(rng)
    V = s.V
    what = str(
        rng.choice(
            ["padding_keys_visible", "inverted_polarity", "padding_side", "batch_row_wrong", "stale_or_bucketed_mask"]
        )
    )
    mc = False
    if what == "padding_keys_visible":
        P = np.ones_like(V)
    elif what == "inverted_polarity":
        P, mc = ~V, True
    elif what == "padding_side":
        P = V[:, ::-1].copy()
    elif what == "batch_row_wrong":
        P = np.repeat(V[:1], s.B, 0) if rng.random() < 0.6 else np.roll(V, 1, 0)
    else:
        ls = rng.integers(1, s.K + 1, s.B)
        j = np.arange(s.K)[None]
        P = (j < ls[:, None]) if s.side == "right" else (j >= s.K - ls[:, None])
    rest = s.build(pad=False)
    if same_care(s, rest & P[:, None], s.build()):
        return None
    opts = {
        "padding_keys_visible": [np.ones_like(V)],
        "inverted_polarity": [~V],
        "padding_side": [V[:, ::-1]],
        "batch_row_wrong": [np.repeat(V[:1], s.B, 0), np.roll(V, 1, 0)],
    }
    acc = [k for k, ms in opts.items() if k != what and any(np.array_equal(m, P) for m in ms)]
    if what == "stale_or_bucketed_mask" and (P | ~V).all():
        acc.append("padding_keys_visible")  # wider than the texts: C16's rule holds too
    if what == "batch_row_wrong" and not np.array_equal(P, np.repeat(V[:1], s.B, 0)):
        acc.append("stale_or_bucketed_mask")  # rows in another order are "another batch" as well
    return plane_case(s, rng, f"plane:{what}", P, [what], acc, must_conv=mc)


@weighted(FAULTY, 1)
def sick_segcast(rng):
    s = sc_packed(rng)
    if max(len(d) for d in s.docs) < 2:
        return None
    s.role = "key_padding"
    s.obvious["role"] = "key_padding"
    a = s.segs.astype(rng.choice(["int64", "int32"]))
    eff = s.build(docs=False)
    if same_care(s, eff, s.build()):
        return None
    if rng.random() < 0.3:
        s.inputs.pop("segment_ids", None)
        s.inputs["segment_ids"] = s.segs.copy()
    return Case(
        s,
        "segment_ids_cast_to_bool",
        a,
        {"convention": "keep_01"},
        s.build()[:, None],
        eff[:, None],
        ["segment_ids_cast_to_bool"],
        [],
        value=True,
        joined=True,
    )


@weighted(FAULTY, 1)
def sick_axis(rng):
    s = basic(rng)
    s.fam = "full"
    pad_scene(s, force=True)
    kind(s, "bidirectional")
    bad = np.repeat(s.V[:, :, None], s.K, 2)
    if same_care(s, bad, s.build()):
        return None
    a, keys = encode(s, rng, bad[:, None])
    if rng.random() < 0.5:
        a = a[..., :1]
    return Case(
        s,
        "broadcast_wrong_axis/plane",
        a,
        keys,
        s.build()[:, None],
        bad[:, None],
        ["broadcast_wrong_axis"],
        [],
    )


@weighted(FAULTY, 1)
def sick_rank(rng):
    s = basic(rng, lo=4, hi=5)
    if s.K > 5:
        return None
    if rng.random() < 0.5:
        s.fam = "full"
        s.B = s.K
        s.V = np.ones((s.B, s.K), bool)
        pad_scene(s, force=True)
        kind(s, "bidirectional")
        a, keys = encode(s, rng, s.V[None, None], str(rng.choice(["keep_bool", "ignore_bool"])))
        eff = np.repeat(s.V[None], s.B, 0)
        if same_care(s, eff, s.build()):
            return None
        s.obvious["role"] = "attn"
        return Case(
            s,
            "rank_ambiguity/2d",
            a[0, 0],
            keys,
            s.build()[:, None],
            eff[:, None],
            ["rank_ambiguity"],
            [],
        )
    s = heads_scene(rng, 12, same=True)
    if s is None:
        return None
    s.obvious["role"] = "attn"
    g = s.build()
    eff = np.repeat(g[None], s.B, 0)  # [B, H, Q, K]: the first dimension is read as heads
    if ((eff == g[:, None]) | ~s.care()[:, None, :, None]).all():
        return None
    a, keys = encode(s, rng, g[:, None], str(rng.choice(["keep_bool", "additive"])))
    keys["api"] = "sdpa"
    return Case(
        s,
        "rank_ambiguity/3d",
        a[:, 0],
        keys,
        heads4(s, g),
        eff,
        ["rank_ambiguity"],
        ["head_batch_layout"],
        must_conv=True,
    )


@weighted(FAULTY, 1)
def sick_layout(rng):
    s = heads_scene(rng, 14)
    if s is None:
        return None
    _, (g,) = rowstyle(s, rng, s.build())
    flat = np.concatenate([g] * s.H, 0)  # heads first
    eff = flat.reshape(s.B, s.H, s.Q, s.K)
    if ((eff == g[:, None]) | ~s.care()[:, None, :, None]).all():
        return None
    a, keys = encode(s, rng, flat[:, None], str(rng.choice(["keep_bool", "ignore_bool", "additive"])))
    keys.pop("api", None)
    return Case(s, "head_batch_layout", a[:, 0], keys, heads4(s, g), eff, ["head_batch_layout"], [])


def eos_scene(rng):
    s = basic(rng, lo=8)
    s.fam = str(rng.choice(["full", "causal"]))
    s.side = str(rng.choice(["left", "right"]))
    ls = lengths(rng, s.B, s.K, low=6)
    j = np.arange(s.K)[None]
    s.V = (j < ls[:, None]) if s.side == "right" else (j >= s.K - ls[:, None])
    ids = rng.integers(5, 99, (s.B, s.K))
    for b in range(s.B):
        real = np.flatnonzero(s.V[b])
        ids[b, rng.choice(real[1:-1], int(rng.integers(1, 3)), replace=False)] = EOS
        if rng.random() < 0.5:
            ids[b, real[-1]] = EOS
    s.inputs["input_ids"] = np.where(s.V, ids, EOS).astype("int64")
    s.inputs["lengths"] = s.V.sum(1).astype("int64")
    s.obvious.update(pad_token_id=EOS, eos_token_id=EOS, padding_side=s.side)
    s.known_v = True
    return simple_kind(s)


@weighted(FAULTY, 1.2)
def sick_holes(rng):
    s = eos_scene(rng)
    holes = s.inputs["input_ids"] != EOS
    if rng.random() < 0.5:
        s.role = "key_padding"
        s.obvious["role"] = "key_padding"
        return plane_case(s, rng, "pad_equals_eos_holes/plane", holes, ["pad_equals_eos_holes"])
    bad = s.build(V=holes)
    if same_care(s, bad, s.build()):
        return None
    _, (gg, bb) = rowstyle(s, rng, s.build(), bad)
    return finish(
        s,
        rng,
        "pad_equals_eos_holes/attn",
        gg,
        bb,
        ["pad_equals_eos_holes"],
        ["fully_masked_row"] if (bb.sum(-1) == 0)[s.care()].any() else [],
    )


@weighted(FAULTY, 0.7)
def sick_redaction(rng):
    """The redaction that is declared is not in the mask."""
    n, s = draw_scene(rng, str(rng.choice(["causal", "full"])))
    if s.redact is None:
        s = with_redactions(s)
        if s is None:
            return None
    bad = s.build(redact=False)
    if same_care(s, bad, s.build()):
        return None
    _, (gg, bb) = rowstyle(s, rng, s.build(), bad)
    return finish(s, rng, f"redaction_missing/{n}", gg, bb, ["*"], ["*"], repair=True)
