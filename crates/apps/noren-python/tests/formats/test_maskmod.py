"""Mask functions of the user: `nr.from_mask_mod`."""

import gc
import pickle
import resource
import time
from functools import partial

import numpy as np
import pytest
import torch

import noren as nr
from noren.formats.maskmod._mask import examined
from mask_functions import BATCH, HEADS, LENGTH, PUBLISHED, plain_python

SHAPE = nr.Shape.square(LENGTH, batch=BATCH, heads=HEADS)


def dense(function, batch, heads, q, k):
    """The cells of a function by broadcasting, `[batch, heads, queries, keys]`; the reference of these tests."""
    b, h = torch.arange(batch)[:, None, None, None], torch.arange(heads)[None, :, None, None]
    cells = function(b, h, q[None, None, :, None], k[None, None, None, :])
    return torch.as_tensor(cells).expand(batch, heads, len(q), len(k)).numpy()


def by_numbers(function, batch, heads, q_len, kv_len, offset=0):
    """The cells of a function of whole numbers, one by one."""
    cells = np.empty((batch, heads, q_len, kv_len), bool)
    for b, h, q, k in np.ndindex(cells.shape):
        cells[b, h, q, k] = function(b, h, q + offset, k)
    return cells


def test_there_are_thirty_published_functions():
    assert len(PUBLISHED) >= 30 and len({name for name, _, _ in PUBLISHED}) == len(PUBLISHED)


@pytest.mark.parametrize(("name", "function", "recognised"), PUBLISHED, ids=[name for name, _, _ in PUBLISHED])
def test_published_functions_equal_dense_evaluation(name, function, recognised):
    found = examined(function)
    assert found.recognised == recognised and found.traced, found
    at = torch.arange(LENGTH)
    if function is plain_python:
        q, k = at[:, None], at[None]
        expected = ((k < 4) | ((q >= k) & (q - k < 64) & (q // 128 == k // 128))).expand(BATCH, HEADS, -1, -1).numpy()
    else:
        expected = dense(function, BATCH, HEADS, at, at)
    bound = found.mask.bind(SHAPE)
    assert np.array_equal(bound.dense(), expected)
    assert found.mask.stats(SHAPE).allowed == expected.sum()
    rng = np.random.default_rng(len(name))
    for _ in range(20):
        b, h, q, k = (int(rng.integers(n)) for n in expected.shape)
        assert bool(bound.explain(q, k, batch=b, head=h)) == expected[b, h, q, k]


@pytest.mark.parametrize("name", ["streaming", "natten", "gemma3", "local_global_heads", "sparse_fixed"])
def test_attention_with_a_function(name):
    function = next(function for known, function, _ in PUBLISHED if known == name)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, 16) for _ in range(3))
    at = torch.arange(LENGTH)
    out = nr.attention(q, k, v, nr.from_mask_mod(function))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.from_numpy(dense(function, BATCH, HEADS, at, at).copy())
    )
    assert (out - expected).abs().max() < 2e-5


@pytest.mark.parametrize("name", ["mistral", "packed_rows", "dilated", "block_diffusion", "longformer"])
def test_recognised_functions_plan_fast(name):
    function = next(function for known, function, _ in PUBLISHED if known == name)
    if name == "packed_rows":
        ids = torch.cumsum(torch.rand(131072, generator=torch.Generator().manual_seed(3)) < 1e-3, 0)
        function = lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)  # noqa: E731
    start = time.process_time()
    mask = nr.from_mask_mod(function)
    plan = mask.plan(131072)
    assert time.process_time() - start < 2 and "function" not in repr(mask)
    assert plan.shape.q_len == 131072


def test_memory_follows_the_tiles_of_a_function():
    length = 65536
    ids = torch.cumsum(torch.rand(length, generator=torch.Generator().manual_seed(3)) < 1e-3, 0) % 1000
    starts = torch.arange(length) - ids  # a table that is no document

    def function(b, h, q, k):
        return (ids[q] == ids[k]) & (q >= k) & (starts[q] - starts[k] < 5000)

    found = examined(function)
    assert not found.recognised and found.traced
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    plan = found.mask.plan(length)
    assert time.process_time() - start < 8
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 200 << 10  # KiB; the cells as bits take 512 MiB
    bits = plan.bound
    rng = np.random.default_rng(1)
    for _ in range(200):
        q = int(rng.integers(length))
        k = int(np.clip(q + rng.integers(-6000, 200), 0, length - 1))
        assert bool(bits.explain(q, k)) == bool(function(0, 0, torch.tensor(q), torch.tensor(k)))


RNG = np.random.default_rng(7)
TABLE = RNG.integers(0, 5, 90)
LIST = TABLE.tolist()
FLAGS = RNG.random((3, 90)) < 0.5


