"""`noren.KvCache`: a key-value cache that keeps keys and values packed for the kernels between the steps of a generation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .._noren import Error, Facts, Mask, Spec, StepPlan, _KvCache, full
from ..arguments._arrays import Array, lend, library
from ..arguments._given import check_strided, flag, indices, short, whole
from ..masks._forms import given_arrays, parsed, refuse_array, with_arrays
from ._cache_tree import tree_mask
from ._scores import modifiers_of, scored

DTYPES = ("float32", "bfloat16", "float16")

StepMask = Mask | Spec | StepPlan | str
"""The types of the mask of one generation step: a mask, a mask with score modifiers, their text, or the plan of the step."""


class KvCache:
    """The keys and values of some sequences, packed for the kernels when they are appended.

    `KvCache(...)` has space for `capacity` tokens in each of `sequences` sequences. `KvCache.rotating(...)` keeps a window of the
    last tokens, and `KvCache.paged(...)` shares blocks of tokens among all sequences. `head_dim` and `v_dim` are the lengths of a
    key and of a value [default of `v_dim`: `head_dim`]. `dtype` is "float32", "bfloat16" or "float16", or a type of NumPy or
    PyTorch; all arrays of a cache have this type. `isa` is a name from `noren.isas()` [default: the fastest].

    A step appends the keys and values of new tokens, then computes the attention of their queries:

    >>> import numpy as np
    >>> import noren as nr
    >>> cache = nr.KvCache(kv_heads=2, head_dim=4, capacity=64)
    >>> x = np.ones((1, 2, 5, 4), np.float32)           # [sequences, kv_heads, new, head_dim]
    >>> cache.append(x, x)
    >>> cache.attend(np.ones((1, 8, 5, 4), np.float32), "causal").shape
    (1, 8, 5, 4)
    >>> cache
    <KvCache of 2 heads with 4 numbers in float32, space for 64 tokens, lengths [5]>

    In float32, the result of a step has the same bits as the same rows of `noren.attention` over the whole sequence with the
    same `isa`. This holds for every form of cache, size of steps and number of threads. For a rotating cache, compare with
    attention whose mask hides the tokens outside of the cache's window. Cache slots that were never written, were freed, or are
    hidden by a mask change no bit of a result, even if they hold NaN.

    A cache can be used by several threads at the same time for `attend` and `plan`. If a call that changes the cache overlaps
    with any other call, one of both raises `noren.Error` and changes nothing.
    """

    __slots__ = ("__weakref__", "_cache", "_dtype", "_form", "_sizes")

    def __init__(
        self,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        *,
        sequences: int = 1,
        v_dim: int | None = None,
        dtype: Any = "float32",
        isa: str | None = None,
    ) -> None:
        self._make("contiguous", {"capacity": capacity}, kv_heads, head_dim, sequences, v_dim, dtype, isa)

    @classmethod
    def rotating(
        cls,
        kv_heads: int,
        head_dim: int,
        window: int,
        *,
        sink_tokens: int = 0,
        ahead: int = 1,
        sequences: int = 1,
        v_dim: int | None = None,
        dtype: Any = "float32",
        isa: str | None = None,
    ) -> KvCache:
        """Returns a cache that keeps the first `sink_tokens` tokens and the last `window` tokens of each sequence.

        A step appends at most `ahead` tokens. Whatever the mask allows, a query reads no earlier tokens except the sink tokens
        and the last `window` tokens. If the mask also allows later tokens, as `full` does, the query reads the later tokens of
        the same step. Positions are those of the whole sequence. The other arguments are those of `KvCache`.
        """
        self = cls.__new__(cls)
        sizes = {"window": window, "sink_tokens": sink_tokens, "ahead": ahead}
        self._make("rotating", sizes, kv_heads, head_dim, sequences, v_dim, dtype, isa)
        return self

    @classmethod
    def paged(
        cls,
        kv_heads: int,
        head_dim: int,
        blocks: int,
        *,
        block: int = 64,
        sequences: int = 1,
        v_dim: int | None = None,
        dtype: Any = "float32",
        isa: str | None = None,
    ) -> KvCache:
        """Returns a cache whose memory is `blocks` blocks, which all sequences share.

        A block holds `block` tokens: a multiple of 16, from 16 to 256. A block is free again when its tokens are removed. The
        other arguments are those of `KvCache`.
        """
        self = cls.__new__(cls)
        self._make("paged", {"blocks": blocks, "block": block}, kv_heads, head_dim, sequences, v_dim, dtype, isa)
        return self

    def _make(self, form: str, own: dict[str, Any], kv_heads: Any, head_dim: Any, sequences: Any, v_dim: Any, dtype: Any, isa: Any) -> None:
        sizes = {"kv_heads": kv_heads, "head_dim": head_dim, "v_dim": head_dim if v_dim is None else v_dim, "sequences": sequences}
        sizes, own = ({name: whole(name, size, 0 if name == "sink_tokens" else 1) for name, size in part.items()} for part in (sizes, own))
        if isa is not None and not isinstance(isa, str):
            raise TypeError(f"`isa` is {short(isa)}: give a name from noren.isas()")
        self._dtype = _dtype_name(dtype)
        self._cache = _KvCache(list(own.values()), **sizes, dtype=self._dtype, isa=isa)
        self._sizes, self._form = sizes | own, form

    # --- a step -----------------------------------------------------------------------------------------------------

    def append(self, k: Array, v: Array, *, cu_seqlens: Sequence[int] | Array | None = None) -> None:
        """Appends new tokens to every sequence.

        `k` is `[sequences, kv_heads, new, head_dim]`, `v` is `[sequences, kv_heads, new, v_dim]`. They are arrays of NumPy, PyTorch
        (on the CPU) or any other library with `__dlpack__`, of the type of the cache, with any strides. Leading dimensions of 1 may
        be left out.

        With `cu_seqlens`, sequences get different numbers of tokens: `k` is `[1, kv_heads, total, head_dim]`, and sequence `b` gets
        the tokens `cu_seqlens[b]` to `cu_seqlens[b + 1] - 1`, which may be none.

        Raises `noren.Error` if the shapes do not fit the cache or its space does not suffice, and TypeError for arrays of other
        types. After an error the cache is unchanged.
        """
        self._cache.append(_lend("k", k), _lend("v", v), _starts(cu_seqlens))

    def attend(
        self,
        q: Array,
        mask: StepMask | None = None,
        *,
        cu_seqlens: Sequence[int] | Array | None = None,
        keep: Array | None = None,
        drop: Array | None = None,
        additive: Array | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Array | Sequence[Array] | None = None,
        relative: Array | None = None,
        alibi: Sequence[float] | bool | None = None,
        soft: Array | None = None,
        sinks: Array | None = None,
        facts: Facts | Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        return_lse: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Returns the attention of queries over the cache, `[sequences, heads, new, v_dim]`, as an array of the library of `q`.

        `q` is `[sequences, heads, new, head_dim]`: the queries of the last `new` tokens of each sequence, which were appended before.
        With `cu_seqlens`, as in `append`, `q` is `[1, heads, total, head_dim]`. `return_lse` adds the log-sum-exps in float32; the
        result is then a tuple.

        `mask` is a mask, a mask with score modifiers, a text, or the plan of this step (`plan`). Positions in the mask are
        positions in the whole sequence; `facts` describe all tokens appended so far. Other arguments have the meaning of
        `noren.attention`. In arrays of masks and scores, `[sequences, heads, queries, keys]`, key `j` is the key at position
        `j`; for a rotating cache see `key_positions`.

        Raises `noren.Error` (a ValueError) for wrong values and TypeError for wrong types. Ctrl-C cancels a call.
        """
        lib, lent, with_lse = library(q), _lend("q", q), flag("return_lse", return_lse)
        given = given_arrays(keep=keep, drop=drop, additive=additive)
        heads, new = (1, *q.shape)[-3:-1]
        if isinstance(mask, StepPlan):
            _refuse_beside_plan(facts=facts, cu_seqlens=cu_seqlens, **given)
            plan, added = mask, list[Array]()
        else:
            plan, added = self._plan(mask, heads, new, _starts(cu_seqlens), facts, given)
        _, scores = scored(plan.spec, heads, arrays, softcap=softcap, bias=bias, relative=relative, alibi=alibi, soft=soft, sinks=sinks)
        scores["bias"] = [*added, *scores["bias"]]
        modifiers = modifiers_of(lib, scale=scale, threads=threads, **scores)
        out = lib.empty((*q.shape[:-1], self.v_dim), q)
        lse = lib.zeros(q.shape[:-1]) if with_lse else None
        self._cache.attend(lent, plan, modifiers, lib.lend(out), lse)
        return (lib.finish(out, q), lib.finish(lse, q)) if with_lse else lib.finish(out, q)

    def plan(
        self,
        mask: Mask | Spec | str,
        heads: int,
        new: int = 1,
        *,
        cu_seqlens: Sequence[int] | Array | None = None,
        facts: Facts | Mapping[str, Any] | None = None,
    ) -> StepPlan:
        """Returns the plan of one generation step for `heads` query heads. Call it after the step's `new` tokens were appended.

        The plan is valid for every cache of the same form and sizes in which the sequences have the same lengths, such as the
        caches of other layers, until tokens are appended or removed. With `cu_seqlens`, which has the meaning of `append`, the
        argument `new` has no effect.
        """
        count = whole("new", new, 1) if cu_seqlens is None else 1
        return self._plan(mask, whole("heads", heads, 1), count, _starts(cu_seqlens), facts, {})[0]

    def _plan(
        self, mask: Any, heads: Any, new: Any, cu_seqlens: Any, facts: Any, given: Mapping[str, Array]
    ) -> tuple[StepPlan, list[Array]]:
        if isinstance(mask, str):
            mask = parsed(mask)
        if mask is None and given:
            mask = full()
        spec = mask if isinstance(mask, Spec) else None
        base = mask.mask if isinstance(mask, Spec) else mask
        if base is None:
            raise TypeError('no mask was given: give a mask such as "causal", "full" to read every key, or an array by keep=, drop= or additive=')
        if not isinstance(base, Mask):
            raise _refuse_mask(base)
        added: list[Array] = []
        if given:
            sizes = self._cache.plan(full(), None, heads, new, cu_seqlens).shape
            base, facts, added = with_arrays(base, given, (sizes.batch, sizes.heads, sizes.kv_heads, sizes.q_len, sizes.kv_len), facts)
        return self._cache.plan(base, facts, heads, new, cu_seqlens, spec), added

    def key_positions(self, new: int = 1, *, cu_seqlens: Sequence[int] | Array | None = None) -> Any:
        """Returns the positions of the keys that a step reads: `[sequences, keys]`, NumPy integers. An index without a key has
        the position -1.

        Give `new` and `cu_seqlens` as for `plan` in this step. Mask arrays and score arrays for `attend` have their keys in the
        order of the result.
        """
        import numpy as np

        plan = self._cache.plan(full(), None, self.kv_heads, whole("new", new, 1), _starts(cu_seqlens))
        return np.array([plan.key_positions(b) for b in range(self.sequences)], np.int64)

    # --- guesses ----------------------------------------------------------------------------------------------------

    def tree(self, parents: Sequence[int] | Sequence[Sequence[int]], *, window: int | None = None, sink_tokens: int | None = None) -> Mask:
        """Returns the mask of a tree of guessed tokens (speculative decoding). Call it after the guesses were appended.

        The last `len(parents)` tokens of each sequence are the guesses. Guess `i` reads itself, its ancestors, and the tokens before
        the guesses. `parents[i]` is the index of its parent, or -1 for a root. A list of lists gives one tree for each
        sequence.

        With `window`, a guess reads only the last `window` tokens of its own path (the tokens before the guesses, its ancestors
        and itself), and the first `sink_tokens` tokens of the sequence. The same tokens are allowed by `sliding(window)` if the
        path is appended token by token. [default: the window and sink tokens of a rotating cache; in other caches all tokens,
        and no sink tokens if only `window` is given] A rotating cache may need more space than this window, because guesses are
        stored one after another: at most `window + guesses - 1`, and only `window` if the guesses are one chain.

        Rotary embeddings must place guess `i` at the number of tokens before the guesses plus its number of ancestors.

        >>> import noren as nr, numpy as np
        >>> cache, x = nr.KvCache(1, 4, 64), np.ones((1, 1, 8, 4), np.float32)
        >>> cache.append(x, x)
        >>> cache.tree([-1, 0, 0])
        keys(0..5) | tree(parents=[-1, 0, 0], start=5)
        """
        return tree_mask(self.lengths, parents, window, sink_tokens, self._sizes if self._form == "rotating" else None)

    def keep(self, accepted: Sequence[int], *, guesses: int, sequence: int | None = None) -> None:
        """Of the last `guesses` tokens of a sequence, keeps those with the indices `accepted` (0 is the first guess), and
        removes the others.

        `accepted` is in ascending order: the accepted path of the tree, from its root. The cache is then as if only these
        tokens had been appended. `sequence` may be left out if there is one sequence. Raises `noren.Error` for other indices;
        the cache is then unchanged.
        """
        self._cache.keep(self._sequence(sequence), whole("guesses", guesses), indices("accepted", accepted))

    # --- removal ----------------------------------------------------------------------------------------------------

    def truncate(self, length: int, *, sequence: int | None = None) -> None:
        """Removes the last tokens of a sequence until `length` are left.

        `sequence` may be left out if there is one sequence. A rotating cache can remove the tokens of the last step, and older tokens
        as long as the window before them is not overwritten. Raises `noren.Error` if the sequence has fewer than `length` tokens,
        or if the window is overwritten; the cache is then unchanged.
        """
        self._cache.truncate(self._sequence(sequence), whole("length", length))

    def clear(self, sequence: int | None = None) -> None:
        """Removes all tokens of a sequence [default: of every sequence]."""
        for each in range(self.sequences) if sequence is None else (whole("sequence", sequence),):
            self._cache.truncate(each, 0)

    def _sequence(self, given: Any) -> int:
        if given is None and self.sequences > 1:
            raise Error(f"the cache has {self.sequences} sequences: give sequence=, a number from 0 to {self.sequences - 1}")
        return 0 if given is None else whole("sequence", given)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each sequence, including those that a rotating cache has overwritten."""
        return self._cache.lengths

    @property
    def sequences(self) -> int:
        """The number of sequences: the batch rows of every step."""
        return self._sizes["sequences"]

    @property
    def kv_heads(self) -> int:
        """The number of key-value heads."""
        return self._sizes["kv_heads"]

    @property
    def head_dim(self) -> int:
        """The length of a key in numbers."""
        return self._sizes["head_dim"]

    @property
    def v_dim(self) -> int:
        """The length of a value in numbers."""
        return self._sizes["v_dim"]

    @property
    def dtype(self) -> str:
        """The type of keys, values and queries: "float32", "bfloat16" or "float16"."""
        return self._dtype

    @property
    def form(self) -> str:
        """The kind of the cache: "contiguous", "rotating" or "paged"."""
        return self._form

    @property
    def free_blocks(self) -> int:
        """The number of blocks of a paged cache that no sequence uses; 0 for a contiguous or rotating cache."""
        return self._cache.free_blocks

    @property
    def bytes(self) -> int:
        """The number of bytes of memory for keys and values, used and unused."""
        return self._cache.bytes

    @property
    def isa(self) -> str:
        """The ISA (set of processor instructions) for which keys and values are packed and with which attention is computed: a
        name of `noren.isas()`."""
        return self._cache.isa

    def __repr__(self) -> str:
        sizes = self._sizes
        match self._form:
            case "contiguous":
                space = f"space for {sizes['capacity']} tokens"
            case "rotating":
                sinks = f" after {sizes['sink_tokens']} sink tokens" if sizes["sink_tokens"] else ""
                space = f"a window of {sizes['window']} tokens{sinks}, {sizes['ahead']} ahead"
            case _:
                space = f"{sizes['blocks']} blocks of {sizes['block']} tokens"
        width = f"{self.head_dim}" if self.v_dim == self.head_dim else f"{self.head_dim} and {self.v_dim}"
        try:
            lengths = f"lengths {self.lengths}" if self.sequences <= 8 else f"{self.sequences} sequences of up to {max(self.lengths)} tokens"
        except Error:
            lengths = "in use by another thread"
        return f"<KvCache of {self.kv_heads} heads with {width} numbers in {self.dtype}, {space}, {lengths}>"

    def __reduce__(self) -> Any:
        raise TypeError("a KvCache cannot be pickled or copied: make a new cache, and append the tokens to it again")


def _dtype_name(dtype: Any) -> str:
    """Returns the name of a number type, which is given as a text or as a type of NumPy or PyTorch."""
    name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or dtype
    name = str(name).rpartition(".")[2] if isinstance(name, str) or type(name).__name__ == "dtype" else ""
    if name not in DTYPES:
        raise TypeError(f"`dtype` is {short(dtype)}: give one of {', '.join(map(repr, DTYPES))}")
    return name


def _lend(name: str, array: Array) -> Any:
    """Returns an array in a form that exports DLPack, without a copy. Raises an error if a cache cannot read it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type not in ("cpu", "meta"):
            raise Error(f"{name} is on {array.device}, but a KvCache is in the memory of the CPU: give {name}.cpu()")
        if array.requires_grad and torch.is_grad_enabled():
            raise Error(f"{name} requires a gradient, but a KvCache records no gradients: give {name}.detach(), or call in torch.no_grad()")
    check_strided(name, array)
    if hasattr(array, "__dlpack__") and not 2 <= len(array.shape) <= 4:
        raise Error(f"{name} has shape {list(array.shape)}: give [sequences, heads, new, head_dim]; leading dimensions of 1 may be left out")
    return lend(**{name: array})[1][0]


def _starts(cu_seqlens: Any) -> list[int] | None:
    return None if cu_seqlens is None else indices("cu_seqlens", cu_seqlens)


def _refuse_beside_plan(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise Error(f"the plan of a step already contains its mask, facts and query positions: leave out {name}=, or give a mask instead of the plan")


def _refuse_mask(mask: Any) -> TypeError:
    if type(mask).__name__ in ("Plan", "BoundMask", "Recognised"):
        return TypeError(f"a {type(mask).__name__} is bound to one shape, but each step of a cache has another shape: give a mask, or the plan of the step, cache.plan(mask, heads, new)")
    return refuse_array(mask)
