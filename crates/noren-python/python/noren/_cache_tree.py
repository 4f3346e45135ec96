"""Masks of trees of guesses over the tokens of a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any

from ._noren import Error, Mask, batch, causal, keys, none, queries, sliding, tree


def tree_mask(lengths: Sequence[int], parents: Any, window: Any, sink_tokens: Any, rotating: Mapping[str, int] | None) -> Mask:
    """Returns the mask of `KvCache.tree`. `lengths` are those of the sequences, `rotating` the sizes of a rotating cache."""
    trees = _trees(parents, len(lengths))
    shown = _window(window, sink_tokens, rotating)
    masks = [_of_sequence(b, length, nodes, shown, rotating) for b, (length, nodes) in enumerate(zip(lengths, trees, strict=True))]
    return masks[0] if all(mask == masks[0] for mask in masks) else batch(dict(enumerate(masks)))


def _trees(parents: Any, sequences: int) -> list[list[int]]:
    """Returns the parents of each sequence's guesses, as checked lists."""
    given = parents.tolist() if hasattr(parents, "tolist") else parents
    if not isinstance(given, (list, tuple, range)):
        raise TypeError(f"parents is {parents!r}: give a list of indices, -1 for a root, or one such list for each sequence")
    one = not any(isinstance(part, (list, tuple, range)) or getattr(part, "shape", ()) for part in given)
    if one and not given:
        raise Error("parents is empty: give the index of the parent of each guess, -1 for a root")
    if not one and len(given) != sequences:
        raise Error(f"parents has {len(given)} trees, but the cache has {sequences} sequences: give one tree for each sequence, or one list for all")
    return [_nodes(given)] * sequences if one else [_nodes(nodes) for nodes in given]


def _nodes(parents: Any) -> list[int]:
    mask = tree(parents)  # raises an error for other values than whole numbers
    nodes = [index(parent) for parent in parents]
    if nodes:
        mask.bind(len(nodes))  # raises an error for indices that are not those of a tree
    return nodes


def _window(window: Any, sink_tokens: Any, rotating: Mapping[str, int] | None) -> tuple[int, int] | None:
    """Returns (window in tokens, number of sink tokens), None if every token may be read."""
    near = None if window is None else _tokens("window", window, 1)
    sinks = None if sink_tokens is None else _tokens("sink_tokens", sink_tokens, 0)
    if rotating is None:
        if near is None and sinks is not None:
            raise Error("sink_tokens= was given without window=, and then every token may be read: give window= too")
        return None if near is None else (near, sinks or 0)
    stored = rotating["sink_tokens"]
    if sinks is not None and sinks > stored:
        raise Error(f"sink_tokens is {sinks}, but the cache keeps the first {stored} tokens: make the cache with sink_tokens={sinks}")
    return rotating["window"] if near is None else near, stored if sinks is None else sinks


def _tokens(name: str, given: Any, least: int) -> int:
    try:
        number = index(given)
    except TypeError:
        number = -1
    if isinstance(given, bool) or not least <= number < 2**31:
        raise Error(f"{name} is {given!r}: give a whole number of tokens from {least} to 2^31 - 1")
    return number


def _of_sequence(b: int, length: int, parents: list[int], shown: tuple[int, int] | None, rotating: Mapping[str, int] | None) -> Mask:
    past = length - len(parents)
    if past < 0:
        raise Error(f"sequence {b} has {length} tokens, but the tree has {len(parents)} guesses: append the keys and values of the guesses first")
    if not parents:
        return none()
    depths = _depths(parents)
    window, sinks = shown or (length, 0)
    if past + max(depths) < window:
        window, sinks = length, 0  # the window hides no token
    if rotating is not None:
        _check_stored(b, past, parents, depths, window, rotating)
    mask = tree(parents, past)
    if past > 0:
        mask = keys(range(past)) | mask
    return mask if window >= length else mask & _windows(past, depths, window, sinks)


def _windows(past: int, depths: list[int], window: int, sinks: int) -> Mask:
    """Returns the mask in which each guess reads the window that ends at its position, `past` plus its depth, and sink tokens."""
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
    """Returns the number of ancestors of each node."""
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


def _check_stored(b: int, past: int, parents: list[int], depths: list[int], window: int, rotating: Mapping[str, int]) -> None:
    """Raises `Error` if a rotating cache hides keys that a guess must read.

    The cache shows guess `i` the window that ends at its place in the cache, `past + i`, which may be later than its position.
    """
    needed = 0
    for i, depth in enumerate(depths):
        lowest = min(max(past + depth - window + 1, rotating["sink_tokens"]), past + i)
        if lowest >= past and past + i + 1 - lowest > rotating["window"]:
            lowest = past + min(place for place in _path(parents, i, window) if past + place >= rotating["sink_tokens"])
        needed = max(needed, past + i + 1 - lowest)
    if needed > rotating["window"]:
        raise Error(
            f"the cache shows each token a window of {rotating['window']} tokens, but guesses of sequence {b} need {needed}, because they are "
            f"stored one after another: make the cache with window={needed} or more, and give the window of the mask as window="
        )


def _path(parents: list[int], node: int, limit: int) -> Iterator[int]:
    """Returns a node and its ancestors, at most `limit` nodes."""
    while node >= 0 and limit > 0:
        yield node
        node, limit = parents[node], limit - 1
