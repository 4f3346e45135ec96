"""Which crate may depend on which: the list in docs/architecture.md against the manifests."""

from __future__ import annotations

import re

from tree import Tree

ARCHITECTURE = "docs/architecture.md"
BLOCK = re.compile(r"^```arrows\n(.*?)^```$", re.M | re.S)
TABLE = re.compile(r"^\[([^\]]+)\]")
KEY = re.compile(r"^([\w-]+)[\w.-]*\s*=")
NAME = re.compile(r'^name\s*=\s*"([^"]+)"', re.M)
DEPENDENCIES = re.compile(r"^(?:target\..+\.)?(?:build-)?dependencies(?:\.([\w-]+))?$")


def members(tree: Tree) -> dict[str, str]:
    """Returns the workspace's crates with their folders."""
    listed = re.search(r"^members\s*=\s*\[(.*?)\]", tree["Cargo.toml"], re.M | re.S)
    folders = re.findall(r'"([^"]+)"', listed[1]) if listed else []
    return {NAME.search(tree[f"{folder}/Cargo.toml"])[1]: folder for folder in folders}


def dependencies(manifest: str) -> set[str]:
    """Returns the names in the dependency tables, optional ones too, those of tests not."""
    found, inside = set(), False
    for line in manifest.splitlines():
        if table := TABLE.match(line):
            match = DEPENDENCIES.match(table[1])
            inside = bool(match) and not match[1]
            if match and match[1]:
                found.add(match[1])
        elif inside and (key := KEY.match(line)):
            found.add(key[1])
    return found


def allowed(tree: Tree) -> dict[str, set[str]]:
    """Returns the arrows that the architecture allows."""
    block = BLOCK.search(tree.get(ARCHITECTURE, ""))
    if not block:
        raise SystemExit(f"{ARCHITECTURE} has no block of allowed arrows: begin one with ```arrows")
    found = {}
    for line in filter(None, block[1].splitlines()):
        crate, arrow, targets = line.partition("->")
        if not arrow or not crate.strip():
            raise SystemExit(f"{ARCHITECTURE}: `{line}` is not `crate -> crate, crate`")
        found[crate.strip()] = {target.strip() for target in targets.split(",") if target.strip()}
    return found


def check(tree: Tree) -> dict[str, str]:
    """Returns what is wrong with the arrows between crates: findings with their details."""
    crates, arrows, found = members(tree), allowed(tree), {}
    for crate, folder in crates.items():
        manifest = f"{folder}/Cargo.toml"
        if crate not in arrows:
            found[f"crate {crate}: missing in {ARCHITECTURE}"] = "add the line with what it may depend on"
            continue
        for target in sorted(dependencies(tree[manifest]) & crates.keys()):
            if target not in arrows[crate]:
                found[f"arrow {crate} -> {target}: not allowed"] = f"{manifest}; allowed arrows: {ARCHITECTURE}"
    for crate, targets in arrows.items():
        if crate not in crates:
            found[f"crate {crate}: not in the workspace"] = f"remove its line from {ARCHITECTURE}"
        for target in sorted(targets - arrows.keys()):
            found[f"arrow {crate} -> {target}: unknown crate"] = f"remove it from {ARCHITECTURE}"
    order: list[str] = []
    while ready := [crate for crate in arrows if crate not in order and arrows[crate] <= {*order}]:
        order += ready
    for crate in sorted(arrows.keys() - {*order}):
        if arrows[crate] <= arrows.keys():
            found[f"crate {crate}: in or above a circle of allowed arrows"] = ARCHITECTURE
    return found
