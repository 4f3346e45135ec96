"""Python source: code lines, functions, and which module of a package uses which other."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass, field

from graph import Arrow, Path
from rust import Function
from tree import Tree

SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring(node: ast.AST) -> ast.Expr | None:
    """Returns the docstring of a module, class or function."""
    body = getattr(node, "body", None)
    if isinstance(node, DOCUMENTED) and body and isinstance(body[0], ast.Expr):
        value = body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return body[0]
    return None


def code_lines(text: str) -> set[int]:
    """Returns the lines that hold code: no comments, docstrings and blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if documentation := docstring(node):
            lines.difference_update(range(documentation.lineno, documentation.end_lineno + 1))
    return lines


def functions(text: str) -> list[Function]:
    """Returns every function, without the lines of its documentation."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            if documentation := docstring(node):
                lines -= documentation.end_lineno - documentation.lineno + 1
            found.append(Function(node.name, node.lineno, lines))
    return found


@dataclass
class Import:
    """A name that an import brings: `attribute` of `module`, or the module itself."""

    module: Path
    attribute: str | None
    line: int
    alias: str


@dataclass
class Module:
    """One file of a package."""

    path: Path
    file: str
    package: bool
    imports: list[Import] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    used: dict[str, set[str]] = field(default_factory=dict)


class Package:
    """The modules of one Python package."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self.name = folder.rsplit("/", 1)[1]
        self.modules: dict[Path, Module] = {}
        for file in sorted(tree):
            if file.startswith(folder + "/") and file.endswith(".py"):
                parts = file[len(folder) + 1 : -3].split("/")
                package = parts[-1] == "__init__"
                path = tuple(parts[:-1] if package else parts)
                self.modules[path] = self.read(Module(path, file, package), ast.parse(tree[file]))

    def read(self, module: Module, top: ast.Module) -> Module:
        stack: list[tuple[ast.AST, bool]] = [(top, False)]
        while stack:
            node, typing = stack.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                stack += [(inner, True) for inner in node.body] + [(inner, typing) for inner in node.orelse]
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not typing:
                module.imports += self.imported(module, node)
            elif isinstance(node, ast.Name):
                module.used.setdefault(node.id, set())
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module.used.setdefault(node.value.id, set()).add(node.attr)
            stack += [(inner, typing) for inner in ast.iter_child_nodes(node)]
        for node in top.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                module.defined.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                module.defined |= {name.id for one in targets for name in ast.walk(one) if isinstance(name, ast.Name)}
        return module

    def imported(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[Import]:
        found = []
        if isinstance(node, ast.Import):
            for name in node.names:
                parts = tuple(name.name.split("."))
                if parts[0] == self.name:
                    alias = name.asname or parts[0]
                    found.append(Import(parts[1:] if name.asname else (), None, node.lineno, alias))
                    if not name.asname and parts[1:]:
                        found.append(Import(parts[1:], None, node.lineno, ""))
            return found
        parts = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            up = node.level - 1 if module.package else node.level
            parts = module.path[: len(module.path) - up] + parts
        elif parts[:1] == (self.name,):
            parts = parts[1:]
        else:
            return []
        return [Import(parts, name.name, node.lineno, name.asname or name.name) for name in node.names]

    def resolve(self, path: Path, name: str | None, seen: frozenset = frozenset()) -> tuple[Path, str | None] | None:
        """Returns the module in which a name is defined, through the imports of the packages' own files."""
        if path not in self.modules:
            return None
        if name is None:
            return path, None
        module = self.modules[path]
        if name not in module.defined and (path, name) not in seen:
            for one in module.imports:
                if one.alias == name and (found := self.resolve(one.module, one.attribute, seen | {(path, name)})):
                    return found
            if (*path, name) in self.modules:
                return (*path, name), None
        return path, name

    def arrows(self) -> list[Arrow]:
        """Returns the arrows between the package's modules; those of imports within functions too."""
        found = []
        for module in self.modules.values():
            for one in module.imports:
                if module.package and one.alias not in module.used:
                    continue  # a re-export
                target = self.resolve(one.module, one.attribute)
                targets = [target] if target else []
                if target and target[1] is None and one.alias in module.used:
                    of_module = [self.resolve(target[0], name) for name in sorted(module.used[one.alias])]
                    targets = [name for name in of_module if name] or targets
                for path, name in targets:
                    if path != module.path:
                        at = f"{module.file}:{one.line}"
                        found.append(Arrow(module.path, path, at, name or one.attribute or one.alias))
        return found
