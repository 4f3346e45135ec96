"""Times noren's attention on a GPU beside PyTorch's, FlexAttention and flash-attention, in one run, and prints the ratios.

    python benches/gpu.py                                  # causal, windows, documents, prefix, tree; forward, backward, decode
    python benches/gpu.py --lens 4096,131072 --masks causal,docs8 --ops fwd
    python benches/gpu.py --publish                        # adds this GPU to docs/performance.md
    TRITON_INTERPRET=1 python benches/gpu.py --simulate    # tiny sizes in Triton's interpreter: tests this program, times mean nothing

A figure is the median of the rounds; a ratio is the median of the rounds' ratios (peer time / noren time: above 1, noren is faster).
`plan` is the time to make noren's plan, to copy its arrays and to compute once, or to make FlexAttention's block mask: needed for each new mask. GFLOP/s count operations of allowed pairs: 4 * head_dim forward and decoding, 10 * head_dim backward.
"""

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import torch

import noren as nr
import noren.torch as nt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches" / "peers"))
WINDOW, PREFIX = 256, 0.25
MASKS = ("causal", "swa256", "docs8", "prefix", "tree")
OPS = ("fwd", "bwd", "decode")


def documents(n):
    """Returns the lengths of eight documents that fill n tokens."""
    borders = np.concatenate([[0], np.cumsum((1, 2, 1, 3, 4, 2, 2, 1))]) * n // 16
    return np.diff(borders).tolist()


def expression(name, n):
    """Returns noren's mask and its facts."""
    if name == "docs8":
        return nr.causal() & nr.documents(), {"documents": documents(n)}
    if name == "tree":  # a prompt of half the tokens, and eight continuations that share it
        prompt, rest = n // 2, n - n // 2
        part = rest // 8
        groups = nr.documents([prompt, *[part] * 7, rest - 7 * part])
        return nr.causal() & (groups | nr.keys(range(prompt))), {}
    texts = {"causal": "causal", "swa256": f"sliding({WINDOW})", "prefix": f"causal | prefix({int(n * PREFIX)})"}
    return nr.Mask(texts[name]), {}


