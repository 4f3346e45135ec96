"""Checks the arguments of a forward pass of a transformers model: those that transformers drops or misreads without an error, and
packed and padded rows in models with recurrent layers."""

from __future__ import annotations

import difflib
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .._noren import BoundMask, Error, Mask, Plan, Spec
from ..torch._function import constant
from ._paths import other_paths

ARGUMENTS = ("noren_mask", "noren_facts", "noren_inputs")
SEPARATES = re.compile(r"\b(documents|spans|tree)\b")
"""A pattern for the text of a mask that separates the sequences of a row."""
LOWEST = -1000.0
"""A score below which a prepared mask hides a key."""
READS_PADDING = frozenset(("recurrent_gemma",))
"""Model types whose recurrent layers read padding before a text. The tests find missing entries: they try every decoder of transformers."""
CHECKED = ("attention_mask", "position_ids", "seq_idx", "cu_seq_lens_q")
"""The arguments that `check_sequences` reads."""
POSITIONS: ContextVar[tuple[nn.Module, Tensor] | None] = ContextVar("noren_positions", default=None)
"""The model whose forward pass runs, and the `position_ids` of its tokens; None if none were given."""
_PATHS: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()


def refuse_unknown(names: Iterable[str]) -> None:
    """Raises TypeError for an argument that begins with `noren_` and is none of `ARGUMENTS`."""
    for name in names:
        if name.startswith("noren_") and name not in ARGUMENTS:
            near = difflib.get_close_matches(name, ARGUMENTS, 1, 0) or ARGUMENTS
            raise TypeError(f"{name} is no argument of a model: did you mean {near[0]}? noren's arguments are {', '.join(ARGUMENTS)}")


def check_attention_mask(mask: Any) -> None:
    """Raises an error for a value of `attention_mask` that transformers would misread."""
    if isinstance(mask, (Mask, Spec, Plan, BoundMask, str)):
        raise TypeError(
            f"attention_mask is a {type(mask).__name__}, but transformers accepts only a tensor [batch, length]: give the mask as noren_mask=..., and the padding as attention_mask; for generate, call noren.hf.set_mask(model, mask)"
        )
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.dtype == torch.bool:
        return
    others = mask[(mask != 0) & (mask != 1)]
    if others.numel():
        raise Error(
            f"attention_mask [batch, length] holds {others[0].item():g}, but transformers reads every number except 0 as a token: give 1 for a token and 0 for "
            "padding. For numbers that are added to scores (0 and -1e9), give (attention_mask == 0).long(); for numbers of documents, give 1 and 0, and "
            'noren_mask="documents" with noren_facts'
        )


def restarts(position_ids: Any, real: Any) -> Tensor | None:
    """Returns booleans `[batch, length - 1]`: element `j` is true if token `j + 1` begins another sequence, because its position is not above that of
    token `j`. `position_ids` are `[batch, length]`, or `[3 or 4, batch, length]` in models with images. `real` `[batch, length]` is true for tokens that are not padding. Returns None if no element is true."""
    if not isinstance(position_ids, Tensor) or position_ids.dim() not in (2, 3) or position_ids.shape[-1] < 2:
        return None
    if position_ids.dim() == 3:  # time, height and width: all tokens of an image have one time
        position_ids = position_ids[0]
        found = position_ids[:, 1:] < position_ids[:, :-1]
    else:
        found = position_ids[:, 1:] <= position_ids[:, :-1]
    if isinstance(real, Tensor) and real.dim() == 2 and real.shape[1] >= position_ids.shape[1]:
        real = real[:, -position_ids.shape[1] :].bool()
        found = found & real[:, 1:] & real[:, :-1]
    return found if bool(found.any()) else None


def warn_of_packing(begins: Tensor) -> None:
    """Warns that sequences of a row read each other. `begins` `[length - 1]` is an element's row of `restarts`."""
    lengths = torch.diff(torch.cat([torch.tensor([-1]), begins.nonzero()[:, 0].cpu(), torch.tensor([begins.numel()])])).tolist()
    warnings.warn(
        "position_ids begin again inside a row, as in packed sequences, but in this call the sequences read each other: give "
        f'noren_mask="documents" with noren_facts={{"documents": {lengths}}}, the lengths of the sequences (a list for each row). transformers '
        "itself separates them only without attention_mask and with use_cache=False, and only if the model gives position_ids to its mask",
        stacklevel=3,
    )


