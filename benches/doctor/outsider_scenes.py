"""Scenes of the second generator of cases: correct masks and their companions.

Written from the catalogue alone, without the doctor's code and without `build.py`. A scene has B batch rows, Q queries and
K keys; `build` returns its keep cells [B, Q, K], and every argument of `build` drops or changes one term of the mask.
"""

from __future__ import annotations

import numpy as np

PAD, EOS = 0, 2


class Scene:
    def __init__(self, rng):
        self.rng = rng
        self.B = self.H = 1
        self.past = 0
        self.ctx, self.obvious, self.inputs = {}, {}, {}
        self.segs = None
        self.V = None  # [B,K] real keys
        self.heads = None
        self.role = "attn"
        self.known_v = False  # are real tokens stated by a companion?
        self.kvpos = None
        self.qpos = None
        self.written = None
        self.redact = None  # [B,Q,K] hidden on purpose
        self.prefix = None
        self.blocks = None
        self.parents = None

    # positions of queries by row [B,Q], of keys [B,K]
    def grid(self):
        q = self.qpos if self.qpos is not None else np.broadcast_to(np.arange(self.Q) + self.past, (self.B, self.Q))
        k = self.kvpos if self.kvpos is not None else np.broadcast_to(np.arange(self.K), (self.B, self.K))
        return q[:, :, None], k[:, None, :]

    def first(self):
        """Slot of the first real token by row."""
        return np.argmax(self.V, 1)

    def build(
        self,
        off=0,
        causal=True,
        window=None,
        pad=True,
        docs=True,
        prefix="own",
        chunk="own",
        blocks=True,
        tree=True,
        redact=True,
        written=True,
        align=None,
        slots=False,
        segs=None,
        chunk_from=None,
        V=None,
    ):
        q, k = self.grid()
        if slots:
            q = np.broadcast_to(np.arange(self.Q) + self.K - self.Q, (self.B, self.Q))[:, :, None]
            k = np.broadcast_to(np.arange(self.K), (self.B, self.K))[:, None, :]
        if align is not None:
            q = q - q[:, :1] + align
        m = np.ones((self.B, self.Q, self.K), bool)
        fam = self.fam
        V = self.V if V is None else V
        W = self.window if window is None else window
        if fam in ("causal", "sliding", "chunked", "prefix", "blocks", "tree") and causal:
            m = k <= q + off
        if fam == "sliding" and W:
            m = m & (k > q - W)
        if fam == "bisliding" and W is not None and W != 0:
            m = np.abs(q - k) <= W
        if fam == "chunked":
            cf = chunk_from or self.chunk_from
            base = self.first()[:, None, None] if cf == "text" else 0
            c = self.chunk
            if chunk == "own":
                m = m & ((q - base) // c == (k - base) // c)
            elif isinstance(chunk, int):
                m = m & ((q - base + chunk) // c == (k - base + chunk) // c)
        if fam == "tree":
            if tree:
                n = len(self.parents)
                anc = np.eye(n, dtype=bool)
                for i in range(n):
                    if self.parents[i] >= 0:
                        anc[i] |= anc[self.parents[i]]
                t = np.ones((self.Q, self.K), bool)
                t[:, self.past :] = anc
                m = np.broadcast_to(t, m.shape).copy()
        if fam == "prefix":
            p = self.prefix if isinstance(prefix, str) else prefix
            if p is not None:
                base = self.first()[:, None, None] if self.prefix_from == "text" else 0
                m = m | (k < p + base)
        if fam == "blocks" and blocks:
            b = self.blocks
            m = m | ((b[:, :, None] == b[:, None, :]) & (b[:, :, None] >= 0))
        g = self.segs if segs is None else segs
        if g is not None and docs:
            m = m & (g[:, :, None] == g[:, None, :]) if g.shape[1] == self.Q else m
        if pad:
            m = m & V[:, None, :]
        if self.redact is not None and redact:
            m = m & ~self.redact
        if self.written is not None and written:
            m = m & self.written[:, None, :]
        if self.kvpos is not None:
            m = m & (self.kvpos[:, None, :] >= 0)
        return np.array(np.broadcast_to(m, (self.B, self.Q, self.K)))

    def care(self):
        c = np.ones((self.B, self.Q), bool)
        if self.selfatt:
            c = self.V[:, self.past : self.past + self.Q].copy() if self.K >= self.past + self.Q else c
        if self.redact is not None and self.selfatt:
            gone = self.redact.all(1)
            c = c & ~gone[:, self.past : self.past + self.Q]
        return c

    def padrows(self, m, style):
        """Rows of padding queries, in the given style."""
        c = self.V[:, self.past : self.past + self.Q] if self.selfatt else np.ones((self.B, self.Q), bool)
        if style == "self":
            b, q = np.nonzero(~c)
            m = m.copy()
            m[b, q, :] = False
            m[b, q, q + self.past] = True
        return m


def lengths(rng, b, n, full=0.25, low=2):
    ls = rng.integers(min(low, n), n + 1, b)
    if rng.random() < full:
        ls[rng.integers(b)] = n
    return ls


def pad_scene(s, side=None, force=False, low=2, companions=None):
    """Padding and what states it."""
    rng = s.rng
    s.side = side or rng.choice(["left", "right"])
    ls = lengths(rng, s.B, s.K, low=low)
    if force and (ls == s.K).all():
        ls[rng.integers(s.B)] = rng.integers(min(low, s.K - 1), s.K)
    j = np.arange(s.K)[None]
    s.V = (j < ls[:, None]) if s.side == "right" else (j >= s.K - ls[:, None])
    state_padding(s, companions)


def state_padding(s, how=None):
    rng = s.rng
    how = how or rng.choice(["ids", "ids", "lengths", "attention_mask", "ids+lengths"])
    s.known_v = True
    if "ids" in how:
        ids = rng.integers(5, 99, (s.B, s.K))
        s.inputs["input_ids"] = np.where(s.V, ids, PAD).astype(rng.choice(["int64", "int32"]))
        s.obvious["pad_token_id"] = PAD
        if rng.random() < 0.4:
            s.obvious["padding_side"] = str(s.side)
    if "lengths" in how:
        s.inputs["lengths"] = s.V.sum(1).astype("int64")
        s.obvious["padding_side"] = str(s.side)
    if how == "attention_mask":
        s.inputs["attention_mask"] = s.V.astype(rng.choice(["int64", "bool"]))


def basic(rng, lo=4, hi=24):
    s = Scene(rng)
    big = rng.random() < 0.07
    n = int(rng.integers(lo, hi + 1)) if not big else int(rng.integers(30, 97))
    s.Q = s.K = n
    s.selfatt = True
    s.window = None
    s.fam = "causal"
    s.prefix_from = "slot"
    s.chunk_from = "slot"
    s.B = int(rng.integers(1, 6)) if not big else int(rng.integers(1, 3))
    s.V = np.ones((s.B, s.K), bool)
    s.side = None
    return s


def maybe_pad(s, p=0.5, **kw):
    if s.rng.random() < p:
        pad_scene(s, **kw)
    elif s.rng.random() < 0.4:
        s.side = "right"
        state_padding(s)  # companions that declare no padding
    else:
        s.B = 1 if s.rng.random() < 0.6 else s.B
        s.V = np.ones((s.B, s.K), bool)
    return s


def kind(s, word, **more):
    s.ctx["kind"] = word
    s.ctx.update(more)
    return s


def simple_kind(s):
    """The kind of a scene that is causal or full."""
    return kind(s, "bidirectional" if s.fam == "full" else "causal")


def heads_scene(rng, hi, same=False):
    """A padded scene of several batch rows and heads, as many of the one as of the other if `same`; None if it is too long."""
    s = basic(rng, lo=5, hi=hi)
    if s.K > hi:
        return None
    s.B = int(rng.integers(2, 5))
    s.H = s.B if same else int(rng.integers(2, 5))
    s.V = np.ones((s.B, s.K), bool)
    s.fam = str(rng.choice(["full", "causal"]))
    pad_scene(s, force=True)
    s.heads = s.obvious["heads"] = s.H
    return simple_kind(s)


def sc_causal(rng, pad=0.5, **kw):
    s = basic(rng)
    maybe_pad(s, pad, **kw)
    return kind(s, "causal")


def sc_full(rng, pad=0.6, **kw):
    s = basic(rng)
    s.fam = "full"
    maybe_pad(s, pad, **kw)
    return kind(s, str(rng.choice(["bidirectional", "bidirectional", "not_causal"])))


def means(s, kindof):
    rng = s.rng
    if kindof == "sliding":
        if rng.random() < 0.25:
            s.ctx["window_means"] = "keys before the query"
            s.ctx["window"] = s.window - 1
        else:
            s.ctx["window"] = s.window
            if rng.random() < 0.7:
                s.ctx["window_means"] = "keys visible, self included"
    else:
        if rng.random() < 0.5:
            s.ctx["window_means"], s.ctx["window"] = "keys on each side", s.window
        else:
            s.ctx["window_means"], s.ctx["window"] = "keys in total", 2 * s.window + 1


def sc_sliding(rng, pad=0.4, **kw):
    s = basic(rng, lo=6)
    s.fam = "sliding"
    s.window = int(rng.integers(2, s.K - 1))
    maybe_pad(s, pad, **kw)
    kind(s, "sliding")
    means(s, "sliding")
    return s


def sc_bisliding(rng, pad=0.4, **kw):
    s = basic(rng, lo=7)
    s.fam = "bisliding"
    s.window = int(rng.integers(1, max(2, s.K // 2)))
    maybe_pad(s, pad, **kw)
    kind(s, "bidirectional_sliding")
    means(s, "bi")
    return s


def sc_chunked(rng, pad=0.6, **kw):
    s = basic(rng, lo=6)
    s.fam = "chunked"
    s.chunk = int(rng.integers(2, max(3, s.K // 2 + 1)))
    maybe_pad(s, pad, **kw)
    s.chunk_from = "text" if s.side == "left" and rng.random() < 0.6 else "slot"
    kind(s, "chunked", chunk=s.chunk)
    if s.side == "left" and not s.V.all():
        s.ctx["chunk_from"] = s.chunk_from
    return s


def sc_prefix(rng, pad=0.4, **kw):
    s = basic(rng, lo=5)
    s.fam = "prefix"
    s.prefix = int(rng.integers(2, s.K - 1))
    maybe_pad(s, pad, **kw)
    if s.side == "left" and not s.V.all():
        s.prefix_from = str(rng.choice(["text", "slot"]))
        s.ctx["prefix_from"] = s.prefix_from
    kind(s, "prefix_lm", prefix_len=s.prefix)
    return s


def cut(rng, n, m=None):
    """Lengths of documents that sum to n."""
    m = m or int(rng.integers(2, min(6, n) + 1))
    c = np.sort(rng.choice(np.arange(1, n), m - 1, replace=False)) if m > 1 else np.array([], int)
    return np.diff(np.concatenate([[0], c, [n]]))


def sc_packed(rng, pad=0.4, bi=False, **kw):
    s = basic(rng, lo=6)
    s.fam = "full" if bi else "causal"
    s.segs = np.zeros((s.B, s.K), "int64")
    s.docs = []
    for b in range(s.B):
        tail = int(rng.integers(1, s.K // 3 + 1)) if rng.random() < pad else 0
        d = cut(rng, s.K - tail)
        s.docs.append(d)
        s.segs[b, : s.K - tail] = np.repeat(np.arange(1, len(d) + 1), d)
    s.V = s.segs > 0
    s.known_v = True
    s.side = "right"
    how = rng.random()
    s.inputs["segment_ids"] = s.segs.copy()
    pos = np.zeros_like(s.segs)
    for b in range(s.B):
        pos[b, : sum(s.docs[b])] = np.concatenate([np.arange(x) for x in s.docs[b]])
        pos[b, sum(s.docs[b]) :] = 0
    if how < 0.2 and s.V.all() and (np.concatenate(s.docs) > 1).all():
        del s.inputs["segment_ids"]
        s.inputs["position_ids"] = pos
    elif how < 0.35 and s.B == 1 and s.V.all():
        del s.inputs["segment_ids"]
        s.inputs["cu_seqlens"] = np.concatenate([[0], np.cumsum(s.docs[0])]).astype("int32")
    elif how < 0.5 and s.V.all():
        s.inputs["position_ids"] = pos
    return kind(s, "bidirectional_packed" if bi else "causal_packed")


def sc_bipacked(rng, **kw):
    return sc_packed(rng, bi=True, **kw)


def sc_cached(rng, pad=0.4, qmin=1, sliding=False, **kw):
    """New tokens after a cache."""
    s = basic(rng, lo=2, hi=8)
    if s.Q > 20:
        s.Q = 5
    s.Q = max(s.Q, qmin) if rng.random() < 0.7 else max(1, qmin)
    s.past = int(rng.integers(2, 24))
    s.K = s.past + s.Q
    s.V = np.ones((s.B, s.K), bool)
    if rng.random() < pad:
        # padding of the prompt at the left, as in a decoding batch
        ls = lengths(rng, s.B, s.past, low=1)
        s.V = np.arange(s.K)[None] >= (s.past - ls)[:, None]
        s.side = "left"
        state_padding(s, str(rng.choice(["ids", "attention_mask"])))
    else:
        s.B = 1
        s.V = np.ones((1, s.K), bool)
    if sliding and s.K > 4:
        s.fam = "sliding"
        s.window = int(rng.integers(2, s.K - 1))
        kind(s, "sliding", window=s.window, window_means="keys visible, self included")
    else:
        kind(s, "causal")
    s.obvious["past_len"] = s.past
    if rng.random() < 0.6:
        s.obvious.update(q_len=s.Q, kv_len=s.K)
    return s


def sc_cached_sliding(rng, **kw):
    return sc_cached(rng, sliding=True, **kw)


def sc_static(rng, **kw):
    """A cache that is allocated longer than it is filled."""
    s = sc_cached(rng, pad=0.0, **kw)
    cap = s.K + int(rng.integers(1, 9))
    s.written = np.broadcast_to(np.arange(cap)[None] < s.K, (1, cap)).copy()
    s.K = cap
    s.V = np.ones((1, cap), bool)
    s.obvious.update(past_len=s.past, q_len=s.Q, kv_len=cap)
    if rng.random() < 0.3:
        s.inputs["kv_written"] = s.written[0].astype(bool)
    return s


def sc_ring(rng, **kw):
    s = basic(rng)
    s.selfatt = False
    s.B = 1
    s.fam = "sliding"
    s.Q = int(rng.integers(1, 4))
    s.window = int(rng.integers(2, 9))
    s.K = s.window + s.Q - 1 + int(rng.integers(0, 3))
    last = int(rng.integers(s.Q, 4 * s.K))
    s.kvpos = np.full((1, s.K), -1, "int64")
    for t in range(last + 1):
        s.kvpos[0, t % s.K] = t
    if last + 1 < s.Q:
        return None
    s.qpos = np.arange(last - s.Q + 1, last + 1)[None]
    s.V = np.ones((1, s.K), bool)
    s.inputs["kv_positions"] = s.kvpos[0].copy()
    s.inputs["query_positions"] = s.qpos[0].copy()
    s.obvious["window"] = s.window
    s.obvious["window_means"] = "keys visible, self included"
    s.obvious["past_len"] = int(s.qpos[0, 0])
    s.obvious["q_len"] = s.Q
    s.obvious["kv_len"] = s.K
    if rng.random() < 0.5:
        for k in ("past_len", "q_len", "kv_len"):
            del s.obvious[k]
    return kind(s, "sliding")


def sc_tree(rng, **kw):
    s = basic(rng)
    s.B = 1
    s.fam = "tree"
    n = int(rng.integers(3, 13))
    s.parents = np.array([-1] + [int(rng.integers(-1 if rng.random() < 0.1 else 0, i)) for i in range(1, n)])
    s.Q = n
    s.past = int(rng.integers(1, 12)) if rng.random() < 0.6 else 0
    s.K = s.past + n
    s.V = np.ones((1, s.K), bool)
    s.inputs["parents"] = s.parents.astype("int64")
    if s.past or rng.random() < 0.3:
        s.obvious["past_len"] = s.past
    return kind(s, "tree")


def sc_cross(rng, pad=0.75, **kw):
    s = basic(rng)
    s.selfatt = False
    s.fam = "full"
    s.role = "cross"
    s.Q = int(rng.integers(2, 14))
    s.K = int(rng.integers(4, 20))
    s.V = np.ones((s.B, s.K), bool)
    if rng.random() < pad:
        ls = lengths(rng, s.B, s.K)
        s.V = np.arange(s.K)[None] < ls[:, None]
        s.known_v = True
        s.inputs["attention_mask"] = s.V.astype("int64")
    else:
        s.B = 1
        s.V = s.V[:1]
    s.obvious["role"] = "cross"
    return kind(s, "cross")


def sc_blocks(rng, pad=0.3, **kw):
    s = basic(rng, lo=7)
    s.fam = "blocks"
    maybe_pad(s, pad, side="right", low=6)
    s.blocks = np.full((s.B, s.K), -1, "int64")
    for b in range(s.B):
        a = int(rng.integers(0, 3))
        n = 0
        real = int(s.V[b].sum())
        while a + 2 <= real:
            e = min(real, a + int(rng.integers(2, 5)))
            s.blocks[b, a:e] = n
            n += 1
            a = e + int(rng.integers(1, 4))
    s.inputs["block_ids"] = s.blocks.copy()
    return kind(s, "image_blocks")


def with_redactions(s):
    """Keys hidden on purpose; by row of the batch and by queries at times."""
    rng = s.rng
    s.redact = np.zeros((s.B, s.Q, s.K), bool)
    out = []
    for _ in range(int(rng.integers(1, 3))):
        b = int(rng.integers(s.B))
        real = np.flatnonzero(s.V[b])
        if len(real) < 4:
            continue
        keys = sorted(
            int(x) for x in rng.choice(real[1:-1], min(len(real) - 2, int(rng.integers(1, 3))), replace=False)
        )
        item = {"keys": keys}
        every = s.B == 1 or rng.random() < 0.4
        rows = range(s.B) if every and s.B == 1 else [b]
        if not (every and s.B == 1):
            item["batch"] = b
        if s.fam != "full" and rng.random() < 0.5:
            # all queries after the key: no token passes its content on (causal only: without causality, earlier tokens pass it on)
            qs = [q for q in range(s.Q) if q + s.past > min(keys)]
            item["queries"] = qs
        else:
            qs = list(range(s.Q))
        for r in rows:
            for q in qs:
                s.redact[r, q, keys] = True
        out.append(item)
    if not out:
        return None
    # no real row may become empty
    if (s.build().sum(-1) == 0)[s.care()].any():
        return None
    s.obvious["redactions"] = out
    return s


SCENES = {name[3:]: draw for name, draw in list(globals().items()) if name.startswith("sc_")}
