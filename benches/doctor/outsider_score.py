"""Score the answers of `noren check --cases` against the labels of `outsider.py`.

    python benches/doctor/outsider_score.py FOLDER [--failures]

Printed for declared and blind cases: faulty masks found, first class right, exact repairs (equal to the intended cells in
every row of a real query), false alarms and verdicts. A table by class follows: cases, found, first class, repairs requested,
exact repairs. Blind masks that are stored as `true = ignore` without any declaration of that are counted apart.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np


def exact(folder: Path, answer: dict, label: dict) -> bool:
    """The repaired mask equals the intended one in every row of a real query."""
    if not answer.get("fixed"):
        return False
    fixed = np.load(folder / Path(answer["fixed"]).name).astype(bool)
    intended, care = (np.load(folder / label["truth"][part]) for part in ("intended", "care"))
    try:
        fixed, intended, care = np.broadcast_arrays(fixed, intended, care)
    except ValueError:
        return False
    if label["joined"]:
        # A row of keys does not contain whether its slot is causal.
        q, k = intended.shape[-2:]
        below = np.arange(k)[None] <= np.arange(q)[:, None] + k - q
        fixed, intended = fixed & below, intended & below
    return bool((fixed == intended)[care].all())


def short(name: str) -> str:
    return "pair" if name.startswith("pair") else name.split("/")[0].split(":")[-1]


class Split:
    """Counts of one split."""

    def __init__(self, folder: Path, blind: bool) -> None:
        self.folder, self.blind = folder, blind
        self.table = defaultdict(lambda: [0] * 5)
        self.failures = defaultdict(list)
        self.healthy, self.faulty, self.polarity = Counter(), Counter(), Counter()

    def add(self, key: str, label: dict, answer: dict) -> None:
        verdict, first = answer.get("verdict", "unusable"), (answer["classes"] or ["none"])[0]
        if label["polarity"]:
            self.polarity["faulty" if label["faulty"] else "healthy", verdict] += 1
        elif label["faulty"]:
            self.add_faulty(key, label, answer, verdict, first)
        elif label["open"] and (verdict != "faulty" or first == "fully_masked_row"):
            self.healthy["open question"] += 1
        else:
            self.healthy[verdict] += 1
            if verdict == "faulty" or not self.blind and verdict != "correct" or self.blind and verdict == "correct":
                self.failures[label["name"]].append(f"{key}[{verdict} {first}]")

    def add_faulty(self, key: str, label: dict, answer: dict, verdict: str, first: str) -> None:
        row = self.table[short(label["name"])]
        found = verdict == "faulty"
        named = found and (first in {label["classes"][0], *label["accept"]} or "*" in label["accept"])
        repaired = not label["repair"] or found and exact(self.folder, answer, label)
        self.faulty[verdict] += 1
        for at, one in enumerate((True, found, named, label["repair"], label["repair"] and repaired)):
            row[at] += one
        if not (found and named and repaired):
            repair = "" if repaired else " wrong repair" if answer.get("fixed") else " no repair"
            self.failures[label["name"]].append(
                f"{key}[{'' if found else verdict + ' '}{'' if named else first}{repair}]"
            )

    def report(self, name: str, verbose: bool) -> None:
        cases, found, named, asked, repaired = np.sum(list(self.table.values()) or [[0] * 5], axis=0)
        share = [f"{n / max(1, of):.1%}" for n, of in ((found, cases), (named, cases), (repaired, asked))]
        print(
            f"\n== {name}: {cases} faulty: found {share[0]}, first class {share[1]}, exact repairs {share[2]} of {asked}"
        )
        healthy = sum(n for verdict, n in self.healthy.items() if verdict != "open question")
        alarms = self.healthy["faulty"]
        print(
            f"correct {healthy}: false alarms {alarms} ({alarms / max(1, healthy):.2%}), verdicts {dict(self.healthy)}"
        )
        print(f"verdicts of faulty {dict(self.faulty)}")
        if self.polarity:
            print("polarity undeclared and stored as `true = ignore`, not counted above:", dict(self.polarity))
        for kind in sorted(self.table):
            print(f"  {kind:34}" + "".join(f"{n:6}" for n in self.table[kind]))
        if verbose:
            for kind in sorted(self.failures):
                print(f"    {kind} {len(self.failures[kind])}: {' '.join(self.failures[kind][:6])}")


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", type=Path)
    args.add_argument("--failures", action="store_true", help="name the cases that failed and what was answered")
    args = args.parse_args()
    labels = json.loads((args.folder / "labels.json").read_text())
    answers = json.loads((args.folder / "preds.json").read_text())
    for name in ("declared", "blind"):
        split = Split(args.folder, name == "blind")
        for key, label in labels.items():
            if label["split"] == name:
                split.add(key, label, answers.get(key, {"classes": []}))
        split.report(name, args.failures)


if __name__ == "__main__":
    main()
