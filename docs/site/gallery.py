#!/usr/bin/env python3
"""Writes a page with pictures and code for every atom and every preset of the explorer.

    docs/site/gallery.py NOREN FOLDER    NOREN is the command

Atoms come from masks.md, which a test keeps up to date, presets from presets.json. `noren show` draws them, `noren code` writes their code.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MASKS = ROOT / "crates/core/noren-mask/docs/masks.md"
PRESETS = ROOT / "crates/apps/noren-explorer/src/presets.json"
# What `noren code --to` takes, and the heading of each.
TARGETS = {"python": "noren in Python", "rust": "noren in Rust", "sdpa": "PyTorch scaled_dot_product_attention", "mha": "PyTorch nn.MultiheadAttention",
           "encoder": "PyTorch nn.TransformerEncoder", "flex": "FlexAttention", "hf": "Hugging Face", "jax": "JAX", "keras": "Keras", "numpy": "NumPy", "onnx": "ONNX"}
PICTURE = re.compile(r"(?:With the facts `(?P<facts>\{.*?\})`:\n\n)?```text\n(?P<mask>.+)\n(?P<q>[\d,]+) quer(?:y|ies) × (?P<kv>[\d,]+) keys?(?P<rest>.*)\n")


@dataclass
class Scene:
    """A mask with its shape, as options of the command, and its facts."""

    mask: str
    shape: dict[str, int]
    facts: dict = field(default_factory=dict)
    layer: int | None = None


# Masks of the atoms for which masks.md has no picture, because they differ between batch rows or layers.
MORE = {
    "batch": [Scene("batch(0: causal, 1: window(left=1, right=1))", {"len": 6, "batch": 2})],
    "layers": [Scene("layers(every 2: sliding(2), else: causal)", {"len": 6}, layer=layer) for layer in (0, 1)],
}


@dataclass
class Entry:
    """An atom or a preset."""

    title: str
    text: str
    scenes: list[Scene]

    def name(self) -> str:
        """Returns the name of the entry's files: the title's words up to its first comma or bracket."""
        return re.sub(r"\W+", "-", re.split(r"[(]|`, ", self.title)[0].lower()).strip("-")


def command(noren: str, verb: str, scene: Scene, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command on a mask with its shape and facts."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in scene.shape.items()]
    if scene.layer is not None:
        options.append(f"--layer={scene.layer}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as facts:
        json.dump(scene.facts, facts)
        facts.flush()
        if scene.facts:
            options.append(f"--facts={facts.name}")
        return subprocess.run([noren, verb, scene.mask, *options, *more], capture_output=True, text=True)


def atoms() -> list[Entry]:
    """Returns the atoms of masks.md, each with the mask of every picture."""
    part = MASKS.read_text(encoding="utf-8").split("\n## Atoms\n")[1].split("\n## ")[0]
    entries = []
    for section in part.split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        scenes = []
        for found in PICTURE.finditer(body):
            shape = {name: int(found[name].replace(",", "")) for name in ("q", "kv")}
            for word, option in (("head", "heads"), ("batch row", "batch")):
                if count := re.search(rf"(\d+) {word}s", found["rest"]):
                    shape[option] = int(count[1])
            # Where a picture has fewer queries than keys, the queries are the last tokens.
            shape["query_offset"] = max(0, shape["kv"] - shape["q"])
            scenes.append(Scene(found["mask"], shape, json.loads(found["facts"] or "{}")))
        text = body.split("\n```")[0].split("\nWith the facts")[0].strip()
        entries.append(Entry(title, text, scenes))
        scenes += MORE.get(entries[-1].name(), [])
    return entries


def presets() -> list[Entry]:
    """Returns the presets of the explorer."""
    entries = []
    for preset in json.loads(PRESETS.read_text(encoding="utf-8")):
        scene = preset["scene"]
        drawn = Scene(scene["mask"], scene["shape"], scene.get("facts", {}), scene.get("layer"))
        entries.append(Entry(preset["name"], f"{preset['says']}\n\nSource: {preset['source']}.", [drawn]))
    return entries


def code(noren: str, scene: Scene) -> list[str]:
    """Returns the code of a mask for each target, or the reason for which a target cannot express it, each folded away."""
    parts = []
    for target, heading in TARGETS.items():
        done = command(noren, "code", scene, "--to", target)
        written, language = (done.stdout, "rust,ignore" if target == "rust" else "python") if done.returncode == 0 else (done.stderr, "text")
        parts.append(f"<details{' open' if target == 'python' else ''}><summary>{heading}</summary>\n\n````{language}\n{written.rstrip()}\n````\n\n</details>")
    return parts


def write(noren: str, folder: Path, entry: Entry) -> str:
    """Writes the page of an entry and its pictures; returns the address of its first picture, or an empty text."""
    parts = [f"# {entry.title}", entry.text]
    first = ""
    for number, scene in enumerate(entry.scenes):
        picture = f"{entry.name()}-{number}.svg"
        drawn = command(noren, "show", scene, "-o", str(folder / picture))
        if drawn.returncode:
            raise SystemExit(f"error: noren show cannot draw {entry.title}, {scene.mask!r}: {drawn.stderr.strip()}")
        first = first or picture
        parts += [f"## `{scene.mask}`" + (f", layer {scene.layer}" if scene.layer is not None else "")]
        if scene.facts:
            parts.append(f"With the facts `{json.dumps(scene.facts)}`:")
        parts += [f"![{scene.mask}]({picture})", *code(noren, scene)]
    (folder / f"{entry.name()}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return first


def main() -> int:
    noren, folder = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]) / "gallery"
    if subprocess.run([noren, "code", "--help"], capture_output=True).returncode:
        print(f"error: {noren} has no command 'code', which writes the code of the gallery", file=sys.stderr)
        return 1
    index, listed = ["# Gallery"], ["- [Gallery](gallery/index.md)"]
    for part, entries in (("atoms", atoms()), ("presets", presets())):
        place = folder / part
        place.mkdir(parents=True, exist_ok=True)
        cards = []
        for entry in entries:
            picture = write(noren, place, entry)
            address = f"{part}/{entry.name()}"
            words = entry.title.replace("`", "")
            image = f'<img src="{part}/{picture}" alt="" loading="lazy">' if picture else ""
            cards.append(f'<a href="{address}.html">{image}{words}</a>')
            listed.append(f"  - [{words.replace('[', chr(92) + '[').replace(']', chr(92) + ']')}](gallery/{address}.md)")
        index += [f"## {part.capitalize()}", '<div class="cards">\n' + "\n".join(cards) + "\n</div>"]
    (folder / "index.md").write_text("\n\n".join(index) + "\n", encoding="utf-8")
    (folder / "contents.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
