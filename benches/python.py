#!/usr/bin/env python3
"""Measures the Python package: the overhead of a call, of mask functions, and folded rollouts.

    python -m venv .venv && .venv/bin/pip install torch ./crates/apps/noren-python
    .venv/bin/python benches/python.py [call] [function] [fold]

`call` fails if `noren.torch.sdpa` takes 30 microseconds more than its kernel. `function` prints what mask functions add
to a call, and fails if one that returns a text adds 200 microseconds. `fold` trains a model
of two layers on 64 rollouts of one prompt, folded and padded, and fails if folding takes 50 ms or is less than 3 times as fast as the padded batch with SDPA; it needs
transformers.
"""

import statistics
import sys
import time

import noren as nr
import noren.torch as nt
import torch
from noren.torch._dynamic import plan_of_call
from noren.torch._mask_call import Inputs, MaskCall, Own
from torch.nn.functional import scaled_dot_product_attention

MOST_OVERHEAD, MOST_FUNCTION, MOST_FOLD, LEAST_FOLD = 30e-6, 200e-6, 50e-3, 3.0
FOLD_ROUNDS = 3


def median(call, least=5, budget=0.5):
    """Returns the median time of a call."""
    times = []
    while len(times) < least or sum(times) < budget:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def call():
    q, k, v = (torch.ones(1, 1, 1, 8) for _ in range(3))
    nt.sdpa(q, k, v)
    whole = median(lambda: nt.sdpa(q, k, v))
    theirs = median(lambda: scaled_dot_product_attention(q, k, v))
    print(f"one query, one key: noren.torch.sdpa {whole * 1e6:.1f} us, PyTorch's own {theirs * 1e6:.1f} us")
    return whole < MOST_OVERHEAD, f"overhead of a call at most {whole * 1e6:.1f} us (at most {MOST_OVERHEAD * 1e6:.0f})"


def function():
    n = 1024
    q = torch.randn(1, 8, n, 64)
    chosen = torch.rand(1, n) < 0.5
    cells = torch.rand(n, n) < 0.5
    full = nr.full().plan(nr.Shape(n, n, heads=8))
    own = Own(full.mask, full.bound.facts, full.shape)

    def overhead(made):
        """Returns the time to call a mask function and to find the plan of its result."""
        call = lambda: MaskCall(layer=0, part="self", module=None, query=q, key=q, scale=None, own=own, inputs=Inputs())
        return median(lambda: plan_of_call(made, call()), 50, 0.2)

    causal = median(lambda: nt.attention(q, q, q, "causal"))
    print(f"8 heads, {n} queries and keys, head size 64: causal attention takes {causal * 1e6:.0f} us")
    for name, made in [
        ("a text", lambda call: "causal"),
        ("an expression", lambda call: nr.causal()),
        ("call.keys, half of the keys", lambda call: nr.causal() & call.keys(chosen)),
        ("call.keep, half of all cells", lambda call: nr.causal() & call.keep(cells)),
        ("call.top_blocks of block_estimates", lambda call: call.top_blocks(call.block_estimates(64), 4)),
    ]:
        print(f"overhead of a call: {name:36}{overhead(made) * 1e6:8.0f} us")
    worst = max(overhead(made) for made in (lambda call: "causal", lambda call: nr.causal()))
    return worst < MOST_FUNCTION, f"a mask function that returns a text or an expression adds {worst * 1e6:.0f} us (at most {MOST_FUNCTION * 1e6:.0f})"


def fold():
    """Times training on 64 rollouts of one prompt: folded, and as a padded batch in steps of 8 rows with SDPA and with noren."""
    import noren.hf
    from transformers import AutoConfig, AutoModelForCausalLM

    noren.hf.register()
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(0, 1000, (2048,), generator=generator)
    rows = [torch.cat([prompt, torch.randint(0, 1000, (512,), generator=generator)]) for _ in range(64)]
    sequences = [{"input_ids": row, "loss_mask": [0] * 2048 + [1] * 512} for row in rows]
    planned = median(lambda: nr.fold(sequences).plan(heads=8, kv_heads=2), 5)
    made = nr.fold(sequences)
    print(f"{made}; fold and plan {planned * 1e3:.1f} ms")
    sizes = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, vocab_size=1000)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", max_position_embeddings=4096, **sizes), attn_implementation="noren")
    ids = torch.stack(rows)

    def folded():
        model.zero_grad()
        made.loss(model(**made.inputs()).logits).backward()

    def padded():
        model.zero_grad()
        for part in ids.split(8):
            logits = model(part, use_cache=False).logits[:, 2047:-1]
            (torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 2048:].flatten()) / 8).backward()

    # The speed of a machine changes within minutes, so that the three are measured alternately.
    times: dict[str, list[float]] = {"folded": [], "noren": [], "sdpa": []}
    gradients = []
    for _ in range(FOLD_ROUNDS):
        for name, spent in times.items():
            model.set_attn_implementation("sdpa" if name == "sdpa" else "noren")
            spent.append(median(folded if name == "folded" else padded, 1, 0))
            if name == "folded":
                gradients = [parameter.grad.clone() for parameter in model.parameters()]
    ours = statistics.median(times["folded"])
    for name in ("sdpa", "noren"):
        theirs = statistics.median(times[name])
        print(f"forward and backward: folded {ours:.2f} s, padded batch with {name} {theirs:.2f} s, {theirs / ours:.2f} times as long (medians of {FOLD_ROUNDS} rounds)")
    largest = max(float(parameter.grad.abs().max()) for parameter in model.parameters())
    gap = max(float((own - parameter.grad).abs().max()) for own, parameter in zip(gradients, model.parameters())) / largest
    ratio = statistics.median(times["sdpa"]) / ours
    good = planned < MOST_FOLD and ratio > LEAST_FOLD and gap < 1e-5
    return good, f"folding takes {planned * 1e3:.1f} ms, training is {ratio:.2f} times as fast as the padded batch with SDPA, gradients differ by {gap:.1e} of the largest"


def main():
    failed = False
    for part in sys.argv[1:] or ["call", "function", "fold"]:
        good, words = {"call": call, "function": function, "fold": fold}[part]()
        print(f"{'ok' if good else 'FAILED'}: {words}\n")
        failed |= not good
    sys.exit(failed)


if __name__ == "__main__":
    main()
