#!/usr/bin/env python3
"""Copies README.md, docs/*.md and the page of masks into the source of the site, and writes its table of contents.

    docs/site/pages.py FOLDER    FOLDER already has what gallery.py and lessons.py write

A link to a page or a picture that the site has leads to it. A link to any other file of the repository becomes its text.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MASKS = ROOT / "crates/core/noren-mask/docs/masks.md"
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\]`])*)\]\(<?(?P<to>[^)\s>]+)>?\)")
FENCED = re.compile(r"(^(?:```+|~~~+).*?^(?:```+|~~~+)\s*?$)", re.S | re.M)


def places() -> dict[Path, str]:
    """Returns, for each file of the repository that the site has, its path in the source of the site."""
    known = {ROOT / "README.md": "index.md", ROOT / "CHANGELOG.md": "changelog.md", ROOT / "CONTRIBUTING.md": "contributing.md", MASKS: "masks.md"}
    for path in sorted((ROOT / "docs").glob("*.md")):
        known[path] = f"docs/{path.name}"
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in {".svg", ".png", ".json", ".ipynb"}:
            known[path] = path.relative_to(ROOT).as_posix()
    return known


def rewritten(page: Path, known: dict[Path, str]) -> str:
    """Returns the text of a page, with each link to a file of the repository as the site has it."""
    here = os.path.dirname(known[page])

    def link(found: re.Match[str]) -> str:
        address, mark, fragment = found["to"].partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return found[0]
        target = known.get((page.parent / address).resolve())
        if target is None:
            return found["text"]
        return f"{found['picture']}[{found['text']}]({os.path.relpath(target, here or '.')}{mark}{fragment})"

    parts = FENCED.split(page.read_text(encoding="utf-8"))
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))


def title(text: str) -> str:
    """Returns the first heading of a page."""
    found = re.search(r"^# +(.+)$", text, re.M)
    if not found:
        raise SystemExit("error: a page has no heading that starts with '# '")
    return found[1].strip()


def contents(folder: Path, known: dict[Path, str]) -> str:
    """Returns the table of contents: the start, the lessons, the gallery and the pages of docs/."""
    lines = ["# Contents", "", "[Start](index.md)", "", "# Learn", ""]
    for part in ("lessons", "gallery"):
        lines += (folder / part / "contents.txt").read_text(encoding="utf-8").splitlines()
    lines += ["- [Every mask](masks.md)", "", "# Reference", ""]
    pages = [place for path, place in known.items() if path.suffix == ".md" and place != "masks.md" and place != "index.md"]
    for place in sorted(pages):
        lines.append(f"- [{title((folder / place).read_text(encoding='utf-8'))}]({place})")
    return "\n".join(lines) + "\n"


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    known = places()
    for path, place in known.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(rewritten(path, known), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    (folder / "SUMMARY.md").write_text(contents(folder, known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
