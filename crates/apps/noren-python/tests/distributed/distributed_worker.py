"""The code of the processes of test_distributed.py; imported once, by the server that forks them."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from conftest import corpus
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import noren as nr
import noren.distributed as nd
import noren.distributed.hf
import noren.hf
import noren.torch as nt
from noren.distributed import _wire

PATIENCE = 2.0
"""The seconds that ranks wait for each other in tests that lose a rank."""


def run(rank: int, ranks: int, folder: str, name: str, *arguments: Any) -> None:
    """Runs one process and writes its output or its error to `folder/rank.txt`."""
    torch.set_num_threads(1)
    report = Path(folder) / f"{rank}.txt"
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60)
        )
        said = globals()[name](rank, ranks, *arguments)
        report.write_text(f"done {said or ''}")
    except BaseException:
        report.write_text(traceback.format_exc())
        os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


# --- the same as in one process -------------------------------------------------------------------------------------


def close(found: Tensor, expected: Tensor, tolerance: float = 0.0) -> None:
    """Asserts equality to 1e-6 of the largest value (at least 1), plus `tolerance`."""
    assert found.shape == expected.shape and not found.isnan().any()
    if found.numel():
        scale = max(1.0, float(expected.abs().max()))
        worst = float((found - expected).abs().max())
        assert worst <= 1e-6 * scale + tolerance, f"{worst} of {scale}, {tolerance}"


def draw(shape: nr.Shape, head_dim: int, v_dim: int) -> list[Tensor]:
    """Returns random queries, keys, values and a gradient of outputs, whole and equal on every rank, from -1 to 1."""
    generator = torch.Generator().manual_seed(shape.q_len * 31 + shape.kv_len)
    sizes = [(shape.heads, shape.q_len, head_dim), (shape.kv_heads, shape.kv_len, head_dim)]
    sizes += [(shape.kv_heads, shape.kv_len, v_dim), (shape.heads, shape.q_len, v_dim)]
    return [2 * torch.rand(shape.batch, *size, generator=generator) - 1 for size in sizes]


def alone(plan: nr.Plan, arrays: list[Tensor], **options: Any) -> list[Tensor]:
    """Returns output, log-sum-exps and gradients, computed in one process."""
    q, k, v, dout = (t.clone() for t in arrays)
    for t in (q, k, v):
        t.requires_grad_(True)
    out, lse = nt.attention(q, k, v, plan, return_lse=True, **options)
    out.backward(dout)
    return [out.detach(), lse, *(t.grad for t in (q, k, v) if t.grad is not None)]


def exact(
    plan: nr.Plan, arrays: list[Tensor], scale: float | None = None, softcap: float | None = None, alibi: Any = None
) -> list[Tensor]:
    """Returns output, log-sum-exps and gradients by the definition, in float64."""
    q, k, v, dout = (t.double() for t in arrays)
    for t in (q, k, v):
        t.requires_grad_(True)
    keys, values = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ keys.mT * (scale or q.shape[3] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi is not None:
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        scores = scores - torch.tensor(alibi, dtype=torch.float64)[:, None, None] * distance.abs()
    keep = torch.from_numpy(plan.bound.dense()).expand_as(scores)
    scores = scores.masked_fill(~keep, -torch.inf)
    top = scores.amax(-1, keepdim=True).clamp_min(-1e300)
    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True)
    out = weights @ values / total.where(total > 0, 1)
    out.backward(dout)
    lse = (top + torch.log(total)).squeeze(-1).detach()
    return [out.detach(), lse, *(t.grad for t in (q, k, v) if t.grad is not None)]


def together(split: nd.Split, arrays: list[Tensor], **options: Any) -> list[Tensor]:
    """Returns this rank's part of output, log-sum-exps and gradients, computed by all ranks."""
    q, k, v, dout = arrays
    mine = [split.take_rows(q), split.take_keys(k), split.take_keys(v)]
    for t in mine:
        t.requires_grad_(True)
    before = split.traffic
    out, lse = nd.attention(*mine, split, return_lse=True, **options)
    middle = split.traffic
    out.backward(split.take_rows(dout))
    predicted = split.predicted(q.shape[3], v.shape[3], q.element_size())
    if q.shape[3] == v.shape[3]:
        both = [n for name in ("forward", "backward") for n in (predicted[name].received, predicted[name].sent)]
        assert split.partition.traffic(split.rank, q.shape[3], q.element_size()) == both
    for name, start, end in (("forward", before, middle), ("backward", middle, split.traffic)):
        assert (end.sent - start.sent, end.received - start.received) == (predicted[name].sent, predicted[name].received)
    return [out.detach(), lse, *(t.grad for t in mine if t.grad is not None)]


