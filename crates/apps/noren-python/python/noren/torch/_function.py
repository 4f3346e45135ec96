"""Attention as an operation of PyTorch with gradients, also under `torch.compile`.

An eager call goes directly to the kernels, through `torch.autograd.Function` if gradients are needed. Under `torch.compile`, the call is
the operator `noren::attention`, which PyTorch does not trace. The mask is passed to the operator as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch import Tensor

from .. import _noren
from .._noren import Error, Facts, Mask, Modifiers, Plan, Spec
from ..arguments import _call
from ..arguments._arrays import Torch
from ..arguments._call import Call, Extras
from ..arguments._given import listed, number
from ..arguments._tensors import DEVICES, check_added, check_dropout, check_eager, check_floats, compiling, lend
from ..cpu import _double
from ..cpu._attention import Masking
from ..cpu._plans import plan_of, sizes_of
from ..cpu._scores import by_distance, modifiers_of, scored, table_of
from ..masks._forms import Sizes, four, given_arrays, parsed
from ._dynamic import MaskFunction, check_given, current_inputs, plan_of_call
from ._mask_call import MaskCall, Own
from ._masks import Given, Lowest, ignored, planned

torch.utils._pytree.register_constant(Mask)  # torch.compile then only compares masks for equality

F = TypeVar("F", bound=Callable[..., Any])
SCORES = (
    "`{}` has score modifiers: give the modifiers as arguments (softcap=, bias=, alibi=, soft=, sinks=), so that tensors can have gradients"
)


def _on_gpu(q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> bool:
    """Returns true if the call uses the GPU kernels. Raises `Error` for tensors on several devices."""
    device = q.device
    if any(t is not None and t.device != device for t in (k, v, *extras.differentiable())):
        names = ["q", "k", "v", *("bias" for _ in extras.bias), "relative", "soft", "sinks"]
        given = zip(names, (q, k, v, *extras.differentiable()), strict=True)
        places = ", ".join(f"{name} on {t.device}" for name, t in given if t is not None)
        raise Error(f"the tensors are on several devices ({places}): move all tensors to one device")
    return _call.simulated or device.type != "cpu"


def _modifiers(call: Call, extras: Extras) -> Modifiers:
    *bias, relative, soft, sinks = (None if t is None else t.detach() for t in extras.differentiable())
    dropout, seed = (0.0, 0) if extras.seed is None else (call.dropout, int(extras.seed))
    return modifiers_of(
        Torch(), scale=call.scale, softcap=call.softcap, bias=bias, relative=relative, alibi=call.alibi, soft=soft, sinks=sinks,
        dropout=dropout, seed=seed,
    )  # fmt: skip


def _doubles(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> tuple[Tensor, Tensor]:
    """Returns (output, log-sum-exps) in float64, computed by operations of PyTorch, so that they have gradients."""
    seed = None if extras.seed is None else int(extras.seed)
    out, lse, _ = _double.attention(
        q, k, v, call.plan, _modifiers(call, extras), scale=call.scale, softcap=call.softcap, bias=extras.bias,
        relative=extras.relative, alibi=call.alibi, soft=extras.soft, sinks=extras.sinks, dropout=0.0 if seed is None else call.dropout, seed=seed or 0,
    )  # fmt: skip
    return out, lse


def forward(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, lse: bool) -> tuple[Tensor, Tensor | None]:
    """Returns (output, log-sum-exps), or (output, None) if `lse` is false."""
    if q.dtype == torch.float64:
        return _doubles(call, q, k, v, extras)
    if _on_gpu(q, k, v, extras):
        from ..gpu import _attention as gpu

        return gpu.forward(call, q, k, v, extras)
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    sums = torch.empty(q.shape[:-1], dtype=torch.float32) if lse else None
    _noren.forward(
        lend(q), lend(k), lend(v), call.plan, _modifiers(call, extras), lend(out),
        None if sums is None else lend(sums),
    )  # fmt: skip
    return out, sums


def gradients(
    call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, saved: tuple[Tensor, Tensor, Tensor], wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Returns the gradients of q, k, v and the tensors of `extras.differentiable()`, in this order; None for a gradient whose entry in
    `wanted` is false."""
    if q.dtype == torch.float64:
        with ThreadPoolExecutor(1) as other:  # inside of an operator, this thread records no gradients
            return other.submit(_double_gradients, call, [q, k, v, *extras.differentiable()], extras.seed, saved[2], wanted).result()
    if _on_gpu(q, k, v, extras):
        from ..gpu import _attention as gpu

        return gpu.gradients(call, q, k, v, extras, saved, wanted)
    grads = [torch.empty(t.shape, dtype=t.dtype) for t in (q, k, v)]
    rest = [
        torch.empty(t.shape, dtype=torch.float32) if t is not None and want else None
        for t, want in zip(extras.differentiable(), wanted, strict=True)
    ]
    *dbias, drelative, dsoft, dsinks = rest
    if extras.relative is not None:
        dbias.append(table_of(drelative))
    if call.alibi is not None:
        dbias.append(None)
    out, lse, dout = saved
    _noren.backward(
        lend(q), lend(k), lend(v), call.plan, _modifiers(call, extras),
        (lend(out), lend(lse), lend(dout)), tuple(map(lend, grads)), dbias, dsoft, dsinks,
    )  # fmt: skip
    named = [None if g is None or t is None else g.to(t.dtype) for g, t in zip(rest, extras.differentiable(), strict=True)]
    return [*grads, *named]


