"""Arrows between modules, and the circles in them, seen level by level."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

Path = tuple[str, ...]
# A folder's own file (mod.rs, lib.rs, __init__.py) among the modules in the folder.
OWN = "(own file)"


@dataclass(frozen=True)
class Arrow:
    """The module `source` uses something of the module `target`; `at` is where, `name` is what."""

    source: Path
    target: Path
    at: str
    name: str


@dataclass
class Circle:
    """Modules of one folder that use each other, and one arrow for each pair of them."""

    folder: Path
    members: list[str]
    arrows: list[str]


def siblings(source: Path, target: Path) -> tuple[Path, str, str]:
    """Returns the folder in which two modules part, and the names of the two there."""
    common = 0
    while common < min(len(source), len(target)) and source[common] == target[common]:
        common += 1
    own = lambda path: path[common] if common < len(path) else OWN  # noqa: E731
    return source[:common], own(source), own(target)


def circles(arrows: list[Arrow]) -> list[Circle]:
    """Returns the circles among the modules of each folder, a module being all that its folder holds.

    A circle of files is a circle in the folder in which they part, so none is missed. A folder's own file is a module of
    it, so a module may use its parent's items only where the parent does not use that module.
    """
    folders: dict[Path, dict[str, dict[str, Arrow]]] = defaultdict(lambda: defaultdict(dict))
    for arrow in arrows:
        if arrow.source != arrow.target:
            folder, source, target = siblings(arrow.source, arrow.target)
            folders[folder][source].setdefault(target, arrow)
    found = []
    for folder, graph in sorted(folders.items()):
        for members in components(graph):
            inside = [
                f"{source} -> {target}: {arrow.name}, {arrow.at}"
                for source in members
                for target, arrow in sorted(graph[source].items())
                if target in members
            ]
            found.append(Circle(folder, members, inside))
    return found


def components(graph: dict[str, dict[str, Arrow]]) -> list[list[str]]:
    """Returns the strongly connected components of at least two nodes (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for root in sorted(graph):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        work = [(root, iter(sorted(graph.get(root, ()))))]
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    cut = stack.index(node)
                    if len(stack) - cut > 1:
                        found.append(sorted(stack[cut:]))
                    del stack[cut:]
            elif target not in order:
                order[target] = low[target] = len(order)
                stack.append(target)
                work.append((target, iter(sorted(graph.get(target, ())))))
            elif target in stack:
                low[node] = min(low[node], order[target])
    return found