def check(
    split: nd.Split, arrays: list[Tensor], expected: list[Tensor], rooms: Sequence[float] = (0.0,) * 5, **options: Any
) -> list[Tensor]:
    found = together(split, arrays, **options)
    takes = [split.take_rows, split.take_rows, split.take_rows, split.take_keys, split.take_keys]
    for n, (part, whole, take) in enumerate(zip(found, expected, takes, strict=True)):
        wanted = take(whole, fill=-torch.inf if n == 1 else 0)
        if n == 1:
            assert (part.isinf() == wanted.isinf()).all()
            part, wanted = part.nan_to_num(neginf=0), wanted.nan_to_num(neginf=0)
        close(part, wanted, rooms[n])
    return found


def groups(ranks: int, least: int = 2) -> dict[int, Any]:
    """Returns a group of the first `n` ranks for each `n`, by `n`."""
    return {n: dist.new_group(list(range(n))) for n in range(least, ranks + 1)}


def equal_on_the_corpus(rank: int, ranks: int) -> str:
    """Checks every mask of the corpus over 2, 3 and 4 ranks, with and without queries that are sent.

    Every eighth case runs twice, the second time with delayed ranks.
    """
    found, by_size = {"keys travel": 0, "queries travel": 0}, groups(ranks)
    problems: list[str] = []
    for number, drawn in enumerate(case for case in corpus() if "message" not in case.case):
        bound = drawn.bind()
        shape = bound.shape
        if shape.heads == 1:
            shape = nr.Shape(
                shape.q_len, shape.kv_len, query_offset=shape.query_offsets, batch=shape.batch, heads=4, kv_heads=2
            )
            bound = bound.mask.bind(shape, bound.facts)
        plan, arrays = bound.plan(), draw(shape, 8, 8 if number % 2 else 5)
        expected = alone(plan, arrays)
        for size, group in by_size.items():
            if rank < size:
                ways = [nd.partition(plan, size, travel=travel) for travel in ("keys", "both")]
                for partition in ways if ways[0].hash != ways[1].hash else ways[:1]:
                    try:
                        split = nd.Split(plan, partition, group=group)
                        first = check(split, arrays, expected)
                        if number % 8 == 0:
                            time.sleep(0.002 * random.random())
                            again = together(split, arrays)
                            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), "other bits"
                        found["queries travel" if split.queries_travel else "keys travel"] += 1
                    except AssertionError as error:  # the other ranks do not see the error and continue
                        problems.append(f"{drawn.id}: {bound.mask} over {size} ranks, {partition}: {error}")
    assert not problems, "\n".join(problems)
    return json.dumps(found)