def _double_gradients(call: Call, given: list[Tensor | None], seed: Tensor | None, dout: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """Returns `gradients` of a call in float64; `given` has the tensors in the same order."""
    own = [None if t is None else t.detach().requires_grad_(bool(want)) for t, want in zip(given, (1, 1, 1, *wanted), strict=True)]
    q, k, v, *bias, relative, soft, sinks = own
    assert q is not None and k is not None and v is not None
    with torch.enable_grad():
        out, _ = _doubles(call, q, k, v, Extras([b for b in bias if b is not None], relative, soft, sinks, seed))
    needed = [t for t in own if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(out, needed, dout, allow_unused=True, materialize_grads=True))
    return [next(found) if t is not None and t.requires_grad else None for t in own]


class Differentiable(torch.autograd.Function):
    """`apply(compute, derive, *tensors)` returns `compute(*tensors)`: an output with gradients, and log-sum-exps without. The gradients of
    the tensors are `derive(tensors, (output, log-sum-exps, gradient of the output), wanted)`; `wanted` has one boolean for each tensor."""

    @staticmethod
    def forward(ctx: Any, compute: Any, derive: Any, *tensors: Any) -> Any:
        out, lse = compute(*tensors)
        ctx.save_for_backward(out, lse, *tensors)
        ctx.derive = derive
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Any) -> Any:
        return (None, None, *_Gradients.apply(ctx.derive, ctx.needs_input_grad[2:], dout, *ctx.saved_tensors))


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, derive: Any, wanted: Any, dout: Tensor, out: Tensor, lse: Tensor, *tensors: Any) -> Any:
        return tuple(derive(tensors, (out, lse, dout), wanted))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second(ctx)


def refuse_second(ctx: Any, *_: Any) -> NoReturn:
    raise RuntimeError(
        "noren's attention has no second derivative: differentiate once, or use PyTorch's math backend "
        "(torch.nn.attention.sdpa_kernel(SDPBackend.MATH)) for gradients of gradients"
    )


