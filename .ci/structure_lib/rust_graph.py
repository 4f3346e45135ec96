"""Which module of a Rust crate uses which other: paths resolved through `use`, `super`, `crate` and re-exports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from graph import Arrow, Path
from rust import Source, Use, read
from tree import Tree

PATH = re.compile(r"(?<![\w:.])\$?([A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+)")
WORD = re.compile(r"[A-Za-z_]\w*")
ROOTS = ("lib.rs", "main.rs")


@dataclass
class Module:
    """A module in a file of its own, with what its names refer to."""

    path: Path
    file: str
    source: Source
    items: set[str] = field(default_factory=set)
    imports: dict[str, list[Use]] = field(default_factory=dict)
    globs: list[Use] = field(default_factory=list)
    words: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Found:
    """The target of a path: a module, or an item (`name`) defined in it."""

    module: Path
    name: str | None


class Crate:
    """The modules of one crate, without those of its tests."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.modules: dict[Path, Module] = {}
        self.sources: dict[str, Source] = {}
        self.tested: set[Path] = set()
        base = f"{folder}/src/"
        for file in sorted(tree):
            if file.startswith(base) and file.endswith(".rs"):
                self.add(file, file[len(base) :], read(tree[file]))
        for path in [path for path in self.modules if any(path[: len(t)] == t for t in self.tested)]:
            del self.sources[self.modules.pop(path).file]

    def add(self, file: str, inside: str, source: Source) -> None:
        parts = inside.removesuffix(".rs").split("/")
        if inside in ROOTS:
            parts = [] if inside == "lib.rs" or not self.modules.get(()) else ["(main)"]
        elif parts[-1] == "mod":
            parts.pop()
        module = Module(tuple(parts), file, source, source.items())
        for use in source.uses():
            if use.name == "*":
                module.globs.append(use)
            else:
                module.imports.setdefault(use.name, []).append(use)
        module.words = set(WORD.findall(source.without_uses()))
        self.modules[module.path] = module
        self.sources[file] = source
        self.tested |= {(*module.path, name) for name in source.tested}

    def resolve(self, module: Path, segments: tuple[str, ...], seen: frozenset = frozenset()) -> list[Found]:
        """Returns what a path that occurs in `module` refers to; nothing where it is of another crate."""
        head, rest = segments[0], segments[1:]
        if head == "crate":
            return self.inside((), rest, seen, False)
        if head == "self":
            return self.inside(module, rest, seen, False)
        if head == "super":
            return self.inside(module[:-1], rest, seen, False) if module else []
        return self.inside(module, segments, seen, True)

    def inside(self, module: Path, segments: tuple[str, ...], seen: frozenset, known: bool) -> list[Found]:
        """Returns what a path means within `module`; where the name is not `known` there, a macro may have made it."""
        if module not in self.modules:
            return []
        if not segments:
            return [Found(module, None)]
        head, rest = segments[0], segments[1:]
        if head == "super":
            return self.inside(module[:-1], rest, seen, known)
        if head == "self":
            return self.inside(module, rest, seen, known)
        here, found = self.modules[module], []
        child = (*module, head)
        if child in self.modules:
            found += self.inside(child, rest, seen, False)
            if rest:
                return found
        if head in here.items:
            found.append(Found(module, head))
        for use in here.imports.get(head, ()):
            key = (module, use.segments)
            if key not in seen and use.segments != (head,):
                found += self.resolve(module, use.segments + rest, seen | {key})
        if found:
            return found
        for use in here.globs:
            key = (module, use.segments, head)
            if key in seen:
                continue
            targets = self.resolve(module, use.segments, seen | {key})
            known |= not targets  # all names of another crate
            for target in targets:
                if target.name is None:
                    found += self.inside(target.module, segments, seen | {key}, True)
        if found or known:
            return found
        return [Found(module, head)] if head not in here.imports else []

    def names(self, module: Path) -> set[str]:
        """Returns the names that `use module::*` brings."""
        here = self.modules[module]
        return here.items | set(here.imports)

    def arrows(self) -> list[Arrow]:
        """Returns the arrows between the crate's modules."""
        found: list[Arrow] = []
        for module in self.modules.values():
            for line, segments in self.references(module):
                targets = self.resolve(module.path, segments)
                if any(target.name is None for target in targets) and not bare(module, segments[-1]):
                    continue  # only the module of that name is used, not an item that shares its name
                for target in targets:
                    if target.name is not None and target.module != module.path:
                        at = f"{module.file}:{line}"
                        found.append(Arrow(module.path, target.module, at, "::".join(segments)))
        return found

    def references(self, module: Module) -> list[tuple[int, tuple[str, ...]]]:
        """Returns the paths that a module's code uses, with their lines."""
        found: list[tuple[int, tuple[str, ...]]] = []
        for name, uses in module.imports.items():
            # a re-export that the file's own code does not use is a declaration
            found += [(use.line, use.segments) for use in uses if not use.public or name in module.words]
        for use in module.globs:
            for target in self.resolve(module.path, use.segments):
                if target.name is not None:
                    found.append((use.line, use.segments))
                else:
                    used = sorted(self.names(target.module) & module.words)
                    found += [(use.line, (*use.segments, name)) for name in used]
        code = module.source.without_uses()
        for path in PATH.finditer(code):
            segments = tuple(part.strip() for part in path[1].split("::"))
            found.append((module.source.line(path.start()), segments))
        return found


def bare(module: Module, name: str) -> bool:
    """Returns whether a name occurs in the module's code other than as the beginning of a path."""
    return re.search(rf"(?<![\w:])(?<!\.){name}\b(?!\s*::)", module.source.without_uses()) is not None