def chained(b, h, q, k):
    return 2 <= q - k < 9 or not (k > 5) or (q == k and h != 1)


def minimum(b, h, q, k):
    return min(q, k) * 2 + max(q, k) % 7 > abs(q - 20) if b == 0 else LIST[q] == LIST[k]


def numpy_where(b, h, q, k):
    return np.where(TABLE[q] > 2, k <= q, np.abs(q - k) < 4) & ~(TABLE[k] == 0)


def numpy_flags(b, h, q, k):
    return np.logical_or(FLAGS[b][k], FLAGS[b, q]) ^ (q // 3 == k // 3)


def guarded(b, h, q, k):
    return k < 40 and LIST[k] > 1 and q % 2 == 0


class Object:
    """A function with state, called with tensors or numbers."""

    def __init__(self, width):
        self.width = width

    def __call__(self, b, h, q, k):
        return (q - k < self.width) & (q >= k)


@pytest.mark.parametrize("function", [chained, minimum, numpy_where, numpy_flags, guarded, Object(5), partial(Object.__call__, Object(7))])
def test_functions_of_numpy_and_plain_python(function):
    shape = nr.Shape(70, 80, query_offset=10, batch=3, heads=2)
    found = examined(function)
    assert found.traced, found
    assert np.array_equal(found.mask.dense(shape), by_numbers(function, 3, 2, 70, 80, 10))


def random_function(rng):
    """A random expression of tensors and the same in NumPy: two functions of (b, h, q, k)."""
    table = rng.integers(0, 6, 200)
    flags = rng.random((2, 200)) < 0.4
    tensors = torch.from_numpy(table), torch.from_numpy(flags)

    def atom():
        a, c, s = int(rng.integers(1, 30)), int(rng.integers(-10, 40)), int(rng.integers(2, 9))
        return [
            lambda m, t, f, b, h, q, k: q + c >= k,
            lambda m, t, f, b, h, q, k: q - k < a,
            lambda m, t, f, b, h, q, k: 2 * q - 3 * k > c,
            lambda m, t, f, b, h, q, k: (q - k + c) % s == 0,
            lambda m, t, f, b, h, q, k: q // s >= k // s,
            lambda m, t, f, b, h, q, k: (q // s - k // s) * h <= 2,
            lambda m, t, f, b, h, q, k: k % s < 2,
            lambda m, t, f, b, h, q, k: t[q] == t[k],
            lambda m, t, f, b, h, q, k: t[q] + 1 > t[k],
            lambda m, t, f, b, h, q, k: f[b, k],
            lambda m, t, f, b, h, q, k: abs(q - k) >= a,
            lambda m, t, f, b, h, q, k: m.where(f[b, q], q - k, k - q + c) > 3,
            lambda m, t, f, b, h, q, k: h != b,
            lambda m, t, f, b, h, q, k: m.where(q < a, k < c, q > k),
        ][int(rng.integers(14))]

    parts = [atom() for _ in range(int(rng.integers(1, 5)))]
    joins = rng.integers(0, 4, len(parts))

    def function(m, t, f, b, h, q, k):
        made = parts[0](m, t, f, b, h, q, k)
        for part, join in zip(parts[1:], joins, strict=False):
            other = part(m, t, f, b, h, q, k)
            made = [lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x & ~y, lambda x, y: x ^ y][join](made, other)
        return made

    return (lambda *at: function(torch, *tensors, *at)), (lambda *at: function(np, table, flags, *at))


@pytest.mark.parametrize("seed", range(60))
def test_random_functions(seed):
    rng = np.random.default_rng(seed)
    tensors, arrays = random_function(rng)
    q_len, kv_len = (int(rng.integers(1, 150)) for _ in range(2))
    offsets = [int(n) for n in rng.integers(0, 40, 2)]
    shape = nr.Shape(q_len, kv_len, query_offset=offsets, batch=2, heads=3)
    expected = np.empty((2, 3, q_len, kv_len), bool)
    for b, h in np.ndindex(2, 3):
        q = np.arange(q_len)[:, None] + offsets[b]
        expected[b, h] = arrays(np.int64(b), np.int64(h), q, np.arange(kv_len)[None])
    mask = nr.from_mask_mod(tensors, name="random")
    try:
        cells = mask.dense(shape)
    except nr.Error as error:  # documents of captured data refuse other lengths
        assert "documents" in str(error) and "documents" in str(mask)
        return
    assert np.array_equal(cells, expected), mask
    other = nr.from_mask_mod(arrays, name="random")
    assert np.array_equal(other.dense(shape), expected), other


def test_functions_combine_with_masks():
    near = nr.from_mask_mod(lambda b, h, q, k: (q * k) % 7 < 3, name="near")
    assert str(nr.causal() & near) == "causal & function(near)"
    assert near == near and near != nr.from_mask_mod(lambda b, h, q, k: (q * k) % 7 < 3, name="near")
    q, k = np.indices((50, 50))
    cells = (q * k % 7 < 3) & (k <= q)
    assert np.array_equal((nr.causal() & near).dense(50)[0, 0], cells)
    assert np.array_equal((~near | nr.keys(3)).dense(50)[0, 0], (q * k % 7 >= 3) | (k == 3))
    assert np.array_equal(nr.heads({0: near, "else": nr.full()}).dense(nr.Shape.square(50, heads=2))[0, 0], q * k % 7 < 3)
    flex = nr.to_flex(near, 50)
    at = torch.arange(50)
    assert np.array_equal(flex.mask_mod(*(torch.tensor(0),) * 2, at[:, None], at[None]).numpy(), q * k % 7 < 3)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(near)


def test_positions():
    function = nr.from_mask_mod(lambda b, h, q, k: (q + k) % 3 == 0, name="thirds")
    q, k = np.indices((4, 20))
    assert np.array_equal(function.dense(nr.Shape.cached(16, 4))[0, 0], (q + 16 + k) % 3 == 0)
    ring = {"positions": [[20, 21, 6, 7, 8, 9]]}
    cells = function.dense(nr.Shape(2, 6, query_offset=20), ring)[0, 0]
    assert np.array_equal(cells, (np.array([20, 21])[:, None] + np.array(ring["positions"])) % 3 == 0)
    with pytest.raises(nr.Error, match="takes positions from 0"):
        function.bind(nr.Shape(4, 4, query_offset=-1))


def slow(b, h, q, k):
    """A function that cannot be recorded: PyTorch calls it with tensors."""
    return (torch.sqrt((q * q + k * k).double()) % 5 < 2) & (q >= k)


def test_functions_that_cannot_be_recorded():
    found = examined(slow)
    assert not found.traced and found.evaluated_as == "torch" and "cannot be recorded" in found.reasons[0]
    at = torch.arange(300)
    assert np.array_equal(found.mask.dense(300), dense(slow, 1, 1, at, at))
    only_scalar = examined(lambda b, h, q, k: float(q) ** 0.5 > float(k) or h == 2)
    assert only_scalar.evaluated_as == "scalar" and len(only_scalar.reasons) >= 3
    expected = by_numbers(lambda b, h, q, k: q**0.5 > k or h == 2, 1, 3, 40, 40)
    assert np.array_equal(only_scalar.mask.dense(nr.Shape.square(40, heads=3)), expected)
    sums = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    by_vmap = examined(lambda b, h, q, k: (sums[q] * sums[k]).sum() > 2)
    assert by_vmap.evaluated_as == "vmap"
    assert np.array_equal(by_vmap.mask.dense(64)[0, 0], (sums @ sums.T > 2).numpy())


SOME = {0, 3, 40}


@pytest.mark.parametrize(
    "function",
    [
        lambda b, h, q, k: (q - k) in SOME,
        lambda b, h, q, k: (h in SOME) | (q >= k),
        lambda b, h, q, k: (torch.arange(80)[q] // 7 == torch.arange(80)[k] // 7) | (b in frozenset([1])),
        lambda b, h, q, k: {0: True, 3: True}.get(h, False) and q >= k,
    ],
)
def test_functions_that_look_up_an_index_in_a_set_or_a_dict(function):
    found = examined(function).mask.dense(nr.Shape.square(45, batch=2, heads=4))
    assert np.array_equal(found, by_numbers(function, 2, 4, 45, 45))


def raises(b, h, q, k):
    if int(k.max() if hasattr(k, "max") else k) > 50:
        raise RuntimeError("no key after 50")
    return q >= k


def test_functions_that_raise():
    short = torch.arange(32)
    with pytest.raises(nr.Error, match="raises IndexError for .*bind the mask to a shape whose length is that of the data") as raised:
        nr.from_mask_mod(lambda b, h, q, k: short[q] * 2 > short[k]).bind(64)
    assert isinstance(raised.value.__cause__, IndexError) and raised.value.__cause__.__traceback__ is not None
    with pytest.raises(nr.Error, match="no key after 50") as raised:
        nr.from_mask_mod(raises).plan(100)
    cause = raised.value.__cause__
    assert isinstance(cause, RuntimeError) and "raises" in [frame.name for frame in traceback_of(cause)]
    with pytest.raises(nr.Error, match="KeyError") as raised:
        nr.from_mask_mod(lambda b, h, q, k: {}["nothing"])
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(nr.Error, match="missing 1 required positional argument|positional arguments"):
        nr.from_mask_mod(lambda b, h, q: q)

    def interrupted(b, h, q, k):
        if getattr(k, "shape", ()) and k.max() > 50:
            raise KeyboardInterrupt
        return torch.sin(q * k) > 0

    with pytest.raises(KeyboardInterrupt):
        nr.from_mask_mod(interrupted).bind(100)
    beyond = nr.from_mask_mod(lambda b, h, q, k: short[q] // 20 == short[k] // 20)
    with pytest.raises(nr.Error, match="reads captured data beyond its end"):
        beyond.bind(64)
    ids = short // 20
    documents = nr.from_mask_mod(lambda b, h, q, k: ids[q] == ids[k])
    assert str(documents) == "documents([20, 12])"
    with pytest.raises(nr.Error, match=r"the documents cover 32 of the 64 positions of batch row 0: cover exactly 64 positions"):
        documents.bind(64)
    longer = r"the documents cover 32 positions, but batch row 0 has 30 positions: .* by shortening the list or the data from which it was made"
    with pytest.raises(nr.Error, match=longer):
        documents.bind(30)


def traceback_of(error):
    import traceback

    return traceback.extract_tb(error.__traceback__)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, h, q, k: (q - k) * 1.0, "returns float32 .*nr.from_score_mod"),
        (lambda b, h, q, k: q - k, "returns int64 .*add a comparison"),
        (lambda b, h, q, k: None, "returns None, but a mask function must return booleans"),
        (lambda b, h, q, k: "yes", "returns 'yes'"),
    ],
)
def test_functions_that_return_no_booleans(function, message):
    with pytest.raises(nr.Error, match=message):
        nr.from_mask_mod(function)


def test_functions_that_are_not_pure():
    def drawn(b, h, q, k):
        return torch.rand(torch.broadcast_shapes(q.shape, k.shape)) > 0.5

    with pytest.raises(nr.Error, match="random numbers"):
        nr.from_mask_mod(drawn).bind(64)
    state = []

    def changing(b, h, q, k):
        state.append(0)
        return torch.sin((q + k).double()) > (len(state) % 2 - 0.5)

    with pytest.raises(nr.Error, match="random numbers, on (changing state|state that changes)"):
        nr.from_mask_mod(changing).bind(64)


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"the mask function is 5: give a function of \(b, h, q_idx, kv_idx\)"):
        nr.from_mask_mod(5)
    wrong_shape = torch.ones(7, 9, dtype=torch.bool)
    with pytest.raises(nr.Error, match="shape"):
        nr.from_mask_mod(lambda b, h, q, k: wrong_shape)
    with pytest.raises(nr.Error, match="one cell at a time, and needs more than"):
        nr.from_mask_mod(lambda b, h, q, k: float(q) > k).bind(131072)


