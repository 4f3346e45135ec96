"""`noren.fold` against the unfolded sequences: tokens, masks, losses, gradients and bits.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import noren as nr
from conftest import runs
import pytest

BATCHES = runs(30, 125)
FLEX_BATCHES = runs(3, 10)
Tokens = list[list[int]]


def rollouts(rng: random.Random, most: int = 16, vocabulary: int = 40) -> Tokens:
    """Returns 1 to `most` sequences with shared prefixes of up to 5 levels."""
    count = rng.randint(1, most)
    kind = rng.random()
    made: Tokens = []
    while len(made) < count:
        if made and kind < 0.8 and rng.random() < 0.85:
            start = rng.choice(made)
            start = start[: rng.randint(0 if kind < 0.4 else 1, len(start))]
        else:
            start = []
        tail = [rng.randrange(vocabulary if rng.random() < 0.7 else 3) for _ in range(rng.randint(0 if start else 1, 9))]
        if len(start) + len(tail) <= 32:
            made.append(start + tail)
    return made


def test_tokens_positions_and_masks() -> None:
    rng = random.Random(1)
    for _ in range(300):
        sequences = rollouts(rng)
        longest = max(map(len, sequences))
        budget = rng.choice([None, longest, longest + 7, 3 * longest])
        most = rng.choice([None, None, 1, 2])
        fold = nr.fold(sequences, budget=budget, max_prompts=most, pad_token_id=99)
        if budget is None and most is None:
            assert fold.token_count == len({tuple(tokens[: end + 1]) for tokens in sequences for end in range(len(tokens))})
        assert fold.unfolded_token_count == sum(map(len, sequences))
        assert [part.tolist() for part in fold.unfold(fold.input_ids)] == sequences
        assert [part.tolist() for part in fold.unfold(fold.position_ids)] == [list(range(len(tokens))) for tokens in sequences]
        assert all(fold.lengths[row] <= (budget or 10**9) for row, _ in fold.sequences)
        rows, length = fold.input_ids.shape
        for window, chunk in [(None, None), (rng.randint(1, 6), None), (None, rng.randint(1, 6))]:
            cells = np.zeros((rows, length, length), np.bool_)
            for row, slots in fold.sequences:
                for at, q in enumerate(slots):
                    for k in range(at + 1):
                        cells[row, q, slots[k]] |= (window is None or at - k < window) and (chunk is None or at // chunk == k // chunk)
            dense = fold.tree(window=window, chunk=chunk).dense(fold.shape())
            assert (dense[:, 0] == cells).all()
        for row in range(rows):
            assert (fold.input_ids[row, fold.lengths[row] :] == 99).all() and (fold.parents[row, fold.lengths[row] :] == -1).all()


def test_limits() -> None:
    sequences = [[1, 2, 3, 4], [1, 2, 5, 6], [7, 8], [7, 9]]
    assert nr.fold(sequences).token_count == 9
    assert nr.fold(sequences, min_prefix=2).token_count == 10
    assert nr.fold(sequences, max_prompts=1).lengths == (6, 3)
    assert nr.fold(sequences, budget=4).lengths == (4, 4, 3)
    assert [len(slots) for _, slots in nr.fold(sequences, max_length=2).sequences] == [2, 2, 2, 2]
    assert nr.fold([[3], [3], [3]]).token_count == 1


def test_wrong_input() -> None:
    def message(*arguments: Any, **options: Any) -> str:
        with pytest.raises((TypeError, nr.Error)) as caught:
            nr.fold(*arguments, **options)
        return str(caught.value)

    assert message([]) == "fold: there are no sequences: give at least one"
    assert message([[1], []]) == "fold: sequence 1 is empty: give sequences with at least one token"
    assert message([[1, 2, 3]], budget=2).startswith("fold: sequence 0 has 3 tokens, but the budget is 2")
    assert message("text").startswith("sequences is 'text'")
    assert message([[1, -2]]).startswith("sequence 0 holds -2")
    assert message([[1.5]]).startswith("sequence 0 holds float64")
    assert message([{"input_ids": [1]}, [1]]).startswith("sequence 1 is a list, but sequence 0 is a mapping")
    assert message([{"ids": [1]}]).startswith('sequence 0 has no "input_ids"')
    assert message([{"input_ids": [1, 2], "loss_mask": [1]}]).startswith("loss_mask of sequence 0 has 1 entries")
    assert message([{"input_ids": [1, 2], "loss_mask": [1, 2]}]).startswith("loss_mask of sequence 0 holds 2")
    assert message([[1]], budget=0).startswith("budget is 0")
    assert message([[1]], min_prefix=True).startswith("min_prefix is True")
    assert message([[1]], max_length="x").startswith("max_length is 'x'")
    assert message([[1, 2], np.array([1.0, 2.0])]) == "sequence 1 holds float64: give whole numbers"
    assert message([[1, 2], np.array([True, False])]) == "sequence 1 holds booleans: give token ids"
    assert message([[1, 2], ["a"]]).startswith("sequence 1 holds")
    assert message([[1], [[2]]]).startswith("sequence 1 has shape (1, 1)")
    mixed = nr.fold([np.array([1, 2], np.int32), [1, 3], np.array([1, 2], np.uint8)])
    assert mixed.token_count == 3 and mixed.input_ids.dtype == np.int64
    assert nr.fold([[3, 4]] * 500).label_weights.tolist() == [[0, 500]]  # equal sequences count one by one
    fold = nr.fold([[1, 2], [1, 3]])
    with pytest.raises(nr.Error, match="its first dimensions must be"):
        fold.unfold(np.zeros((2, 3)))
    with pytest.raises(TypeError, match="`values` is a list"):
        fold.unfold([1])  # type: ignore[arg-type]


def test_fuzz() -> None:
    rng = random.Random(9)
    values = [None, 0, 1, -1, 3, 2.5, "a", "", b"x", [], [1], [[1]], [[1, 2], [1]], {}, [{}], True, float("nan"), [[]], [None], [[2**63]], [["a"]], [[1], "b"], range(3), object, 10**30, np.arange(4), np.zeros((2, 2)), [np.arange(3)], [{"input_ids": [1, 2], "loss_mask": [0, 1]}], [[True]]]
    for _ in range(runs(400, 2000)):
        options = {name: rng.choice(values) for name in ("budget", "min_prefix", "max_prompts", "max_length", "pad_token_id") if rng.random() < 0.3}
        try:
            nr.fold(rng.choice(values), **options)
        except (TypeError, nr.Error) as error:
            assert str(error) and "NoneType" not in str(error)


@pytest.fixture
def one_thread() -> Any:
    """Limits PyTorch to one thread: the work of tiny models is less than that of handing it to other threads."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(kind: str) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import noren.hf

    noren.hf.register()
    torch.manual_seed(3)
    options: dict[str, Any] = dict(
        vocab_size=40, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64
    )
    if kind == "gemma3_text":
        options |= dict(head_dim=8, sliding_window=5, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], query_pre_attn_scalar=8)
    if kind == "qwen3":
        options |= dict(head_dim=8)
    if kind == "mistral":
        options |= dict(sliding_window=6)
    made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **options), attn_implementation="noren")
    return made.eval()


