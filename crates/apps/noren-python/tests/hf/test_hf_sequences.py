"""Rows with several sequences, folded rows and padded rows, in every decoder of the installed transformers: the logits are those of each
sequence alone, or the model refuses the rows, or there is a warning."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
import noren as nr  # noqa: E402
from conftest import sampled  # noqa: E402
import noren.hf as hf  # noqa: E402
from noren.hf._inputs import READS_PADDING, paths_of  # noqa: E402

import architectures  # noqa: E402  # isort: skip

hf.register()
DECODERS = [kind for kind, role in architectures.architectures() if role == "decoder"]
PARTS = 8
REFUSALS = (nr.Error, TypeError)
RECURRENT = {"linear_attention", "conv", "hybrid", "hybrid_sliding"}
OTHERS = {
    "full_attention", "sliding_attention", "chunked_attention", "window_attention", "indexed_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "minimax_m3_sparse", "moe", "reference_sliding_attention", "sparse", "dense",
}  # fmt: skip
"""Types of layers in configurations of transformers that carry information between tokens by attention only, or not at all."""
DROPS_POSITIONS = ("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "pegasus", "plbart")
"""Models without position_ids, which count the positions of padded rows from the beginning of the row, in eager attention too."""


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(kind: str, attention: str = "noren") -> Any:
    """Returns a tiny model with random weights; None if its tiny form does not run, or if noren refuses the model."""
    auto = architectures.ROLES["decoder"][0]
    if hf.unsupported(architectures.model_class(auto, kind)) is not None:
        return None
    try:
        config = architectures.configuration(kind)
        with torch.device("meta"):
            if sum(p.numel() for p in auto.from_config(config, attn_implementation="eager").parameters()) > architectures.MOST_PARAMETERS:
                return None
        model = architectures.random_model(auto, config, attention)
        numbers = torch.Generator().manual_seed(4)
        for p in model.parameters():
            if p.dim() == 1:  # biases of convolutions, which padding also gets
                p.data += torch.randn(p.shape, generator=numbers) * 0.2
        alone(model, [5, 6, 7])
        return model
    except Exception:
        return None


def alone(model: Any, sequence: list[int]) -> Any:
    with torch.no_grad():
        return model(torch.tensor([sequence]), position_ids=torch.arange(len(sequence))[None], use_cache=False).logits[0]


def gap(got: list[Any], wanted: list[Any]) -> float:
    """Returns the largest difference of logits, divided by the largest logit or 1."""
    largest = max([1.0, *(float(each.abs().max()) for each in wanted)])
    return max(float((a - b).abs().max()) / largest for a, b in zip(got, wanted, strict=True))


def verdict(model: Any, run: Callable[[], list[Any]], wanted: list[Any]) -> str:
    """Returns "equal", "refused", "warned", or the difference."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            off = gap(run(), wanted)
        except REFUSALS as error:
            return f"refused: {error}"
    if off <= 1e-5:
        return "equal"
    return "warned" if any("sequences read each other" in str(each.message) for each in caught) else f"off by {off:.1e}"


def tried(model: Any, rng: random.Random) -> dict[str, str]:
    """Returns the verdicts of packed, folded and padded rows of random sequences."""
    sequences = [[rng.randrange(3, 60) for _ in range(rng.randint(3, 9))] for _ in range(rng.randint(2, 3))]
    sequences.append(sequences[0][: rng.randint(1, 3)] + [rng.randrange(3, 60) for _ in range(rng.randint(2, 5))])
    wanted = [alone(model, each) for each in sequences]
    lengths, longest = [len(each) for each in sequences], max(map(len, sequences))
    tokens = torch.tensor([sum(sequences, [])])
    positions = torch.tensor([[at for length in lengths for at in range(length)]])
    documents = {"noren_mask": "documents", "noren_facts": {"documents": lengths}}
    fold = nr.fold(sequences)

    def packed(**more: Any) -> list[Any]:
        return list(model(tokens, position_ids=positions, **more).logits[0].split(lengths))

    def padded(side: str, written: int = 0) -> list[Any]:
        ids, keep = torch.zeros(len(lengths), longest, dtype=torch.long), torch.zeros(len(lengths), longest, dtype=torch.long)
        spans = [slice(0, n) if side == "right" else slice(longest - n, longest) for n in lengths]
        for row, (span, each) in enumerate(zip(spans, sequences, strict=True)):
            ids[row, span], keep[row, span] = torch.tensor(each), 1
        if written:
            return list(model.generate(ids, attention_mask=keep, max_new_tokens=written, min_new_tokens=written, do_sample=False)[:, longest:].float())
        logits = model(ids, attention_mask=keep, position_ids=(keep.cumsum(-1) - 1).clamp(min=0), use_cache=False).logits
        return [row[span] for row, span in zip(logits, spans, strict=True)]

    runs = {
        "packed": lambda: packed(use_cache=False),
        "packed, documents": lambda: packed(use_cache=False, **documents),
        "packed, cache": packed,
        "packed, attention_mask": lambda: packed(use_cache=False, attention_mask=torch.ones_like(tokens)),
        "folded": lambda: fold.unfold(model(**fold.inputs()).logits),
        "padded on the left": lambda: padded("left"),
        "padded on the right": lambda: padded("right"),
    }
    found = {name: verdict(model, run, wanted) for name, run in runs.items()}
    if paths_of(model):
        texts = [model.generate(torch.tensor([each]), max_new_tokens=4, min_new_tokens=4, do_sample=False)[0, len(each) :].float() for each in sequences]
        found["generated"] = verdict(model, lambda: padded("left", 4), texts)
        found["generated after padding on the right"] = verdict(model, lambda: padded("right", 4), texts)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", sampled(range(PARTS), PARTS))
