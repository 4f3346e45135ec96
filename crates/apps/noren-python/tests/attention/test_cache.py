"""Caches: random steps have the bits of one pass over the whole sequence, and wrong use raises errors that name the problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import noren as nr
from conftest import runs

RUNS = runs(100, 500)
TYPES = ("float32", "float32", "bfloat16", "float16")
MASKS = (
    "causal", "sliding({w})", "sliding({w}) | causal & keys(..{s})", "causal & chunk({c})", "causal | prefix({s})", "full", "causal & stride(3)",
    "heads(every 2: causal, else: sliding({w}))", "causal - keys({s}..{c})", "window(left={w}, right=2)", "batch(every 2: causal, else: sliding({w}))",
    "causal & documents", "causal + alibi", "sliding({w}) + softcap(3)",
)  # fmt: skip


def typed(array: np.ndarray, dtype: str, torch_too: bool = False) -> Any:
    """Returns the array in a type, as an array of NumPy or a tensor of PyTorch."""
    if torch_too:
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))
    if dtype == "bfloat16":
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    return array.astype(dtype)


def typed_bools(array: np.ndarray, torch_too: bool) -> Any:
    if torch_too:
        import torch

        return torch.from_numpy(array)
    return array


def wide(array: Any) -> np.ndarray:
    """Returns an array of any library as float32."""
    return np.asarray(array.float() if hasattr(array, "detach") else array).astype(np.float32)


def depths_of(parents: list[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:  # parents come before their children
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


class Sequence:
    """The tokens of one sequence as a list of rows, which is the definition of a cache."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.q, self.k, self.v = ([] for _ in range(3))
        self.last = 0
        """The number of tokens before the last append."""

    def __len__(self) -> int:
        return len(self.k)

    def cut(self, indices: list[int]) -> None:
        self.q, self.k, self.v = ([rows[i] for i in indices] for rows in (self.q, self.k, self.v))


