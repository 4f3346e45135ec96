"""Draws masks with matplotlib, and shows them in an interactive view with ipywidgets. Both packages are imported at the first
use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _noren
from .._noren import BoundMask, Error, Plan, Shape
from ..arguments._given import check_strided, listed, short, whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_CELLS = 1 << 24
"""The maximum number of cells that a picture may have."""
MOST_NAMES = 64
"""The maximum number of tokens on an axis whose names are written; an axis with more tokens shows no names."""
ALLOWED, DENIED, FULL, MIXED = "#2b6cb0", "#f4f4f2", "#1a202c", "#dd6b20"


def plot(
    mask: BoundMask | Plan,
    *,
    ax: Any = None,
    batch: int = 0,
    head: int = 0,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    tiles: bool | tuple[int, int] = False,
    weights: Any = None,
) -> Any:
    """Draws the cells of one batch row and head with matplotlib, and returns the axes.

    `ax` are the matplotlib axes in which the cells are drawn [default: new axes]. `tokens` are the names of the tokens, or a
    pair of the names of queries and of keys. `tiles` is the size (rows, keys) of tiles whose outlines are drawn; True means
    (96, 64). Tiles without an allowed cell have no outline, because kernels skip them. `weights` are attention weights,
    `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]`: they are drawn as a heat map, in which denied cells are grey.

    Raises `Error` for more than 2^24 cells and for arguments that do not fit the mask.
    """
    bound = mask.bound if isinstance(mask, Plan) else mask
    shape = bound.shape
    if shape.q_len * shape.kv_len > MOST_CELLS:
        raise Error(
            f"the mask has {shape.q_len} x {shape.kv_len} cells, but a picture can have at most {MOST_CELLS}: draw a part by bind(...).select([(0, 1000)], [(0, 1000)]), or an overview by svg()"
        )
    for name, given, count in (("batch", batch, shape.batch), ("head", head, shape.heads)):
        if type(given) is not int or not 0 <= given < count:
            raise Error(f"{name} is {given!r}: give an index from 0 to {count - 1}")
    names = _names(tokens, shape.q_len, shape.kv_len)
    block = _tile(tiles, shape)
    shown = None if weights is None else _weights(weights, bound, batch, head)
    if ax is None:
        ax = _pyplot().subplots()[1]
    elif not (hasattr(ax, "imshow") and hasattr(ax, "set_xticks")):
        raise TypeError(f"`ax` is {short(ax)}: give axes of matplotlib, such as matplotlib.pyplot.subplots()[1]")
    cells = bound.select_batch([batch]).dense()[0, head]
    _draw(ax, cells, shown)
    if block is not None:
        _outline(ax, bound, batch, head, block)
    queries, keys = names
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    if keys is not None and len(keys) <= MOST_NAMES:
        ax.set_xticks(range(len(keys)), keys, rotation=90)
    if queries is not None and len(queries) <= MOST_NAMES:
        ax.set_yticks(range(len(queries)), queries)
    ax.set_title(str(bound.mask) if len(str(bound.mask)) <= 60 else str(bound.mask)[:57] + "...")
    return ax


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot
    except ImportError:
        raise Error("matplotlib is not installed: pip install matplotlib, or use svg() and picture(), which need no package") from None
    return matplotlib.pyplot


def _draw(ax: Any, cells: NDArray[np.bool_], weights: NDArray[np.float64] | None) -> None:
    import numpy as np
    from matplotlib.colors import ListedColormap

    if weights is None:
        ax.imshow(cells.astype(np.uint8), cmap=ListedColormap([DENIED, ALLOWED]), vmin=0, vmax=1, interpolation="nearest")
        return
    shown = np.ma.masked_where(~cells, weights)
    ax.set_facecolor("#cbcbc6")
    image = ax.imshow(shown, cmap="viridis", vmin=0, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="weight")


def _weights(given: Any, bound: BoundMask, batch: int, head: int) -> NDArray[np.float64]:
    """Returns the weights of one batch row and head, `[q_len, kv_len]`."""
    import numpy as np

    shape = bound.shape
    check_strided("weights", given)
    if not (hasattr(given, "shape") or isinstance(given, (list, tuple))):
        raise TypeError(f"`weights` is {short(given)}: give an array of numbers")
    try:
        array = np.asarray(given.detach().cpu().float() if hasattr(given, "detach") else given, np.float64)
    except Exception:  # conversions of other libraries raise errors of several types
        raise TypeError(f"`weights` is {short(given)}: give an array of numbers") from None
    if array.shape == (shape.q_len, shape.kv_len):
        return array
    if array.shape == (shape.batch, shape.heads, shape.q_len, shape.kv_len):
        found: NDArray[np.float64] = array[batch, head]
        return found
    raise Error(
        f"`weights` has shape {list(array.shape)}: give [q_len, kv_len] = [{shape.q_len}, {shape.kv_len}], or with batch rows and heads [{shape.batch}, {shape.heads}, {shape.q_len}, {shape.kv_len}]"
    )


def _tile(tiles: Any, shape: Shape) -> tuple[int, int] | None:
    """Returns the size (rows, keys) of the tiles to draw; None for no tiles."""
    if tiles is True or tiles is False:
        return (96, 64) if tiles else None
    if not isinstance(tiles, (tuple, list)) or len(tiles) != 2:
        raise TypeError(f"`tiles` is {short(tiles)}: give True, or two numbers above 0, (rows, keys)")
    rows, keys = (whole(f"tiles[{i}]", size, 1) for i, size in enumerate(tiles))
    if (shape.q_len // rows + 1) * (shape.kv_len // keys + 1) > 1 << 16:
        raise Error(f"tiles of {rows} x {keys} cells would be more than {1 << 16} tiles: give larger tiles")
    return rows, keys


def _outline(ax: Any, bound: BoundMask, batch: int, head: int, block: tuple[int, int]) -> None:
    """Draws the outlines of the full tiles and the mixed tiles of one batch row and head. `block` is the size (rows, keys) of a
    tile."""
    import numpy as np
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    (rows, keys), shape = block, bound.shape
    plan = bound.plan(reorder="never")
    pattern = _noren.patterns(plan)[1][batch * shape.heads + head]
    (down, across), kinds, _ = _noren.blocks(plan, pattern, (rows, keys), True)
    kind = np.frombuffer(kinds, np.int32).reshape(down, across)
    for color, chosen in ((FULL, kind == -2), (MIXED, kind >= 0)):
        patches = [
            Rectangle((j * keys - 0.5, i * rows - 0.5), min(keys, shape.kv_len - j * keys), min(rows, shape.q_len - i * rows))
            for i, j in np.argwhere(chosen).tolist()
        ]
        ax.add_collection(PatchCollection(patches, facecolor="none", edgecolor=color, linewidth=1))


def _names(tokens: Any, q_len: int, kv_len: int) -> tuple[list[str] | None, list[str] | None]:
    """Returns (names of queries, names of keys). A result is None if no names were given for it."""
    if tokens is None:
        return None, None
    pair = isinstance(tokens, tuple) and len(tokens) == 2 and not any(isinstance(part, str) for part in tokens)
    queries, keys = (_listed(part) for part in (tokens if pair else (tokens, tokens)))
    found = [str(name) for name in (queries if pair else queries[-q_len:])], [str(name) for name in keys]
    for what, names, count in (("queries", found[0], q_len), ("keys", found[1], kv_len)):
        if len(names) != count:
            raise Error(f"`tokens` has {len(names)} names of {what}, but the mask has {count} {what}: give one name for each")
    return found


def _listed(names: Any) -> list[Any]:
    """Returns the names as a list. Raises TypeError for a single text."""
    if isinstance(names, str):
        raise TypeError("`tokens` is one text: give a list of names, one for each token")
    return listed("tokens", names, of="names, one for each token")


def explore(mask: Any, shape: Any, facts: Any = None) -> Any:
    """Returns an interactive view of a mask for notebooks. The user selects a batch row, a head, a query and a key, and the view
    explains why the query may or may not read the key.

    `mask`, `shape` and `facts` are the mask and the arguments of `Mask.bind`. If ipywidgets is not installed, returns the
    picture of the bound mask instead.
    """
    bound = _noren.Mask(mask).bind(shape, facts)
    try:
        import ipywidgets
    except ImportError:
        return bound
    own = bound.shape
    sliders = {
        name: ipywidgets.IntSlider(0, 0, count - 1, description=text)
        for name, text, count in (("batch", "batch row", own.batch), ("head", "head", own.heads), ("q", "query", own.q_len), ("k", "key", own.kv_len))
    }
    picture, reason = ipywidgets.HTML(), ipywidgets.HTML()

    def show(_: Any = None) -> None:
        at = {name: slider.value for name, slider in sliders.items()}
        picture.value = bound.select_batch([at["batch"]]).svg()
        text = bound.explain(at["q"], at["k"], batch=at["batch"], head=at["head"]).text
        reason.value = f"<pre>{text.replace('&', '&amp;').replace('<', '&lt;')}</pre>"

    for slider in sliders.values():
        slider.observe(show, "value")
    show()
    return ipywidgets.VBox([ipywidgets.HBox(list(sliders.values())), picture, reason])
