"""Attention over packed sequences, which follow one another in one dimension: lengths and plans of the sequences, and a differentiable
attention function.

Without a mask of the user, if every sequence has as many queries as keys, one kernel call computes all sequences as documents of one row.
Otherwise, there is one kernel call for each group of neighbouring sequences that have the same lengths, with one batch row for each
sequence. No call copies queries or keys. Plans are cached by lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from .. import _noren
from .._noren import Error, Facts, Mask, Plan, Shape, Spec
from ..arguments._call import Call, Extras
from ..arguments._given import short
from ..arguments._tensors import check_dense, check_floats
from ..masks._forms import parsed
from ._function import SCORES, Differentiable, forward, gradients, new_seed
from ._masks import MOST_BYTES, Kept, Plans

Masks = Mask | str | Sequence[Mask | str]
"""One mask, or one mask for each sequence."""
Known = Facts | Mapping[str, Any]
"""Facts: the data that a mask needs in one call, such as document lengths or arrays; a `Facts` object, or a dict by name."""

_PLANS = Plans(MOST_BYTES)
_BY_ROW = ("batch(", "random", "function(")
"""If the text of a mask contains one of these words, its cells may differ between batch rows. Each sequence is then computed by a separate
kernel call with one batch row."""


@dataclass(frozen=True)
class Names:
    """The names that the user's function has for its arguments; error messages contain these names."""

    q: str
    k: str
    v: str
    starts_q: str
    starts_k: str
    most_q: str
    most_k: str


TORCH = Names("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k")
FLASH = Names("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")


@dataclass(frozen=True)
class Options:
    """The arguments of a call that are not tensors. `window` is (number of keys before, number of keys after) the query's own key; -1 means
    no limit."""

    names: Names
    window: tuple[int, int] = (-1, -1)
    mask: Masks | None = None
    scale: float | None = None
    softcap: float | None = None
    dropout: float = 0.0
    most_q: int = 0
    most_k: int = 0


@dataclass(frozen=True)
class Layout:
    """The tensors that divide tokens into sequences."""

    starts_q: Tensor
    """`[sequences + 1]`: the index of the first query of each sequence; the last entry is the number of queries in all sequences."""
    starts_k: Tensor | None
    """`[sequences + 1]`: the index of the first key of each sequence; the last entry is the number of keys in all sequences. None if the
    keys are in pages and `used_k` has the number of keys of each sequence."""
    used_k: Tensor | None = None
    """`[sequences]`: the number of keys of each sequence that are used; None if all keys are used."""
    pages: Tensor | None = None
    """`[sequences, pages]`: the numbers of the pages that hold the keys of each sequence; None if the keys are not in pages."""

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.starts_q, self.starts_k, self.used_k, self.pages) if t is not None]


@dataclass(frozen=True)
class Piece:
    """One kernel call: the indices of its first query and first key, the number of batch rows, the numbers of queries and keys in each row,
    and the other arguments."""

    first_q: int
    first_k: int
    count: int
    q_len: int
    kv_len: int
    call: Call
    seed: Tensor | None

    def queries(self, x: Tensor) -> Tensor:
        """Returns the query rows of this call as `[rows, heads, q_len, width]`, a view of `x`, `[tokens, heads, width]`, which has a row
        for every query."""
        return _rows(x, self.first_q, self.count, self.q_len)

    def keys(self, x: Tensor) -> Tensor:
        return _rows(x, self.first_k, self.count, self.kv_len)

    def sums(self, lse: Tensor) -> Tensor:
        """Returns the log-sum-exps of this call's queries as `[rows, heads, q_len]`, a view of `lse`, `[heads, tokens]`."""
        found = lse[:, self.first_q : self.first_q + self.count * self.q_len]
        return split(found, 1, (self.count, self.q_len)).transpose(0, 1)


def _rows(x: Tensor, first: int, count: int, length: int) -> Tensor:
    return split(x[first : first + count * length], 0, (count, length)).transpose(1, 2)


