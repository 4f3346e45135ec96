"""The peers: each is a function that takes a case and returns a callable that does one run, or raises Unsupported.

    python peers.py CASE      # measures one case, given as JSON; the last line printed is {"ms": [..]} or {"error": ".."}
"""

import json
import os
import sys
import time

import masks as M


class Unsupported(Exception):
    """The peer cannot express this mask, or cannot run it on this machine."""


# --- PyTorch ------------------------------------------------------------------------------------------------------


def torch_case(case, attend):
    """`attend(torch, q, k, v, grouped)` of random arrays, with its backward pass if the case requires it."""
    import torch

    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case["dtype"]]
    sizes = [(case["heads"], case["n"]), (case["kv_heads"], case["m"]), (case["kv_heads"], case["m"])]
    backward = case["op"] == "fwdbwd"
    q, k, v = (torch.randn((case["batch"], h, n, case["dim"])).to(dtype).requires_grad_(backward) for h, n in sizes)
    call = attend(torch, q, k, v, case["heads"] != case["kv_heads"])
    if not backward:

        def forward():
            with torch.no_grad():
                return call()

        return forward
    towards = torch.randn_like(q)

    def forward_and_backward():
        for x in (q, k, v):
            x.grad = None
        call().backward(towards)

    return forward_and_backward


def sdpa(case):
    """PyTorch scaled_dot_product_attention without a mask tensor."""
    if case["mask"] not in ("full", "causal"):
        raise Unsupported("no mask argument expresses this mask")
    # is_causal counts from the top left; one query over a cache reads everything.
    causal = case["mask"] == "causal" and case["n"] > 1
    if causal and case["n"] != case["m"]:
        raise Unsupported("is_causal counts from the first key")

    def attend(torch, q, k, v, grouped):
        run = torch.nn.functional.scaled_dot_product_attention
        return lambda: run(q, k, v, is_causal=causal, enable_gqa=grouped)

    return torch_case(case, attend)


def sdpa_bool(case):
    """PyTorch scaled_dot_product_attention with a dense boolean mask, made before the timed runs (of a batch: in each)."""
    if case["mask"] == "full":
        raise Unsupported("needs no mask")

    def attend(torch, q, k, v, grouped):
        if case["op"] == "batch":
            lengths = torch.tensor(M.batch_lengths(case["batch"], case["m"]))
            keep = lambda: (torch.arange(case["m"]) < lengths[:, None])[:, None, None, :]
            return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep())
        keep = torch.from_numpy(M.dense_keep(case["mask"], case["heads"], case["n"], case["m"]))
        run = torch.nn.functional.scaled_dot_product_attention
        return lambda: run(q, k, v, attn_mask=keep, enable_gqa=grouped)

    return torch_case(case, attend)


def flex(case):
    """PyTorch FlexAttention, compiled; the block mask and the compilation come before the timed runs."""
    if case["op"] == "fwdbwd":
        raise Unsupported("no backward on CPUs")
    if case["op"] == "batch":
        raise Unsupported("not measured on batches")

    def attend(torch, q, k, v, grouped):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        n, m, heads = case["n"], case["m"], case["heads"]
        offset = m - n
        documents = torch.from_numpy(M.document_ids(m))
        mods = {
            "causal": lambda b, h, q, k: k <= q + offset,
            "swa256": lambda b, h, q, k: (k <= q + offset) & (q + offset - k < M.WINDOW),
            "padding": lambda b, h, q, k: k < m // 2,
            "docs8": lambda b, h, q, k: (documents[q + offset] == documents[k]) & (k <= q + offset),
        }

        def perhead(b, h, q, k):
            group = h * 4 // heads
            low = torch.where(group == 0, mods["causal"](b, h, q, k), mods["swa256"](b, h, q, k))
            high = torch.where(group == 2, mods["docs8"](b, h, q, k), mods["padding"](b, h, q, k))
            return torch.where(group < 2, low, high)

        mod = perhead if case["mask"] == "perhead" else mods.get(case["mask"])
        per_head = heads if case["mask"] == "perhead" else None
        block_mask = mod and create_block_mask(mod, None, per_head, n, m, device="cpu")
        compiled = torch.compile(flex_attention)
        return lambda: compiled(q, k, v, block_mask=block_mask, enable_gqa=grouped)

    return torch_case(case, attend)


# --- ONNX Runtime -------------------------------------------------------------------------------------------------


