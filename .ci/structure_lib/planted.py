"""Faults planted in a copy of the repository: each must be found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import checks
import count
import tree


def append(root: Path, path: str, text: str) -> None:
    file = root / path
    file.write_text((file.read_text() if file.exists() else "") + text)


def upward_arrow(root: Path) -> str:
    file = root / "crates/core/noren-mask/Cargo.toml"
    file.write_text(file.read_text().replace("[dependencies]\n", "[dependencies]\nnoren.workspace = true\n"))
    return "arrow noren-mask -> noren: not allowed"


def optional_arrow(root: Path) -> str:
    append(root, "crates/adapters/noren-dist/Cargo.toml", '\n[dependencies.noren-text]\nworkspace = true\noptional = true\n')
    return "arrow noren-dist -> noren-text: not allowed"


def unlisted_crate(root: Path) -> str:
    file = root / "Cargo.toml"
    file.write_text(file.read_text().replace('members = [', 'members = ["crates/noren-new", '))
    (root / "crates/noren-new").mkdir()
    append(root, "crates/noren-new/Cargo.toml", '[package]\nname = "noren-new"\n')
    return "crate noren-new: missing in docs/architecture.md"


def circle(root: Path) -> str:
    """Three files: by a path in code, by a nested `use` through a re-export, and by `super`."""
    folder = "crates/adapters/noren-dist/src"
    append(root, f"{folder}/lib.rs", "mod planted;\npub use planted::first::First;\n")
    (root / folder / "planted").mkdir()
    append(root, f"{folder}/planted.rs", "pub mod first;\nmod second;\nmod third;\n")
    append(root, f"{folder}/planted/first.rs", "pub struct First;\nfn f() { super::second::second() }\n")
    append(root, f"{folder}/planted/second.rs", "use super::{third::{self as last}};\npub fn second() { last::third() }\n")
    append(root, f"{folder}/planted/third.rs", "use crate::{First as Other};\npub fn third() { let _ = Other; }\n")
    return "circle noren-dist::planted: first, second, third"


def circle_with_the_parent(root: Path) -> str:
    folder = "crates/models/noren-text/src"
    append(root, f"{folder}/lib.rs", "mod planted;\n")
    (root / folder / "planted").mkdir()
    append(root, f"{folder}/planted.rs", "mod child;\npub struct Parent;\nfn f() { child::g() }\n")
    append(root, f"{folder}/planted/child.rs", "use super::*;\npub fn g() { let _ = Parent; }\n")
    return "circle noren-text::planted: (own file), child"


def no_circle(root: Path) -> None:
    """Plants text that looks like circles but is none: in comments, strings and tests, and re-exports of a parent."""
    folder = "crates/tools/noren-verify/src"
    append(root, f"{folder}/lib.rs", "mod planted;\n")
    (root / folder / "planted").mkdir()
    append(root, f"{folder}/planted.rs", "mod a;\nmod b;\npub use a::A;\npub struct Parent;\n")
    append(root, f"{folder}/planted/a.rs", "pub struct A(super::Parent, super::b::B);\n")
    tests = "#[cfg(test)]\nmod tests {\n    use super::super::A;\n}\n"
    append(root, f"{folder}/planted/b.rs", f'pub struct B;\n// use super::A;\nconst S: &str = "super::A::x()";\n{tests}')


def circle_in_python(root: Path) -> str:
    folder = "crates/apps/noren-python/python/noren/planted"
    (root / folder).mkdir()
    append(root, f"{folder}/__init__.py", "from .one import first as first\n")
    append(root, f"{folder}/one.py", "def first():\n    from .two import second\n    return second\n")
    append(root, f"{folder}/two.py", "from noren.planted import first\nsecond = first\n")
    return "circle noren.planted: one, two"


def circle_on_the_page(root: Path) -> str:
    folder = next(root.glob("crates/*/page/js"))
    append(root, f"{folder}/planted-a.js", 'import { b } from "./planted-b.js";\nexport const a = b;\n')
    append(root, f"{folder}/planted-b.js", 'export const b = () => import("./planted-a.js");\n')
    return f"circle {folder.relative_to(root)}: planted-a.js, planted-b.js"


def long_rust_function(root: Path) -> str:
    body = "    let text = \"}\";\n" * 79
    append(root, "crates/adapters/noren-dist/src/wire.rs", f"fn planted(at: [u8; 2]) {{\n{body}}}\n")
    return "function crates/adapters/noren-dist/src/wire.rs: planted"


def long_python_function(root: Path) -> str:
    append(root, "crates/apps/noren-python/python/noren/_flow.py", "def planted():\n" + "    pass\n" * 80)
    return "function crates/apps/noren-python/python/noren/_flow.py: planted"


def long_javascript_function(root: Path) -> str:
    folder = next(root.glob("crates/*/page/js"))
    body = "  const brace = /[/}]/.test(`}${{ a: `}` }.a}`);\n" * 79
    append(root, f"{folder}/dom.js", f"const planted = async (a, b) => {{\n{body}}};\n")
    return f"function {(folder / 'dom.js').relative_to(root)}: planted"


def long_file(root: Path) -> str:
    append(root, "crates/adapters/noren-dist/src/wire.rs", "// a line\n" * 600)
    return "file crates/adapters/noren-dist/src/wire.rs"


def twin(root: Path) -> str:
    has = 'fn has() -> bool {\n    is_x86_feature_detected!("avx2")\n}\n'
    append(root, "crates/adapters/noren-dist/src/wire.rs", has)
    return "twin detection of the processor's features: in crates/adapters/noren-dist/src/wire.rs"


PLANTS: list[Callable[[Path], str]] = [
    upward_arrow,
    optional_arrow,
    unlisted_crate,
    circle,
    circle_with_the_parent,
    circle_in_python,
    circle_on_the_page,
    long_rust_function,
    long_python_function,
    long_javascript_function,
    long_file,
    twin,
]


def copy(now: tree.Tree, root: Path) -> None:
    for path, text in now.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def run(repository: Path) -> int:
    """Plants all faults in one copy and compares with what is found without them; returns the exit status."""
    now = tree.of_folder(repository)
    before = checks.check(now)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy(now, root)
        no_circle(root)
        expected = {plant(root): plant.__name__ for plant in PLANTS}
        after = checks.check(tree.of_folder(root))
    missed = [f"{name}: expected `{finding}`" for finding, name in expected.items() if finding not in after or finding in before]
    wrong = sorted(after.keys() - before.keys() - expected.keys())
    counted = count.count({"crates/a/src/b.rs": COUNTED})[0]["a"]
    if counted != 4:
        missed.append(f"count: expected 4 lines of code, counted {counted}")
    for line in missed:
        print("error: not found:", line)
    for line in wrong:
        print("error: found without a fault:", line)
    if missed or wrong:
        return 1
    print(f"self-test: {len(expected)} planted faults found, the count is right")
    return 0


COUNTED = """//! A crate.

/// A function.
fn f() { /* a /* nested */ comment */
    let text = "// no comment"; // a comment
    let mark = '"';
}

#[cfg(test)]
mod tests {
    fn g() {}
}
"""
