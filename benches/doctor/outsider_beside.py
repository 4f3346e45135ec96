"""Mistakes of the second generator that are beside the mask: positions, labels, probabilities, biases, redactions."""

from __future__ import annotations

import numpy as np

from outsider_mistakes import Case, FAULTY, draw_scene, encode, finish, heads4, rowstyle, weighted
from outsider_scenes import (
    EOS,
    PAD,
    basic,
    pad_scene,
    sc_cached,
    sc_causal,
    sc_full,
    sc_packed,
    simple_kind,
    state_padding,
)
from outsider_values import eos_scene


def mask_ok(s, rng, name, classes, accept=(), **kw):
    """A right mask beside a wrong companion."""
    _, (gg,) = rowstyle(s, rng, s.build())
    kw.setdefault("repair", False)
    return finish(s, rng, name, gg, gg, classes, accept, value=True, **kw)


@weighted(FAULTY, 1.5)
def sick_positions(rng):
    r = rng.random()
    if r < 0.5:
        n, s = draw_scene(rng, str(rng.choice(["causal", "full"])), pad=1.0, force=True, side="left", companions="ids")
        s.inputs["position_ids"] = np.broadcast_to(np.arange(s.K), (s.B, s.K)).copy()
        s.obvious["position_encoding"] = "learned"
        return mask_ok(s, rng, f"position_ids/arange/{n}", ["position_ids"])
    if r < 0.8:
        n, s = draw_scene(rng, str(rng.choice(["causal", "full"])), pad=0.6, companions="ids")
        if not s.known_v or s.K < 6:
            return None
        P = np.maximum(np.cumsum(s.V, 1) - 1, 0)
        b = int(rng.integers(s.B))
        real = np.flatnonzero(s.V[b])
        if len(real) < 5:
            return None
        t = real[len(real) // 2]
        P[b, t:] += int(rng.integers(1, 4))
        P[b][~s.V[b]] = 0
        s.inputs["position_ids"] = P
        s.obvious["position_encoding"] = str(rng.choice(["rope", "learned"]))
        return mask_ok(s, rng, f"position_ids/jump/{n}", ["position_ids"])
    n, s = draw_scene(rng, str(rng.choice(["causal", "full"])), pad=1.0, force=True, side="right", companions="ids")
    s.obvious["padding_side"] = "left"
    return mask_ok(s, rng, f"padding_side/declared/{n}", ["padding_side"])


@weighted(FAULTY, 0.5)
def sick_cu(rng):
    s = sc_packed(rng, pad=0.0)
    if s.B != 1 or len(s.docs[0]) < 2:
        return None
    s.inputs = {"segment_ids": s.segs.copy()}
    cu = np.concatenate([[0], np.cumsum(s.docs[0])]).astype("int32")
    r = rng.random()
    if r < 0.4:
        cu = cu[:-1] if rng.random() < 0.5 else np.concatenate([cu[:-1], [cu[-1] - 1]]).astype("int32")
    elif r < 0.7:
        cu = np.concatenate([cu, cu[-1:]]).astype("int32")  # an empty last segment
    else:
        cu[0] = 1
    s.inputs["cu_seqlens"] = cu
    return mask_ok(s, rng, "document_boundary_off_by_one/cu_seqlens", ["document_boundary_off_by_one"])


def text_scene(rng, bi=False):
    s = basic(rng, lo=8)
    s.fam = "full" if bi else "causal"
    pad_scene(s, companions="ids", low=6)
    return simple_kind(s)


@weighted(FAULTY, 2)
def sick_labels(rng):
    w = str(rng.choice(["eos", "row", "pads", "shift", "mlm", "boundary"]))
    if w == "boundary":
        s = sc_packed(rng, pad=0.2)
        s.inputs = {"segment_ids": s.segs.copy()}
        ids = rng.integers(5, 99, (s.B, s.K))
        ids = np.where(s.V, ids, 0)
        lab = np.concatenate([ids[:, 1:], np.full((s.B, 1), -100)], 1)
        nxt = np.concatenate([s.V[:, 1:], np.zeros((s.B, 1), bool)], 1)
        lab = np.where(s.V & nxt, lab, -100)
        s.inputs.update(input_ids=ids, labels=lab)
        s.obvious["pad_token_id"] = 0
        return mask_ok(s, rng, "boundary_label", ["boundary_label"], ["label_shift"])
    s = text_scene(rng, bi=w == "mlm")
    ids = s.inputs["input_ids"].astype("int64")
    if w == "eos":
        s = eos_scene(rng)
        ids = s.inputs["input_ids"]
        lab = np.where(ids == EOS, -100, ids)
        s.inputs["labels"] = lab
        return mask_ok(s, rng, "EOS_never_learned", ["EOS_never_learned"])
    lab = np.where(s.V, ids, -100)
    if w == "row":
        lab[int(rng.integers(s.B))] = -100
        s.inputs["labels"] = lab
        return mask_ok(s, rng, "loss_mask_missing/row", ["loss_mask_missing"])
    if w == "pads":
        if s.V.all():
            return None
        s.inputs["labels"] = ids.copy()
        return mask_ok(s, rng, "loss_mask_missing/pads", ["loss_mask_missing"])
    if w == "shift":
        nxt = np.concatenate([s.V[:, 1:], np.zeros((s.B, 1), bool)], 1)
        s.inputs["labels"] = np.where(s.V & nxt, np.roll(ids, -1, 1), -100)
        return mask_ok(s, rng, "label_shift", ["label_shift"])
    if s.V.all():
        return None
    m = rng.random(ids.shape) < 0.2
    m[~s.V] = rng.random((~s.V).sum()) < 0.5
    if not m[~s.V].any() or not m[s.V].any():
        return None
    orig = np.where(s.V, ids, PAD)
    seen = np.where(m & s.V, 4, ids)
    s.inputs["input_ids"] = seen
    s.inputs["labels"] = np.where(m, orig, -100)
    return mask_ok(s, rng, "MLM_masks_padding_or_special", ["MLM_masks_padding_or_special"], ["loss_mask_missing"])


@weighted(FAULTY, 0.5)
def sick_completion(rng):
    s = sc_causal(rng, pad=0.0)
    B, L = int(rng.integers(1, 4)), int(rng.integers(4, 10))
    ids = rng.integers(5, 99, (B, L))
    good = np.ones((B, L), "int64")
    for b in range(B):
        e = int(rng.integers(0, L - 1))
        ids[b, e] = EOS
        good[b, e + 1 :] = 0
        ids[b, e + 1 :] = PAD
    s.inputs = {
        "completion_ids": ids,
        "completion_mask": np.ones((B, L), "int64") if rng.random() < 0.6 else (good & (ids != EOS)).astype("int64"),
    }
    s.obvious.update(eos_token_id=EOS, pad_token_id=PAD)
    return mask_ok(s, rng, "RL_completion_mask", ["RL_completion_mask"])


def softmax(x):
    with np.errstate(all="ignore"):
        x = x - x.max(-1, keepdims=True)
        e = np.exp(x)
        return e / e.sum(-1, keepdims=True)


def tensors(rng, faulty):
    """Probabilities, pooled states, values."""
    w = str(
        rng.choice(["after", "before", "ignored", "pool", "nanv"] if faulty else ["fine", "renorm", "pool_ok", "v_ok"])
    )
    if w.startswith("pool"):
        s = text_scene(rng, bi=True)
        if s.V.all():
            return None
        h = rng.normal(size=(s.B, s.K, 4)).astype("float32")
        v = s.V[:, :, None]
        mean = (h * v).sum(1) / v.sum(1)
        last = h[np.arange(s.B), s.K - 1 - np.argmax(s.V[:, ::-1], 1)]
        if faulty:
            bad = h.mean(1) if rng.random() < 0.5 else (h[:, -1] if s.side == "right" else h[:, 0])
            s.inputs.update(hidden=h, pooled=bad)
            return mask_ok(s, rng, "pooling_includes_padding", ["pooling_includes_padding"])
        s.inputs.update(hidden=h, pooled=mean if rng.random() < 0.6 else last)
        return mask_ok(s, rng, "H:pooled", [])
    n, s = draw_scene(rng, str(rng.choice(["causal", "full", "sliding"])), side="right")
    if s.redact is not None or s.K > 30:
        return None
    g = s.build()
    if g.all():
        return None
    if (g.sum(-1) == 0).any():
        return None
    s.H = 2
    s.heads = 2
    s.obvious["heads"] = 2
    G = heads4(s, g)
    if w in ("nanv", "v_ok"):
        v = rng.normal(size=(s.B, 2, s.K, 3)).astype("float32")
        hid = ~g.any(1)  # keys that no query may read
        if not hid.any():
            return None
        b, k = np.nonzero(hid)
        v[b, :, k] = np.nan if faulty else 1e4
        s.inputs["v"] = v
        return mask_ok(
            s, rng, "NaN_through_masked_KV" if faulty else "H:values", ["NaN_through_masked_KV"] if faulty else []
        )
    sc = rng.normal(size=G.shape)
    ninf = np.where(G, sc, -np.inf)
    if w in ("fine",):
        p = softmax(ninf)
    elif w == "renorm":
        p = softmax(sc) * G
        p = p / p.sum(-1, keepdims=True)
    elif w == "after":
        p = softmax(sc) * G
    elif w == "before":
        p = softmax(sc * G)
    else:
        p = softmax(sc)
    s.inputs["probabilities"] = p.astype("float32")
    if not faulty:
        return mask_ok(s, rng, f"H:probabilities/{w}", [])
    cls = {"after": "mask_after_softmax", "before": "multiplied_before_softmax", "ignored": "mask_ignored_by_backend"}[
        w
    ]
    # one key visible beside one hidden: "all hidden cells of a row are equal" is then true of any weight
    acc = []
    if w == "ignored" and ((~G).sum(-1) <= 1).all():
        acc = ["multiplied_before_softmax"]
    return mask_ok(s, rng, cls, [cls], acc)


@weighted(FAULTY, 2)
def sick_tensors(rng):
    return tensors(rng, True)


def alibi(s, H, column=False):
    sl = 2.0 ** (-8.0 * (np.arange(H) + 1) / H)
    q, k = np.arange(s.Q)[:, None] + s.past, np.arange(s.K)[None]
    d = np.abs(q - k) if not column else (s.K - 1 - k) + 0 * q
    return -(sl[:, None, None] * d[None])


@weighted(FAULTY, 0.4)
def sick_bias(rng):
    s = sc_full(rng, pad=0.5)
    H = int(rng.choice([2, 4, 8]))
    s.H = s.heads = H
    s.obvious.update(heads=H, bias="alibi")
    g = heads4(s, s.build())
    a = np.where(g, alibi(s, H, column=True)[None], -np.inf).astype("float32")
    return Case(
        s,
        "relative_bias_with_padding",
        a,
        {"convention": "additive", "compute_dtype": "float32"},
        g,
        g,
        ["relative_bias_with_padding"],
        [],
        repair=False,
        value=True,
    )


@weighted(FAULTY, 0.4)
def sick_multihop(rng):
    """One query may not read a key; its neighbours carry it on."""
    n, s = draw_scene(rng, "causal", pad=0.0)
    if s.redact is not None or s.Q < 6 or s.B > 1:
        return None
    k = int(rng.integers(0, 2))
    q = int(rng.integers(k + 3, s.Q))
    s.redact = np.zeros((s.B, s.Q, s.K), bool)
    s.redact[:, q, k] = True
    s.obvious["redactions"] = [{"keys": [k], "queries": [q]}]
    s.ctx["layers"] = int(rng.integers(2, 7))
    return mask_ok(s, rng, "multi_hop_leak", ["multi_hop_leak"], blind=False)


@weighted(FAULTY, 0.5)
def sick_short(rng):
    """The prompt's plane at a later step: fewer keys than cache and new tokens."""
    s = sc_cached(rng, pad=1.0)
    s.role = "key_padding"
    P = s.V[:, : s.past]
    s.obvious.update(role="key_padding", past_len=s.past, q_len=s.Q, kv_len=s.K)
    s.inputs.pop("attention_mask", None)
    if not s.V.all():
        state_padding(s, "ids")
    a, keys = encode(s, rng, P[:, None, None, :], str(rng.choice(["keep_bool", "keep_01"])))
    g = s.build()
    e = g.copy()
    e[:, :, s.past :] = False
    return Case(
        s,
        "stale_decode_mask/short",
        a[:, 0, 0],
        keys,
        g[:, None],
        e[:, None],
        ["stale_decode_mask"],
        [],
        value=True,
        joined=True,
    )