def equal_at_all_sizes(rank: int, ranks: int, travel: str) -> None:
    """Checks lengths that the number of ranks does not divide, fewer tokens than ranks, options, types and long rows.

    In sums over hundreds of rows, one process too has an error of more than 1e-6 against float64; a group may have that error.
    """
    by_size = groups(ranks, 1)
    cases: list[tuple[str, nr.Shape, dict[str, Any], dict[str, Any]]] = [
        ("causal", nr.Shape.square(n, batch=2, heads=4, kv_heads=2), {}, {}) for n in (1, 2, 3, 5, 97)
    ]
    packed = {"documents": [[300, 57, 400], [757]]}
    cases += [
        ("causal & documents", nr.Shape.square(757, batch=2, heads=4, kv_heads=1), packed, {}),
        ("causal & documents | global([3, 500])", nr.Shape.square(757, batch=2, heads=2, kv_heads=2), packed, {"softcap": 5.0}),
        ("causal", nr.Shape.square(500, heads=4, kv_heads=2), {}, {"alibi": (0.5, 0.25, 0.125, 0.06), "scale": 0.3}),
        ("causal & padding(side=left)", nr.Shape.square(400, batch=2, heads=2), {"lengths": [400, 131]}, {}),
        ("causal & stride(3) | sliding(20)", nr.Shape.square(300, heads=2), {}, {}),
        ("causal", nr.Shape.cached(300, 40, heads=4, kv_heads=2), {}, {}),
        ("full", nr.Shape.cross(70, 333, heads=2), {}, {}),
        ("none", nr.Shape.square(20, heads=2), {}, {}),
    ]
    for mask, shape, facts, options in cases:
        plan, arrays = nr.Mask(mask).plan(shape, facts), draw(shape, 16, 12)
        expected = [t.float() for t in exact(plan, arrays, **options)]
        off = (a - b for a, b in zip(alone(plan, arrays, **options), expected, strict=True))
        rooms = [float(t.nan_to_num(0).abs().max()) for t in off]
        for size, group in by_size.items():
            if rank < size:
                split = nd.Split(plan, group=group, travel=travel)
                first = check(split, arrays, expected, rooms, **options)
                time.sleep(0.01 * random.random())
                again = together(split, arrays, **options)
                assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), f"{mask}: other bits"
    low_precision(travel)
    decoding()
    hugging_face(travel)


def low_precision(travel: str) -> None:
    shape = nr.Shape.square(200, heads=4, kv_heads=2)
    plan = nr.Mask("sliding(50) | global([7])").plan(shape)
    split, arrays = nd.Split(plan, travel=travel), [t.bfloat16() for t in draw(shape, 16, 16)]
    expected = alone(plan, [t.float() for t in arrays])
    found = together(split, arrays)
    assert [t.dtype for t in found] == [torch.bfloat16, torch.float32] + [torch.bfloat16] * 3
    takes = [split.take_rows, split.take_rows, split.take_rows, split.take_keys, split.take_keys]
    for part, whole, take in zip(found, expected, takes, strict=True):
        assert torch.allclose(part.float(), take(whole), rtol=1e-2, atol=1e-2)


def decoding() -> None:
    for past, new, mask in ((99, 1, "causal"), (70, 5, "sliding(16) | keys(0..2)"), (2, 1, "causal")):
        shape = nr.Shape.cached(past, new, batch=2, heads=4, kv_heads=2)
        plan, (q, k, v, _) = nr.Mask(mask).plan(shape), draw(shape, 16, 12)
        expected, sums = nt.attention(q, k, v, plan, return_lse=True)
        for keys in (None, [[], [(0, past + new)], [], []]):
            shards = nd.Shards(plan, keys)
            held = shards.keys()
            out, lse = nd.decode(q, k[:, :, held], v[:, :, held], shards, return_lse=True)
            close(out, expected)
            close(lse, sums)
            assert (shards.traffic.sent, shards.traffic.received) == (shards.predicted(12).sent, shards.predicted(12).received)
            same = shards.wire.gather(out)
            assert all(torch.equal(other, out) for other in same)


