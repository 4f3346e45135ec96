//! Every name of the language: atoms and scores with their parameters.

/// A parameter of an atom or a score.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// What it is, to follow "the": "number of keys".
    pub(crate) what: &'static str,
    pub(crate) required: bool,
}

/// An atom or a score.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
    /// How many of the parameters may be given without their name.
    pub(crate) positional: usize,
    /// One that works.
    pub(crate) example: &'static str,
}

const fn need(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: true }
}

const fn may(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: false }
}

const fn entry(name: &'static str, example: &'static str, params: &'static [Param]) -> Entry {
    Entry { name, params, positional: params.len(), example }
}

const fn plain(name: &'static str) -> Entry {
    entry(name, name, &[])
}

const SET: &[Param] = &[may("set", "positions"), may("label", "name of a label")];

const fn set(name: &'static str, example: &'static str) -> Entry {
    Entry { name, params: SET, positional: 1, example }
}

/// The atoms, in the order in which they are offered.
pub(crate) const ATOMS: &[Entry] = &[
    plain("full"),
    plain("none"),
    entry("causal", "causal(offset=-1)", &[may("offset", "shift of the diagonal")]),
    entry(
        "window",
        "window(left=4, right=0)",
        &[may("left", "number of keys before"), may("right", "number of keys after")],
    ),
    entry("sliding", "sliding(4096)", &[need("window", "number of keys, the query's own included")]),
    entry("chunk", "chunk(512)", &[need("size", "number of positions in a chunk")]),
    entry("stride", "stride(8)", &[need("step", "distance between two keys")]),
    entry("prefix", "prefix(16)", &[need("lengths", "number of keys, or a list with one for each batch row")]),
    set("keys", "keys(0..4)"),
    set("queries", "queries(0..4)"),
    set("global", "global(0..2)"),
    Entry {
        name: "padding",
        params: &[
            may("side", "side at which the padding stands"),
            may("lengths", "number of real tokens by batch row"),
            may("on", "side of the mask that is emptied"),
        ],
        positional: 1,
        example: "padding(side=left, lengths=[5, 3], on=both)",
    },
    entry("documents", "documents([33, 31])", &[may("lengths", "lengths of the documents")]),
    entry("spans", "spans([4..20, 30..46])", &[need("spans", "list of ranges")]),
    entry(
        "tree",
        "tree(parents=[-1, 0, 0], start=8)",
        &[need("parents", "parent of each node, -1 for a root"), may("start", "position of the first node")],
    ),
    plain("clearance"),
    entry(
        "neighborhood",
        "neighborhood(grid=[8, 9], size=[3, 5])",
        &[
            need("grid", "number of cells by dimension"),
            need("size", "width of the window by dimension"),
            may("dilation", "distance between two cells of the window by dimension"),
        ],
    ),
    entry(
        "random",
        "random(0.1, 42)",
        &[need("p", "probability of a cell"), need("seed", "number that fixes the pattern")],
    ),
    entry(
        "random_blocks",
        "random_blocks(64, 3, 42)",
        &[
            need("block", "length of a block"),
            need("count", "number of key blocks for each query block"),
            need("seed", "number that fixes the pattern"),
        ],
    ),
    entry("dense", "dense(name)", &[need("name", "name of the keep-array")]),
    entry("closure", "closure(name)", &[need("name", "name of the closure")]),
    entry("heads", "heads(0..4: causal, 4..: sliding(8))", &[]),
    entry("batch", "batch(0: causal, else: full)", &[]),
    entry("layers", "layers(every 2: sliding(4096), else: causal)", &[]),
];

/// Other names of atoms.
const ALIASES: &[(&str, &str)] = &[("sliding_window", "sliding")];

/// The scores.
pub(crate) const SCORES: &[Entry] = &[
    entry("bias", "bias(name)", &[may("name", "name of the array")]),
    entry("relative", "relative(name)", &[may("name", "name of the table")]),
    entry("alibi", "alibi(slopes=[0.5, 0.25])", &[may("slopes", "slope of each head")]),
    entry("softcap", "softcap(5)", &[need("cap", "largest absolute score")]),
    entry("soft", "soft(name)", &[may("name", "name of the array")]),
    entry("sinks", "sinks(name)", &[may("name", "name of the array")]),
];

/// The atom called `name`.
pub(crate) fn atom(name: &str) -> Option<&'static Entry> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own);
    ATOMS.iter().find(|entry| entry.name == name)
}

/// The score called `name`.
pub(crate) fn score(name: &str) -> Option<&'static Entry> {
    SCORES.iter().find(|entry| entry.name == name)
}

/// The names under which atoms can be written.
pub(crate) fn atom_names() -> impl Iterator<Item = &'static str> {
    ATOMS.iter().map(|entry| entry.name).chain(ALIASES.iter().map(|(alias, _)| *alias))
}
