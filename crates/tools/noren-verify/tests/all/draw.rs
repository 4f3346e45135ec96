//! Random masks, shapes and facts as text and JSON, for the verifier and for the library it checks.

/// A small generator: SplitMix64.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// Returns a number in `from..to`.
    pub(crate) fn int(&mut self, from: i64, to: i64) -> i64 {
        from + (self.word() % (to - from).max(1) as u64) as i64
    }

    /// Returns true with probability `1 / times`.
    pub(crate) fn once(&mut self, times: i64) -> bool {
        self.int(0, times) == 0
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.int(0, from.len() as i64) as usize]
    }

    pub(crate) fn many<T>(&mut self, count: i64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| one(self)).collect()
    }
}

/// A shape and facts.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) batch: i64,
    pub(crate) heads: i64,
    pub(crate) q_len: i64,
    pub(crate) kv_len: i64,
    pub(crate) offsets: Vec<i64>,
    /// Fields of the facts as JSON.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) documents: Vec<i64>,
}

impl Setting {
    pub(crate) fn shape(&self) -> String {
        let offset = if self.offsets.iter().all(|at| *at == self.offsets[0]) {
            self.offsets[0].to_string()
        } else {
            format!("{:?}", self.offsets)
        };
        format!(
            r#"{{"batch":{},"heads":{},"kv_heads":{},"q_len":{},"kv_len":{},"query_offset":{offset}}}"#,
            self.batch, self.heads, self.heads, self.q_len, self.kv_len
        )
    }

