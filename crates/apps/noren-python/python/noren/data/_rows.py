"""Rows of tokens with a mask: what packed and folded sequences have in common."""

from __future__ import annotations

from typing import Any

from .._noren import BoundMask, Error, Mask, Plan, Shape
from ..arguments._arrays import Array
from ..arguments._given import check_strided, whole
from ._input import Ints


class Rows:
    """Rows of tokens, `[rows, length]`, each of which is one batch row of the mask."""

    input_ids: Ints
    mask: Mask

    @property
    def facts(self) -> dict[str, list[Any]] | None:
        """The facts (data) that `mask` needs; None for no facts."""
        return None

    def shape(self, heads: int = 1, kv_heads: int | None = None) -> Shape:
        """Returns the shape of the mask. Each row is one batch row."""
        whole("heads", heads, 1)
        if kv_heads is not None:
            whole("kv_heads", kv_heads, 1)
        return Shape.square(self.input_ids.shape[1], batch=len(self.input_ids), heads=heads, kv_heads=kv_heads)

    def bind(self, heads: int = 1, kv_heads: int | None = None, *, mask: Mask | str | None = None) -> BoundMask:
        """Returns `mask` [default: the attribute `mask`] bound to the shape and the facts of the rows. Another mask of packed rows
        is, for example, `sliding(512) & documents`.
        """
        return (self.mask if mask is None else Mask(mask)).bind(self.shape(heads, kv_heads), self.facts)

    def plan(self, heads: int = 1, kv_heads: int | None = None, *, mask: Mask | str | None = None) -> Plan:
        """Returns the plan of the mask that `bind` returns for these arguments. `noren.attention` and `noren.torch.attention`
        take this plan."""
        return self.bind(heads, kv_heads, mask=mask).plan()

    def _check_values(self, values: Array) -> None:
        """Raises an error unless `values` is an array or tensor `[rows, length, ...]`."""
        check_strided("values", values)
        shape = getattr(values, "shape", None)
        if shape is None or not hasattr(values, "__getitem__"):
            raise TypeError(f"`values` is a {type(values).__name__}: give an array or tensor [rows, length, ...]")
        if tuple(shape[:2]) != self.input_ids.shape:
            raise Error(f"`values` has shape {tuple(shape)}: its first dimensions must be {self.input_ids.shape} (rows, length)")
