#!/usr/bin/env python3
"""Times generation by noren and by transformers over the same random model in one run.

    python -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt
    .venv/bin/python benches/peers/generate.py [--threads 2] [--rounds 3] [--dtypes f32,bf16]

A Llama of 143 million random weights continues a prompt of 32 tokens by 64 tokens, greedily. In `f32` all tokens must be equal.
All take turns, round after round: a figure is the median of the rounds, a ratio the median of the rounds' ratios (above 1, noren is
faster). With bf16, noren's linear layers and transformers' whole model have weights of this type. `NOREN_ISA`, `ATEN_CPU_CAPABILITY`,
`ONEDNN_MAX_CPU_ISA` and `MKL_ENABLE_INSTRUCTIONS` restrict the instructions of noren and of PyTorch.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TORCH = {"f32": "float32", "bf16": "bfloat16"}
PROMPT, NEW = 32, 64


def make(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=1,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def transformers_run(model, ids):
    """Returns the new tokens, the seconds until the first, and the seconds of each further token."""
    import torch

    def timed(new):
        start = time.perf_counter()
        out = model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)
        return time.perf_counter() - start, out[0, PROMPT:].tolist()

    with torch.inference_mode():
        first, _ = timed(1)
        whole, tokens = timed(NEW)
    return tokens, first, (whole - first) / (NEW - 1)


def noren_run(command, folder, dtype, ids, threads):
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    args = [command, folder, dtype, str(NEW), ",".join(str(id) for id in ids[0].tolist())]
    made = json.loads(subprocess.run(args, env=env, check=True, capture_output=True, text=True).stdout)
    return made["tokens"], made["ms"][0] / 1e3, statistics.mean(made["ms"][1:]) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", default="f32,bf16")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # before torch is loaded
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    build = ["cargo", "build", "--release", "-q", "-p", "noren-models", "--example", "generation"]
    subprocess.run(build, cwd=ROOT, check=True)
    command = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "generation"
    ids = torch.randint(5, 8000, (1, PROMPT), generator=torch.Generator().manual_seed(3))
    dtypes = args.dtypes.split(",")
    runs = {(name, dtype): [] for dtype in dtypes for name in ("noren", "transformers")}
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        load = transformers.AutoModelForCausalLM.from_pretrained
        models = {dtype: load(folder, dtype=getattr(torch, TORCH[dtype])).eval() for dtype in dtypes}
        for _ in range(args.rounds):
            for dtype in dtypes:
                ours = noren_run(command, folder, dtype, ids, args.threads)
                theirs = transformers_run(models[dtype], ids)
                assert dtype != "f32" or ours[0] == theirs[0], "other tokens"
                runs["noren", dtype].append(ours[1:])
                runs["transformers", dtype].append(theirs[1:])
    print(f"{PROMPT} tokens and {NEW} new ones, {args.threads} threads, {platform.processor() or platform.machine()}")
    for (name, dtype), times in runs.items():
        first, each = (statistics.median(column) * 1e3 for column in zip(*times))
        pairs = list(zip(times, runs["noren", dtype]))
        ratios = [statistics.median(theirs[i] / ours[i] for theirs, ours in pairs) for i in (0, 1)]
        print(f"{name:12} {dtype:4} first token {first:6.1f} ms ({ratios[0]:.2f}x), each further {each:5.1f} ms ({ratios[1]:.2f}x)")


if __name__ == "__main__":
    main()
