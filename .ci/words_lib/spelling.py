"""Spelling, by the program `typos` in a virtual environment of its own below target/."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VERSION = "1.52.0"


def program(root: Path) -> Path | None:
    """Returns the program, installed where it is missing; None if it cannot be installed."""
    home = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / f"typos-{VERSION}"
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    found = next(folder.glob("typos*"), None)
    if found is None:
        steps = [[sys.executable, "-m", "venv", str(home)], [str(folder / "pip"), "install", "-q", f"typos=={VERSION}"]]
        if any(subprocess.run(step, capture_output=True, check=False).returncode for step in steps):
            return None
        found = next(folder.glob("typos*"), None)
    return found


def run(root: Path) -> int:
    """Prints the misspelled words; returns the exit status, which is 0 where the program cannot be installed."""
    typos = program(root)
    if typos is None:
        print(f"spelling: not checked, typos {VERSION} cannot be installed from the package index")
        return 0
    found = subprocess.run([str(typos), "--format", "brief"], cwd=root, capture_output=True, text=True, check=False)
    print(found.stdout + found.stderr or "spelling: no misspelled word\n", end="")
    return 1 if found.returncode else 0
