"""The sixty faults, by kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from fault_book import (
    FUNCTIONS, Batch, Edit, Fault, Trainer, all_keys_shown, causal, cells, everything, family, head, hides, layer, length, narrower,
    no_window, one_query, ones, own, padding_shown, parallel, planted, row, row_0_for_all, successor, training, wider,
)  # fmt: skip
from torch import Tensor, nn


def _of(kind: str, where: str, name: str, edit: Edit, dtype: str = "float32", **more: Any) -> Fault:
    return Fault(kind, where, name, lambda: planted(where, edit), dtype, **more)


def _function(kind: str, where: str, name: str, fault: Any, dtype: str = "float32", **more: Any) -> Fault:
    return Fault(kind, where, name, lambda: FUNCTIONS[where].make(fault), dtype, seen=False, **more)


def _narrow(x: Tensor) -> bool:
    return x.dtype != torch.float64


def faults() -> Iterator[Fault]:
    """Yields all faults."""
    yield from _own_dtype()
    yield from _rows()
    yield from _layers_and_heads()
    yield from _places()
    yield from _lengths()
    yield from _wrappers()
    yield from _training()


def _own_dtype() -> Iterator[Fault]:
    kind = "own dtype only"
    yield _of(kind, "llama", "every key is read", own(everything))
    yield _of(kind, "gpt2", "every key is read", own(everything), "bfloat16")
    yield _of(kind, "qwen3", "one query reads its successor", own(layer(1, one_query(40))), "float16")
    yield _of(kind, "bert", "padding is read", own(all_keys_shown), "float32")
    yield _of(kind, "bert", "padding is read in half precision", own(all_keys_shown), "bfloat16")
    yield _of(kind, "llama", "padding on the left is read", own(padding_shown), "float16")
    yield _of(kind, "mistral", "the window is lost in a layer", own(layer(0, no_window)), "bfloat16")
    yield _of(kind, "gemma3", "the window is a key wider", own(layer(0, wider())))
    yield _of(kind, "mistral", "the window is a key narrower", own(layer(1, narrower())))
    yield _function(kind, "means", "the mean of all positions", lambda x, out: out * 0 + out.mean(1, keepdim=True) if _narrow(x) else out)
    yield _function(kind, "mixer", "padding is averaged", lambda x, real: torch.ones_like(real) if _narrow(x) else real)
    mixed = lambda module, x: x + 1e-3 * x.roll(1, 0) if _narrow(x) else x  # noqa: E731
    yield _function(kind, "standing", "a row of the batch is added", mixed)


def _rows() -> Iterator[Fault]:
    kind = "one row of the batch"
    yield _of(kind, "llama", "row 2 reads padding", row(2, padding_shown))
    yield _of(kind, "bert", "row 3 reads padding", row(3, all_keys_shown))
    yield _of(kind, "gpt2", "row 3 reads every key", row(3, everything))
    yield _of(kind, "qwen3", "row 0 for all", row_0_for_all)
    yield _of(kind, "mistral", "row 1 has no window", row(1, no_window), "bfloat16")
    yield _of(kind, "gemma3", "one query of row 2 reads its successor", row(2, one_query(33)))
    rolled = lambda module, x: torch.cat([x[:2], x[2:3] + x[:1], x[3:]]) if len(x) > 2 else x  # noqa: E731
    yield _function(kind, "standing", "row 2 has row 0 added", rolled)
    last = lambda x, real: torch.cat([real[:-1], torch.ones_like(real[-1:])]) if len(x) > 1 else real  # noqa: E731
    yield _function(kind, "mixer", "the last row reads padding", last)


def _layers_and_heads() -> Iterator[Fault]:
    kind = "one layer"
    yield _of(kind, "llama", "layer 1 reads every key", layer(1, everything))
    yield _of(kind, "mistral", "layer 0 has no window", layer(0, no_window))
    yield _of(kind, "gemma3", "layer 0 has no window", layer(0, no_window), "bfloat16")
    yield _of(kind, "gemma3", "layer 1 has a window", layer(1, cells(lambda s: s.queries - s.keys >= 8, opened=False)))
    yield _of(kind, "mistral", "layer 1 has a key less", layer(1, narrower()), "float16")
    yield _of(kind, "bert", "layer 1 reads padding", layer(1, all_keys_shown))
    yield _of(kind, "bert", "layer 0 is causal", layer(0, cells(lambda s: s.keys > s.queries, opened=False)))
    ahead = lambda x, out: out.roll(-1, 1)  # noqa: E731
    yield _function(kind, "convolution", "a token ahead", ahead)
    yield _function(kind, "two windows", "the second is a key wider", layer(1, cells(lambda s: s.queries - s.keys == 4)))
    kind = "one head"
    yield _of(kind, "llama", "head 2 reads the successor", layer(1, head(2, successor)))
    yield _of(kind, "mistral", "head 3 has no window", layer(1, head(3, no_window)))
    yield _of(kind, "bert", "head 0 reads padding", layer(0, head(0, all_keys_shown)))
    yield _of(kind, "qwen3", "head 1 in its own dtype", own(head(1, successor)), "bfloat16")
    less = layer(1, head(1, cells(lambda s: s.keys == s.queries - 1, opened=False)))
    yield _of(kind, "gpt2", "head 1 does not read the previous key", less, untested="a head that reads too few tokens, if another head of the layer")


def _places() -> Iterator[Fault]:
    kind = "late positions"
    yield _of(kind, "mistral", "a key wider from position 8 on", layer(0, wider(start=8)))
    yield _of(kind, "mistral", "a key wider from position 60 on", layer(1, wider(start=60)))
    yield _of(kind, "gemma3", "a key narrower from position 30 on", layer(0, narrower(30)))
    yield _of(kind, "llama", "query 50 reads its successor", layer(0, one_query(50)))
    yield _of(kind, "gpt2", "queries from 64 on read every key", causal(64), "float16")
    yield _of(kind, "qwen3", "key 0 is hidden from position 40 on", layer(1, hides(40)))
    yield _function(kind, "one window", "a key wider from position 8 on", cells(lambda s: (s.queries - s.keys == 4) & (s.queries >= 8)))
    yield _function(kind, "two windows", "query 37 reads its successor", layer(1, one_query(37)))
    late = lambda x, out: torch.cat([out[:, :50], out[:, 50:] + out[:, 50:].mean(1, keepdim=True)], 1)  # noqa: E731
    yield _function(kind, "means", "the mean of the end", late)


def _lengths() -> Iterator[Fault]:
    kind = "every length"
    yield _of(kind, "llama", "17 tokens read every key", length(lambda n: n == 17, everything))
    yield _of(kind, "gpt2", "fewer than 8 tokens read every key", length(lambda n: n < 8, everything))
    yield _of(kind, "bert", "64 tokens are causal", length(lambda n: n == 64, cells(lambda s: s.keys > s.queries, opened=False)))
    yield _of(kind, "mistral", "71 tokens have no window", length(lambda n: n == 71, no_window), "bfloat16")
    odd = lambda x, out: out + out[:, -1:] if x.shape[1] == 31 else out  # noqa: E731
    yield _function(kind, "means", "31 tokens read the last", odd)
    far = length(lambda n: n == 200, everything)
    yield _of(kind, "qwen3", "200 tokens read every key", far, untested="sequences longer than")


def _wrappers() -> Iterator[Fault]:
    kind = "wrappers"

    def made(where: str, name: str, make: Any, dtype: str = "float32") -> Fault:
        return Fault(kind, where, name, make, dtype)

    yield made("llama", "forward(**batch), every key is read", lambda: Batch(planted("llama", layer(1, everything))))
    yield made("bert", "forward(**batch) gives a mask of ones", lambda: Batch(family("bert"), ones))
    yield made("gpt2", "DataParallel, one head", lambda: nn.DataParallel(planted("gpt2", head(1, successor))))
    yield made("mistral", "DistributedDataParallel, a key wider", lambda: parallel(planted("mistral", layer(0, wider()))))
    yield made("qwen3", "torch.compile, one query", lambda: torch.compile(planted("qwen3", one_query(20))))
    yield made("llama", "DataParallel of forward(**batch) of ones", lambda: nn.DataParallel(Batch(family("llama"), ones)), "bfloat16")
    yield made("bert", "a part of a trainer, padding", lambda: Trainer(planted("bert", all_keys_shown)))


def _training() -> Iterator[Fault]:
    kind = "training mode"

    def made(where: str, name: str, edit: Edit, dtype: str = "float32") -> Fault:
        return Fault(kind, where, name, lambda: planted(where, training(edit)).train(), dtype)

    yield made("llama", "every key is read", everything)
    yield made("bert", "padding is read", all_keys_shown, "bfloat16")
    yield made("gemma3", "the window is lost", layer(0, no_window))
    normalised = lambda module, x: module.norm(x.transpose(1, 2)).transpose(1, 2)  # noqa: E731
    yield Fault(kind, "standing", "statistics of the batch", lambda: FUNCTIONS["standing"].make(normalised).train(), seen=False)
