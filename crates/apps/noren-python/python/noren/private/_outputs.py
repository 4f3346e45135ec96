"""The tensors that a model returned, and the token, batch row or batch to which each of their numbers belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._noren import Error

Owner = Literal["token", "flat", "query", "row", "batch"]
"""The owner of each number of an output: a token (`[batch, length, ...]`), a token in flattened rows ("flat", `[batch *
length, ...]`), a query (`[batch, heads, length, ...]`), a batch row (`[batch, ...]`), or the whole batch."""

OF_TOKENS = ("start_logits", "end_logits")
"""The names of outputs `[batch, length]` that have one number for each token."""


@dataclass(frozen=True)
class Output:
    """One tensor that a model returned."""

    name: str
    tensor: Tensor
    owner: Owner
    unsure: bool = False
    """True if it is not known whether a row `[length]` of the output has one number for each token, or is one vector for the
    whole row."""


def outputs(returned: Any, shape: tuple[int, int], *, encodes: bool, of_tokens: tuple[str, ...] = OF_TOKENS) -> list[Output]:
    """Returns each tensor in the result of a model with its name and owner; caches are left out.

    `shape` is (batch rows, tokens of a row) of the text. `encodes` is true for a model with an encoder and a decoder: the text
    is the encoder's input, so only outputs of the encoder belong to its tokens. `of_tokens` are names of outputs `[batch,
    length]` with one number for each token.
    """
    found = []
    for name, tensor in _tensors("", returned):
        owner = _owner(name, tensor, shape, not encodes or name.startswith("encoder_"))
        found.append(Output(name, tensor.detach(), owner, owner == "token" and tensor.dim() == 2 and name not in of_tokens))
    if not found:
        raise Error(f"the model returned {type(returned).__name__} without tensors: return a tensor, a dict or an output of transformers")
    return found


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tensors(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, (list, tuple)) and "past_key_values" not in name:
        for at, inner in enumerate(value):
            yield from _tensors(f"{name}[{at}]", inner)


def _owner(name: str, tensor: Tensor, shape: tuple[int, int], ours: bool) -> Owner:
    size = tuple(tensor.shape)
    if ours and "router" in name and size[:1] == (shape[0] * shape[1],):
        return "flat"
    if not size or size[0] != shape[0]:
        return "batch"
    if ours and "attentions" in name and len(size) == 4 and size[2] == shape[1]:
        return "query"
    return "token" if ours and size[1:2] == shape[1:] else "row"


def chosen(output: Output, tokens: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Tensor:
    """Returns a tensor of booleans that is true at the numbers of an output that belong to the selected tokens. Its shape
    broadcasts to that of the output.

    `tokens`, `[batch, length]`, is true for the selected tokens. `rows`, `[batch]`, is true for the selected batch rows; it is
    used for an output with one result for each batch row, such as the class of a text.
    """
    dim, device = output.tensor.dim(), output.tensor.device
    if output.owner == "batch":
        return torch.full((1,) * dim, bool(rows.all()), device=device)
    if output.owner == "row":
        return torch.from_numpy(rows.copy()).to(device).reshape(-1, *([1] * (dim - 1)))
    if output.owner == "flat":
        return torch.from_numpy(tokens.reshape(-1).copy()).to(device).reshape(-1, *([1] * (dim - 1)))
    before = [1] if output.owner == "query" else []
    marks = torch.from_numpy(tokens.copy()).to(device)
    return marks.reshape(tokens.shape[0], *before, tokens.shape[1], *([1] * (dim - 2 - len(before))))


def differing(a: Tensor, b: Tensor) -> Tensor:
    """Returns booleans in the shape of the two tensors: true where the bits of the numbers differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise Error(f"two calls with the same number of tokens returned {list(a.shape)} {a.dtype} and {list(b.shape)} {b.dtype}: the sizes of outputs depend on the tokens, and cannot be compared")
    a, b = (torch.view_as_real(x) if x.is_complex() else x for x in (a, b))
    if a.is_floating_point():
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        a, b = a.contiguous().view(kind), b.contiguous().view(kind)
    return a != b
