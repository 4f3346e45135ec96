"""Right masks of the second generator, with the ones that a hasty rule would call wrong."""

from __future__ import annotations

import numpy as np

from outsider_beside import alibi, tensors, text_scene
from outsider_mistakes import Case, draw_scene, encode, finish, heads4, rowstyle, weighted
from outsider_scenes import (
    heads_scene,
    sc_cached,
    sc_causal,
    sc_chunked,
    sc_full,
    sc_prefix,
    sc_sliding,
    sc_tree,
    state_padding,
)
from outsider_values import eos_scene, plane_case, plane_scene

WELL: list = []  # pairs (function that draws a case, weight)


@weighted(WELL, 16)
def ok_scene(rng):
    n, s = draw_scene(rng)
    g = s.build()
    style, (gg,) = rowstyle(s, rng, g)
    c = finish(s, rng, f"H:{n}/{style}", gg, gg, [], [])
    if (gg.sum(-1) == 0).any():
        c.open_q = style == "plain" and (gg.sum(-1) == 0).any()
        if (gg.sum(-1) == 0)[s.care()].any():
            return None
    return c


@weighted(WELL, 2)
def ok_plane(rng):
    s = plane_scene(rng)
    return plane_case(s, rng, "H:plane", s.V, [])


@weighted(WELL, 1)
def ok_unpadded_plane(rng):
    s = plane_scene(rng)
    s.V = np.ones_like(s.V)
    s.inputs, s.obvious = {}, {"role": "key_padding"}
    state_padding(s, "ids")
    return plane_case(s, rng, "H:plane_of_ones", s.V, [])


@weighted(WELL, 1.5)
def ok_clip(rng):
    """Right padding under causality: no real token reads padding."""
    n, s = draw_scene(rng, str(rng.choice(["causal", "sliding"])), pad=1.0, force=True, side="right")
    if s.redact is not None:
        return None
    m = s.build(pad=False)
    return finish(s, rng, f"H:clip/{n}", s.build(), m, [], [])


@weighted(WELL, 1.5)
def ok_eos(rng):
    s = eos_scene(rng)
    if rng.random() < 0.5:
        s.role = "key_padding"
        s.obvious["role"] = "key_padding"
        return plane_case(s, rng, "H:eos/plane", s.V, [])
    gg = s.padrows(s.build(), "self")
    return finish(s, rng, "H:eos/attn", gg, gg, [], [])


@weighted(WELL, 1)
def ok_rope(rng):
    n, s = draw_scene(rng, str(rng.choice(["causal", "full"])), pad=1.0, force=True, side="left", companions="ids")
    if rng.random() < 0.5:
        s.inputs["position_ids"] = np.broadcast_to(np.arange(s.K), (s.B, s.K)).copy()
        s.obvious["position_encoding"] = str(rng.choice(["rope", "relative"]))
    else:
        s.inputs["position_ids"] = np.maximum(np.cumsum(s.V, 1) - 1, 0)
        s.obvious["position_encoding"] = str(rng.choice(["rope", "learned"]))
    gg = s.padrows(s.build(), "self")
    return finish(s, rng, f"H:positions/{n}", gg, gg, [], [])


@weighted(WELL, 1)
def ok_bias(rng):
    s = sc_causal(rng, pad=0.3, side="right") if rng.random() < 0.6 else sc_full(rng, pad=0.5)
    H = int(rng.choice([2, 4, 8]))
    s.H = s.heads = H
    g = heads4(s, s.padrows(s.build(), "self"))
    if rng.random() < 0.7:
        s.obvious.update(heads=H, bias="alibi")
        col = s.fam == "causal" and rng.random() < 0.4
        b = alibi(s, H, column=col)[None]
        name = "alibi_column" if col else "alibi"
    else:
        s.obvious.update(heads=H, bias="t5")
        t = rng.normal(size=(H, 2 * s.K)).astype("float32")
        d = np.arange(s.Q)[:, None] - np.arange(s.K)[None] + s.K
        b = t[:, d][None]
        name = "t5"
    a = np.where(g, b, -np.inf).astype("float32")
    return Case(
        s,
        f"H:bias/{name}/{s.fam}",
        a,
        {"convention": "additive", "compute_dtype": "float32"},
        g,
        g,
        [],
        [],
    )


@weighted(WELL, 1)
def ok_layout(rng):
    s = heads_scene(rng, 14)
    if s is None:
        return None
    g = s.padrows(s.build(), "self")
    flat = np.repeat(g, s.H, 0)
    a, keys = encode(s, rng, flat[:, None], str(rng.choice(["keep_bool", "ignore_bool", "additive"])))
    keys.pop("api", None)
    return Case(s, "H:layout", a[:, 0], keys, heads4(s, g), heads4(s, g), [], [])


@weighted(WELL, 1)
def ok_tensors(rng):
    return tensors(rng, False)


@weighted(WELL, 1)
def ok_labels(rng):
    s = text_scene(rng, bi=rng.random() < 0.3)
    ids = s.inputs["input_ids"].astype("int64")
    if s.fam == "full":
        m = (rng.random(ids.shape) < 0.2) & s.V
        for b in range(s.B):
            if not m[b].any():
                m[b, np.flatnonzero(s.V[b])[1]] = True
        s.inputs["labels"] = np.where(m, ids, -100)
        s.inputs["input_ids"] = np.where(m, 4, ids)
    else:
        lab = np.where(s.V, ids, -100)
        if rng.random() < 0.5:  # a prompt without loss
            for b in range(s.B):
                real = np.flatnonzero(s.V[b])
                lab[b, real[: len(real) // 2]] = -100
        s.inputs["labels"] = lab
    gg = s.padrows(s.build(), "self")
    return finish(s, rng, f"H:labels/{s.fam}", gg, gg, [], [])


@weighted(WELL, 2)
def ok_degenerate(rng):
    """Windows, chunks, prefixes as long as the text; single queries; chains of drafts."""
    w = str(rng.choice(["window", "chunk", "chain", "decode", "prefix"]))
    if w == "chain":
        s = sc_tree(rng)
        s.parents = np.arange(-1, s.Q - 1)
        s.inputs["parents"] = s.parents.astype("int64")
    elif w == "decode":
        s = sc_cached(rng)
    elif w == "window":
        s = sc_sliding(rng, pad=0.3, side="right")
        s.window = s.K + int(rng.integers(0, 20))
        for k in ("window_means",):
            s.ctx.pop(k, None)
        s.ctx["window"] = s.window
    elif w == "chunk":
        s = sc_chunked(rng, pad=0.3, side="right")
        s.chunk = s.K + int(rng.integers(0, 20))
        s.ctx["chunk"] = s.chunk
    else:
        s = sc_prefix(rng, pad=0.0)
        s.prefix = int(rng.choice([1, s.K]))
        s.ctx["prefix_len"] = s.prefix
    gg = s.padrows(s.build(), "self")
    if (gg.sum(-1) == 0).any():
        return None
    return finish(s, rng, f"H:degenerate/{w}", gg, gg, [], [])