def test_captured_data_limits_expressions():
    ids, other = torch.arange(40) // 10, torch.arange(50)
    found = examined(lambda b, h, q, k: (q >= k) & ((ids[q] == ids[k]) | (q >= 0)))
    assert not found.recognised  # the expression would be `causal`, also where the function raises IndexError
    assert np.array_equal(found.mask.dense(40)[0, 0], np.tri(40, dtype=bool))
    with pytest.raises(nr.Error, match="IndexError"):
        found.mask.bind(41)
    unused = examined(lambda b, h, q, k: (q >= k) & (other[k] == other[k]))
    with pytest.raises(nr.Error):
        unused.mask.bind(51)
    assert not examined(lambda b, h, q, k: q * 1000.0 >= k * 1000.0 + 1).traced  # rounded to float32


def test_numbers_beyond_60_bits_are_left_to_the_function():
    made = examined(lambda b, h, q, k: (q < 2**70) & (k <= q))
    assert not made.traced and "more than 60 bits" in made.reasons[0]
    np.testing.assert_array_equal(made.mask.dense(5)[0, 0], np.tri(5, dtype=bool))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8])
def test_arithmetic_with_narrow_captured_numbers_is_left_to_the_function(dtype):
    lens = np.array([5, 3, 7, np.iinfo(dtype).min], dtype)
    with np.errstate(over="ignore"):
        made = examined(lambda b, h, q, k: k <= lens[b] - lens.dtype.type(1))
        assert not made.traced and "may wrap around" in made.reasons[0]
        cells = made.mask.dense(nr.Shape.square(8, batch=4))
    assert cells[3].all() and (cells[:3, 0, 0].sum(-1) == [5, 3, 7]).all()
    made = examined(lambda b, h, q, k: k < lens[b])
    assert made.traced