def hugging_face(travel: str) -> None:
    """Checks a Llama on packed documents: loss and gradients equal those of one process."""
    noren.hf.register()
    nd.hf.register()
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    lengths = [40, 33, 24]
    ids = torch.randint(50, (1, sum(lengths)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(n) for n in lengths]).unsqueeze(0)

    def step(loss: Tensor) -> list[Tensor]:
        model.zero_grad()
        loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / ids.numel()

    model.set_attn_implementation("noren")
    whole = loss_of(model(ids, position_ids=positions, use_cache=False).logits, ids)
    expected = step(whole)

    model.set_attn_implementation("noren-distributed")
    plan = (nr.causal() & nr.documents(lengths)).plan(nr.Shape.square(sum(lengths), heads=4, kv_heads=2))
    split = nd.Split(plan, travel=travel)
    mine, at = split.take_rows(ids, dim=1), split.take_rows(positions, dim=1)
    with nd.hf.over(split):
        part = loss_of(model(mine, position_ids=at, use_cache=False).logits, mine)
    step(part)
    nd.reduce_gradients(model.parameters(), split)
    close(nd.total(part, split), whole.detach())
    for parameter, grad in zip((p for p in model.parameters() if p.grad is not None), expected, strict=True):
        close(parameter.grad, grad)

    refused = {"no split (division of the sequence over processes) is set": None, "allows earlier keys": split}
    for words, chosen in refused.items():
        try:
            q = torch.zeros(1, 4, len(split.rows()), 8)
            k = torch.zeros(1, 2, len(split.keys()), 8)
            with nd.hf.over(chosen):  # type: ignore[arg-type]
                nd.hf.attention_forward(model, q, k, k, None, sliding_window=8)
        except nr.Error as error:
            assert words in str(error)
        else:
            raise AssertionError(words)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def disagree(rank: int, ranks: int) -> None:
    """Checks that each difference between ranks is an error on every rank that names it, and that the group still works."""
    shape = nr.Shape.square(64, heads=2)
    odd = rank == 1
    causal, other = nr.causal().plan(shape), nr.sliding(63).plan(shape)
    mine = nd.Split(causal)
    looser, equal = (nd.partition(causal, ranks, objective=objective) for objective in ("traffic", "tokens"))

    def call(split: nd.Split, dtype: torch.dtype = torch.float32, head_dim: int = 8, **options: Any) -> None:
        q, k, v, _ = (t.to(dtype) for t in draw(split.plan.shape, head_dim, 8))
        nd.attention(split.take_rows(q), split.take_keys(k), split.take_keys(v), split, **options)

    def facts(lengths: list[int]) -> nd.Split:
        return nd.Split((nr.causal() & nr.padding()).plan(shape, {"lengths": lengths}))

    def wrong_call() -> None:
        if odd:
            mine.wire.agree("the gradients of attention", {})
        else:
            call(mine)

    ways: dict[str, Callable[[], None]] = {
        "differ in: mask": lambda: call(nd.Split(other if odd else causal)),
        "differ in: shape": lambda: call(nd.Split(nr.causal().plan(nr.Shape.square(65, heads=2))) if odd else mine),
        "differ in: facts": lambda: call(facts([60 + odd])),
        "differ in: partition": lambda: call(nd.Split(causal, looser if odd else equal)),
        "differ in: types": lambda: call(mine, torch.bfloat16 if odd else torch.float32),
        "differ in: head_dim and v_dim": lambda: call(mine, head_dim=16 if odd else 8),
        "differ in: options": lambda: call(mine, scale=0.5 if odd else None),
        "make different calls": wrong_call,
    }
    for words, way in ways.items():
        try:
            way()
        except nd.Disagreement as error:
            assert words in str(error), str(error)
            assert f"rank {rank} of {ranks}" in str(error)
        else:
            raise AssertionError(f"no rank raised an error: {words}")
    try:
        q, k, v, _ = draw(shape, 8, 8)
        nd.attention(q if odd else mine.take_rows(q), mine.take_keys(k), mine.take_keys(v), mine)
    except nr.Error as error:
        assert odd and "q has shape [1, 2, 64, 8]" in str(error)
    except nd.Disagreement as error:
        assert not odd and "rank 1 refused the input" in str(error)
    call(nd.Split(causal))


def lose_a_rank(rank: int, ranks: int, how: str, when: str) -> None:
    """Kills or stops the last rank; the other ranks must raise an error."""
    shape = nr.Shape.square(200, heads=2)
    split, arrays = nd.Split(nr.causal().plan(shape), timeout=PATIENCE), draw(shape, 8, 8)
    together(split, arrays)
    lost = rank == ranks - 1
    if lost and when == "before the agreement":
        os.kill(os.getpid(), getattr(signal, how))
    if lost and when == "in the exchange":
        begin, exchanges = _wire.Exchange.__init__, itertools.count()

        def exchange(self: _wire.Exchange, *arguments: Any) -> None:
            if next(exchanges) == 1:  # the first is the agreement
                os.kill(os.getpid(), getattr(signal, how))
            begin(self, *arguments)

        _wire.Exchange.__init__ = exchange  # type: ignore[method-assign]
    together(split, arrays)
