"""Write labelled cases for `noren check --cases` with a second generator, written from the catalogue without the doctor's code.

    python benches/doctor/outsider.py OUT --count 3000 --seed 404
    noren check --cases OUT/inputs.json -o OUT/preds.json
    python benches/doctor/outsider_score.py OUT --failures

Every case is written declared (`oNNNNNd`) and blind (`oNNNNNb`): without kind, window, chunk, prefix and layers, and in a
quarter of the cases without convention and function too. A blind case is left out where its cells are those of a normal mask
of a common kind (`findable`). Needs NumPy only.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path

import numpy as np

import outsider_values  # noqa: F401  (the order in which modules register their mistakes selects the cases of a seed)
import outsider_beside  # noqa: F401
from outsider_alternatives import alternatives
from outsider_healthy import WELL
from outsider_mistakes import FAULTY, same_care


def pick(rng, pool):
    w = np.array([x[1] for x in pool], float)
    while True:
        c = pool[int(rng.choice(len(pool), p=w / w.sum()))][0](rng)
        if c is not None:
            return c


def common(s, E, care):
    """Is E [B,Q,K] on real rows a normal mask of a common kind, given its companions? The kinds: full, causal, sliding, a window
    on both sides, chunks (from slot or text), a prefix (from slot or text), each with padding as stated, or, where nothing states it, with
    any contiguous padding; with documents where they are stated. Every row of the batch may not choose its own kind."""
    Q, K = s.Q, s.K
    q, k = s.grid()
    rows = care.astype(bool)

    def eq(m):
        m = np.broadcast_to(m, E.shape)
        if s.known_v or s.role == "cross":
            vs = [s.V[:, None, :]]
        else:
            cols = E.any(1)  # keys read at all: contiguous to one end?
            vs = [np.ones((s.B, 1, K), bool)]
            if all((np.diff(np.flatnonzero(c)) == 1).all() for c in cols):
                vs.append(cols[:, None, :])
        base = np.ones_like(E)
        if s.segs is not None:
            base = s.segs[:, :, None] == s.segs[:, None, :]
        if s.redact is not None:
            base = base & ~s.redact
        if s.written is not None:
            base = base & s.written[:, None, :]
        return any((((m & base & v) == E) | ~rows[:, :, None]).all() for v in vs)

    c = k <= q
    if eq(np.ones_like(E)) or eq(c):
        return True
    if s.role == "cross":
        return False
    if s.parents is not None:
        return False
    for w in range(1, K + 1):
        if eq(c & (k > q - w)) or eq(np.abs(q - k) <= w):
            return True
    if Q == K:  # blocks along the diagonal: packed documents, causal or not
        st = np.array([[int(np.argmax(E[b, i])) for i in range(Q)] for b in range(len(E))])
        st = np.where(E.any(-1), st, np.arange(Q)[None])
        st = np.maximum.accumulate(st, 1)
        d = st[:, :, None] == st[:, None, :]
        if eq(d) or eq(d & c):
            return True
    f = s.first()[:, None, None]
    for x in range(2, K):
        for base in (0, f):
            ch = (q - base) // x == (k - base) // x
            if eq(c & ch) or eq(ch) or eq(c | (k < x + base)):
                return True
    if s.blocks is not None:
        if eq(c | ((s.blocks[:, :, None] == s.blocks[:, None, :]) & (s.blocks[:, :, None] >= 0))):
            return True
    return False


def findable(c, noconv):
    """May a blind doctor know? Mistakes in values or companions: yes. Otherwise the cells must not be a common kind, in either polarity
    where the polarity is not declared."""
    if not c.blind:
        return False
    if c.value:
        return True
    s = c.s
    care = c.care[:, 0, :, 0]
    for E in [c.effective] + ([~c.effective] if noconv else []):
        heads = [E[:, h] for h in range(E.shape[1])]
        if all(common(s, h, care) for h in heads):
            # every head is normal: heads that differ are then a design, not a mistake
            return False
    return True


def ambiguous(c, rng):
    """Without the kind: does a mistake in a plainer kind (causal, full) give the same cells? Then the intended mask cannot be determined."""
    s = c.s
    if c.name.startswith(("pair:causal_dropped", "pair:sliding_window_off_by_one")):
        return True  # documents or padding without causality, and another width, are equally plausible
    if c.name.startswith(("causal_dropped", "implicit_causal")) and c.name.endswith("/row"):
        return True  # which of the rows is the right one is not in the cells
    if c.name.startswith("stale_or_bucketed_mask/chunked"):
        return True
    if c.value or c.joined or s.H > 1 or s.fam in ("tree", "full") or s.role == "cross":
        return False
    if s.fam == "causal" and not (s.past or s.written is not None or not s.V.all()):
        return False
    for fam in ("causal", "full"):
        if fam == s.fam:
            continue
        t = copy.copy(s)
        t.fam, t.window, t.rng = fam, None, rng
        if same_care(s, t.build(), c.intended[:, 0]):
            continue
        for ms in alternatives(t).values():
            if any(same_care(s, m, c.effective[:, 0]) for m in ms):
                return True
    return False


def store(folder, name, a):
    np.save(folder / name, np.ascontiguousarray(a))
    return {"file": name, "dtype": str(a.dtype), "shape": list(a.shape)}


INTENT = ("kind", "window", "window_means", "chunk", "chunk_from", "prefix_len", "prefix_from", "layers")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=Path)
    ap.add_argument("--count", type=int, default=1000)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    rng = np.random.default_rng(a.seed)
    (a.out / "truth").mkdir(parents=True, exist_ok=True)
    ins, labs, drop = {}, {}, {}
    for i in range(a.count):
        c = pick(rng, FAULTY if rng.random() < 0.45 else WELL)
        s = c.s
        key = f"o{i:05d}"
        files = {n: store(a.out, f"{key}_{n}.npy", x) for n, x in {"mask": c.mask, **s.inputs}.items()}
        for part in ("intended", "effective", "care"):
            np.save(a.out / "truth" / f"{key}_{part}.npy", np.asarray(getattr(c, part), bool))
        if c.mask.ndim == 2 and s.role == "attn" and c.keys.get("convention") == "keep_01":
            s.obvious["role"] = "attn"
        full = {**s.ctx, **s.obvious, **c.keys}
        noconv = rng.random() < 0.25 and not c.must_conv
        obv = {**s.obvious, **c.keys}
        if noconv:
            obv = {k: v for k, v in obv.items() if k not in ("convention", "api")}
        for split, ctx in (("declared", full), ("blind", obv)):
            if split == "blind" and c.classes and not findable(c, noconv):
                drop[c.name.split("/")[0]] = drop.get(c.name.split("/")[0], 0) + 1
                continue
            kk = f"{key}{split[0]}"
            ins[kk] = {"inputs": files, "context": ctx}
            labs[kk] = {
                "name": c.name,
                "split": split,
                "faulty": bool(c.classes),
                "classes": c.classes or ["healthy"],
                "accept": sorted(set(c.accept)),
                "repair": bool(c.repair and c.classes and not (split == "blind" and ambiguous(c, rng))),
                "polarity": bool(split == "blind" and noconv and c.keys.get("convention") == "ignore_bool"),
                "open": bool(c.open_q),
                "joined": bool(c.joined),
                "role": s.role,
                "truth": {p: f"truth/{key}_{p}.npy" for p in ("intended", "effective", "care")},
            }
    (a.out / "inputs.json").write_text(json.dumps(ins))
    (a.out / "labels.json").write_text(json.dumps(labs))
    print(len(ins), "cases; blind left out:", drop)


if __name__ == "__main__":
    main()