class Run:
    """One random history of a cache, compared with one pass over the whole sequence after each step."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.seed, self.steps = seed, 0
        draw = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
        self.draw = draw
        self.dtype = TYPES[seed % len(TYPES)]
        self.torch = bool(rng.random() < 0.5)
        self.sequences, self.kv_heads = draw(1, 3), draw(1, 3)
        self.heads = self.kv_heads * draw(1, 4)
        self.head_dim, self.v_dim = draw(1, 40), draw(1, 40)
        self.isa = str(rng.choice(nr.isas()))
        self.capacity = draw(60, 220)
        self.ahead = draw(8, 40)
        self.window, self.sinks = draw(1, 70), draw(0, 6)
        self.form = ("contiguous", "rotating", "paged")[seed % 3]
        sizes: Any = {"sequences": self.sequences, "v_dim": self.v_dim, "dtype": self.dtype, "isa": self.isa}
        if self.form == "contiguous":
            self.cache = nr.KvCache(self.kv_heads, self.head_dim, self.capacity, **sizes)
        elif self.form == "rotating":
            self.cache = nr.KvCache.rotating(self.kv_heads, self.head_dim, self.window, sink_tokens=self.sinks, ahead=self.ahead, **sizes)
        else:
            block = 16 * draw(1, 6)
            self.cache = nr.KvCache.paged(self.kv_heads, self.head_dim, self.sequences * -(-self.capacity // block), block=block, **sizes)
        self.rows = [Sequence(self) for _ in range(self.sequences)]
        self.text = str(rng.choice(MASKS)).format(w=draw(1, 60), s=draw(1, 9), c=draw(10, 50))
        self.border = draw(1, self.capacity)
        self.bias = rng.normal(size=(self.heads, 300, 300)).astype(np.float32) if rng.random() < 0.2 and "alibi" not in self.text else None

    def numbers(self, heads: int, width: int) -> np.ndarray:
        return wide(typed(self.rng.normal(size=(heads, width)), self.dtype))

    def give(self, rows: list[np.ndarray]) -> Any:
        """Returns rows `[heads, width]` of tokens as an array `[1, heads, tokens, width]` with random strides."""
        if self.rng.random() < 0.5:
            return typed(np.stack(rows, 1)[None], self.dtype, self.torch)
        array = typed(np.stack(rows)[None], self.dtype, self.torch)
        return array.swapaxes(1, 2)

    def batch(self, arrays: list[Any]) -> Any:
        if self.torch:
            import torch

            return torch.cat(arrays)
        return np.concatenate(arrays)

    # --- operations ---------------------------------------------------------------------------------------------

    def append(self, counts: list[int], poison: bool = False) -> list[int] | None:
        """Appends random tokens; returns cu_seqlens of a ragged step."""
        new: Any = []
        for row, count in zip(self.rows, counts, strict=True):
            widths = ((self.heads, self.head_dim), (self.kv_heads, self.head_dim), (self.kv_heads, self.v_dim))
            made = [[self.numbers(*width) * (np.nan if poison else 1) for _ in range(count)] for width in widths]
            row.last = len(row)
            for rows, more in zip((row.q, row.k, row.v), made, strict=True):
                rows.extend(more)
            new.append(made)
        if len(set(counts)) == 1 and self.rng.random() < 0.8:
            self.cache.append(self.batch([self.give(made[1]) for made in new]), self.batch([self.give(made[2]) for made in new]))
            return None
        starts = np.concatenate([[0], np.cumsum(counts)])
        k, v = ([row for made in new for row in made[i]] for i in (1, 2))
        given = starts.tolist() if self.rng.random() < 0.5 else starts
        self.cache.append(self.give(k), self.give(v), cu_seqlens=given)
        return list(starts)

    def facts(self) -> dict[str, Any] | None:
        if "documents" not in self.text:
            return None
        return {"documents": [self.documents(len(row)) for row in self.rows]}

    def documents(self, length: int) -> list[int]:
        return [min(self.border, length), max(length - self.border, 0)]

    def of_sequence(self, b: int) -> tuple[str, dict[str, Any] | None]:
        """Returns the mask and facts of sequence `b` alone."""
        text = self.text
        if text.startswith("batch("):
            text = "causal" if b % 2 == 0 else text.rsplit("else: ", 1)[1][:-1]
        return text, {"documents": [self.documents(len(self.rows[b]))]} if "documents" in text else None

    def options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns random options of a call, and those of the pass over one sequence."""
        options: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            options["scale"] = float(self.rng.uniform(0.05, 0.5))
        if self.rng.random() < 0.3 and "softcap" not in self.text:
            options["softcap"] = 2.5
        if self.rng.random() < 0.3:
            options["sinks"] = self.rng.normal(size=self.heads).astype(np.float32)
        if self.rng.random() < 0.2 and "alibi" not in self.text:  # one order of additions
            options["relative"] = self.rng.normal(size=(self.heads, 21)).astype(np.float32)
        return options | {"threads": int(self.rng.integers(1, 3))}, options

    def window_text(self) -> str:
        return f"(window(left={self.window - 1}) | keys(..{self.sinks}))" if self.sinks else f"window(left={self.window - 1})"

    def step(self, counts: list[int], cu_seqlens: list[int] | None, cells: list[np.ndarray] | None = None, mask: Any = None) -> None:
        """Computes the attention of the last tokens of each sequence, and compares it with one pass over each sequence.

        `cells` are the expected cells of the step, for each sequence `[queries, keys]`; otherwise those of the mask of the run.
        """
        self.steps += 1
        options, of_pass = self.options()
        queries = [self.give(row.q[len(row) - count :]) for row, count in zip(self.rows, counts, strict=True) if count]
        if cu_seqlens is None:
            q = self.batch(queries)
        else:
            import torch

            q = torch.cat(queries, 2) if self.torch else np.concatenate(queries, 2)
        mask = self.text if mask is None else mask
        facts = self.facts() if cells is None else None
        if self.bias is not None:
            options["bias"] = self.bias_of_step(counts, cu_seqlens)
        if cells is not None and self.rng.random() < 0.3:
            keep = typed_bools(self.cells_of_step(cells, counts, cu_seqlens), self.torch)
            out, lse = self.cache.attend(q, keep=keep, cu_seqlens=cu_seqlens, return_lse=True, **options)
        elif self.bias is None and self.rng.random() < 0.4:
            plan = self.cache.plan(mask, self.heads, max(counts), cu_seqlens=cu_seqlens, facts=facts)
            out, lse = self.cache.attend(q, plan, return_lse=True, **options)
        else:
            out, lse = self.cache.attend(q, mask, cu_seqlens=cu_seqlens, facts=facts, return_lse=True, **options)
        assert str(out.dtype).endswith(self.dtype) and type(out) is type(q) and out.shape == (*q.shape[:-1], self.v_dim)
        out, lse = wide(out), wide(lse)
        for b, (row, count) in enumerate(zip(self.rows, counts, strict=True)):
            if count == 0:
                continue
            first = 0 if cu_seqlens is None else cu_seqlens[b]
            at = (b if cu_seqlens is None else 0, slice(None), slice(first, first + count))
            self.compare(b, row, count, out[at], lse[at], None if cells is None else cells[b], of_pass)

    def cells_of_step(self, cells: list[np.ndarray], counts: list[int], cu_seqlens: list[int] | None) -> np.ndarray:
        positions = self.cache.key_positions(max(counts), cu_seqlens=cu_seqlens)
        keep = np.zeros((self.sequences, 1, max(counts), positions.shape[1]), bool)
        for b, own in enumerate(cells):
            there = np.flatnonzero((positions[b] >= 0) & (positions[b] < own.shape[1]))
            keep[np.ix_([b], [0], range(len(own)), there)] = own[:, positions[b][there]]
        return keep

    def bias_of_step(self, counts: list[int], cu_seqlens: list[int] | None) -> np.ndarray:
        positions = self.cache.key_positions(max(counts), cu_seqlens=cu_seqlens)
        bias = np.full((self.sequences, self.heads, max(counts), positions.shape[1]), 0.25, np.float32)
        for b, (row, count) in enumerate(zip(self.rows, counts, strict=True)):
            there = np.flatnonzero((positions[b] >= 0) & (positions[b] < len(row)))
            at = np.ix_(range(self.heads), range(len(row) - count, len(row)), positions[b][there])
            bias[np.ix_([b], range(self.heads), range(count), there)] = self.bias[at][None]
        return bias

    def compare(self, b: int, row: Sequence, count: int, out: np.ndarray, lse: np.ndarray, cells: np.ndarray | None, options: dict[str, Any]) -> None:
        what = f"seed {self.seed}, {self.cache!r}, {self.text}, sequence {b} on {self.isa}, step {self.steps}"
        length = len(row)
        shape = nr.Shape.square(length, heads=self.heads, kv_heads=self.kv_heads)
        if cells is None:
            text, facts = self.of_sequence(b)
            spec = nr.parse(text)
            mask = spec if isinstance(spec, nr.Mask) else spec.mask
            for score in [] if isinstance(spec, nr.Mask) else spec.scores:
                options = options | ({"softcap": score.cap} if score.kind == "softcap" else {"alibi": slopes(self.heads)})
            if self.form == "rotating":
                mask = mask & nr.Mask(self.window_text())
        else:
            keep = np.zeros((length, length), bool)
            keep[length - count :] = cells
            mask, facts = nr.dense("cells"), {"arrays": {"cells": nr.Array.keep(keep)}}
        plan = mask.plan(shape, facts, reorder="never")
        if self.bias is not None:
            options = options | {"bias": self.bias[None, :, :length, :length]}
        arrays = [typed(np.stack(rows, 1)[None], self.dtype) for rows in (row.q, row.k, row.v)]
        expected, expected_lse = nr.attention(*arrays, plan, return_lse=True, isa=self.isa, **options)
        expected, expected_lse = wide(expected)[0, :, length - count :], expected_lse[0, :, length - count :]
        unit = {"avx512bf16": 2, "amx": 32}.get(self.isa, 1)
        if not (self.form == "rotating" and self.dtype == "bfloat16" and self.sinks % unit):
            assert out.tobytes() == expected.tobytes(), what
            assert lse.tobytes() == expected_lse.tobytes(), what
        reference, reference_lse = textbook(arrays, mask.dense(shape, facts)[0], options)
        allowed = {"float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}[self.dtype]
        assert np.abs(out - reference[:, length - count :]).max() <= allowed * max(1, np.abs(reference).max()), what
        np.testing.assert_allclose(lse, reference_lse[:, length - count :], rtol=1e-4, atol=max(allowed, 1e-3), err_msg=what)

    def guess(self) -> None:
        """Appends a tree of guesses, computes their attention, and keeps a random path."""
        counts = [min(self.draw(0, 8), self.ahead, self.room(row)) for row in self.rows]
        if sum(counts) == 0:
            return
        trees = [[self.draw(-1, i - 1) if self.rng.random() < 0.7 else i - 1 for i in range(count)] for count in counts]
        rotating = self.form == "rotating"
        limited = rotating or self.rng.random() < 0.5
        window = self.draw(1, self.window + 2) if rotating else self.draw(1, 60)
        sinks = self.draw(0, self.sinks if rotating else 4)
        starts = self.append(counts)
        same = all(tree == trees[0] for tree in trees)
        given: Any = trees[0] if same and self.rng.random() < 0.5 else trees
        cells, stored = [], True
        for row, parents in zip(self.rows, trees, strict=True):
            past, depths = len(row) - len(parents), depths_of(parents)
            allowed = np.zeros((len(parents), len(row)), bool)
            for i, depth in enumerate(depths):
                path, node = [i], parents[i]
                while node >= 0:
                    path.append(node)
                    node = parents[node]
                places = [(j, j) for j in range(past)] + [(past + node, past + depths[node]) for node in path]
                for place, position in places:
                    allowed[i, place] = not limited or past + depth - position < window or position < sinks
                    shown = not rotating or past + i - place < self.window or place < self.sinks
                    stored &= shown or not allowed[i, place]
            cells.append(allowed)
        try:
            mask = self.cache.tree(given, window=window, sink_tokens=sinks) if limited else self.cache.tree(given)
        except nr.Error as refused:
            assert not stored and "stored one after another" in str(refused), (self.seed, refused)
            for b, (row, count) in enumerate(zip(self.rows, counts, strict=True)):
                self.cache.truncate(len(row) - count, sequence=b)
                row.cut(list(range(len(row) - count)))
            return
        assert stored, (self.seed, self.cache, window, trees)
        self.step(counts, starts, cells, mask)
        for b, (row, parents) in enumerate(zip(self.rows, trees, strict=True)):
            path, node = [], self.draw(-1, len(parents) - 1)
            while node >= 0:
                path.insert(0, node)
                node = parents[node]
            past = len(row) - len(parents)
            if self.rng.random() < 0.8:
                self.cache.keep(path, guesses=len(parents), sequence=b)
                row.cut([*range(past), *(past + node for node in path)])
            else:
                self.cache.truncate(past, sequence=b)
                row.cut(list(range(past)))
        assert self.cache.lengths == [len(row) for row in self.rows]

    def room(self, row: Sequence) -> int:
        return min(self.capacity, 290) - len(row)

    def go(self) -> None:
        rng = self.rng
        for _ in range(self.draw(4, 9)):
            kind = rng.choice(["step", "step", "step", "ragged", "guess", "guess", "poison", "truncate", "clear"], p=[0.15, 0.15, 0.15, 0.15, 0.15, 0.05, 0.1, 0.07, 0.03])
            most = [min(self.ahead if self.form == "rotating" else 60, self.room(row)) for row in self.rows]
            if kind in ("step", "ragged"):
                each = self.draw(1, max(1, min(most)) if rng.random() < 0.5 else 3)
                counts = [min(each, least) for least in most] if kind == "step" else [self.draw(0, limit) for limit in most]
                if kind == "step" and min(counts) == 0 or sum(counts) == 0:
                    continue
                if kind == "step":
                    counts = [min(counts)] * self.sequences
                starts = self.append(counts)
                if starts is None and self.form != "rotating" and rng.random() < 0.4:
                    counts = [self.draw(1, min(len(row) for row in self.rows))] * self.sequences  # queries of earlier appends too
                self.step(counts, starts)
            elif kind == "guess":
                self.guess()
            elif kind == "poison":
                counts = [self.draw(0, limit) for limit in most]
                if sum(counts):
                    before = [len(row) for row in self.rows]
                    self.append(counts, poison=True)
                    for b, length in enumerate(before):
                        self.cache.truncate(length, sequence=b)
                        self.rows[b].cut(list(range(length)))
            elif kind == "truncate":
                b = self.draw(0, self.sequences - 1)
                row = self.rows[b]
                length = self.draw(min(row.last, len(row)), len(row)) if self.form == "rotating" else self.draw(0, len(row))
                self.cache.truncate(length, sequence=b)
                row.cut(list(range(length)))
            else:
                b = self.draw(0, self.sequences - 1)
                self.cache.clear(b)
                self.rows[b].cut([])
            assert self.cache.lengths == [len(row) for row in self.rows]


def slopes(heads: int) -> list[float]:
    """Returns the default slopes of ALiBi."""
    return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]


