#!/usr/bin/env python3
"""Times noren beside PyTorch's SDPA and FlexAttention in one run and prints the ratios.

    python -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt   # FlexAttention wants a C++ compiler
    .venv/bin/python benches/peers/run.py [--masks full,causal,swa256,docs8] [--dims 64,128] [--len 4096] [--json]

Peers take turns, round after round, each measurement in a process of its own; a figure is the median of the rounds'
medians, and a ratio is the median of the rounds' ratios (peer time / noren time: above 1, noren is faster).
GFLOP/s count 4 * head_dim for each allowed pair of each head, whatever a peer computes beside.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import masks as M

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ("noren", "sdpa", "sdpa_bool", "flex")


class Unsupported(Exception):
    """The peer cannot say this mask, or cannot run it here."""


# --- one measurement, in a process of its own ---------------------------------------------------------------------


def torch_inputs(case):
    import torch

    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    shape = (1, case["heads"], case["len"], case["dim"])
    return torch, *(torch.randn(shape) for _ in range(3))


def sdpa(case):
    """scaled_dot_product_attention without a mask tensor."""
    if case["mask"] not in ("full", "causal"):
        raise Unsupported("no mask argument says it")
    torch, q, k, v = torch_inputs(case)
    causal = case["mask"] == "causal"
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sdpa_bool(case):
    """scaled_dot_product_attention with a dense boolean mask, made before the timed runs."""
    if case["mask"] == "full":
        raise Unsupported("needs no mask")
    torch, q, k, v = torch_inputs(case)
    keep = torch.from_numpy(M.dense_keep(case["mask"], case["heads"], case["len"]))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)


def flex(case):
    """FlexAttention, compiled; the block mask and the compilation come before the timed runs."""
    torch, q, k, v = torch_inputs(case)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n, heads = case["len"], case["heads"]
    documents = torch.from_numpy(M.document_ids(n))
    mods = {
        "causal": lambda b, h, q, k: k <= q,
        "swa256": lambda b, h, q, k: (k <= q) & (q - k < M.WINDOW),
        "padding": lambda b, h, q, k: k < n // 2,
        "docs8": lambda b, h, q, k: (documents[q] == documents[k]) & (k <= q),
    }

    def perhead(b, h, q, k):
        group = h * 4 // heads
        low = torch.where(group == 0, mods["causal"](b, h, q, k), mods["swa256"](b, h, q, k))
        high = torch.where(group == 2, mods["docs8"](b, h, q, k), mods["padding"](b, h, q, k))
        return torch.where(group < 2, low, high)

    mod = perhead if case["mask"] == "perhead" else mods.get(case["mask"])
    per_head = heads if case["mask"] == "perhead" else None
    block_mask = mod and create_block_mask(mod, None, per_head, n, n, device="cpu")
    compiled = torch.compile(flex_attention)
    return lambda: compiled(q, k, v, block_mask=block_mask)


def measure(case):
    """Prints the times of one peer in milliseconds."""
    import torch

    try:
        with torch.no_grad():
            run = globals()[case["peer"]](case)
            start = time.perf_counter()
            run()  # compiles, warms up
            once = time.perf_counter()
            run()
            once = time.perf_counter() - once
            while time.perf_counter() - start < 0.3:
                run()
            times = []
            for _ in range(max(5, min(15, int(case["budget"] / once)))):
                start = time.perf_counter()
                run()
                times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"ms": times}))
    except Unsupported as e:
        print(json.dumps({"error": str(e)}))


def measure_in_child(case, program):
    """The times of one measurement in milliseconds, or None with the reason on stderr."""
    threads = str(case["threads"])
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, RAYON_NUM_THREADS=threads)
    if case["peer"] == "noren":
        keys = {"mask": "mask", "h": "heads", "hkv": "heads", "d": "dim", "n": "len", "m": "len", "threads": "threads"}
        args = [str(program)] + [x for k, v in keys.items() for x in (f"--{k}", str(case[v]))]
        args += ["--dtype", "f32", "--op", "fwd", "--runs", "15", "--minruns", "5", "--budget", str(case["budget"])]
    else:
        args = [sys.executable, str(HERE / "run.py"), "--child", json.dumps(case)]
    done = subprocess.run(args, capture_output=True, text=True, env=env, cwd=HERE)
    lines = done.stdout.strip().splitlines()
    result = json.loads(lines[-1]) if done.returncode == 0 and lines else {"error": done.stderr.strip()[-300:]}
    if "error" in result and "no mask" not in result["error"]:
        print(f"{case['peer']} {case['mask']}: {result['error']}", file=sys.stderr)
    return result.get("ms")


# --- the comparison -----------------------------------------------------------------------------------------------


def build_noren():
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "noren", "--example", "peer"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return (target / "release" / "examples" / "peer").resolve()


def compare(case, peers, rounds, program):
    """One row: medians in milliseconds by peer and ratios to noren."""
    medians = {peer: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            if medians[peer] is None:
                continue
            times = measure_in_child(dict(case, peer=peer), program)
            medians[peer] = medians[peer] + [statistics.median(times)] if times else None
    flop = 4 * case["dim"] * M.allowed_pairs(case["mask"], case["heads"], case["len"])
    ours = medians.get("noren")
    row = dict(case, peers={})
    for peer, ms in medians.items():
        if ms is None:
            continue
        middle = statistics.median(ms)
        row["peers"][peer] = {"ms": round(middle, 3), "gflops": round(flop / middle / 1e6, 1)}
        if ours and peer != "noren":
            row["peers"][peer]["ratio"] = round(statistics.median(p / o for p, o in zip(ms, ours)), 2)
    return row


def machine():
    name = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return f"{name}, {os.cpu_count()} cores, {platform.system()}; commit {commit.stdout.strip()}; {date.today()}"


def show(row, peers):
    cells = [f"{row['mask']:8}", f"{row['dim']:>4}", f"{row['len']:>6}"]
    for peer in peers:
        figure = row["peers"].get(peer)
        if figure is None:
            cells.append(f"{'-':>24}")
        else:
            ratio = f"{figure['ratio']:.2f}x" if "ratio" in figure else ""
            cells.append(f"{figure['ms']:>9.2f} {figure['gflops']:>6.0f} {ratio:>7}")
    print("  ".join(cells), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--masks", default=",".join(M.MASKS))
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--dims", default="64,128", help="head_dim, a list")
    p.add_argument("--len", default="4096", help="sequence length, a list")
    p.add_argument("--heads", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--budget", type=float, default=3.0, help="seconds of timed runs aimed at, for each measurement")
    p.add_argument("--json", action="store_true", help="one line of JSON for each row instead of the table")
    p.add_argument("--child", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        return measure(json.loads(a.child))
    peers = a.peers.split(",")
    unknown = set(peers) - set(PEERS) or set(a.masks.split(",")) - set(M.MASKS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; peers are {', '.join(PEERS)}, masks {', '.join(M.MASKS)}")
    program = build_noren()
    if not a.json:
        print(f"# f32 forward, {a.heads} heads, {a.threads} threads; {machine()}")
        print("# ms, GFLOP/s on allowed pairs, and peer time / noren time")
        print("  ".join(["mask    ", " dim", "   len"] + [f"{peer:>24}" for peer in peers]))
    for n in a.len.split(","):
        for dim in a.dims.split(","):
            for mask in a.masks.split(","):
                case = {"mask": mask, "dim": int(dim), "len": int(n), "heads": a.heads, "threads": a.threads}
                row = compare(dict(case, budget=a.budget), peers, a.rounds, program)
                print(json.dumps(row), flush=True) if a.json else show(row, peers)


if __name__ == "__main__":
    main()
