#!/usr/bin/env python3
"""Times linear layers of noren and of PyTorch in bf16, in turns.

    python -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt
    .venv/bin/python benches/peers/linear.py [--threads 1] [--rounds 5] [--rows 64,256,1024,4096] [--shapes 384x1536,...]

Each round is some calls of noren and then some of PyTorch. Prints the GFLOP/s of noren's fastest call, and PyTorch's time by noren's:
of the fastest calls, and of the medians. noren reads and writes f32, PyTorch's arrays are all bf16.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHAPES = "384x1536,1536x384,768x768,768x3072,2048x2048,2048x5632"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="16,64,256,1024,4096")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--command", default="cargo bench -q -p noren --bench linear --")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # before torch is loaded
    import torch

    torch.set_num_threads(args.threads)
    command = [*args.command.split(), "peer", str(args.threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    noren = subprocess.Popen(command, cwd=ROOT, text=True, bufsize=1, **pipes)

    def ours(rows, inputs, outputs):
        noren.stdin.write(f"{rows} {inputs} {outputs}\n")
        return [float(seconds) for seconds in noren.stdout.readline().split()]

    def theirs(x, weight):
        times, begun = [], time.perf_counter()
        while time.perf_counter() - begun < 0.06 or len(times) < 3:
            start = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            times.append(time.perf_counter() - start)
        return times

    print(f"{'shape':>20} {'GFLOP/s':>8} {'fastest':>8} {'median':>8}")
    with torch.inference_mode():
        for shape in args.shapes.split(","):
            inputs, outputs = map(int, shape.split("x"))
            weight = torch.randn(outputs, inputs).bfloat16()
            for rows in map(int, args.rows.split(",")):
                x, times = torch.randn(rows, inputs).bfloat16(), ([], [])
                for _ in range(args.rounds):
                    times[0].extend(ours(rows, inputs, outputs))
                    times[1].extend(theirs(x, weight))
                (fast, middle), (fast_peer, middle_peer) = ((min(t), statistics.median(t)) for t in times)
                rate = 2 * rows * inputs * outputs / fast / 1e9
                name = f"{rows}x{inputs}x{outputs}"
                print(f"{name:>20} {rate:8.0f} {fast_peer / fast:8.2f} {middle_peer / middle:8.2f}", flush=True)


if __name__ == "__main__":
    main()
