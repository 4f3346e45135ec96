"""Score the answers of `noren check --cases` against the labels of a folder of cases.

    python benches/doctor/score.py FOLDER [--preds FOLDER/preds.json] [--only NAME] [--failures]

Printed by catalogue class and for all: cases, findings found, first class right, exact repairs (the repaired keep mask
equals the intended one on every cell that a real row reads). Cases with an open question are listed, not counted.
A faulty case is found if its verdict is "faulty"; "looks like" and "cannot tell" are neither a finding nor a false alarm.
The verdicts of correct and of faulty masks follow each table: without a declared kind none may be "correct", and with a
declared kind no faulty mask may be.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np


def repaired(folder: Path, pred: dict, label: dict) -> bool:
    """The fixed keep mask equals the intended one on the cells that real rows read."""
    if not pred.get("fixed"):
        return False
    path = Path(pred["fixed"])
    fixed = np.load(path if path.exists() else folder / path.name)
    intended, care = (np.load(folder / label["truth"][p]) for p in ("intended", "care"))
    b, _, q, k = intended.shape
    if fixed.ndim == 3:
        fixed = fixed.reshape(b, -1, *fixed.shape[1:]) if fixed.shape[0] % b == 0 else fixed[None]
    if fixed.ndim == 2 and fixed.shape == (b, k) and (q, k) != (b, k):
        fixed = fixed[:, None, None, :]
    try:
        fixed, intended, care = np.broadcast_arrays(fixed.astype(bool), intended, care)
    except ValueError:
        return False
    if label["split"] == "blind" and label["role"] == "key_padding":
        # A plane does not contain whether its slot is causal: both masks are combined with causality.
        below = np.arange(k)[None, :] <= np.arange(q)[:, None] + k - q
        fixed, intended = fixed & below, intended & below
    return bool((fixed == intended)[care].all())


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", type=Path)
    args.add_argument("--preds", type=Path)
    args.add_argument("--only", default="")
    args.add_argument("--failures", action="store_true", help="name every case that failed and what was answered")
    args = args.parse_args()
    labels = json.loads((args.folder / "labels.json").read_text())
    preds = json.loads((args.preds or args.folder / "preds.json").read_text())
    for split in ("declared", "blind"):
        verdicts = {"healthy": Counter(), "faulty": Counter()}
        table = defaultdict(lambda: [0, 0, 0, 0])
        fails: dict[str, list[str]] = defaultdict(list)
        for key, label in labels.items():
            if (label["split"] == "blind") != (split == "blind"):
                continue
            if args.only not in label["name"]:
                continue
            p = preds.get(key, {"faulty": False, "classes": ["missing"]})
            first = (p["classes"] or ["none"])[0]
            named = first in {label["classes"][0], *label.get("accept", [])}
            exact = repaired(args.folder, p, label)
            if label.get("open_question"):
                fails["? " + label["name"]].append(f"{key}:{first if p['faulty'] else 'healthy'}")
                continue
            verdicts["faulty" if label["faulty"] else "healthy"][p.get("verdict", "none")] += 1
            row = table[label["name"]]
            row[0] += 1
            if label["faulty"]:
                row[1] += p["faulty"]
                row[2] += named and p["faulty"]
                row[3] += exact
                if not (p["faulty"] and named and exact):
                    fails[label["name"]].append(f"{key}:{first if p['faulty'] else 'MISSED'}{'' if exact else '!'}")
            else:
                row[1] += p["faulty"]
                if p["faulty"]:
                    fails[label["name"]].append(f"{key}:{first}")
        report(split, table, fails, args.failures)
        for state, counts in verdicts.items():
            print(f"verdicts of {state} cases: " + ", ".join(f"{v} {n}" for v, n in sorted(counts.items())))


def report(split: str, table: dict, fails: dict, verbose: bool) -> None:
    faulty = {k: v for k, v in table.items() if not k.startswith("H")}
    well = {k: v for k, v in table.items() if k.startswith("H")}
    print(f"\n== {split}\n{'sick':34}{'cases':>6}{'found':>7}{'first':>7}{'exact':>7}")
    for name in sorted(faulty):
        n, f, c, e = faulty[name]
        mark = "" if f == n and c == n and e == n else "  <"
        print(f"{name:34}{n:6}{f:7}{c:7}{e:7}{mark}")
    total = np.sum(list(faulty.values()) or [[0] * 4], axis=0)
    n = max(1, total[0])
    print(f"{'all':34}{total[0]:6}{total[1] / n:7.1%}{total[2] / n:7.1%}{total[3] / n:7.1%}")
    alarms, cases = sum(v[1] for v in well.values()), max(1, sum(v[0] for v in well.values()))
    print(
        f"correct masks: {cases} cases, {alarms} false alarms ({alarms / cases:.2%}) "
        + ", ".join(f"{k} {v[1]}/{v[0]}" for k, v in sorted(well.items()) if v[1])
    )
    if verbose:
        for name in sorted(fails):
            print(f"{name}: {' '.join(fails[name][:14])}{' ...' if len(fails[name]) > 14 else ''}")


if __name__ == "__main__":
    main()
