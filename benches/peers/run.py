#!/usr/bin/env python3
"""Times noren and other projects' attention in one run and prints the ratios.

    python -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt   # FlexAttention needs a C++ compiler
    .venv/bin/python benches/peers/run.py [--ops fwd,fwdbwd,decode,batch] [--dtypes f32,bf16,f16] [--masks full,causal] [--dims 64]
    .venv/bin/python benches/peers/run.py --peers all --len 1024
    .venv/bin/python benches/peers/run.py --publish        # everything; adds this machine to docs/performance.md
    .venv/bin/python benches/peers/run.py --publish --isa avx2  # the same without AVX-512, for noren and SDPA

Peers take turns, round after round, each measurement in a process of its own; a figure is the median of the rounds'
medians, and a ratio is the median of the rounds' ratios (peer time / noren time: above 1, noren is faster). A peer that is so
slow that five runs take four times the budget is measured once only.
GFLOP/s count operations of allowed pairs of each head, whatever a peer computes beside: 4 * head_dim forward and decoding,
14 * head_dim forward and backward. `batch` is a forward pass over 32 padded rows of unequal length, selected with a short
--len; the mask is made in each run, from the lengths. GB/s of decoding count the allowed keys and values once for each key-value head.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tomllib
from datetime import date
from importlib import metadata
from pathlib import Path

import masks as M
import report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NATIVE = {"candle": ("peer-candle", "flash"), "candle_plain": ("peer-candle", "plain"), "burn": ("peer-burn", "")}
PEERS = ("noren", "sdpa", "sdpa_bool", "flex", "ort", *NATIVE)
USUAL_PEERS = ("noren", "sdpa", "sdpa_bool", "flex")
OPS = ("fwd", "fwdbwd", "decode", "batch")
DTYPES = ("f32", "bf16", "f16")
USUAL_MASKS = ("full", "causal", "swa256", "docs8")
BATCH = 32  # rows of `batch`
SIZE = {"f32": 4, "bf16": 2, "f16": 2}
CASE = ("op", "dtype", "mask", "dim", "m")  # the fields that distinguish the rows of one run
FLOP = {"fwd": 4, "fwdbwd": 14, "decode": 4, "batch": 4}  # times head_dim, for each allowed pair

# What --publish measures: ops, dtypes, masks, dims, lengths, peers.
PUBLISHED = (
    ("fwd", "f32", USUAL_MASKS, (64,), (4096,), PEERS),
    ("fwd", "f32", USUAL_MASKS, (128,), (4096,), USUAL_PEERS),
    ("fwd", "bf16", USUAL_MASKS, (64,), (4096,), USUAL_PEERS),
    ("fwdbwd", "f32,bf16", USUAL_MASKS, (64,), (4096,), ("noren", "sdpa", "sdpa_bool")),
    ("batch", "f32,bf16", ("padding",), (64,), (64, 256), ("noren", "sdpa_bool")),
    ("decode", "f32,bf16,f16", ("full",), (128,), (1024, 32768), ("noren", "sdpa", "flex", "ort")),
)


# --- building -----------------------------------------------------------------------------------------------------


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def build(peers, command=False):
    """Builds the programs to measure; returns them by peer, with None for a program that does not build."""
    cargo = ["cargo", "build", "--release", "-q"]
    programs = {}
    if "noren" in peers:
        subprocess.run([*cargo, "-p", "noren", "--example", "peer"], cwd=ROOT, check=True)
        programs["noren"] = target() / "release" / "examples" / "peer"
    if command:
        subprocess.run([*cargo, "-p", "noren-cli"], cwd=ROOT, check=True)
        programs["command"] = target() / "release" / "noren"
    native = [peer for peer in NATIVE if peer in peers]
    if native:
        # All in one build: in separate builds, shared packages would be built again with other features.
        env = dict(os.environ, RUSTFLAGS="-C target-cpu=native", CARGO_TARGET_DIR=str(target() / "peers"))
        done = subprocess.run([*cargo, "--keep-going"], cwd=HERE / "native", env=env)
        paths = {peer: target() / "peers" / "release" / NATIVE[peer][0] for peer in native}
        programs |= {peer: path if done.returncode == 0 and path.exists() else None for peer, path in paths.items()}
    return programs


# --- one measurement, in a process of its own ---------------------------------------------------------------------


def arguments(case, programs):
    peer = case["peer"]
    if peer not in programs:
        return [sys.executable, str(HERE / "peers.py"), json.dumps(case)]
    keys = {"mask": "mask", "h": "heads", "hkv": "kv_heads", "d": "dim", "n": "n", "m": "m", "threads": "threads", "dtype": "dtype", "batch": "batch"}
    given = [x for k, v in keys.items() for x in (f"--{k}", str(case[v]))]
    # In noren's program, a decode step is a forward pass of one query over many keys.
    given += ["--op", "fwdbwd" if case["op"] == "fwdbwd" else "fwd", "--budget", str(case["budget"])]
    given += ["--runs", "15", "--minruns", "5"] if peer == "noren" else ["--impl", NATIVE[peer][1]]
    return [str(programs[peer]), *given]


# The variables that keep noren, and PyTorch with its libraries, to AVX2 on a processor that has AVX-512.
AVX2 = {"NOREN_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
AVX2_PEERS = ("noren", "sdpa", "sdpa_bool")  # the others choose their instructions themselves


def environment(isa):
    """The variables of a process that uses this instruction set; None is the best one of the processor."""
    return dict(os.environ, **(AVX2 if isa == "avx2" else {}))


def measure(case, programs, timeout):
    """`{"ms": [..]}`, or `{"error": ".."}`."""
    if case["op"] == "batch" and case["peer"] in NATIVE:
        return {"error": "not measured on batches"}
    if programs.get(case["peer"], True) is None:
        return {"error": "does not build here"}
    threads = str(case["threads"])
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    env = environment(case["isa"]) | {name: threads for name in names}
    command = arguments(case, programs)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=HERE, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {timeout:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    last = done.stderr.strip().splitlines() or [""]
    return {"error": f"ended with {done.returncode}: {last[-1][:200]}"}


# --- the comparison -----------------------------------------------------------------------------------------------


def compare(case, peers, rounds, programs, timeout):
    """Returns one row: medians by peer and ratios to noren, or the reason for a missing result."""
    medians, errors = {peer: [] for peer in peers}, {}
    for turn in range(rounds):
        for peer in peers:
            slow = medians[peer] and 5 * medians[peer][0] > 4e3 * case["budget"]
            if peer in errors or slow:
                continue
            result = measure(dict(case, peer=peer), programs, timeout)
            if "ms" in result:
                medians[peer].append(statistics.median(result["ms"]))
            else:
                errors[peer] = result["error"]
    n, m, heads, kv_heads = (case[x] for x in ("n", "m", "heads", "kv_heads"))
    pairs = M.allowed_pairs(case["mask"], heads, n, m)
    if case["op"] == "batch":
        pairs = heads * n * sum(M.batch_lengths(case["batch"], m))
    row = {k: v for k, v in case.items() if k not in ("budget", "isa")} | {"allowed": pairs, "peers": {}}
    ours = medians.get("noren")
    for peer in peers:
        if peer in errors:
            row["peers"][peer] = {"error": errors[peer]}
            continue
        middle = statistics.median(medians[peer])
        figure = {"ms": round(middle, 4), "gflops": round(FLOP[case["op"]] * case["dim"] * pairs / middle / 1e6, 2)}
        if case["op"] == "decode":
            read = 2 * pairs / heads * kv_heads * case["dim"] * SIZE[case["dtype"]]
            figure["gb_per_s"] = round(read / middle / 1e6, 2)
        if ours and peer != "noren":
            figure["ratio"] = round(statistics.median(p / o for p, o in zip(medians[peer], ours)), 3)
        row["peers"][peer] = figure
    return row


def cases(ops, dtypes, masks, dims, lens, args):
    """Every combination. A decode step has one query, more heads than key-value heads, and by default no mask; a batch is padded."""
    for op in ops:
        heads, kv_heads = {"decode": (32, 8), "batch": (12, 12)}.get(op, (16, 16))
        if op == "batch" and set(masks or ["padding"]) != {"padding"}:
            sys.exit("--masks: `batch` is of padded rows: leave it out, or give padding")
        usual = {"decode": ("full",), "batch": ("padding",)}.get(op, USUAL_MASKS)
        heads, kv_heads = args.heads or heads, args.kv_heads or args.heads or kv_heads
        for length in lens:
            for dtype in dtypes:
                for dim in dims:
                    for mask in masks or usual:
                        n = 1 if op == "decode" else length
                        yield dict(op=op, dtype=dtype, mask=mask, dim=dim, n=n, m=length, heads=heads, kv_heads=kv_heads,
                                   batch=BATCH if op == "batch" else 1, threads=args.threads, budget=args.budget, isa=args.isa)


def machine():
    lines = [line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line]
    entries = {key.strip(): value.strip() for key, value in reversed(lines)}
    name = entries.get("model name", platform.machine())
    if "cpu family" in entries:
        name += f" (family {entries['cpu family']}, model {entries['model']})"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {"processor": name, "cores": os.cpu_count(), "system": platform.system(), "commit": commit.stdout.strip(),
            "date": str(date.today())}


def versions(peers):
    found = {}
    for package in ("torch", "onnxruntime"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    lock = HERE / "native" / "Cargo.lock"
    if lock.exists() and set(NATIVE) & set(peers):
        packages = tomllib.loads(lock.read_text())["package"]
        found |= {p["name"]: p["version"] for p in packages if p["name"] in ("candle-nn", "burn-flex")}
    return found


def show(row, peers):
    cells = [f"{row['op']:6}", f"{row['dtype']:4}", f"{row['mask']:8}", f"{row['dim']:>4}", f"{row['m']:>6}"]
    for peer in peers:
        figure = row["peers"].get(peer, {})
        if "ms" not in figure:
            cells.append(f"{'-':>24}")
            continue
        rate = figure.get("gb_per_s", figure["gflops"])
        ratio = f"{figure['ratio']:.2f}x" if "ratio" in figure else ""
        cells.append(f"{figure['ms']:>9.2f} {rate:>6.0f} {ratio:>7}")
    print("  ".join(cells), flush=True)


def run(groups, args, document):
    """Measures groups of (cases, peers), one row after the other; `document` grows and is saved with each."""
    peers = [peer for peer in PEERS if any(peer in group for _, group in groups)]
    programs = build(peers, args.publish)
    document |= {"machine": machine(), "versions": versions(peers), "threads": args.threads, "kept_to": args.isa, "peers": peers, "rows": []}
    m = document["machine"]
    earlier = rows_of(args.json, document) if args.resume else []
    print(f"# {m['processor']}, {m['cores']} cores, {args.threads} threads; commit {m['commit']}; {m['date']}")
    print("# ms, GFLOP/s on allowed pairs (decode: GB/s), and peer time / noren time")
    print("  ".join(["op    ", "type", "mask    ", " dim", "   len"] + [f"{peer:>24}" for peer in peers]), flush=True)
    reported = set()
    for group, its_peers in groups:
        for case in group:
            kept = [row for row in earlier if all(row[key] == case[key] for key in CASE)]
            row = kept[0] if kept else compare(case, its_peers, args.rounds, programs, args.timeout)
            document["rows"].append(row)
            show(row, peers)
            for peer, figure in row["peers"].items():
                if "error" in figure and (peer, figure["error"]) not in reported:
                    reported.add((peer, figure["error"]))
                    print(f"# {peer}: {case['op']} {case['dtype']} {case['mask']}: {figure['error']}", file=sys.stderr)
            save(document, args.json)
    return programs


def rows_of(path, document):
    """Returns the undisturbed rows that an earlier run on the same machine, commit and versions wrote to `path`."""
    if not path or not Path(path).exists():
        return []
    earlier = json.loads(Path(path).read_text())
    different = [key for key in ("machine", "versions", "threads", "kept_to") if earlier[key] != document[key]]
    if different:
        sys.exit(f"--resume: {path} is of another run: different {', '.join(different)}; remove the file to start again")
    return [row for row in earlier["rows"] if not report.disturbed(row)]


def save(document, path):
    if path:
        Path(path).write_text(json.dumps(document, indent=1) + "\n")


def publish(args, document):
    """Measures the cases of docs/performance.md, then the machine's limits, and writes the page."""
    groups = []
    for ops, dtypes, masks, dims, lens, peers in PUBLISHED:
        lens = numbers(args.len) if args.len else lens
        group = cases(ops.split(","), dtypes.split(","), masks, dims, lens, args)
        groups.append((list(group), [p for p in peers if p in args.peers]))
    programs = run(groups, args, document)
    bench = [str(programs["command"]), "bench", "--json", "--budget", str(args.budget)]
    if args.len:
        bench += ["--lens", args.len]
    done = subprocess.run(bench, capture_output=True, text=True, check=True, env=environment(args.isa))
    document["bench"] = json.loads(done.stdout)
    document["isa"] = document["bench"]["isa"]
    if args.isa:
        document["notes"] = [f"noren and PyTorch were kept to {args.isa} by variables of their environment; the processor has more."]
    save(document, args.json)
    if rows := [row for row in document["rows"] if report.disturbed(row)]:
        for row in rows:
            show(row, document["peers"])
        sys.exit("not published: ratios of these rows and the quotients of their medians differ by more than 15 %: run again with --resume")
    report.add(document, ROOT / "docs")


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", help=f"a list of {', '.join(PEERS)}, or all [default: {', '.join(USUAL_PEERS)}]")
    p.add_argument("--ops", default="fwd", help=f"a list of {', '.join(OPS)}")
    p.add_argument("--dtypes", default="f32", help=f"a list of {', '.join(DTYPES)}")
    p.add_argument("--masks", help=f"a list of {', '.join(M.MASKS)} [default: {', '.join(USUAL_MASKS)}; decode: full; batch: padding]")
    p.add_argument("--dims", default="64,128", help="head_dim, a list")
    p.add_argument("--len", help="sequence length, a list; keys in the cache of decode [default: 4096]")
    p.add_argument("--heads", type=int, help="query heads [default: 16, decode: 32, batch: 12]")
    p.add_argument("--kv-heads", type=int, help="key-value heads [default: as many as heads, and 8 for decode]")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--budget", type=float, default=3.0, help="seconds of timed runs aimed at, for each measurement")
    p.add_argument("--timeout", type=float, default=600.0, help="seconds after which a measurement is given up")
    p.add_argument("--json", metavar="FILE", help="write everything to this file, after every row")
    p.add_argument("--resume", action="store_true", help="keep the undisturbed rows that the file of --json has from an earlier run of the same day and commit")
    p.add_argument("--publish", action="store_true", help="measure what docs/performance.md shows, and add this machine to it")
    p.add_argument("--isa", choices=["avx2"], help="keep noren and PyTorch to this instruction set [default: all that the processor has]")
    p.add_argument("--page", action="store_true", help="write docs/performance.md and the table of README.md again from docs/performance.json, without measuring")
    a = p.parse_args()
    if a.page:
        return report.write(ROOT / "docs")
    usual = PEERS if a.publish or a.peers == "all" else USUAL_PEERS
    if a.isa:
        usual = AVX2_PEERS
    a.peers = usual if a.peers in (None, "all") else tuple(a.peers.split(","))
    for name, given, known in (("peers", a.peers, PEERS), ("ops", a.ops.split(","), OPS),
                               ("dtypes", a.dtypes.split(","), DTYPES), ("masks", (a.masks or "full").split(","), M.MASKS)):
        if unknown := sorted(set(given) - set(known)):
            sys.exit(f"--{name}: unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    if a.isa and (others := set(a.peers) - set(AVX2_PEERS)):
        sys.exit(f"--isa: {', '.join(sorted(others))} cannot be kept to {a.isa}: give --peers {','.join(AVX2_PEERS)} or fewer")
    document = {}
    if a.publish:
        return publish(a, document)
    masks = a.masks and a.masks.split(",")
    group = cases(a.ops.split(","), a.dtypes.split(","), masks, numbers(a.dims), numbers(a.len or "4096"), a)
    run([(list(group), list(a.peers))], a, document)


if __name__ == "__main__":
    main()
