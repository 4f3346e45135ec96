"""Masks for trees of guessed tokens in a key-value cache (speculative decoding)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._noren import Error, Mask, batch, causal, keys, none, queries, sliding, tree
from ..arguments._given import listed, whole


def tree_mask(lengths: Sequence[int], parents: Any, window: Any, sink_tokens: Any, rotating: Mapping[str, int] | None) -> Mask:
    """Returns the mask of `KvCache.tree`. `lengths` has the number of tokens of each sequence. `rotating` is a dict with the
    sizes of a rotating cache ("window", "sink_tokens"), or None for other caches."""
    trees = _trees(parents, lengths)
    shown = _window(window, sink_tokens, rotating)
    masks = [_of_sequence(b, length, nodes, shown, rotating) for b, (length, nodes) in enumerate(zip(lengths, trees, strict=True))]
    return masks[0] if all(mask == masks[0] for mask in masks) else batch([*enumerate(masks[:-1]), ("else", masks[-1])])


def _trees(parents: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Checks the parents of the guesses (proposed tokens of speculative decoding) and returns them as lists, one for each sequence."""
    given = listed("parents", parents)
    one = not any(isinstance(part, (list, tuple, range)) or getattr(part, "shape", ()) for part in given)
    if one and not given:
        raise Error("`parents` is empty: give the index of the parent of each guess, -1 for a root")
    if not one and len(given) != len(lengths):
        raise Error(
            f"`parents` has {len(given)} lists, but the cache has {len(lengths)} sequences: give one tree for each sequence, or one list for all"
        )
    trees = [_nodes("parents", given)] * len(lengths) if one else [_nodes(f"parents[{b}]", listed(f"parents[{b}]", nodes)) for b, nodes in enumerate(given)]
    for b, (length, nodes) in enumerate(zip(lengths, trees, strict=True)):
        if len(nodes) > length:
            raise Error(f"sequence {b} has {length} tokens, but the tree has {len(nodes)} guesses: append the keys and values of the guesses first")
        if nodes:
            tree(nodes).bind(len(nodes))  # raises an error for indices that are not those of a tree
    return trees


def _nodes(name: str, parents: list[Any]) -> list[int]:
    return [whole(f"{name}[{i}]", parent, -1) for i, parent in enumerate(parents)]


def _window(window: Any, sink_tokens: Any, rotating: Mapping[str, int] | None) -> tuple[int, int] | None:
    """Returns (window in tokens, number of sink tokens); None if a guess (a proposed token) may read all tokens before it."""
    near = None if window is None else whole("window", window, 1)
    sinks = None if sink_tokens is None else whole("sink_tokens", sink_tokens)
    if rotating is None:
        if near is None and sinks is not None:
            raise Error("sink_tokens= was given without window=, but without a window every token may be read: give window= too")
        return None if near is None else (near, sinks or 0)
    stored = rotating["sink_tokens"]
    if sinks is not None and sinks > stored:
        raise Error(f"sink_tokens is {sinks}, but the cache keeps the first {stored} tokens: make the cache with sink_tokens={sinks}")
    return rotating["window"] if near is None else near, stored if sinks is None else sinks


def _of_sequence(b: int, length: int, parents: list[int], shown: tuple[int, int] | None, rotating: Mapping[str, int] | None) -> Mask:
    past = length - len(parents)
    if not parents:
        return none()
    depths = _depths(parents)
    window, sinks = shown or (length, 0)
    if past + max(depths) < window:
        window, sinks = length, 0  # the window hides no token
    if rotating is not None:
        _check_stored(b, past, parents, depths, (window, sinks), rotating)
    mask = tree(parents, past)
    if past > 0:
        mask = keys(range(past)) | mask
    return mask if window >= length else mask & _windows(past, depths, window, sinks)


def _windows(past: int, depths: list[int], window: int, sinks: int) -> Mask:
    """Returns a mask that limits each guess to the first `sinks` tokens, and to the `window` positions that end at its own
    position. The position of a guess is `past` (the number of tokens before the guesses) plus its depth."""
    if depths == list(range(len(depths))):
        return sliding(window) | causal() & keys(range(sinks)) if sinks else sliding(window)
    shown = none()
    for depth in sorted(set(depths)):
        first = past + depth - window + 1
        before = [range(min(sinks, past)), range(max(first, 0), past)]
        guesses = [past + i for i, other in enumerate(depths) if past + other >= first or past + other < sinks]
        these = [past + i for i, other in enumerate(depths) if other == depth]
        shown = shown | queries(these) & keys([*before, *guesses])
    return shown


def _depths(parents: list[int]) -> list[int]:
    """Returns the number of ancestors of each node of a tree."""
    depths = [-1] * len(parents)
    for node in range(len(parents)):
        path = []
        while node >= 0 and depths[node] < 0:
            path.append(node)
            node = parents[node]
        depth = depths[node] if node >= 0 else -1
        for each in reversed(path):
            depth += 1
            depths[each] = depth
    return depths


def _check_stored(b: int, past: int, parents: list[int], depths: list[int], shown: tuple[int, int], rotating: Mapping[str, int]) -> None:
    """Raises `Error` if the window of a rotating cache is too small, so that a guess (a proposed token of speculative decoding)
    cannot read all keys that it must read. `shown` is (window in tokens, number of sink tokens) of the guesses.

    Guess `i` is stored at the index `past + i`, and can read only the window of keys that ends at this index, and the keys whose
    index is below the number of sink tokens of the cache. This index can be larger than the position of the guess, which is
    `past` plus its number of ancestors: a guess at the position of a sink token may be stored elsewhere.
    """
    (window, sinks), kept = shown, rotating["sink_tokens"]
    needed = 0
    for i, depth in enumerate(depths):
        if past + i + 1 - kept <= max(needed, rotating["window"]):
            continue  # every key after the sink tokens is in the window
        first = past + depth - window + 1  # the first position in the window of the guess
        ancestors = _path(parents, i, depth + 1 if past < sinks else window)
        read = [past + place for place in ancestors if past + depths[place] >= first or past + depths[place] < sinks]
        if max(first, kept) < past:
            read.append(max(first, kept))
        lowest = min((index for index in read if index >= kept), default=past + i)
        needed = max(needed, past + i + 1 - lowest)
    if needed > rotating["window"]:
        raise Error(
            f"the cache keeps a window of {rotating['window']} tokens for each token, but guesses of sequence {b} need {needed}, because guesses are stored one after another: make the cache with window={needed} or more, and give the window of the mask as window="
        )


def _path(parents: list[int], node: int, limit: int) -> Iterator[int]:
    """Yields the index of a node, then the indices of its ancestors up to the root: at most `limit` indices in total."""
    while node >= 0 and limit > 0:
        yield node
        node, limit = parents[node], limit - 1