def mod(name, n, device):
    """Returns the same mask as FlexAttention's mask_mod."""
    ids = torch.from_numpy(np.repeat(np.arange(8), documents(n)).astype(np.int32)).to(device)
    prompt, part = n // 2, (n - n // 2) // 8
    return {
        "causal": lambda b, h, q, k: k <= q,
        "swa256": lambda b, h, q, k: (k <= q) & (q - k < WINDOW),
        "docs8": lambda b, h, q, k: (ids[q] == ids[k]) & (k <= q),
        "prefix": lambda b, h, q, k: (k <= q) | ((q < int(n * PREFIX)) & (k < int(n * PREFIX))),
        "tree": lambda b, h, q, k: (k <= q) & ((k < prompt) | (((q - prompt) // part).clamp(max=7) == ((k - prompt) // part).clamp(max=7))),
    }[name]


class Clock:
    """Times calls on the device: with events on a GPU, with the wall clock in the interpreter."""

    def __init__(self, device, runs):
        self.device, self.runs = device, runs

    def milliseconds(self, run):
        run()
        times = []
        for _ in range(self.runs):
            if self.device == "cpu":
                begin = time.perf_counter()
                run()
                times.append(1e3 * (time.perf_counter() - begin))
                continue
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return median(times)

    def wall(self, make):
        begin = time.perf_counter()
        made = make()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return made, 1e3 * (time.perf_counter() - begin)


def peers(case, device, simulate):
    """Gives (peer, function that makes its mask, function of the mask that returns attention(q, k, v)); None where it has no mask."""
    name, n = case["mask"], case["len"]
    one = case["op"] == "decode"
    shape = nr.Shape.cached(n - 1, 1, heads=case["heads"], kv_heads=case["kv_heads"]) if one else nr.Shape.square(n, heads=case["heads"], kv_heads=case["kv_heads"])
    mask, facts = expression("causal" if one else name, n)

    def planned():
        plan = mask.plan(shape, nr.Facts(**facts))
        with torch.no_grad():  # makes the arrays and copies them to the device; the run itself is short beside them
            like = [torch.zeros(1, h, n, case["dim"], device=device) for h, n in ((case["heads"], shape.q_len), *[(case["kv_heads"], shape.kv_len)] * 2)]
            nt.attention(*(x.to(getattr(torch, case["dtype"])) for x in like), plan)
        return plan

    yield "noren", planned, lambda plan: lambda q, k, v: nt.attention(q, k, v, plan)
    grouped = case["heads"] != case["kv_heads"]
    if name == "causal":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        kinds = {"SDPA": None} if simulate else {"SDPA flash": SDPBackend.FLASH_ATTENTION, "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION}
        for label, kind in kinds.items():

            def sdpa(q, k, v, kind=kind):
                with nullcontext() if kind is None else sdpa_kernel(kind):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=not one, enable_gqa=grouped)

            yield label, lambda: None, lambda _, sdpa=sdpa: sdpa
    if not one:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        compiled = flex_attention if simulate else torch.compile(flex_attention)
        make = lambda: create_block_mask(mod(name, n, device), None, None, n, n, device=device)
        yield "FlexAttention", make, lambda made: lambda q, k, v: compiled(q, k, v, block_mask=made, enable_gqa=grouped)
    yield from flash_attention(case, one, device)


def flash_attention(case, one, device):
    """The package flash-attn, where it is installed and has the mask."""
    try:
        from flash_attn import flash_attn_func, flash_attn_varlen_func
    except ImportError:
        return
    across = lambda q, k, v: [x.transpose(1, 2) for x in (q, k, v)]
    if case["mask"] in ("causal", "swa256"):
        window = (WINDOW - 1, 0) if case["mask"] == "swa256" else (-1, -1)
        yield "flash-attn", lambda: None, lambda _: lambda q, k, v: flash_attn_func(*across(q, k, v), causal=not one, window_size=window).transpose(1, 2)
    if case["mask"] == "docs8" and not one:
        lens = documents(case["len"])
        borders = torch.tensor(np.concatenate([[0], np.cumsum(lens)]), dtype=torch.int32, device=device)
        flat = lambda q, k, v: [x[0].transpose(0, 1) for x in (q, k, v)]
        yield "flash-attn", lambda: None, lambda _: (
            lambda q, k, v: flash_attn_varlen_func(*flat(q, k, v), borders, borders, max(lens), max(lens), causal=True).transpose(0, 1)[None]
        )


def measured(case, device, clock, simulate):
    """Returns {peer: {"ms", "plan_ms"}} of one round; an error text where a peer cannot run."""
    dtype = getattr(torch, case["dtype"])
    one, backward = case["op"] == "decode", case["op"] == "bwd"
    sizes = [(case["heads"], 1 if one else case["len"]), (case["kv_heads"], case["len"]), (case["kv_heads"], case["len"])]
    q, k, v = (torch.randn(1, h, n, case["dim"], device=device).to(dtype).requires_grad_(backward) for h, n in sizes)
    found = {}
    for peer, make, attend in peers(case, device, simulate):
        try:
            made, planning = clock.wall(make)
            run = attend(made)
            if backward:
                out = run(q, k, v)
                towards = torch.randn_like(out)
                took = clock.milliseconds(lambda: torch.autograd.grad(out, (q, k, v), towards, retain_graph=True))
            else:
                with torch.no_grad():
                    took = clock.milliseconds(lambda: run(q, k, v))
            found[peer] = {"ms": took, "plan_ms": planning}
        except Exception as error:
            # Peers raise errors of many types for what they do not support.
            found[peer] = {"error": f"{type(error).__name__}: {str(error)[:120]}"}
    return found


def row_of(case, rounds):
    """Returns the medians of the rounds, with ratios to noren."""
    row = dict(case, peers={})
    for peer in rounds[0]:
        good = [r for r in rounds if "ms" in r[peer] and "ms" in r["noren"]]
        if not good:
            row["peers"][peer] = rounds[0][peer]
            continue
        row["peers"][peer] = {
            "ms": median(r[peer]["ms"] for r in good), "plan_ms": median(r[peer]["plan_ms"] for r in good),
            "ratio": median(r[peer]["ms"] / r["noren"]["ms"] for r in good),
            "with_plan": median((r[peer]["ms"] + r[peer]["plan_ms"]) / (r["noren"]["ms"] + r["noren"]["plan_ms"]) for r in good),
        }  # fmt: skip
    return row


def show(row):
    head = f"{row['op']:6} {row['dtype']:9} {row['mask']:7} {row['dim']:4} {row['len']:7}"
    for peer, figure in row["peers"].items():
        if "error" in figure:
            print(f"{head}  {peer}: {figure['error']}")
        else:
            print(f"{head}  {peer:14} {figure['ms']:9.3f} ms  plan {figure['plan_ms']:8.2f} ms  {figure['ratio']:6.2f}x  with plan {figure['with_plan']:6.2f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--masks", default=",".join(MASKS))
    parser.add_argument("--lens", default="4096,16384,65536,131072")
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=None, help="key-value heads [default: as many as heads, and a quarter for decode]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--publish", action="store_true", help="add this GPU to docs/performance.md")
    parser.add_argument("--simulate", action="store_true", help="tiny sizes in Triton's interpreter, to test this program")
    given = parser.parse_args()
    if given.simulate:
        import noren.gpu

        given.lens, given.dims, given.heads, given.rounds, given.dtype = "96", "16", 2, 1, "float32"
    elif not torch.cuda.is_available():
        parser.exit(1, "error: no CUDA device was found: run this command on the machine with the GPU, or with --simulate\n")
    device = "cpu" if given.simulate else "cuda"
    clock = Clock(device, 1 if given.simulate else 7)
    rows = []
    with noren.gpu.simulate() if given.simulate else nullcontext():
        for op in given.ops.split(","):
            for name in ["causal"] if op == "decode" else given.masks.split(","):
                for dim in map(int, given.dims.split(",")):
                    for n in map(int, given.lens.split(",")):
                        kv_heads = given.kv_heads or (given.heads if op != "decode" else max(1, given.heads // 4))
                        case = {"op": op, "mask": name, "dim": dim, "len": n, "dtype": given.dtype, "heads": given.heads, "kv_heads": kv_heads}
                        rows.append(row_of(case, [measured(case, device, clock, given.simulate) for _ in range(given.rounds)]))
                        show(rows[-1])
    if given.publish and not given.simulate:
        import report

        commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit, "date": str(date.today()), "rows": rows}
        report.add_gpu(json.loads(json.dumps(machine)), ROOT / "docs")


if __name__ == "__main__":
    main()