def unfolded_loss(made: Any, sequences: Tokens, masks: list[list[int]]) -> Any:
    """Returns the mean loss over the labels of padded sequences, with PyTorch's attention."""
    import torch

    width = max(map(len, sequences))
    ids, real, learned = (torch.zeros(len(sequences), width, dtype=torch.long) for _ in range(3))
    for row, (tokens, mask) in enumerate(zip(sequences, masks, strict=True)):
        ids[row, : len(tokens)], real[row, : len(tokens)], learned[row, : len(tokens)] = torch.tensor(tokens), 1, torch.tensor(mask)
    logits = made(ids, attention_mask=real, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(sequences), -1)
    return (losses * learned[:, 1:]).sum() / learned[:, 1:].sum().clamp(min=1)


def equal_gradients(made: Any, first: Any, second: Any) -> None:
    """Asserts that the two functions return the same loss, with the same gradients of all parameters of the model `made`."""
    import torch

    losses, gradients = [], []
    for call in (first, second):
        made.zero_grad()
        loss = call()
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in made.parameters()])
    assert abs(losses[0] - losses[1]) <= 1e-5 * max(1.0, abs(losses[1]))
    largest = max(float(gradient.abs().max()) for gradient in gradients[1])
    for own, other in zip(*gradients, strict=True):
        assert float((own - other).abs().max()) <= 1e-5 * max(largest, 1e-3)


def with_attention(made: Any, name: str, call: Any) -> Any:
    made.set_attn_implementation(name)
    return call()


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text", "mistral"])
def test_losses_and_gradients_are_those_of_the_unfolded_batch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    rng = random.Random(len(kind))
    made = model(kind)
    for case in range(BATCHES):
        sequences = rollouts(rng)
        masks = [[int(rng.random() < 0.7) if case % 3 else 1 for _ in tokens] for tokens in sequences]
        budget = rng.choice([None, 32, 50])
        fold = nr.fold([{"input_ids": t, "loss_mask": m} for t, m in zip(sequences, masks, strict=True)], budget=budget)
        equal_gradients(
            made,
            lambda fold=fold: with_attention(made, "noren", lambda: fold.loss(made(**fold.inputs()).logits)),
            lambda given=(sequences, masks): with_attention(made, "eager", lambda: unfolded_loss(made, *given)),
        )
        if case < 10:
            made.set_attn_implementation("noren")
            logits = made(**fold.inputs()).logits.detach()
            for tokens, found in zip(sequences, fold.log_probs(logits), strict=True):
                alone = made(torch.tensor([tokens]), use_cache=False).logits[0].log_softmax(-1)
                expected = alone[:-1].gather(1, torch.tensor(tokens)[1:, None])[:, 0]
                assert found.shape == expected.shape and torch.allclose(found, expected.to(found.dtype), atol=2e-5)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3_text"])