# --- under torch.compile: an operator that gets its mask as text -------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The arguments of a call under `torch.compile` that are not tensors. The plan is made when the call runs, because it depends on the
    sizes of the tensors."""

    mask: Mask | Plan
    query_offset: int | tuple[int, ...] | None = None
    scale: float | None = None
    softcap: float | None = None
    alibi: tuple[float, ...] | None = None
    dropout: float = 0.0
    extra: int = 0
    """Every query reads the last `extra` keys, even if the mask denies them."""
    lowest: Lowest = "refuse"

    def call(self, q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor]) -> tuple[Call, list[Tensor]]:
        """Returns (call, biases): the call with its plan, and the values that each float mask in `masks` adds to the scores of
        allowed cells."""
        sizes, biases = sizes_of(q, k, v), list[Tensor]()
        if isinstance(self.mask, Mask) and (masks or self.extra):
            given = [Given("attn_mask", mask) for mask in masks]
            plan, biases = planned(self.mask, given, sizes, extra=self.extra, lowest=self.lowest)
        else:
            plan, _ = plan_of(self.mask, sizes, None, self.query_offset)
        return Call(plan, self.scale, self.softcap, self.alibi, self.dropout), biases


def constant(function: Any) -> Any:
    """Marks a function whose result torch.compile stores. `torch.compiler.assume_constant_result` does the same, but it imports the
    compiler."""
    function._dynamo_marked_constant = True
    return function


def uncompiled(function: F) -> F:
    """Marks a function that torch.compile does not trace. `torch.compiler.disable` does the same, but it imports the compiler."""
    outside = cast(Any, torch)._disable_dynamo(function)

    @wraps(function)
    def call(*args: Any) -> Any:
        return (outside if torch.compiler.is_dynamo_compiling() else function)(*args)

    return cast(F, call)


@constant
def source_of(
    mask: Mask | Plan | str, offset: Any, scale: Any, softcap: Any, alibi: Any, dropout: Any, extra: int = 0, lowest: Lowest = "refuse"
) -> str:
    """Returns the arguments as JSON, which compiled and exported graphs contain: a graph can be run by another process."""
    found = parsed(mask) if isinstance(mask, str) else mask
    if isinstance(found, Spec):
        raise Error(SCORES.format(mask))
    written = found.to_json() if isinstance(found, Plan) else str(found)
    return json.dumps([isinstance(found, Plan), written, offset, scale, softcap, alibi, dropout, extra, lowest])


@lru_cache(maxsize=1024)
def _source(text: str) -> Source:
    planned, written, offset, scale, softcap, alibi, *rest = json.loads(text)
    mask: Any = Plan.from_json(written) if planned else parsed(written)
    offset, alibi = (tuple(given) if isinstance(given, list) else given for given in (offset, alibi))
    return Source(mask, offset, scale, softcap, alibi, *rest)


@torch.library.custom_op("noren::attention", mutates_args=())
def operator(
    q: Tensor, k: Tensor, v: Tensor, bias: list[Tensor], relative: Tensor | None, soft: Tensor | None, sinks: Tensor | None,
    seed: Tensor | None, masks: list[Tensor], source: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    call, added = _source(source).call(q, k, v, masks)
    out, lse = forward(call, q, k, v, Extras([*bias, *added], relative, soft, sinks, seed), lse=True)
    assert lse is not None
    return out, lse


@operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))


@torch.library.custom_op("noren::attention_backward", mutates_args=())
def _backward_operator(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bias: list[Tensor], relative: Tensor | None,
    soft: Tensor | None, sinks: Tensor | None, seed: Tensor | None, masks: list[Tensor], source: str, wanted: list[int],
) -> list[Tensor]:  # fmt: skip
    call, added = _source(source).call(q, k, v, masks)
    extras = Extras([*bias, *added], relative, soft, sinks, seed)
    own = [bool(want) for want in wanted]
    wants = [*own[: len(bias)], *(False for _ in added), *own[len(bias) :]]
    grads = gradients(call, q, k, v, extras, (out, lse, dout), wants)
    del grads[3 + len(bias) : 3 + len(bias) + len(added)]
    return [q.new_empty(0, dtype=torch.float32) if grad is None else grad for grad in grads]


@_backward_operator.register_fake
def _(
    dout: Any, q: Tensor, k: Tensor, v: Tensor, out: Any, lse: Any, bias: Any, relative: Any, soft: Any, sinks: Any,
    seed: Any, masks: Any, source: str, wanted: Any,
) -> list[Tensor]:  # fmt: skip
    none = torch.empty(0, device=q.device)
    rest = zip([*bias, relative, soft, sinks], wanted, strict=True)
    given = [q, k, v, *(t if want and t is not None else none for t, want in rest)]
    return [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in given]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, bias, *others, masks, ctx.source = inputs
    ctx.present, ctx.biases, ctx.masks = [t is not None for t in others], len(bias), len(masks)
    ctx.wanted = [int(t is not None and t.requires_grad) for t in (*bias, *others[:3])]
    ctx.save_for_backward(q, k, v, *output, *bias, *masks, *(t for t in others if t is not None))


def _derive(ctx: Any, dout: Tensor, _: Any) -> Any:
    q, k, v, out, lse, *rest = ctx.saved_tensors
    bias, masks = rest[: ctx.biases], rest[ctx.biases : ctx.biases + ctx.masks]
    given = iter(rest[ctx.biases + ctx.masks :])
    others = [next(given) if there else None for there in ctx.present]
    dq, dk, dv, *grads = _backward_operator(dout, q, k, v, out, lse, bias, *others, masks, ctx.source, ctx.wanted)
    *dbias, drelative, dsoft, dsinks = (g if want else None for g, want in zip(grads, ctx.wanted, strict=True))
    return dq, dk, dv, dbias, drelative, dsoft, dsinks, None, [None] * ctx.masks, None


@torch.library.custom_op("noren::cells", mutates_args=())
def cells_operator(q: Tensor, k: Tensor, masks: list[Tensor], source: str) -> Tensor:
    """Returns the allowed cells `[batch, heads, q_len, kv_len]` as booleans; `source` is a text returned by `source_of`."""
    return torch.from_numpy(_source(source).call(q, k, k, masks)[0].plan.bound.dense()).to(q.device)


@cells_operator.register_fake
def _(q: Tensor, k: Tensor, masks: Any, source: str) -> Tensor:
    return q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=torch.bool)


operator.register_autograd(_derive, setup_context=_setup)
_backward_operator.register_autograd(refuse_second)


def run(call: Call, q: Tensor, k: Tensor, v: Tensor, extras: Extras, lse: bool = False) -> tuple[Tensor, Tensor | None]:
    """Returns (output, log-sum-exps or None if not requested). The output has gradients if PyTorch records them."""
    check_eager(q)
    for watch in _call.watchers:
        watch(call, q, k)
    if torch.is_grad_enabled() and q.dtype != torch.float64:
        others = extras.differentiable()
        if any(t is not None and t.requires_grad for t in (q, k, v, *others)):
            seed = extras.seed

            def compute(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
                *bias, relative, soft, sinks = rest
                return forward(call, q, k, v, Extras(bias, relative, soft, sinks, seed), lse=True)

            def derive(tensors: Any, saved: Any, wanted: Any) -> Any:
                q, k, v, *bias, relative, soft, sinks = tensors
                return gradients(call, q, k, v, Extras(bias, relative, soft, sinks, seed), saved, wanted[3:])

            out, sums = Differentiable.apply(compute, derive, q, k, v, *others)
            return out, sums
    return forward(call, q, k, v, extras, lse)


def lower(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Converts the tensors to the number type of `torch.autocast` if it is active, as PyTorch does for SDPA. Tensors of float64
    remain."""
    if q.device.type not in DEVICES or not torch.is_autocast_enabled(q.device.type) or q.dtype == torch.float64:
        return q, k, v
    kind = torch.get_autocast_dtype(q.device.type)
    return q.to(kind), k.to(kind), v.to(kind)


