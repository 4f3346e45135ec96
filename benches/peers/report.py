"""Writes docs/performance.md, its pictures and the table of README.md from the measurements of run.py."""

import json
import re

from svg import Drawing

NAMES = {"noren": "noren", "sdpa": "SDPA", "sdpa_bool": "SDPA, dense mask", "flex": "FlexAttention", "ort": "ONNX Runtime",
         "candle": "candle flash", "candle_plain": "candle matmuls", "burn": "burn"}
COLORS = {"noren": "#c2410c", "sdpa": "#1d4ed8", "sdpa_bool": "#93c5fd", "flex": "#0f766e", "ort": "#a16207",
          "candle": "#7e22ce", "candle_plain": "#c4b5fd", "burn": "#64748b"}
OPS = {"fwd": "Forward", "fwdbwd": "Forward and backward", "decode": "Decoding",
       "batch": "Padded batches, masks made in each run"}
MASKS = {"full": "none", "causal": "causal", "swa256": "window 256", "docs8": "8 documents", "padding": "half padding",
         "perhead": "by head"}


def add(document, docs):
    """Adds the measurements of one machine to performance.json, in place of earlier ones of the same machine, and writes the page."""
    data = docs / "performance.json"
    documents = json.loads(data.read_text())["machines"] if data.exists() else []
    document.get("bench", {}).pop("rows", None)
    documents = [d for d in documents if kind(d) != kind(document)] + [document]
    save(data, sorted(documents, key=kind))
    write(docs)