def textbook(arrays: list[Any], cells: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns attention and log-sum-exps in float64, from the definition."""
    q, k, v = (wide(array)[0].astype(np.float64) for array in arrays)
    heads, length = q.shape[:2]
    k, v = (np.repeat(x, heads // x.shape[0], 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) * options.get("scale", q.shape[-1] ** -0.5)
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    if options.get("softcap"):
        scores = options["softcap"] * np.tanh(scores / options["softcap"])
    if options.get("alibi"):
        scores = scores - np.array(options["alibi"])[:, None, None] * np.abs(distance)
    if "relative" in options:
        reach = options["relative"].shape[1] // 2
        scores = scores + options["relative"][:, np.clip(distance, -reach, reach) + reach]
    if "bias" in options:
        scores = scores + options["bias"][0]
    scores = np.where(cells, scores, -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    empty = total == 0
    if "sinks" in options:
        total = total + np.exp(options["sinks"][:, None, None].astype(np.float64) - top.clip(-700)) * ~empty
    weights = np.divide(weights, total, where=~empty, out=np.zeros_like(weights))
    with np.errstate(divide="ignore"):
        lse = np.where(empty, -np.inf, top + np.log(total))[..., 0]
    return weights @ v, lse


@pytest.mark.parametrize("part", range(10))
def test_random_histories_have_the_bits_of_one_pass(part: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    steps = 0
    for seed in range(part, RUNS, 10):
        run = Run(seed)
        run.go()
        steps += run.steps
    assert steps > RUNS / 10


def test_masks_that_allow_later_tokens_in_a_rotating_cache() -> None:
    """Tests that the window of the cache limits earlier tokens only: the tokens of a step may read each other."""
    rng = np.random.default_rng(5)
    cache = nr.KvCache.rotating(1, 8, 3, sink_tokens=2, ahead=6)
    k, v, q = (rng.normal(size=(1, 1, 13, 8)).astype(np.float32) for _ in range(3))
    at = np.arange(13)
    keep = (at > at[:, None] - 3) | (at < 2)
    for start, stop in ((0, 5), (5, 7), (7, 13)):
        cache.append(k[:, :, start:stop], v[:, :, start:stop])
        scores = np.where(keep[start:stop, :stop], q[0, 0, start:stop] @ k[0, 0, :stop].T / np.sqrt(8), -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        expected = weights / weights.sum(1, keepdims=True) @ v[0, 0, :stop]
        assert np.allclose(cache.attend(q[:, :, start:stop], "full")[0, 0], expected, atol=1e-5)


def test_a_tree_at_the_sink_tokens_of_a_rotating_cache() -> None:
    # Guess 1 is at the position of the sink token, but stored at index 1: a window of 1 token does not reach it from guess 3.
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 8), np.float32)
    cache = nr.KvCache.rotating(1, 8, window=1, sink_tokens=1, ahead=4)
    cache.append(x, x)
    with pytest.raises(nr.Error, match="need 3"):
        cache.tree([-1, -1, 1, 2])
    for seed in range(runs(150, 600)):
        rng = np.random.default_rng(seed)
        count, past, window, sinks = (int(rng.integers(low, 9)) for low in (1, 0, 1, 0))
        parents = [int(rng.integers(-1, i)) if i and rng.random() < 0.7 else i - 1 for i in range(count)]
        stored_window, stored_sinks = window + int(rng.integers(0, 6)), sinks + int(rng.integers(0, 3))
        x = rng.standard_normal((1, 1, past + count, 4), np.float32)
        rotating = nr.KvCache.rotating(1, 4, stored_window, sink_tokens=stored_sinks, ahead=24)
        whole = nr.KvCache(1, 4, 40)
        for part in (x[:, :, :past], x[:, :, past:]):
            if part.size:
                rotating.append(part, part)
                whole.append(part, part)
        q = x[:, :, past:]
        mask = whole.tree(parents, window=window, sink_tokens=sinks)
        cells = mask.dense(nr.Shape(count, past + count, query_offset=past))[0, 0]
        index, place = np.ogrid[past : past + count, : past + count]
        held = (place < stored_sinks) | (index - place < stored_window)
        if (cells & ~held).any():
            with pytest.raises(nr.Error, match="stored one after another"):
                rotating.tree(parents, window=window, sink_tokens=sinks)
        else:
            out = rotating.attend(q, rotating.tree(parents, window=window, sink_tokens=sinks))
            assert out.tobytes() == whole.attend(q, mask).tobytes(), seed
