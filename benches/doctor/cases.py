"""Write labelled cases for `noren check --cases`: faulty masks of the catalogue's classes and correct masks.

    python benches/doctor/cases.py OUT --count 2000 --seed 7
    noren check --cases OUT/inputs.json -o OUT/preds.json
    python benches/doctor/score.py OUT

The folder has the format of the conformance cases: `inputs.json` has the input of a diagnosis, `labels.json` and
`truth/` hold the answer. Half of the cases come without the declared kind (`--blind 0.5`); a case that cannot be
recognised without the kind is always declared. Needs NumPy only.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import numpy as np

from build import Case
from healthy import HEALTHY
from faulty import FAULTY

# Each of these registers its cases.
for _module in ("faulty_values", "faulty_shape", "faulty_structure", "companions", "more", "hard", "traps", "rows"):
    importlib.import_module(_module)


def draw(rng: np.random.Generator, healthy: float) -> Case:
    """One case; a draw that turns out harmless is drawn again."""
    pool = HEALTHY if rng.random() < healthy else FAULTY
    while True:
        case = pool[int(rng.integers(len(pool)))](rng)
        if case is not None:
            return case


def store(folder: Path, name: str, array: np.ndarray) -> dict:
    np.save(folder / name, np.ascontiguousarray(array))
    return {"file": name, "dtype": str(array.dtype), "shape": list(array.shape)}


def faults(case: Case) -> np.ndarray:
    """[N, 3] (batch, query, key) of the cells that are wrong where a real row reads, over all heads."""
    wrong = (case.effective != case.intended) & case.care
    return np.argwhere(wrong.any(1))


def write(folder: Path, number: int, case: Case, blind: bool) -> tuple[str, dict, dict]:
    key = f"g{number:05d}"
    inputs = {n: store(folder, f"{key}_{n}.npy", a) for n, a in {"mask": case.mask, **case.inputs}.items()}
    context = {k: v for k, v in case.context.items() if not (blind and k == "kind")}
    for part in ("intended", "effective", "care"):
        np.save(folder / "truth" / f"{key}_{part}.npy", np.asarray(getattr(case, part), bool))
    cells = faults(case)
    label = {
        "name": case.name,
        "split": "blind" if blind else "declared",
        "faulty": bool(case.classes),
        "classes": case.classes or ["healthy"],
        "accept": list(case.accept),
        "explanation": case.why,
        "open_question": case.open_question,
        "kind": case.context.get("kind"),
        "role": case.context["role"],
        "truth": {p: f"truth/{key}_{p}.npy" for p in ("intended", "effective", "care")},
        "wrong_cells": len(cells),
        "faults_at": cells[:8].tolist(),
    }
    return key, {"inputs": inputs, "context": context}, label


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("out", type=Path)
    args.add_argument("--count", type=int, default=2000)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--blind", type=float, default=0.5, help="share of cases without the declared kind")
    args.add_argument("--healthy", type=float, default=0.4, help="share of correct masks")
    args = args.parse_args()
    (args.out / "truth").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    inputs, labels = {}, {}
    for n in range(args.count):
        case = draw(rng, args.healthy)
        # The kind of the mask's own layer declares it as well.
        blind = case.blind and "layer" not in case.context and rng.random() < args.blind
        key, inputs_of, label = write(args.out, n, case, blind)
        inputs[key], labels[key] = inputs_of, label
    (args.out / "inputs.json").write_text(json.dumps(inputs, indent=1))
    (args.out / "labels.json").write_text(json.dumps(labels, indent=1))
    faulty = sum(v["faulty"] for v in labels.values())
    print(f"{args.count} cases in {args.out}: {faulty} faulty, {args.count - faulty} correct")


if __name__ == "__main__":
    main()