def ort(case):
    """ONNX Runtime: the attention operator with the most direct form of the mask.

    MultiHeadAttention runs sequences without a mask, and masks that need an array (a bias made before the timed runs).
    GroupQueryAttention runs causal masks, windows and decode steps; its cache is one buffer.
    """
    try:
        import numpy as np
        import onnx
        import onnxruntime
    except ImportError:
        raise Unsupported("onnx and onnxruntime are not installed") from None
    if case["op"] == "fwdbwd":
        raise Unsupported("inference only")
    if case["op"] == "batch":
        raise Unsupported("not measured on batches")
    if case["dtype"] == "bf16":
        raise Unsupported("no bf16 on CPUs")
    number = {"f32": np.float32, "f16": np.float16}[case["dtype"]]
    kind = {"f32": onnx.TensorProto.FLOAT, "f16": onnx.TensorProto.FLOAT16}[case["dtype"]]
    random = np.random.default_rng(0)
    n, m, heads, kv_heads, dim = (case[x] for x in ("n", "m", "heads", "kv_heads", "dim"))

    def array(*shape):
        return random.standard_normal(shape, np.float32).astype(number)

    decode = n == 1
    grouped = decode or case["mask"] in ("causal", "swa256")
    feeds = {"q": array(1, n, heads * dim)}
    new = 1 if decode else m
    feeds |= {"k": array(1, new, kv_heads * dim), "v": array(1, new, kv_heads * dim)}
    outputs = [("out", feeds["q"].shape)]
    if grouped:
        if case["mask"] not in ("full", "causal", "swa256") or not decode and n != m:
            raise Unsupported("GroupQueryAttention takes causal masks and windows")
        # The cache of a step holds all keys but the new one, in a buffer that has room for it.
        cache = (1, kv_heads, m if decode else 0, dim)
        feeds |= {"past_k": array(*cache), "past_v": array(*cache)}
        feeds |= {"last": np.array([m - 1], np.int32), "total": np.array(m, np.int32)}
        outputs += [("all_k", (1, kv_heads, m, dim)), ("all_v", (1, kv_heads, m, dim))]
        operator, inputs = "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "last", "total"]
        attributes = {"num_heads": heads, "kv_num_heads": kv_heads}
        if case["mask"] == "swa256":
            attributes["local_window_size"] = M.WINDOW
    else:
        if heads != kv_heads or n != m:
            raise Unsupported("MultiHeadAttention has no grouped heads")
        operator, inputs, attributes = "MultiHeadAttention", ["q", "k", "v"], {"num_heads": heads}
        if case["mask"] != "full":
            keep = M.dense_keep(case["mask"], heads, n, m)
            feeds["bias"] = np.where(keep, number(0), np.finfo(number).min).astype(number)
            inputs += ["", "", "bias"]

    kinds = {"last": onnx.TensorProto.INT32, "total": onnx.TensorProto.INT32}
    helper = onnx.helper
    node = helper.make_node(operator, inputs, [name for name, _ in outputs], domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(name, kinds.get(name, kind), x.shape) for name, x in feeds.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = case["threads"], 1
    settings.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, ["CPUExecutionProvider"])
    except Exception as e:
        raise Unsupported(str(e).splitlines()[0][:160]) from None
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name, _ in outputs:
        if decode and name in ("all_k", "all_v"):  # past and present are one buffer, as in generation
            binding.bind_ortvalue_output(name, values["past_" + name[-1]])
        else:
            binding.bind_output(name, "cpu")
    return lambda: (values, session.run_with_iobinding(binding))


PYTHON_PEERS = {f.__name__: f for f in (sdpa, sdpa_bool, flex, ort)}


# --- one measurement ----------------------------------------------------------------------------------------------


def measure(case):
    """Returns the times in milliseconds: warm-up for 0.3 s, then 5 to 15 runs, as the budget allows."""
    run = PYTHON_PEERS[case["peer"]](case)
    start = time.perf_counter()
    run()  # compiles, warms up
    once = time.perf_counter()
    run()
    once = time.perf_counter() - once
    while time.perf_counter() - start < 0.3:
        run()
    times = []
    for _ in range(max(5, min(15, int(case["budget"] / once)))):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


if __name__ == "__main__":
    try:
        print(json.dumps({"ms": measure(json.loads(sys.argv[1]))}))
    except Unsupported as e:
        print(json.dumps({"error": str(e)}))
    sys.stdout.flush()
    os._exit(0)  # some libraries take seconds to exit