def new_seed() -> Tensor:
    """Draws a seed from PyTorch's generator. `torch.manual_seed`, `fork_rng` and checkpointing therefore reproduce the seed."""
    return torch.randint(1 << 62, (), dtype=torch.int64)


def empty(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
    """Returns (output, log-sum-exps) of a call without batch rows, queries or keys, as in PyTorch; None for all other calls. Without
    keys, outputs are 0."""
    if 0 not in (*q.shape[:-1], *k.shape[:-1]):
        return None
    used = q.sum() + k.sum() + v.sum()  # gradients of 0
    out = q.new_zeros((*q.shape[:-1], v.shape[-1])) + 0.0 * used
    return out, torch.full(q.shape[:-1], -torch.inf, dtype=torch.promote_types(q.dtype, torch.float32), device=q.device)


def additive_bias(additive: Tensor, sizes: Sizes) -> Tensor:
    """Returns the numbers that the additive mask adds to the scores, 0 for hidden cells. Gradients pass through to `additive`."""
    bias: Tensor = four("additive", additive, sizes)
    return bias.masked_fill(ignored(bias), 0.0)


def split_masks(given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Returns (masks, biases) for the operator, which gives a mask no gradients."""
    masks, biases = [], []
    for mask in given:
        if mask.requires_grad:
            hidden = ignored(mask)
            biases.append(mask.masked_fill(hidden, 0.0))
            mask = mask.detach().masked_fill(~hidden, 0.0)
        masks.append(mask)
    return masks, biases


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Masking | MaskFunction | None = None,
    *,
    keep: Tensor | None = None,
    drop: Tensor | None = None,
    additive: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Tensor | Sequence[Tensor] | None = None,
    relative: Tensor | None = None,
    alibi: Sequence[float] | bool | None = None,
    soft: Tensor | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    facts: Facts | Mapping[str, Any] | None = None,
    query_offset: int | Sequence[int] | None = None,
    arrays: Mapping[str, Tensor] | None = None,
    return_lse: bool = False,
) -> Any:
    """Returns masked attention with gradients of q, k, v, biases, soft weights and sinks.

    Shapes, arguments and errors are those of `noren.attention`, for tensors; `seed`, `return_weights`, `threads` and `isa` are not
    arguments. All tensors are on the CPU or on one CUDA device. noren
    computes the forward and the backward pass. The seed of `dropout` is drawn from PyTorch's CPU generator; with the same seed, the same
    attention probabilities are dropped on every device. The log-sum-exps have no gradient, and a second derivative raises RuntimeError.

    `mask` may also be a function that makes the mask of the call from its tensors and inputs (`MaskCall`, `mask_inputs`).
    """
    scale = number("scale", scale)
    function = check_given("mask", mask) if callable(mask) else None
    given_bias = bias if bias is None or isinstance(bias, Tensor) else listed("bias", bias, of="tensors")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_floats(name, tensor)
    sizes = sizes_of(q, k, v)
    traced = compiling()
    base, scores = scored(None if traced else mask, sizes[1], arrays, softcap=softcap, bias=given_bias, relative=relative, alibi=alibi, soft=soft, sinks=sinks)
    biases, relative, soft, sinks, softcap = (scores[name] for name in ("bias", "relative", "soft", "sinks", "softcap"))
    others: list[tuple[str, Tensor | None]] = [("bias", t) for t in biases]
    for what, array in [*others, ("relative", relative), ("soft", soft), ("sinks", sinks)]:
        if array is not None:
            check_added(what, array)
    seed = new_seed() if check_dropout("dropout", dropout) > 0 else None
    slopes = None if scores["alibi"] is None else tuple(scores["alibi"])
    q, k, v = lower(q, k, v)
    if (nothing := empty(q, k, v)) is not None:
        return nothing if return_lse else nothing[0]
    given = given_arrays(keep=keep, drop=drop, additive=additive)
    if traced:
        if function is not None:
            raise Error("a mask function is not supported under torch.compile: call nt.attention outside of the compiled function")
        if given or mask is None:
            raise Error("under torch.compile, keep=, drop= and additive= are not supported: give the tensor to nt.sdpa, or a mask or plan")
        if facts is not None or isinstance(mask, Spec):
            raise Error(
                "under torch.compile, facts= and score modifiers in the mask are not supported: give a mask or its text, or a plan "
                "that was made outside of the compiled function"
            )
        source = source_of(mask, query_offset, scale, softcap, slopes, dropout)
        out, lse = operator(q, k, v, biases, relative, soft, sinks, seed, [], source)
    else:
        base = base if function is None else _noren.full()
        plan, added = plan_of(base, sizes, facts, query_offset, by_distance(scores) or function is not None, given)
        if function is not None:
            own = Own(plan.mask, plan.bound.facts, plan.shape)
            one = MaskCall(layer=0, part="self", module=None, query=q, key=k, scale=scale, own=own, inputs=current_inputs())
            plan = plan_of_call(function, one)
        if additive is not None and (added or additive.requires_grad):
            biases = [*biases, additive_bias(additive, sizes)]
        call = Call(plan, scale, softcap, slopes, dropout)
        extras = Extras(biases, relative, soft, sinks, seed)
        out, lse = run(call, q, k, v, extras, return_lse)
    return (out, lse) if return_lse else out