    pub(crate) fn facts(&self) -> String {
        let fields: Vec<String> = self.facts.iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Returns random lengths that sum to `total`.
pub(crate) fn partition(draw: &mut Draw, total: i64) -> Vec<i64> {
    let pieces = draw.int(0, 4);
    let mut cuts = draw.many(pieces, |draw| draw.int(0, total + 1));
    cuts.sort_unstable();
    cuts.push(total);
    let mut last = 0;
    cuts.into_iter().map(|cut| cut - std::mem::replace(&mut last, cut)).collect()
}

/// Returns a random shape with facts. If `tokens` is true, every query is a token.
pub(crate) fn setting(draw: &mut Draw, tokens: bool, most: i64) -> Setting {
    let (batch, heads, kv_len) = (draw.int(1, 4), draw.int(1, 4), draw.int(1, most));
    let q_len = if draw.once(2) { kv_len } else { draw.int(1, kv_len + 1) };
    let offset = |draw: &mut Draw| if tokens { draw.int(0, kv_len - q_len + 1) } else { draw.int(-3, kv_len + 3) };
    let offsets = match draw.int(0, 4) {
        0 | 1 => vec![kv_len - q_len; batch as usize],
        2 => vec![offset(draw); batch as usize],
        _ => draw.many(batch, offset),
    };
    let mut out = Setting { batch, heads, q_len, kv_len, offsets, facts: Vec::new(), documents: Vec::new() };
    let lengths = padding(draw, &mut out);
    let placed = draw.once(8);
    if placed {
        positions(draw, &mut out, tokens);
    }
    if draw.once(4) {
        let list = draw.many(batch, |draw| draw.int(0, q_len + 1));
        out.facts.push(("query_lengths", format!("{list:?}")));
    }
    // The list covers the whole row, its non-padding tokens, or a length between them.
    let reach = |draw: &mut Draw, row: usize, out: &Setting| {
        let full = kv_len.max(out.offsets[row] + q_len).max(0);
        match (&lengths, draw.int(0, 3)) {
            (Some(lengths), 0) => lengths[row],
            (Some(lengths), 1) => draw.int(lengths[row], full + 1),
            _ => full,
        }
    };
    let rows = batch as usize;
    if draw.once(3) {
        let total = reach(draw, 0, &out);
        out.documents = partition(draw, total);
        out.facts.push(("documents", format!("{:?}", out.documents)));
    } else {
        let totals: Vec<i64> = (0..rows).map(|row| reach(draw, row, &out)).collect();
        let lists: Vec<Vec<i64>> = totals.iter().map(|&total| partition(draw, total)).collect();
        out.documents = lists[0].clone();
        out.facts.push(("documents", format!("{lists:?}")));
    }
    let totals: Vec<i64> = (0..rows).map(|row| reach(draw, row, &out)).collect();
    let mut lists: Vec<Vec<i64>> = totals.iter().map(|&total| draw.many(total, |draw| draw.int(-1, 3))).collect();
    if draw.once(3) {
        out.facts.push(("levels", format!("{:?}", lists.remove(0))));
    } else {
        out.facts.push(("levels", format!("{lists:?}")));
    }
    let (red, blue) = (label(draw, kv_len), label(draw, kv_len));
    let by_row: Vec<String> = (0..rows).map(|_| label(draw, kv_len)).collect();
    let red = if draw.once(2) { format!("[{}]", by_row.join(",")) } else { red };
    out.facts.push(("labels", format!(r#"{{"red":{red},"light blue":{blue}}}"#)));
    let (dense, listed) = (dense(draw, &out), listed(draw, &out));
    out.facts.push(("arrays", format!(r#"{{"d0":{dense},"a b":{listed}}}"#)));
    out
}

/// Adds lengths or non-padding keys. Returns the lengths if all padding is at one end.
fn padding(draw: &mut Draw, out: &mut Setting) -> Option<Vec<i64>> {
    match draw.int(0, 5) {
        0 => None,
        4 => {
            let row = |draw: &mut Draw| {
                let count = draw.int(0, 4);
                let keys = draw.many(count, |draw| draw.int(0, out.kv_len));
                format!("{keys:?}")
            };
            let rows = draw.many(out.batch, row);
            out.facts.push(("real_keys", format!("[{}]", rows.join(","))));
            None
        }
        kind => {
            let lengths =
                draw.many(out.batch, |draw| if draw.once(3) { out.kv_len } else { draw.int(0, out.kv_len + 1) });
            out.facts.push(("lengths", format!("{lengths:?}")));
            if kind > 1 {
                out.facts.push(("side", if kind == 2 { "\"right\"" } else { "\"left\"" }.into()));
            }
            Some(lengths)
        }
    }
}

/// Adds positions. Each batch row has rotated positions, permuted positions, or positions with empty slots.
fn positions(draw: &mut Draw, out: &mut Setting, tokens: bool) {
    let row = |draw: &mut Draw| {
        let mut list: Vec<i64> = (0..out.kv_len).collect();
        if draw.once(2) {
            list.rotate_left(draw.int(0, out.kv_len) as usize);
        } else {
            for at in (1..list.len()).rev() {
                list.swap(at, draw.int(0, at as i64 + 1) as usize);
            }
        }
        if !tokens && draw.once(2) {
            let at = draw.int(0, out.kv_len) as usize;
            list[at] = -1;
        }
        list
    };
    let rows = draw.many(out.batch, row);
    out.facts.push(("positions", if draw.once(2) { format!("{:?}", rows[0]) } else { format!("{rows:?}") }));
}

fn label(draw: &mut Draw, len: i64) -> String {
    let count = draw.int(0, 4);
    let spans = draw.many(count, |draw| {
        let (a, b) = (draw.int(0, len), draw.int(0, len));
        match draw.int(0, 4) {
            0 => format!("\"{a}..\""),
            1 => format!("\"{}..{}\"", a.min(b), a.max(b)),
            _ => a.to_string(),
        }
    });
    format!("[{}]", spans.join(","))
}

fn dense(draw: &mut Draw, out: &Setting) -> String {
    let kind = draw.pick(&["keep", "drop"]);
    let slice = |draw: &mut Draw| {
        let rows = draw.many(out.q_len, |draw| draw.many(out.kv_len, |draw| draw.int(0, 2)));
        format!("{rows:?}")
    };
    if draw.once(2) {
        return format!("{{\"{kind}\":{}}}", slice(draw));
    }
    let (batch, heads) = (if draw.once(2) { 1 } else { out.batch }, if draw.once(2) { 1 } else { out.heads });
    let rows = draw.many(batch, |draw| format!("[{}]", draw.many(heads, slice).join(",")));
    format!("{{\"{kind}\":[{}]}}", rows.join(","))
}

fn listed(draw: &mut Draw, out: &Setting) -> String {
    let shape = format!("\"shape\":[{},{}]", out.q_len, out.kv_len);
    let count = draw.int(0, 9);
    if draw.once(2) {
        let list = draw.many(count, |draw| [draw.int(0, out.q_len), draw.int(0, out.kv_len)]);
        return format!("{{\"cells\":{{{shape},\"list\":{list:?}}}}}");
    }
    let block = [draw.int(1, 4), draw.int(1, 4)];
    let blocks = [(out.q_len - 1) / block[0] + 1, (out.kv_len - 1) / block[1] + 1];
    let list = draw.many(count, |draw| [draw.int(0, blocks[0]), draw.int(0, blocks[1])]);
    format!("{{\"blocks\":{{{shape},\"block\":{block:?},\"list\":{list:?}}}}}")
}

/// Returns a random mask with at most `depth` levels of nesting. `setting` has the facts for all atoms of the mask.
pub(crate) fn mask(draw: &mut Draw, setting: &Setting, depth: i64) -> String {
    if depth == 0 || draw.once(4) {
        return atom(draw, setting);
    }
    let part = |draw: &mut Draw| mask(draw, setting, depth - 1);
    match draw.int(0, 9) {
        0 => format!("{}({})", draw.pick(&["!", "~"]), part(draw)),
        1 | 2 => format!("({}) & ({})", part(draw), part(draw)),
        3 | 4 => format!("({}) | ({})", part(draw), part(draw)),
        5 => format!("({}) - ({})", part(draw), part(draw)),
        6 => format!(
            "{} & {} | {} - {}",
            atom(draw, setting),
            atom(draw, setting),
            atom(draw, setting),
            atom(draw, setting)
        ),
        7 => arms(draw, "heads", setting.heads, setting, depth),
        _ => arms(draw, "batch", setting.batch, setting, depth),
    }
}

fn arms(draw: &mut Draw, name: &str, count: i64, setting: &Setting, depth: i64) -> String {
    let part = |draw: &mut Draw| mask(draw, setting, depth - 1);
    let (a, b, c) = (part(draw), part(draw), part(draw));
    let cut = draw.int(0, count + 1);
    match draw.int(0, 4) {
        0 => format!("{name}(0..{cut}: {a}, {cut}..{count}: {b})"),
        1 => format!("{name}(every 2: {a}, else: {b})"),
        2 => format!("{name}([{}]: {a}, else: {c})", draw.int(0, count)),
        _ => format!("{name}(every 2 from 1: {b})"),
    }
}

fn set(draw: &mut Draw, len: i64) -> String {
    let span = |draw: &mut Draw| {
        let (a, b) = (draw.int(0, len + 2), draw.int(0, len + 2));
        match draw.int(0, 5) {
            0 => format!("{a}.."),
            1 => format!("..{b}"),
            2 => format!("{}..{}", a.min(b), a.max(b)),
            _ => a.to_string(),
        }
    };
    match draw.int(0, 5) {
        0 => "label=\"red\"".into(),
        1 => "label=\"light blue\"".into(),
        2 | 3 => span(draw),
        _ => {
            let count = draw.int(1, 4);
            format!("[{}]", draw.many(count, span).join(", "))
        }
    }
}

fn atom(draw: &mut Draw, setting: &Setting) -> String {
    let len = setting.kv_len;
    let near = |draw: &mut Draw| draw.int(-len / 2 - 1, len / 2 + 2);
    match draw.int(0, 26) {
        0 => "full".into(),
        1 => "none".into(),
        2 | 3 => "causal".into(),
        4 => format!("causal(offset={})", near(draw)),
        5 => format!("window(left={}, right={})", near(draw), near(draw)),
        6 => format!("window({}={})", draw.pick(&["left", "right"]), near(draw)),
        7 => format!("{}({})", draw.pick(&["sliding", "sliding_window"]), draw.int(1, len + 2)),
        8 => format!("chunk({})", draw.int(1, len + 2)),
        9 => format!("stride({})", draw.int(1, 5)),
        10 => match draw.int(0, 2) {
            0 => format!("prefix({})", draw.int(0, len + 2)),
            _ => format!("prefix({:?})", draw.many(setting.batch, |draw| draw.int(0, len + 2))),
        },
        11 | 12 => format!("{}({})", draw.pick(&["keys", "queries", "global"]), set(draw, len)),
        13 => "padding".into(),
        14 => format!("padding(side={})", draw.pick(&["left", "right"])),
        15 => "padding(on=both)".into(),
        16 => {
            let lengths = draw.many(setting.batch, |draw| draw.int(0, len + 1));
            format!("padding(side={}, lengths={lengths:?}, on=both)", draw.pick(&["left", "right"]))
        }
        17 | 18 => "documents".into(),
        19 => format!("documents({:?})", if draw.once(2) { setting.documents.clone() } else { partition(draw, len) }),
        20 => "clearance".into(),
        21 => {
            let count = draw.int(1, 4);
            let spans = draw.many(count, |draw| {
                let (a, b) = (draw.int(0, len + 1), draw.int(0, len + 1));
                format!("{}..{}", a.min(b), a.max(b))
            });
            format!("spans([{}])", spans.join(", "))
        }
        22 => {
            let count = draw.int(1, len + 1);
            let parents: Vec<i64> = (0..count).map(|node| draw.int(-1, node)).collect();
            format!("tree(parents={parents:?}, start={})", draw.int(0, 3))
        }
        23 => {
            let (a, b, c) = (draw.int(1, 4), draw.int(1, 4), draw.int(1, 4).max(len / 2));
            let size = |draw: &mut Draw, len: i64| draw.int(1, len + 1);
            match draw.int(0, 3) {
                0 => format!("neighborhood(grid=[{}], size=[{}])", len + a, size(draw, len)),
                1 => {
                    let (cells, step) = (len + a + b, draw.int(1, 4));
                    format!("neighborhood(grid=[{cells}], size=[{}], dilation=[{step}])", size(draw, cells / step))
                }
                _ => format!(
                    "neighborhood(grid=[{a}, {b}, {}], size=[{}, {}, {}])",
                    c + len,
                    size(draw, a),
                    size(draw, b),
                    size(draw, c)
                ),
            }
        }
        24 => format!("random(0.{}, {})", draw.int(1, 10), draw.word()),
        _ => format!("dense({})", draw.pick(&["d0", "\"a b\""])),
    }
}