def compiled_arguments(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Returns the arguments of a forward pass that torch.compile or torch.export traces; None if the pass needs checks that are not
    traced. The operator that returns `attention_mask` or `position_ids` checks their contents when the compiled code runs."""
    arguments = dict(zip(parameters(type(model)), args, strict=False)) | kwargs
    mask, positions = arguments.get("attention_mask"), arguments.get("position_ids")
    given = [name for name in CHECKED if arguments.get(name) is not None]
    if not (mask is None or isinstance(mask, Tensor)) or (given and _may_refuse(model, "position_ids" in given)):
        return None
    use_cache = arguments.get("use_cache")
    cached = arguments.get("past_key_values") is not None or (getattr(model.config, "use_cache", False) if use_cache is None else use_cache)
    if mask is None and not cached:
        positions = None  # transformers separates packed sequences
    first = positions if mask is None else mask
    if first is not None and (mask is None or mask.dim() == 2):
        found = checked(mask, positions)
        args, kwargs = tuple(found if x is first else x for x in args), {name: found if x is first else x for name, x in kwargs.items()}
    return args, {name: value for name, value in kwargs.items() if name not in ARGUMENTS}


@torch.library.custom_op("noren::checked", mutates_args=())
def checked(mask: Tensor | None, positions: Tensor | None) -> Tensor:
    """Checks `attention_mask` and `position_ids`, and returns a copy of the first that is not None."""
    check_attention_mask(mask)
    begins = restarts(positions, mask)
    if begins is not None:
        warn_of_packing(begins[begins.any(1)][0])
    first = positions if mask is None else mask
    assert first is not None
    return first.clone()


@checked.register_fake
def _(mask: Tensor | None, positions: Tensor | None) -> Tensor:
    return torch.empty_like(positions if mask is None else mask)  # type: ignore[arg-type]


@constant
def _may_refuse(model: nn.Module, positions: bool) -> bool:
    """Returns true if `check_sequences` may raise an error or warn for this model. `positions` is true if it gets `position_ids`."""
    return (positions and not _has_positions(model)) or bool(paths_of(model))


def _has_positions(model: nn.Module) -> bool:
    return any("position_ids" in parameters(type(part)) for part in model.modules() if hasattr(part, "config"))


def check_sequences(model: nn.Module, arguments: Mapping[str, Any], given: Any) -> None:
    """Raises `Error` if rows hold several sequences or padding between tokens, and the model drops `position_ids` or has layers that
    carry information from token to token without attention, such as recurrent layers: transformers does not reset these layers
    between sequences. Warns if such a model gets `given`, the mask of the user, which applies to attention layers only.
    """
    mask, positions = arguments.get("attention_mask"), arguments.get("position_ids")
    several = separates(given) or restarts(positions, mask) is not None
    if several and positions is not None and not _has_positions(model):
        raise Error(f"{type(model).__name__} has no position_ids, so it would count positions from the beginning of the row: give each sequence a row of its own")
    paths = paths_of(model)
    if not paths:
        return
    layers = f"{type(model).__name__} carries information from token to token without attention in {len(paths)} place(s), such as {paths[0]}"
    prepared = mask if isinstance(mask, Tensor) and mask.dim() == 4 else None
    if several or _indexed(arguments.get("seq_idx")) or _indexed(arguments.get("cu_seq_lens_q"), 2) or (prepared is not None and _hides_earlier_keys(prepared)):
        raise Error(f"{layers}, which are not reset between the sequences of a row: give each sequence a row of its own")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        begins = mask[:, 1:].bool() & ~mask[:, :-1].bool()
        if bool((begins & (mask[:, :-1].cumsum(1) > 0)).any()):
            raise Error(f"{layers}, and attention_mask has padding between tokens, which these layers would read: give padding at the ends of rows, before the tokens for generation")
        if getattr(getattr(model, "config", None), "model_type", "") in READS_PADDING and bool(begins.any()):
            raise Error(f"{layers}, which read padding: give the padding after the tokens")
    if given is not None or prepared is not None:
        warnings.warn(f"{layers}: masks hide keys from attention layers only", stacklevel=4)


def _indexed(found: Any, most: int | None = None) -> bool:
    """Returns true if `seq_idx` or cumulative lengths, which have at most `most` numbers for one sequence, describe several sequences in a row."""
    return isinstance(found, Tensor) and found.numel() > 0 and (bool((found != found[..., :1]).any()) if most is None else found.numel() > most)


def _hides_earlier_keys(mask: Tensor) -> bool:
    """Returns true if a mask `[batch, heads, q_len, kv_len]` hides from a query an earlier key that another query reads: it separates sequences."""
    readable = mask if mask.dtype == torch.bool else mask > LOWEST
    earlier = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril(mask.shape[-1] - mask.shape[-2])
    return bool((readable.any(-2, keepdim=True) & ~readable & earlier & readable.any(-1, keepdim=True)).any())


@constant
def parameters(kind: Any) -> tuple[str, ...]:
    """Returns the names of the parameters of the forward pass of a class of models."""
    return _parameters(kind)


@lru_cache(maxsize=1024)
def _parameters(kind: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(kind.forward).parameters)[1:]


def separates(given: Any) -> bool:
    """Returns true if a mask of the user separates the sequences of a row, as the mask of `noren.fold` and `documents` do."""
    if isinstance(given, Mapping):
        return any(map(separates, given.values()))
    return getattr(given, "separates_sequences", False) is True or (not callable(given) and SEPARATES.search(str(getattr(given, "mask", given))) is not None)


def paths_of(model: nn.Module) -> list[str]:
    """Returns the names of the parts of a model that carry information between the tokens of a text without attention."""
    if model not in _PATHS:
        from transformers import PreTrainedModel

        config: Any = getattr(model, "config", None)
        inner = getattr(model, "get_encoder", lambda: None)() if getattr(config, "is_encoder_decoder", False) else None
        encoder = set(inner.modules()) if isinstance(inner, nn.Module) and inner is not model else set()
        skipped = (nn.Conv2d, nn.Conv3d, PreTrainedModel)
        _PATHS[model] = other_paths(config, ((name, part) for name, part in model.named_modules() if part not in encoder and not isinstance(part, skipped)))
    return _PATHS[model]
