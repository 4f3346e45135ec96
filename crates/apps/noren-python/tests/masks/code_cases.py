"""Masks for the tests of `nr.code`: all atoms, all presets, all score modifiers and random expressions; and their cells and weights by the
definition, cell by cell.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from conftest import ROOT, corpus

import noren as nr

PRESETS = ROOT / "crates/apps/noren-explorer/src/presets.json"
RANDOM = 200


@dataclass
class Case:
    """A mask, its shape and its facts."""

    text: str
    shape: nr.Shape
    facts: nr.Facts
    layer: int | None = None
    arrays: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = nr.parse(self.text)
        self.facts = self.facts.used_by(spec.mask if isinstance(spec, nr.Spec) else spec)

    @cached_property
    def spec(self) -> nr.Mask | nr.Spec:
        spec = nr.parse(self.text)
        if self.layer is None:
            return spec
        mask = spec.mask if isinstance(spec, nr.Spec) else spec
        scores = spec.scores if isinstance(spec, nr.Spec) else []
        out: Any = mask.at_layer(self.layer)
        for score in scores:
            out = out + score
        return out

    @cached_property
    def bound(self) -> nr.BoundMask:
        mask = self.spec.mask if isinstance(self.spec, nr.Spec) else self.spec
        return mask.bind(self.shape, self.facts)

    @property
    def scores(self) -> list[nr.Score]:
        return self.spec.scores if isinstance(self.spec, nr.Spec) else []

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        s = self.shape
        return s.batch, s.heads, s.q_len, s.kv_len

    @cached_property
    def cells(self) -> Any:
        """The cells `[batch, heads, q_len, kv_len]` by the definition, one call for each cell."""
        cells = np.zeros(self.sizes, np.bool_)
        for b, h, q, k in np.ndindex(*self.sizes):
            cells[b, h, q, k] = self.bound.explain(q, k, batch=b, head=h).allowed
        return cells

    @cached_property
    def given(self) -> tuple[Any, Any]:
        """Random queries `[batch, heads, q_len, kv_len]` and keys `[batch, kv_heads, kv_len, kv_len]`, as 32-bit floats."""
        r = np.random.default_rng(len(self.text))
        batch, heads, q_len, kv_len = self.sizes
        query = r.normal(size=(batch, heads, q_len, kv_len)).astype(np.float32)
        return query, r.normal(size=(batch, self.shape.kv_heads, kv_len, kv_len)).astype(np.float32)

    @cached_property
    def identity(self) -> Any:
        """Values that are the identity matrix, so that the output of attention is its weights."""
        batch, _, _, kv_len = self.sizes
        return np.broadcast_to(np.eye(kv_len, dtype=np.float32), (batch, self.shape.kv_heads, kv_len, kv_len)).copy()

    @cached_property
    def added(self) -> Any:
        """The sum of the biases, `[batch, heads, q_len, kv_len]`."""
        total = np.zeros(self.sizes)
        offsets = np.array(self.shape.query_offsets).reshape(-1, 1, 1, 1)
        distance = np.arange(self.sizes[3]) - np.arange(self.sizes[2])[:, None] - offsets
        heads = np.arange(self.sizes[1])[:, None, None]
        for score in self.scores:
            if score.kind == "bias":
                total = total + self.arrays[score.name]
            if score.kind == "relative":
                table = self.arrays[score.name]
                reach = table.shape[1] // 2
                total = total + table[heads, np.clip(distance, -reach, reach) + reach]
            if score.kind == "alibi":
                slopes = score.slopes or [2 ** (-8 * (h + 1) / self.sizes[1]) for h in range(self.sizes[1])]
                total = total - np.array(slopes)[:, None, None] * abs(distance)
        return total

    def weights(self, scale: float | None = None) -> Any:
        """The weights `[batch, heads, q_len, kv_len]`: softcap, biases, soft weights, mask, softmax with sinks."""
        query, key = (array.astype(np.float64) for array in self.given)
        key = np.repeat(key, self.sizes[1] // self.shape.kv_heads, axis=1)
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        kinds = {score.kind: score for score in self.scores}
        if "softcap" in kinds:
            cap = kinds["softcap"].cap
            scores = cap * np.tanh(scores / cap)
        scores = scores + self.added
        with np.errstate(divide="ignore"):
            factor = np.where(self.cells, self.arrays[kinds["soft"].name] if "soft" in kinds else 1.0, 0.0)
        parts = np.exp(scores) * factor
        total = parts.sum(-1, keepdims=True)
        if "sinks" in kinds:
            total = total + np.exp(self.arrays[kinds["sinks"].name])[:, None, None]
        return parts / np.where(total == 0, 1, total)


def of_corpus() -> list[Case]:
    """Returns the cases of the corpus that have cells: every atom with its parameters, facts and combinations."""
    out = []
    for drawn in corpus():
        case = drawn.case
        if "message" not in case:
            out.append(Case(case["mask"], drawn.shape, nr.Facts.from_json(case.get("facts") or "{}"), case.get("layer")))
    return out


def presets(most: int | None = 96) -> list[Case]:
    """Returns the presets of the explorer. Longer ones than `most` tokens are shortened: all their numbers are divided."""
    out = []
    for preset in json.loads(PRESETS.read_text(encoding="utf-8")):
        scene = preset["scene"]
        sizes, facts, text = dict(scene["shape"]), json.loads(json.dumps(scene.get("facts", {}))), scene["mask"]
        longest = max(sizes.get(name, 0) for name in ("len", "kv", "past"))
        if most and longest > most and "grid" not in text:
            less = lambda n: n if n < 8 else max(1, n * most // longest)  # noqa: E731
            text = re.sub(r"\d+", lambda found: str(less(int(found[0]))), text)
            sizes = {name: less(n) if name in ("len", "past", "new") else n for name, n in sizes.items()}
            if "documents" in facts:
                lengths = [less(n) for n in facts["documents"]]
                facts["documents"] = [*lengths[:-1], sizes["len"] - sum(lengths[:-1])]
        if most and "grid" in text:
            text, sizes = text.replace("24", "6").replace("7", "3"), sizes | {"len": 36}
        more = {name: sizes[name] for name in ("batch", "heads", "kv_heads") if name in sizes}
        if "len" in sizes:
            shape = nr.Shape.square(sizes["len"], **more)
        elif "past" in sizes:
            shape = nr.Shape.cached(sizes["past"], sizes["new"], **more)
        else:
            shape = nr.Shape(sizes["q"], sizes["kv"], query_offset=sizes["query_offset"], **more)
        out.append(with_arrays(Case(text, shape, nr.Facts.from_json(json.dumps(facts)), scene.get("layer"))))
    return out


def with_arrays(case: Case, seed: int = 0) -> Case:
    """Returns the case with random arrays for its score modifiers."""
    r = np.random.default_rng(seed)
    for score in case.scores:
        sizes = {"relative": (case.sizes[1], 7), "sinks": (case.sizes[1],)}.get(score.kind, case.sizes)
        if score.kind == "soft":
            case.arrays[score.name] = r.uniform(0.1, 1, sizes).astype(np.float32)
        elif score.kind in ("bias", "relative", "sinks"):
            case.arrays[score.name] = r.normal(size=sizes).astype(np.float32)
    return case


SHAPES = [
    nr.Shape.square(7),
    nr.Shape.square(7, batch=2, heads=4, kv_heads=2),
    nr.Shape(5, 9, query_offset=4, batch=2, heads=2),
    nr.Shape(6, 8, query_offset=[2, 0, -1], batch=3, heads=2, kv_heads=1),
]
"""Few shapes, because JAX compiles its operations for each."""


def scored() -> list[Case]:
    """Returns masks with each score modifier, and with several of them."""
    texts = [
        "causal + bias", "padding + bias(mine) + bias", "causal & padding + relative", "padding + alibi", "full + alibi",
        "window(left=3, right=1) + softcap(2)", "padding + soft", "causal + sinks", "padding + softcap(3) + alibi + relative",
        "documents | global(0) + softcap(4) + bias + soft", "causal & padding + softcap(5) + bias + alibi + soft + sinks",
        "heads(0: sliding(2), else: padding) + bias(lengths) + alibi", "full + alibi([0.5, 0.25, 1, 2])",
    ]  # fmt: skip
    out = []
    for seed, (text, shape) in enumerate((text, shape) for text in texts for shape in SHAPES[:3]):
        lengths = [shape.kv_len, 3][: shape.batch]
        facts = {"lengths": lengths, "side": ("left", "right")[seed % 2], "documents": [3, shape.kv_len - 3]}
        if facts["side"] == "left" and "documents" not in text:
            del facts["documents"]
        case = Case(text, shape, nr.Facts(**facts))
        if case.scores[0].kind == "alibi" and case.scores[0].slopes and shape.heads != 4:
            continue
        out.append(with_arrays(case, seed))
    return out


def found() -> list[Case]:
    """Returns masks whose code was once wrong or did not run: parts that no cell depends on, names and labels that Python reserves or
    escapes, and numbers beyond 32 bits.
    """
    by_row = nr.Shape(3, 5, query_offset=[2, 0], batch=2, heads=2)
    facts = {"lengths": [5, 3], "documents": [[2, 3], [4, 1]], "labels": {"it's \"a\"\n": [1], "\u200b\x000": [[2], [0, 1]]}}
    r = np.random.default_rng(1)
    keep = {name: nr.Array.keep(r.random((2, 2, 3, 5)) < 0.6) for name in ("q", "array_q", "query", "import")}
    texts = [
        "full | padding", "causal | none & padding", "stride(2147483648) | !~none & prefix([3, 4]) & none", "full", "keys(1..3)", "keys(0) - none & causal",
        'keys(label="it\'s \\"a\\"\\n") | queries(label="\u200b\x000")', "dense(q) & dense(array_q) | dense(query) - dense(import)",
        "causal(offset=4611686018427387904) & window(left=4611686018427387904, right=-1)", "keys(1..4611686018427387904) & sliding(4611686018427387904)",
        "chunk(4611686018427387904) & distances([4611686018427387904, 0, 1, 2, -1])", "prefix([4611686018427387904, 1]) & stride(4294967296)",
    ]  # fmt: skip
    out = [Case(text, by_row, nr.Facts(arrays=keep, **facts)) for text in texts]
    out.append(Case("neighborhood(grid=[4], size=[2]) | causal", nr.Shape.square(6), nr.Facts(lengths=[4])))
    large = nr.Shape.square(20)
    given = {name: r.random((20, 20)) < 0.6 for name in ("bias", "array_q", "q")}
    known = nr.Facts(arrays={name: nr.Array.keep(cells) for name, cells in given.items()})
    out.append(Case("none & dense(bias) | dense(q) - dense(array_q)", large, known, arrays=given))
    return out


def atom(r: random.Random, shape: nr.Shape) -> str:
    """Returns a random elementary mask that fits the shape, as text."""
    length = shape.kv_len
    at = lambda: r.randrange(length)  # noqa: E731
    some = lambda: r.choice([f"[{at()}, {at()}]", f"{at()}", f"{(a := at())}..{a + r.randint(1, 3)}", f"{at()}..", 'label="pii"', 'label="names"'])  # noqa: E731
    near = lambda: r.randint(-2, 5)  # noqa: E731
    grid = r.choice(["[2, 3]", "[7]", "[3, 3]"])
    window = "[3, 3]" if grid == "[3, 3]" else "[1, 3]" if grid == "[2, 3]" else "[3]"
    kinds = [
        "causal", f"causal(offset={near()})", f"window(left={near()}, right={near()})", f"window(left={near()})", f"window(right={near()})",
        f"sliding({r.randint(1, 4)})", f"chunk({r.randint(1, 4)})", f"stride({r.randint(1, 3)})", f"distances([{near()}, {near()}, {near()}, 6])",
        f"prefix({r.randint(0, 4)})", f"prefix({[r.randint(0, 4) for _ in range(shape.batch)]})", f"keys({some()})", f"queries({some()})",
        f"global({some()})", "padding", "padding", "padding(on=both)", f"padding(side={r.choice(['left', 'right'])})", "documents",
        f"spans([{at()}..{length}, 1..3])", "spans([0..2, 2..4, 5..6])", "clearance", f"random(0.5, {r.randint(0, 9)})",
        f"random_blocks(2, 1, {r.randint(0, 9)})", "dense(given)", f"neighborhood(grid={grid}, size={window})",
        f"tree(parents=[-1, 0, 0, 1], start={r.randint(0, 3)})", "tree(parents=[-1, 0], runs=[3, 2], window=2)", "full", "none",
    ]  # fmt: skip
    return r.choice(kinds)


def expression(r: random.Random, shape: nr.Shape, depth: int = 0) -> str:
    """Returns a random expression of up to eight elementary masks."""
    if depth == 3 or r.random() < 0.25 + 0.15 * depth:
        return atom(r, shape)
    one = lambda: expression(r, shape, depth + 1)  # noqa: E731
    form = r.choice(["({} & {})", "({} & {})", "({} | {})", "({} - {})", "!({})"])
    text = form.format(one(), one())
    if depth == 0 and shape.heads > 1 and r.random() < 0.3:
        text = r.choice(["heads(0: {}, else: {})", "heads(every 2: {}, else: {})", "heads(1..: {}, else: {})"]).format(text, one())
    elif depth == 0 and shape.batch > 1 and r.random() < 0.3:
        text = f"batch(0: {text}, else: {one()})"
    return text


def random_case(number: int) -> Case:
    """Returns the random mask with this number. Expressions that do not fit their facts are drawn again."""
    r = random.Random(number)
    while True:
        shape = SHAPES[number % len(SHAPES)]
        length, batch = shape.kv_len, shape.batch
        side = r.choice(("left", "right"))
        facts: dict[str, Any] = {
            "lengths": [r.randint(1, length) for _ in range(batch)],
            "side": side,
            "levels": [[r.randint(0, 2) for _ in range(length)] for _ in range(batch)],
            "labels": {"pii": ["1..3", length - 1], "names": [[r.randrange(length)] for _ in range(batch)]},
            "arrays": {"given": np.random.default_rng(number).random((batch, 1, shape.q_len, length)) < 0.5},
        }
        if side == "left":
            facts["documents"] = [2, length - 2]
        else:
            facts["documents"] = [[cut := r.randint(1, length - 1), length - cut] for _ in range(batch)]
        if r.random() < 0.15:
            facts["positions"] = [r.sample(range(length + 1), length) for _ in range(batch)]
            del facts["documents"], facts["levels"]
        text = expression(r, shape)
        try:
            arrays = {name: nr.Array.keep(array) for name, array in facts.pop("arrays").items()}
            case = Case(text, shape, nr.Facts(arrays=arrays, **facts))
            assert case.bound is not None
        except nr.Error:
            continue
        return case
