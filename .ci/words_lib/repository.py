"""The files of the repository that hold texts."""

from __future__ import annotations

import subprocess
from pathlib import Path

# Inputs, stored results and transcripts: data, whose texts come from elsewhere or from messages that are checked at their source.
SKIPPED = ("testdata/", "fuzz/seeds/", "crates/apps/noren-cli/assets/", "crates/apps/noren-cli/tests/cmd/")


def files(root: Path) -> dict[str, str]:
    """Returns the text of each file that git knows or would add, by path."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True).stdout
    found = {}
    for path in sorted(filter(None, listed.decode().split("\0"))):
        file = root / path
        if path.startswith(SKIPPED) or file.is_symlink() or not file.is_file():
            continue
        data = file.read_bytes()
        if b"\0" not in data[:4096]:
            found[path] = data.decode("utf-8", errors="replace")
    return found
