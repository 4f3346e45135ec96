#!/usr/bin/env python3
"""Checks the built site: every internal link and fragment resolves, and no page loads anything from elsewhere.

    docs/site/check.py FOLDER
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

# Attributes that a browser loads by itself, without a click.
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.I)
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """The fragments that a page has and the addresses that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            # mdBook's script requests a list from play.rust-lang.org when a page has an example of this class.
            if tag == "pre" and name == "class" and "playground" in (value or "").split():
                self.links.append(("https://play.rust-lang.org", True))
            elif name == "id" or (tag == "a" and name == "name"):
                self.names.add(value or "")
            elif name in {"href", "src", "data"} and value:
                self.links.append((value, (tag, name) in LOADED))


def wrong(path: Path, address: str, loaded: bool, pages: dict[Path, Page]) -> str:
    """Returns what is wrong with an address that the file at `path` names, or an empty text."""
    if ELSEWHERE.match(address):
        return "is loaded from elsewhere" if loaded else ""
    if re.match(r"[a-z]+:", address):
        return ""
    if address.startswith("/"):
        return "works only if the site is at the root of its host"
    place, _, fragment = address.partition("#")
    target = (path.parent / unquote(place.partition("?")[0])).resolve() if place else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "leads to no file"
    if fragment and target in pages and unquote(fragment) not in pages[target].names:
        return "leads to no heading"
    return ""


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    # The page of an address that does not exist is shown at any depth, so its links begin at the root.
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html")) if path != folder / "404.html"}
    if not pages:
        print(f"error: {folder} has no pages: build the site with docs/site/build")
        return 1
    addresses = [(path, *link) for path, page in pages.items() for link in page.links]
    for path in sorted(folder.rglob("*.css")):
        addresses += [(path, first or second, True) for first, second in STYLE_URL.findall(path.read_text(encoding="utf-8"))]
    problems = [f"{path.relative_to(folder)}: {address} {problem}" for path, address, loaded in addresses if (problem := wrong(path, address, loaded, pages))]
    for problem in problems:
        print("error:", problem)
    if not problems:
        print(f"{len(addresses)} links of {len(pages)} pages resolve; nothing is loaded from elsewhere")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