def save(path, machines):
    """Writes the measurements of all machines, a line for each field of a machine."""
    parts = [",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in machine.items()) for machine in machines]
    path.write_text('{"machines": [{\n' + "\n}, {\n".join(parts) + "\n}]}\n")


def disturbed(row):
    """Whether a ratio of this row and the quotient of its two medians differ by more than 15 %: then other programs took time in some rounds."""
    ours = row["peers"].get("noren", {}).get("ms")
    return any(not 1 / 1.15 < f["ratio"] * ours / f["ms"] < 1.15 for f in row["peers"].values() if "ratio" in f)


def add_gpu(machine, docs):
    """Adds the measurements of benches/gpu.py on one GPU to performance-gpu.json, and writes the page."""
    data = docs / "performance-gpu.json"
    known = json.loads(data.read_text())["machines"] if data.exists() else []
    known = [other for other in known if other["gpu"] != machine["gpu"]] + [machine]
    save(data, sorted(known, key=lambda m: m["gpu"]))
    write(docs)


def gpu_part(machine):
    """Gives the lines of the page for one GPU: a row for each measurement, a column for each peer."""
    yield from [
        f"## {machine['gpu']}", "",
        f"PyTorch {machine['torch']}; commit {machine['commit']}; {machine['date']}. Written by `benches/gpu.py --publish`. Times in ms; in brackets "
        "the peer's time divided by noren's, then the same with the time to make the plan or the block mask.", "",
    ]  # fmt: skip
    names = list(dict.fromkeys(peer for row in machine["rows"] for peer in row["peers"]))
    rows = []
    for row in machine["rows"]:
        cells = [row["op"], row["dtype"], row["mask"], str(row["dim"]), str(row["len"])]
        for peer in names:
            figure = row["peers"].get(peer, {})
            ratio = "" if peer == "noren" else f" ({figure.get('ratio', 0):.2f}x, {figure.get('with_plan', 0):.2f}x)"
            cells.append(f"{short(figure['ms'])}{ratio}" if "ms" in figure else "")
        rows.append(cells)
    yield from markdown(["pass", "type", "mask", "head_dim", "length", *names], rows)
    yield ""


def write(docs):
    """Writes performance.md and a picture for each processor from performance.json and performance-gpu.json in the folder `docs`."""
    documents = json.loads((docs / "performance.json").read_text())["machines"]
    on_gpu = docs / "performance-gpu.json"
    gpus = json.loads(on_gpu.read_text())["machines"] if on_gpu.exists() else []
    (docs / "pictures").mkdir(parents=True, exist_ok=True)
    readme = docs.parent / "README.md"
    readme.write_text(re.sub("(?s)(<!-- speed -->\n).*(<!-- end -->)", rf"\1{chr(10).join(summary(documents))}\n\2", readme.read_text()))
    for document in documents:
        rows = document["rows"]
        document["rows"] = [row for row in rows if not disturbed(row)]
        document["left_out"] = len(rows) - len(document["rows"])
        (docs / picture_path(document)).write_text(picture(document))
    lines = [*page(documents), *(line for machine in gpus for line in gpu_part(machine))]
    (docs / "performance.md").write_text("\n".join(lines) + "\n")


def summary(documents):
    """Gives the table of README.md: a row for each kind of processor, with all of its instructions."""
    shown = {("fwd", "f32", "causal", 64, 4096): "forward, f32, causal", ("fwd", "f32", "docs8", 64, 4096): "forward, f32, 8 documents, causal",
             ("fwd", "bf16", "causal", 64, 4096): "forward, bf16, causal", ("fwdbwd", "bf16", "causal", 64, 4096): "forward and backward, bf16, causal",
             ("decode", "f32", "full", 128, 32768): "decode step, f32, 32768 keys"}  # fmt: skip
    yield from ["| processor | " + " | ".join(shown.values()) + " |", "|---" * (len(shown) + 1) + "|"]
    for document in (d for d in documents if not d["kept_to"]):
        rows = {tuple(row[k] for k in ("op", "dtype", "mask", "dim", "m")): row for row in document["rows"] if not disturbed(row)}
        m, cells = document["machine"], []
        for key in shown:
            figures = rows[key]["peers"].items() if key in rows else []
            unit = "GB/s" if key[0] == "decode" else "GFLOP/s"
            cells.append(", ".join(f"{NAMES[peer]} {f['ratio']:.2f}x" if "ratio" in f else f"**{short(rate(f))} {unit}**"
                                   for peer, f in figures if peer in ("noren", "sdpa", "sdpa_bool", "flex") and "ms" in f))
        yield "| " + " | ".join([f"{kind(document)}, {document['threads']} threads, {m['date']} at {m['commit']}", *cells]) + " |"


def kind(document):
    """The kind of processor and the instruction set that the kernels used: the heading of a machine."""
    return f"{document['machine']['processor']}, {document['isa']}"


def picture_path(document):
    return f"pictures/performance-{re.sub('[^a-z0-9]+', '-', kind(document).lower())}.svg"


def rate(figure):
    return figure.get("gb_per_s", figure.get("gflops"))


def short(value):
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


# --- the page -----------------------------------------------------------------------------------------------------


def page(documents):
    yield from [
        "# Performance",
        "",
        "Written by `benches/peers/run.py --publish`, which adds the machine it runs on or measures it again; do not edit. "
        "One part for each kind of processor and instruction set:",
        "",
        *(f"- [{kind(d)}](#{anchor(kind(d))})" for d in documents),
        "",
        "GFLOP/s count operations of allowed pairs only, even if a peer computes other pairs too: `4 * head_dim` forward and decoding, "
        "`14 * head_dim` forward and backward. In brackets: the peer's time divided by noren's, measured alternately in the same run; "
        "above 1, noren is faster. Machines are noisy: ratios are more reliable than single values, and rows are left out in which a ratio and "
        "the quotient of its two values differ by more than 15 %.",
        "",
        "The limits are medians of `noren bench`, which also prints noren's share of them; memory bandwidth is for a size that fits each cache level.",
    ]
    for document in documents:
        yield from part(document)


def anchor(heading):
    """The link target that Markdown viewers give a heading."""
    return re.sub("[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def part(document):
    m = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(document["versions"].items()))
    yield from [
        "",
        f"## {kind(document)}",
        "",
        f"{m['cores']} cores, {document['threads']} threads, {m['system']}; commit {m['commit']}; {m['date']}. Compared with: {versions}.",
        *document.get("notes", []),
        *([f"Left out: {document['left_out']} rows that were disturbed."] if document["left_out"] else []),
        "",
        f"![Attention by operation, type and mask]({picture_path(document)})",
    ]
    if bench := document.get("bench"):
        yield from limits(bench)
    for op, rows in by(document["rows"], "op"):
        yield from ["", f"### {OPS[op]}"]
        for (dtype, heads, kv_heads), group in by(rows, "dtype", "heads", "kv_heads"):
            yield from table(op, dtype, heads, kv_heads, group, document["peers"])
    yield from reasons(document["rows"])


def by(rows, *keys):
    """Rows in groups that agree in keys, in the order of their first row."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in keys), []).append(row)
    return [(k if len(k) > 1 else k[0], rows) for k, rows in groups.items()]


def markdown(head, rows):
    yield from ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def table(op, dtype, heads, kv_heads, rows, peers):
    unit = "GB/s of keys and values" if op == "decode" else "GFLOP/s"
    shared = "" if heads == kv_heads else f", {kv_heads} key-value heads"
    yield from ["", f"{dtype}, {heads} heads{shared}, {unit}:"]
    shown = [p for p in peers if any("ms" in row["peers"].get(p, {}) for row in rows)]

    def cell(row, peer):
        figure = row["peers"].get(peer, {})
        if "ms" not in figure:
            return ""
        if peer == "noren":
            return f"**{short(rate(figure))}** ({short(figure['ms'])} ms)"
        return short(rate(figure)) + (f" ({figure['ratio']:.2f}x)" if "ratio" in figure else "")

    lines = ([MASKS[r["mask"]], str(r["dim"]), str(r["m"]), *(cell(r, p) for p in shown)] for r in rows)
    yield from markdown(["mask", "head_dim", "keys" if op == "decode" else "length", *(NAMES[p] for p in shown)], lines)


def limits(bench):
    yield from ["", "### Limits of the machine"]
    threads = sorted({limit["threads"] for limit in bench["limits"]})
    lines = []
    for (probe, unit), group in by(bench["limits"], "probe", "unit"):
        rates = {limit["threads"]: limit["median"] for limit in group}
        lines.append([probe, *(short(rates[n]) if n in rates else "" for n in threads), unit])
    yield from markdown(["limit", *(f"{n} thread{'s' * (n > 1)}" for n in threads), ""], lines)
    yield from ["", *(f"{line}." for line in bench["not_measured"])]


def reasons(rows):
    """Yields the cases that peers cannot run, with the message of each peer."""
    found = {}
    for row in rows:
        for peer, figure in row["peers"].items():
            if "error" in figure:
                found.setdefault((NAMES[peer], figure["error"]), set()).add(MASKS[row["mask"]])
    if found:
        yield from ["", "### Cases that a peer cannot run", ""]
        yield from (f"- {peer} ({', '.join(sorted(masks))}): {why}" for (peer, why), masks in sorted(found.items()))


# --- the picture --------------------------------------------------------------------------------------------------

WIDTH, LEFT, BAR, GAP = 860, 90, 12, 10


def picture(document):
    """Bars by peer in groups by mask; a panel for each operation, type and head_dim."""
    panels = [(op, dtype, dim, rows) for (op, dtype, dim), rows in by(document["rows"], "op", "dtype", "dim")]
    peak = {(limit["probe"], limit["threads"]): limit["median"] for limit in document.get("bench", {}).get("limits", [])}
    isa = document.get("bench", {}).get("isa", "").removesuffix("bf16")  # which differs in products of bf16 alone
    threads = document["threads"]
    products = {"f32": ("multiply-add peak", peak.get((f"fma {isa}", threads)))}
    products |= {"f16": products["f32"], "bf16": ("bf16 dot peak", peak.get(("bf16 dot", threads)))}
    read = ("memory read", peak.get(("read DRAM", threads)))
    drawing = Drawing(WIDTH)
    y = legend(drawing, [p for p in document["peers"] if any("ms" in r["peers"].get(p, {}) for r in document["rows"])])
    for op, dtype, dim, rows in panels:
        unit, limit = ("GB/s", read) if op == "decode" else ("GFLOP/s", products[dtype])
        y = panel(drawing, y + 14, f"{OPS[op]}, {dtype}, head_dim {dim}, {unit}", rows, limit)
    return drawing.text(y + 10)


def legend(drawing, peers):
    x, y = LEFT, 12
    for peer in peers:
        if x + 30 + 7 * len(NAMES[peer]) > WIDTH:
            x, y = LEFT, y + 20
        drawing.rect(x, y, 12, 12, COLORS[peer])
        drawing.label(x + 17, y + 10, NAMES[peer])
        x += 34 + 7 * len(NAMES[peer])
    return y + 20


def panel(drawing, y, title, rows, limit):
    """One panel from `y` down; returns where it ends."""
    limit_name, limit = limit
    measured = [(row, [(p, f) for p, f in row["peers"].items() if "ms" in f]) for row in rows]
    measured = [(row, bars) for row, bars in measured if bars]
    if not measured:
        return y - 14
    most = max([rate(f) for _, bars in measured for _, f in bars] + ([limit] if limit else []))
    scale = (WIDTH - LEFT - 60) / most
    drawing.label(LEFT, y + 10, title, bold=True)
    y = top = y + 20
    several = len({row["m"] for row in rows}) > 1
    for row, bars in measured:
        name = f"{row['m']} keys" if several else MASKS[row["mask"]]
        drawing.label(LEFT - 8, y + BAR * len(bars) / 2 + 4, name, anchor="end")
        for peer, figure in bars:
            drawing.rect(LEFT, y, max(1, rate(figure) * scale), BAR - 2, COLORS[peer])
            drawing.label(LEFT + rate(figure) * scale + 4, y + BAR - 3, short(rate(figure)), small=True)
            y += BAR
        y += GAP
    if limit:
        drawing.line(LEFT + limit * scale, top - 4, LEFT + limit * scale, y - GAP)
        drawing.label(LEFT + limit * scale, top - 7, f"{limit_name} {short(limit)}", anchor="end", small=True)
    return y
