"""The files of the repository, of the working tree or of a revision, as text by path."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOTS = ("crates", "examples", "benches", "fuzz", ".ci", "docs")
SUFFIXES = (".rs", ".py", ".pyi", ".js", ".mjs", ".css", ".html", ".toml", ".md")
SKIPPED = {"target", "node_modules", "__pycache__", "testdata"}
SHEBANG = b"#!/usr/bin/env python3"

Tree = dict[str, str]


def wanted(path: str) -> bool:
    """Returns whether the checks read a file of this name."""
    parts = path.split("/")
    if path == "Cargo.toml":
        return True
    if parts[0] not in ROOTS or SKIPPED.intersection(parts[:-1]):
        return False
    return path.endswith(SUFFIXES) or parts[0] == ".ci"


def text_of(path: str, data: bytes) -> str | None:
    """Returns the text of a file, or None of a script that is not Python."""
    if not path.endswith(SUFFIXES) and not data.startswith(SHEBANG):
        return None
    return data.decode("utf-8", errors="replace")


def of_folder(root: Path) -> Tree:
    """Reads the files below a folder."""
    tree: Tree = {}
    folders = [root / name for name in ROOTS if (root / name).is_dir()]
    found = [root / "Cargo.toml"]
    while folders:
        for entry in folders.pop().iterdir():
            if entry.is_dir() and not entry.is_symlink():
                if entry.name not in SKIPPED:
                    folders.append(entry)
            else:
                found.append(entry)
    for file in sorted(found):
        path = file.relative_to(root).as_posix()
        if wanted(path) and file.is_file():
            text = text_of(path, file.read_bytes())
            if text is not None:
                tree[path] = text
    return tree


def of_revision(root: Path, revision: str) -> Tree:
    """Reads the files of a revision, without a checkout."""
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", "--format=tar", revision], capture_output=True, check=False
    )
    if archive.returncode != 0:
        raise SystemExit(f"{revision} is no revision of this repository: {archive.stderr.decode().strip()}")
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar:
            if member.isfile() and wanted(member.name):
                text = text_of(member.name, tar.extractfile(member).read())
                if text is not None:
                    tree[member.name] = text
    return tree


def is_test(path: str) -> bool:
    """Returns whether a file belongs to tests as a whole."""
    parts = path.split("/")
    return not {"tests", "noren-testing"}.isdisjoint(parts[:-1]) or parts[-1] == "tests.rs" or parts[0] == "fuzz"
