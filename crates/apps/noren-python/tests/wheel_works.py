"""Checks an installed wheel: the version, a plan, attention over NumPy arrays, and a picture."""

import numpy as np

import noren as nr

mask = nr.causal() & nr.documents([3, 2])
x = np.arange(5 * 4, dtype=np.float32).reshape(1, 1, 5, 4)
out = nr.attention(x, x, x, mask)
assert out.shape == x.shape and np.allclose(out[0, 0, [0, 3]], x[0, 0, [0, 3]], rtol=1e-6, atol=0), "the first token of a document reads itself only"
assert str(mask) == "causal & documents([3, 2])"
print(nr.__version__, mask.picture(5), sep="\n")