def split(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Returns a view of `x` in which the dimension `dim` is split into dimensions of the sizes `sizes`."""
    return torch.unflatten(x, dim, tuple(sizes))


# --- checks ---------------------------------------------------------------------------------------------------------------


def check_tensors(names: Names, q: Tensor, k: Tensor, v: Tensor, paged: bool) -> None:
    """Raises an error unless the tensors are `[tokens, heads, width]` of one type and device, and the numbers of heads fit."""
    for name, x, dims in ((names.q, q, 3), (names.k, k, 4 if paged else 3), (names.v, v, 4 if paged else 3)):
        check_floats(name, x)
        if x.dim() != dims:
            if dims == 4:
                raise Error(f"{name} has shape {tuple(x.shape)}: give the dimensions [pages, tokens of a page, heads, head_dim]")
            raise Error(f"{name} has shape {tuple(x.shape)}: give the dimensions [tokens, heads, head_dim], without a dimension of batch rows")
        if 0 in x.shape[-2:]:
            raise Error(f"{name} has shape {tuple(x.shape)}: give at least one head and a head_dim of at least 1")
    if not q.dtype == k.dtype == v.dtype:
        raise Error(f"{names.q}, {names.k} and {names.v} hold {q.dtype}, {k.dtype} and {v.dtype}: give tensors of one number type")
    if k.shape[:-1] != v.shape[:-1]:
        raise Error(f"{names.k} has shape {tuple(k.shape)}, but {names.v} has shape {tuple(v.shape)}: give equal numbers of tokens and of heads")
    if q.shape[-1] != k.shape[-1]:
        raise Error(f"{names.q} has head_dim {q.shape[-1]}, but {names.k} has head_dim {k.shape[-1]}: give tensors with equal head_dim")
    if q.shape[1] % k.shape[-2]:
        raise Error(f"{names.q} has {q.shape[1]} heads and {names.k} has {k.shape[-2]} heads: the number of heads of {names.k} must divide that of {names.q}")


def check_integers(name: str, x: Any, dims: int) -> None:
    """Raises an error unless `x` is an int32 tensor with `dims` dimensions; the replaced GPU functions have the same requirement."""
    check_dense(name, x)
    if x.dtype != torch.int32:
        raise TypeError(f"{name} holds {x.dtype}: give torch.int32, which the function for GPUs needs ({name}.int())")
    if x.dim() != dims:
        raise Error(f"{name} has shape {tuple(x.shape)}: give a tensor with {dims} dimension{'s' if dims > 1 else ''}")


def window_of(given: Any) -> tuple[int, int]:
    """Returns a window (keys before, keys after); raises an error unless both are whole numbers of -1 or more."""
    pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(pair) != 2 or not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= -1 for n in pair):
        raise Error(f"window_size is {short(given)}: give (keys before, keys after), where -1 means no limit")
    return int(pair[0]), int(pair[1])


def masks_of(mask: Masks | None) -> Mask | tuple[Mask, ...]:
    """Returns the given mask, or the masks of all sequences. Raises an error for any other value than a mask without a shape or the text of
    one."""
    if mask is None:
        return _noren.full()
    if isinstance(mask, (Mask, Spec, str)):
        return _mask(mask)
    if isinstance(mask, Sequence):
        return tuple(map(_mask, mask))
    what = "a function" if callable(mask) else f"a {type(mask).__name__}"
    raise TypeError(f"mask is {what}: give one mask (without a shape) or its text for all sequences, or a list with one for each sequence")


def _mask(given: Any) -> Mask:
    found = parsed(given) if isinstance(given, str) else given
    if isinstance(found, Spec):
        raise Error(SCORES.format(found))
    if not isinstance(found, Mask):
        raise TypeError(f"mask holds a {type(found).__name__}: give masks without a shape, or their texts")
    return found


def _lengths(name: str, starts: Tensor, total: int) -> tuple[list[int], list[int]]:
    """Returns (index of the first token of each sequence, number of tokens of each sequence), from `starts` of the argument `name`."""
    at = starts.tolist()
    if not at:
        raise Error(f"{name} is empty: give the first token of each sequence, followed by the end of the last")
    for i, (start, end) in enumerate(zip(at, at[1:], strict=False)):
        if end < start:
            raise Error(f"{name} decreases from {start} to {end} at sequence {i}: give cumulative lengths, [0, length of the first sequence, ...]")
    if at[0] < 0 or at[-1] > total:
        raise Error(f"{name} goes from {at[0]} to {at[-1]}, but there are {total} tokens: give numbers from 0 to the number of tokens")
    return at[:-1], [end - start for start, end in zip(at, at[1:], strict=False)]


def _limit(name: str, given: int, lengths: list[int]) -> None:
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{name} is a {type(given).__name__}: give a whole number, the length of the longest sequence ({name}.item() of a tensor)")
    longest = max(lengths, default=0)
    if given < longest:
        raise Error(f"{name} is {given}, but sequence {lengths.index(longest)} has {longest} tokens: the function for GPUs would leave tokens out; give at least {longest}")


# --- plans ----------------------------------------------------------------------------------------------------------------


def _keys(options: Options, layout: Layout, k: Tensor, count: int) -> tuple[list[int], list[int]]:
    """Returns (index of the first key of each sequence, number of keys of each sequence)."""
    names, used = options.names, None if layout.used_k is None else layout.used_k.tolist()
    if used is not None and len(used) != count:
        raise Error(f"seqused_k has {len(used)} entries, but there are {count} sequences: give one entry for each sequence")
    if layout.starts_k is None:
        firsts = [0] * count
        lengths = [k.shape[0]] * count
    else:
        firsts, lengths = _lengths(names.starts_k, layout.starts_k, k.shape[0])
        if len(lengths) != count:
            raise Error(f"{names.starts_q} has {count} sequences, but {names.starts_k} has {len(lengths)}: give equal numbers of sequences")
    for i, given in enumerate(used or ()):
        if not 0 <= given <= lengths[i]:
            raise Error(f"seqused_k of sequence {i} is {given}, but the sequence has {lengths[i]} keys: give a number from 0 to {lengths[i]}")
    return firsts, used or lengths


def _plan(
    given: Mask, window: tuple[int, int], sizes: tuple[int, int, int, int, int], facts: Known | None, documents: tuple[int, ...] = ()
) -> Plan:
    """Returns the plan of the intersection of the mask `given` and the window; `sizes` are (batch rows, heads, key-value heads, queries,
    keys), `documents` the lengths of the documents in a row, or empty for one document.
    """
    key = (given, window, sizes, documents)
    kept = _PLANS.get(key) if facts is None else None
    if kept is not None:
        return kept.plan
    left, right = window
    mask = given
    if window != (-1, -1):
        limits = _noren.window(left=None if left < 0 else left, right=None if right < 0 else right)
        bounds = _noren.causal() if window == (-1, 0) else limits
        mask = bounds if given == _noren.full() else bounds & given
    if documents:
        mask = mask & _noren.documents(list(documents))
    count, heads, kv_heads, q_len, kv_len = sizes
    shape = Shape(q_len, kv_len, query_offset=kv_len - q_len, batch=count, heads=heads, kv_heads=kv_heads)
    plan = mask.plan(shape, facts)
    nbytes = plan.bytes + 8 * len(documents)
    return plan if facts is not None else _PLANS.put(key, Kept(plan, nbytes)).plan


def _seed(options: Options) -> Tensor | None:
    return new_seed() if options.dropout > 0 else None


def _one_row(
    options: Options, lengths: list[int], first_q: int, first_k: int, heads: tuple[int, int], slopes: tuple[float, ...] | None
) -> list[Piece]:
    """Returns one kernel call for sequences with as many queries as keys, computed as documents of one row; an empty list if there are no
    tokens."""
    documents = tuple(length for length in lengths if length)
    total = sum(documents)
    if not total:
        return []
    several = documents if len(documents) > 1 else ()
    plan = _plan(_noren.full(), options.window, (1, *heads, total, total), None, several)
    call = Call(plan, options.scale, options.softcap, slopes, options.dropout)
    return [Piece(first_q, first_k, 1, total, total, call, _seed(options))]


def pieces_of(
    options: Options, layout: Layout, q: Tensor, k: Tensor, slopes: Tensor | None, facts: Known | Sequence[Known] | None
) -> list[Piece]:
    """Returns the kernel calls: one call for all sequences, or one call for each group of consecutive sequences with equal lengths, masks
    and slopes.

    Sequences without queries or without keys need no call.
    """
    names = options.names
    firsts_q, lengths_q = _lengths(names.starts_q, layout.starts_q, q.shape[0])
    firsts_k, lengths_k = _keys(options, layout, k, len(lengths_q))
    _limit(names.most_q, options.most_q, lengths_q)
    _limit(names.most_k, options.most_k, lengths_k)
    count = len(lengths_q)
    rows = None if slopes is None else _slopes(slopes, count, q.shape[1])
    heads = (q.shape[1], k.shape[1])
    if options.mask is None and facts is None and lengths_q == lengths_k and layout.used_k is None and count and len(set(rows or ())) <= 1:
        return _one_row(options, lengths_q, firsts_q[0], firsts_k[0], heads, rows[0] if rows else None)
    masks = _each("mask", masks_of(options.mask), count)
    known = _each("facts", facts, count)
    single = facts is not None or any(word in str(mask) for mask in set(masks) for word in _BY_ROW)
    pieces: list[Piece] = []
    i = 0
    while i < count:
        first, lengths = i, (lengths_q[i], lengths_k[i])
        own = (lengths, masks[i], rows and rows[i])
        i += 1
        while not single and i < count and own == ((lengths_q[i], lengths_k[i]), masks[i], rows and rows[i]) and firsts_k[i] == firsts_k[i - 1] + lengths[1]:
            i += 1
        if 0 not in lengths:
            plan = _plan(masks[first], options.window, (i - first, *heads, *lengths), known[first])
            call = Call(plan, options.scale, options.softcap, rows[first] if rows else None, options.dropout)
            pieces.append(Piece(firsts_q[first], firsts_k[first], i - first, *lengths, call, _seed(options)))
    return pieces


def _each(name: str, given: Any, count: int) -> Sequence[Any]:
    """Returns a list with one entry for each of the `count` sequences, from the argument called `name`. A list must have one entry for each
    sequence; a single value is repeated."""
    if isinstance(given, (list, tuple)):
        if len(given) != count:
            raise Error(f"{name} has {len(given)} entries, but there are {count} sequences: give one for each sequence, or one for all")
        return given
    return [given] * count


def _slopes(slopes: Tensor, count: int, heads: int) -> list[tuple[float, ...]]:
    check_dense("alibi_slopes", slopes)
    if slopes.dtype != torch.float32:
        raise TypeError(f"alibi_slopes holds {slopes.dtype}: give numbers of torch.float32")
    if slopes.shape not in ((heads,), (count, heads)):
        raise Error(f"alibi_slopes has shape {tuple(slopes.shape)}: give [heads] or [sequences, heads], with {heads} heads and {count} sequences")
    if slopes.requires_grad and torch.is_grad_enabled():
        raise Error("alibi_slopes requires a gradient, which flash-attention does not compute: give alibi_slopes.detach()")
    return [tuple(row) for row in slopes.expand(count, heads).tolist()]


# --- computation ----------------------------------------------------------------------------------------------------------


def attend(pieces: list[Piece], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (output `[queries, heads, v_dim]`, log-sum-exps `[heads, queries]`). A query without keys gets the output 0 and
    the log-sum-exp -inf."""
    out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
    lse = torch.full((q.shape[1], q.shape[0]), -torch.inf, dtype=torch.float32, device=q.device)
    for piece in pieces:
        found, sums = forward(piece.call, piece.queries(q), piece.keys(k), piece.keys(v), Extras([], seed=piece.seed), lse=True)
        assert sums is not None
        piece.queries(out).copy_(found)
        piece.sums(lse).copy_(sums)
    return out, lse


def derive(pieces: list[Piece], q: Tensor, k: Tensor, v: Tensor, saved: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v. `saved` is (output, log-sum-exps, gradient of the output)."""
    out, lse, dout = saved
    dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    for piece in pieces:
        own = (piece.queries(out), piece.sums(lse).contiguous(), piece.queries(dout))
        given = (piece.queries(q), piece.keys(k), piece.keys(v))
        found = gradients(piece.call, *given, Extras([], seed=piece.seed), own, [False] * 3)
        for part, grad in zip((piece.queries(dq), piece.keys(dk), piece.keys(dv)), found, strict=False):
            assert grad is not None
            part.copy_(grad)
    return dq, dk, dv


def needs_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def run(pieces: list[Piece], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (output, log-sum-exps). The output has gradients if PyTorch records them; the log-sum-exps have none."""
    if needs_gradient(q, k, v):
        out, lse = Differentiable.apply(partial(attend, pieces), lambda tensors, saved, _: derive(pieces, tensors[0], tensors[1], tensors[2], saved), q, k, v)
        return out, lse
    return attend(pieces, q, k, v)


def gather_pages(k: Tensor, v: Tensor, layout: Layout, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (keys, values, first key of each sequence): the keys and values of `layout.pages` as one sequence of tokens. `lengths[i]` is
    the number of keys of sequence `i`."""
    assert layout.pages is not None
    size, table = k.shape[1], layout.pages.tolist()
    if len(table) != len(lengths):
        raise Error(f"block_table has {len(table)} rows, but there are {len(lengths)} sequences: give one row for each sequence")
    at = [torch.zeros(0, dtype=torch.long)]
    for i, length in enumerate(lengths):
        if length > size * len(table[i]):
            raise Error(f"block_table of sequence {i} has {len(table[i])} pages of {size} keys, but the sequence has {length} keys: give more pages")
        if length == 0:
            continue
        pages = torch.tensor(table[i][: -(-length // size)], dtype=torch.long)
        wrong = pages[(pages < 0) | (pages >= k.shape[0])]
        if len(wrong):
            raise Error(f"block_table of sequence {i} holds page {int(wrong[0])}, but there are {k.shape[0]} pages")
        at.append((pages[:, None] * size + torch.arange(size)).flatten()[:length])
    index = torch.cat(at).to(k.device)
    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return k.flatten(0, 1)[index], v.flatten(0, 1)[index], starts
