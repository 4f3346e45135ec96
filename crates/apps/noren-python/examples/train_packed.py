"""Trains a small model on packed documents, over several processes or in one; both have equal losses.

    torchrun --standalone --nproc-per-node 4 --max-restarts 3 examples/train_packed.py --folder run
    python examples/train_packed.py                                                   # equal losses in one process

Each step packs documents of new lengths into one row, splits their mask over the ranks, and gives each rank the tokens that it
owns. Documents count up from a random token by a random stride, which the model learns quickly. Rank 0 writes a checkpoint
every few steps. If a process ends or stalls, every rank stops with an error, torchrun restarts all, and training continues
from the checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import noren as nr
import noren.distributed as nd
import noren.torch as nt

TOKENS, LENGTH, DIM, HEADS, KV_HEADS = 64, 1024, 64, 4, 2

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = DIM // HEADS
        self.before, self.between = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, (HEADS + 2 * KV_HEADS) * width)
        self.out = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        heads = self.qkv(self.before(x)).unflatten(-1, (HEADS + 2 * KV_HEADS, -1)).transpose(1, 2)
        mixed = attention(*heads.split([HEADS, KV_HEADS, KV_HEADS], dim=1))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, DIM), nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(DIM, TOKENS)

    def forward(self, ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        x = self.tokens(ids) + self.positions(positions)
        for layer in self.layers:
            x = layer(x, attention)
        return self.head(x)


def packed(step: int) -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Returns the documents of training step `step`, packed into one row, as (lengths of the documents, token ids, positions,
    labels). Token ids, positions and labels are `[1, LENGTH]`. The result depends only on `step`, so every process gets the
    same documents.
    """
    rng = random.Random(step)
    lengths, left = [], LENGTH
    while left:
        lengths.append(min(left, rng.randint(20, 400)))
        left -= lengths[-1]
    starts, strides = ([rng.randrange(TOKENS) for _ in lengths] for _ in range(2))
    counts = [torch.arange(n) for n in lengths]
    ids = torch.cat([(a + s * c) % TOKENS for a, s, c in zip(starts, strides, counts)])
    labels = torch.cat([(a + s * (c + 1)) % TOKENS for a, s, c in zip(starts, strides, counts)])
    labels[torch.tensor(lengths).cumsum(0) - 1] = -100  # nothing follows the end of a document
    return lengths, ids[None], torch.cat(counts)[None], labels[None]


def loss_of(model: Model, step: int, timeout: float) -> float:
    """Returns the loss of training step `step` over the documents of all processes, and adds the gradient of this loss to the
    gradients of the model's parameters.
    """
    lengths, ids, positions, labels = packed(step)
    plan = (nr.causal() & nr.documents(lengths)).plan(nr.Shape.square(LENGTH, heads=HEADS, kv_heads=KV_HEADS))
    whole = (labels != -100).sum()
    if not dist.is_initialized():
        logits = model(ids, positions, lambda q, k, v: nt.attention(q, k, v, plan))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / whole
        loss.backward()
        return loss.item()
    split = nd.Split(plan, timeout=timeout)
    ids, positions, labels = (split.take_rows(t, dim=1) for t in (ids, positions, labels))
    logits = model(ids, positions, lambda q, k, v: nd.attention(q, k, v, split))
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / whole
    loss.backward()
    nd.reduce_gradients(model.parameters(), split)
    return nd.total(loss, split).item()


def say(text: str) -> None:
    """Prints a line in one write, so that lines of several processes do not mix."""
    print(text + "\n", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="the folder to which checkpoints are written, and from which the training continues")
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--timeout", type=float, default=30, help="the maximum number of seconds that processes wait for each other")
    options = parser.parse_args()

    torch.set_num_threads(1)
    if "RANK" in os.environ:  # torchrun
        nd.join(options.timeout)
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first, saved = 0, options.folder and options.folder / "last.pt"
    if saved and saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["steps"]
    say(f"rank {rank}, process {os.getpid()}: training begins at step {first}")

    for step in range(first, options.steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, options.timeout)
        optimizer.step()
        if rank == 0:
            say(f"step {step} loss {loss:.6f}")
            if saved and (step + 1) % options.save_every == 0:
                options.folder.mkdir(parents=True, exist_ok=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": step + 1}
                torch.save(state, saved.with_suffix(".new"))
                saved.with_suffix(".new").replace(saved)  # atomic, so that a checkpoint is never incomplete
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