def test_flex_attention_with_the_exported_mask_has_the_same_loss_and_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.nn.attention import flex_attention as flex

    # PyTorch has this backward pass for CPUs, in its implementation without kernels, and refuses to call it.
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None, raising=False)
    blocks: dict[int | None, Any] = {}

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **_: Any) -> Any:
        mask = blocks[getattr(module, "sliding_window", None)]
        return flex.flex_attention(query, key, value, block_mask=mask, scale=scaling, enable_gqa=True).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("fold_flex", attend)
    transformers.masking_utils.AttentionMaskInterface.register("fold_flex", lambda *_, **__: None)
    rng = random.Random(8)
    made = model(kind)
    for _ in range(FLEX_BATCHES):
        sequences = rollouts(rng)
        fold = nr.fold(sequences, budget=rng.choice([None, 40]))
        for window in {None, getattr(made.config, "sliding_window", None)}:
            blocks[window] = nr.to_flex(fold.plan(heads=4, kv_heads=2, mask=fold.tree(window=window)))
        given = {name: value for name, value in fold.inputs().items() if name in ("input_ids", "position_ids")}
        equal_gradients(
            made,
            lambda fold=fold, given=given: with_attention(made, "fold_flex", lambda: fold.loss(made(**given, use_cache=False).logits)),
            lambda sequences=sequences: with_attention(
                made, "eager", lambda: unfolded_loss(made, sequences, [[1] * len(tokens) for tokens in sequences])
            ),
        )


def test_a_model_that_cannot_be_folded_is_refused() -> None:
    torch = pytest.importorskip("torch")
    made = model("llama")
    fold = nr.fold([[1, 2, 3], [1, 2, 4]])
    arguments = fold.inputs()
    arguments["input_ids"] = torch.ones(1, 9, dtype=torch.long)
    arguments["position_ids"] = arguments["attention_mask"] = None
    with pytest.raises(nr.Error, match="but the rows of the fold are"):
        made(**arguments)
    with pytest.raises(nr.Error, match="vocabulary"):
        fold.loss(torch.zeros(1, 4, 3))
    with pytest.raises(nr.Error, match="give \\[rows, length, vocabulary\\]"):
        fold.loss(torch.zeros(2, 4, 9))
    with pytest.raises(TypeError, match="give a tensor of floats"):
        fold.loss([1])  # type: ignore[arg-type]


def test_attention_has_the_values_of_each_sequence_alone() -> None:
    torch = pytest.importorskip("torch")
    import noren.torch as nt
    from torch.nn.attention.flex_attention import flex_attention

    rng = random.Random(5)
    generator = torch.Generator().manual_seed(5)
    for case in range(60):
        sequences = rollouts(rng)
        fold = nr.fold(sequences, budget=rng.choice([None, 40]))
        rows, length = fold.input_ids.shape
        q, k, v = (torch.randn(rows, heads, length, 16, generator=generator) for heads in (4, 2, 2))
        window = rng.choice([None, 3])
        out = nt.attention(q, k, v, fold.tree(window=window)).transpose(1, 2)
        alone_mask = "causal" if window is None else f"sliding({window})"
        for (row, slots), found in zip(fold.sequences, fold.unfold(out), strict=True):
            alone = nt.attention(q[row : row + 1, :, slots], k[row : row + 1, :, slots], v[row : row + 1, :, slots], alone_mask)
            assert torch.allclose(found, alone[0].transpose(0, 1), atol=2e-6)
        if case < 12:
            mask = nr.to_flex(fold.plan(heads=4, kv_heads=2, mask=fold.tree(window=window)))
            flex = flex_attention(q, k, v, block_mask=mask, enable_gqa=True).transpose(1, 2)
            for own, other in zip(fold.unfold(out), fold.unfold(flex), strict=True):
                assert torch.allclose(own, other, atol=2e-6)


def test_tokens_whose_keys_are_one_run_have_the_bits_of_their_sequence_alone() -> None:
    torch = pytest.importorskip("torch")
    import noren.torch as nt

    rng = random.Random(5)
    generator = torch.Generator().manual_seed(5)
    compared = 0
    for _ in range(60):
        fold = nr.fold(rollouts(rng))
        q, k, v = (torch.randn(1, heads, fold.input_ids.shape[1], 16, generator=generator) for heads in (4, 2, 2))
        out = nt.attention(q, k, v, fold.plan(4, 2)).transpose(1, 2)
        for (_, slots), found in zip(fold.sequences, fold.unfold(out), strict=True):
            run = int((slots - slots[0] == np.arange(len(slots))).sum())  # the tokens before the first gap
            alone = nt.attention(q[:, :, slots], k[:, :, slots], v[:, :, slots], "causal")[0].transpose(0, 1)
            assert torch.equal(found[:run], alone[:run])
            compared += run
    assert compared > 1000


def test_token_counts_are_the_numbers_of_distinct_prefixes() -> None:
    rng = random.Random(12)
    for _ in range(500):
        sequences = rollouts(rng)
        prefixes = {tuple(tokens[: end + 1]) for tokens in sequences for end in range(len(tokens))}
        fold = nr.fold(sequences)
        assert fold.token_count == len(prefixes) and fold.input_ids.shape[0] == 1
        assert sum(fold.label_weights.flatten()) == sum(len(tokens) - 1 for tokens in sequences)