def test_no_decoder_is_wrong_without_a_word(part: int) -> None:
    count = 0
    for kind in DECODERS[part::PARTS]:
        model = made(kind)
        if model is None:
            continue
        count += 1
        hybrid, drops = bool(paths_of(model)), kind in DROPS_POSITIONS
        for name, found in tried(model, random.Random(kind)).items():
            if name == "packed, documents" and not hybrid and not drops and "consists of several models" not in found:
                assert found == "equal", (kind, name, found)
            if name.startswith(("padded", "generated")) and not found.startswith("refused"):
                assert found == "equal" or (drops and name == "padded on the left"), (kind, name, found)
            if name.startswith("padded") and found.startswith("refused"):
                assert hybrid and kind in READS_PADDING and name == "padded on the left", (kind, name, found)
            if name.startswith(("packed", "folded")) and hybrid:
                assert "carries information from token to token without attention" in found, (kind, name, found)
            assert not found.startswith("off") or (drops and name == "padded on the left"), (kind, name, found)
    assert count > 10


def test_every_kind_of_layer_without_attention_is_found() -> None:
    """Tests the text models of all architectures, those with images included, whose configurations have layers that are not attention or
    that transformers marks as models with a state."""
    from transformers.models.auto import modeling_auto

    assert set(transformers.configuration_utils.ALLOWED_LAYER_TYPES) == RECURRENT | OTHERS, "transformers has other types of layers: add each to RECURRENT or OTHERS"
    hybrids, refused, untried = set(), set(), {}
    kinds = {**modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    for kind, name in sorted(kinds.items()):
        auto = transformers.AutoModelForCausalLM if kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else transformers.AutoModelForImageTextToText
        made_by = getattr(transformers, name if isinstance(name, str) else name[0])
        try:
            config = architectures.configuration(kind)
            text = config.get_text_config(decoder=True)
            if not (made_by._is_stateful or RECURRENT & set(getattr(text, "layer_types", None) or ())):
                continue
            if hf.unsupported(made_by) is not None:
                refused.add(kind)
                continue
            with torch.device("meta"):
                model = auto.from_config(config, attn_implementation="noren")
        except Exception as error:
            untried[kind] = made_by, f"{type(error).__name__}: {str(error)[:200]}"
            continue
        hybrids |= {kind, text.model_type}
        assert paths_of(model), kind
        with pytest.raises(nr.Error, match="carries information from token to token"):
            model(input_ids=torch.ones(1, 6, dtype=torch.long), position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]), use_cache=False)
    print(f"{len(hybrids)} hybrid architectures refuse packed rows: {', '.join(sorted(hybrids))}; refused when made: {', '.join(sorted(refused))}")
    for kind, (made_by, error) in untried.items():
        inner = {getattr(each, "model_type", None) for each in (made_by.config_class.sub_configs or {}).values()}
        print("not made:", kind, "state" if made_by._is_stateful else "", *filter(None, inner), error)
        assert not made_by._is_stateful or inner & hybrids or hf.unsupported(made_by) is not None, kind
    assert len(hybrids) >= 25


if __name__ == "__main__":
    import sys

    torch.set_num_threads(1)
    for kind in sys.argv[1:] or DECODERS:
        model = made(kind)
        if model is None:
            print(kind, "-")
        else:
            print(kind, "HYBRID" if paths_of(model) else "", {k: v[:90] for k, v in tried(model, random.Random(0)).items() if v != "equal"}, flush=True)
