//! Correct scenes: a family, sizes, padding and documents; the cells by the simplest rule; the arrays as users store them.

use super::Dice;
use noren_doctor::{Context, Dtype, Input, Numbers, Values};
use noren_mask::Keep;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Family {
    Causal,
    Bidirectional,
    Packed,
    PackedBidirectional,
    Sliding,
    SlidingBoth,
    Chunked,
    Prefix,
    Cached,
    CachedSliding,
    StaticCache,
    Tree,
    Cross,
    Ring,
    Sinks,
    Blocks,
    KeysCausal,
    KeysBoth,
}

pub(crate) const FAMILIES: &[Family] = &[
    Family::Causal,
    Family::Bidirectional,
    Family::Packed,
    Family::PackedBidirectional,
    Family::Sliding,
    Family::SlidingBoth,
    Family::Chunked,
    Family::Prefix,
    Family::Cached,
    Family::CachedSliding,
    Family::StaticCache,
    Family::Tree,
    Family::Cross,
    Family::Ring,
    Family::Sinks,
    Family::Blocks,
    Family::KeysCausal,
    Family::KeysBoth,
];

/// The conversion of cells into numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Code {
    KeepBool,
    DropBool,
    KeepInt,
    Additive(f64, Dtype),
}

/// The array that marks padding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Given {
    Nothing,
    Ids,
    Lengths,
    /// A 0/1 array given with the mask.
    Plane,
}

/// The keys that padding queries read; their outputs are not used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PadRows {
    AsTheRule,
    Themselves,
    Everything,
}

/// The properties that define a mask.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) family: Family,
    pub(crate) batch: usize,
    pub(crate) q: usize,
    pub(crate) k: usize,
    pub(crate) past: usize,
    /// The position of query 0 that the mask uses; a mistake makes it differ from `past`.
    pub(crate) stands: i64,
    pub(crate) causal: Option<i64>,
    pub(crate) window: Option<i64>,
    pub(crate) both_ways: bool,
    pub(crate) chunk: Option<(i64, bool)>,
    pub(crate) segments: Option<Vec<Vec<i64>>>,
    pub(crate) prefix: Option<Vec<usize>>,
    pub(crate) blocks: Option<Vec<Vec<i64>>>,
    pub(crate) lengths: Vec<usize>,
    pub(crate) left: bool,
    pub(crate) padding: bool,
    pub(crate) parents: Option<Vec<i64>>,
    pub(crate) slots: Option<Vec<i64>>,
    pub(crate) sinks: usize,
    pub(crate) ids: Vec<Vec<i64>>,
    pub(crate) pad_id: i64,
    pub(crate) eos_id: i64,
    /// Decoder lengths in cross-attention, per batch row.
    pub(crate) q_lengths: Vec<usize>,
    pub(crate) padding_first: bool,
    pub(crate) pad_rows: PadRows,
    pub(crate) code: Code,
    pub(crate) heads: usize,
    pub(crate) declare_kind: bool,
    pub(crate) companions: Vec<(String, Values)>,
    pub(crate) context: Map<String, Value>,
    pub(crate) given: Given,
    /// True when batch rows and heads share one dimension, or when the array has batch rows and no dimension of heads.
    pub(crate) flat: bool,
    /// The declaration of documents: segment numbers, their ends, or positions.
    pub(crate) documents_by: u8,
    pub(crate) kind_name: u8,
    /// True to pass a row of keys as `[batch, 1, 1, kv_len]` where a full mask is expected.
    pub(crate) plane4: bool,
}

impl Scene {
    pub(crate) fn new(family: Family, dice: &mut Dice, largest: usize) -> Self {
        let n = if dice.varied { dice.of(6, largest) } else { dice.of(9, largest) };
        let batch = if dice.chance(40) { 1 } else { dice.of(2, 4) };
        let mut scene = Scene {
            family,
            batch,
            q: n,
            k: n,
            past: 0,
            stands: 0,
            causal: Some(0),
            window: None,
            both_ways: false,
            chunk: None,
            segments: None,
            prefix: None,
            blocks: None,
            lengths: vec![n; batch],
            left: false,
            padding: false,
            parents: None,
            slots: None,
            sinks: 0,
            ids: Vec::new(),
            pad_id: 0,
            eos_id: 2,
            q_lengths: Vec::new(),
            padding_first: false,
            pad_rows: PadRows::Themselves,
            code: Code::KeepBool,
            heads: 1,
            declare_kind: dice.chance(60),
            companions: Vec::new(),
            context: Map::new(),
            given: Given::Ids,
            flat: false,
            documents_by: 0,
            kind_name: 0,
            plane4: false,
        };
        scene.shape_of_family(dice, n);
        scene.tokens(dice);
        scene.encoding(dice);
        scene
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each family of masks")]
    fn shape_of_family(&mut self, dice: &mut Dice, n: usize) {
        let pad = |scene: &mut Scene, dice: &mut Dice, percent: u64| {
            if dice.chance(percent) {
                scene.padding = true;
                scene.left = dice.chance(50);
                scene.lengths = (0..scene.batch).map(|_| dice.of(n.div_ceil(2), n)).collect();
                let longest = dice.of(0, scene.batch - 1);
                scene.lengths[longest] = n;
                if scene.batch == 1 || scene.lengths.iter().all(|&l| l == n) {
                    let shortest = dice.of(0, scene.batch - 1);
                    scene.lengths[shortest] = n - dice.of(1, n / 3);
                }
            }
        };
        match self.family {
            Family::Causal => pad(self, dice, 70),
            Family::Bidirectional => {
                self.causal = None;
                pad(self, dice, 80);
            }
            Family::Packed | Family::PackedBidirectional => {
                if self.family == Family::PackedBidirectional {
                    self.causal = None;
                }
                let tail = if dice.chance(40) { dice.of(1, n / 4) } else { 0 };
                self.lengths = vec![n - tail; self.batch];
                self.padding = tail > 0;
                let row = |dice: &mut Dice| {
                    let mut ids = Vec::new();
                    let mut number = 0;
                    while ids.len() < n - tail {
                        number += 1;
                        let len = dice.of(2, (n / 3).max(3)).min(n - tail - ids.len());
                        ids.extend(std::iter::repeat_n(number, len));
                    }
                    ids.resize(n, 0);
                    ids
                };
                self.segments = Some((0..self.batch).map(|_| row(dice)).collect());
            }
            Family::Sliding => {
                self.window = Some(dice.of(2, n - 3) as i64);
                pad(self, dice, if dice.varied { 60 } else { 30 });
            }
            Family::SlidingBoth => {
                self.causal = None;
                self.both_ways = true;
                self.window = Some(dice.of(1, n / 3) as i64);
                pad(self, dice, 30);
            }
            Family::Chunked => {
                self.chunk = Some((dice.of(2, n / 2) as i64, true));
                pad(self, dice, 60);
            }
            Family::Prefix => {
                pad(self, dice, 40);
                self.left = false;
                let least = *self.lengths.iter().min().unwrap_or(&n);
                self.prefix = Some(vec![dice.of(2.min(least - 1), (least - 1).min(least.max(4) - 2))]);
            }
            Family::Cached | Family::CachedSliding => {
                self.q = dice.of(1, n / 2);
                self.past = n - self.q;
                if self.family == Family::CachedSliding {
                    self.window = Some(dice.of(2, n - 1) as i64);
                }
                if dice.varied && self.batch > 1 {
                    pad(self, dice, 60);
                    self.left = true;
                }
            }
            Family::StaticCache => {
                self.q = dice.of(1, n / 3);
                self.past = dice.of(1, n / 3);
                self.k = n;
            }
            Family::Tree => {
                self.past = if dice.chance(50) { dice.of(1, 12) } else { 0 };
                self.q = n.min(24);
                self.k = self.past + self.q;
                let mut parents = vec![-1i64, 0, 0];
                while parents.len() < self.q {
                    parents.push(dice.of(0, parents.len() - 1) as i64);
                }
                self.parents = Some(parents);
                self.lengths = vec![self.k; self.batch];
            }
            Family::Cross => {
                self.causal = None;
                self.q = dice.of(3, n);
                if self.q == self.k {
                    self.q -= 1;
                }
                pad(self, dice, 90);
                self.left = false;
                self.q_lengths = (0..self.batch).map(|_| dice.of(self.q.div_ceil(2), self.q)).collect();
            }
            Family::Ring => {
                self.batch = 1;
                self.q = 1;
                let window = n as i64 - dice.of(0, 2) as i64;
                self.window = Some(window);
                let newest = dice.of(n + 1, 3 * n) as i64;
                let slots: Vec<i64> = (0..n as i64).map(|s| newest - (newest - s).rem_euclid(n as i64)).collect();
                self.slots = Some(slots);
                self.past = newest as usize;
                self.lengths = vec![n];
            }
            Family::Sinks => {
                self.sinks = dice.of(1, 3);
                self.window = Some(dice.of(2.min(n - 5), n - 5) as i64);
            }
            Family::Blocks => {
                let row = |dice: &mut Dice| {
                    let mut ids = vec![-1i64; n];
                    let start = dice.of(0, n / 2);
                    let end = dice.of(start + 2, (start + n / 2).min(n));
                    ids[start..end].fill(0);
                    ids
                };
                self.blocks = Some((0..self.batch).map(|_| row(dice)).collect());
                pad(self, dice, 40);
                self.left = false;
            }
            Family::KeysCausal => {
                pad(self, dice, 90);
                self.left = dice.chance(70);
            }
            Family::KeysBoth => {
                self.causal = None;
                pad(self, dice, 90);
            }
        }
        if self.lengths.len() != self.batch {
            self.lengths.resize(self.batch, self.k);
        }
        self.stands = self.past as i64;
    }

    fn tokens(&mut self, dice: &mut Dice) {
        let real = |s: &Scene, b: usize, j: usize| s.real(b, j);
        self.ids = (0..self.batch)
            .map(|b| {
                let mut row: Vec<i64> =
                    (0..self.k).map(|j| if real(self, b, j) { dice.of(5, 99) as i64 } else { self.pad_id }).collect();
                if let Some(segments) = &self.segments {
                    for j in 0..self.k {
                        if segments[b][j] != 0 && (j + 1 == self.k || segments[b][j + 1] != segments[b][j]) {
                            row[j] = self.eos_id;
                        }
                    }
                } else if let Some(last) = (0..self.k).rev().find(|&j| real(self, b, j)) {
                    row[last] = self.eos_id;
                }
                row
            })
            .collect();
    }

    fn encoding(&mut self, dice: &mut Dice) {
        let keys = matches!(self.family, Family::KeysCausal | Family::KeysBoth);
        self.code = match (keys, self.family, dice.of(0, 9)) {
            (true, Family::KeysCausal, _) => Code::KeepInt,
            (true, _, 0..=4) => Code::DropBool,
            (true, ..) => Code::KeepInt,
            (_, _, 0..=3) => Code::KeepBool,
            (_, _, 4) => Code::DropBool,
            (_, _, 5) => Code::Additive(f64::NEG_INFINITY, Dtype::F32),
            (_, _, 6) => Code::Additive(f64::from(f32::MIN), Dtype::F32),
            (_, _, 7) => Code::Additive(-1e9, Dtype::F32),
            (_, _, 8) => Code::Additive(-65504.0, Dtype::F16),
            _ => Code::Additive(f64::NEG_INFINITY, Dtype::F16),
        };
        if !keys && dice.chance(15) {
            self.heads = dice.of(2, 4);
        }
        self.given = if self.padding || dice.chance(50) { Given::Ids } else { Given::Nothing };
        if dice.varied {
            self.varied(dice, keys);
        }
    }

    /// Draws unusual storage and declarations.
    fn varied(&mut self, dice: &mut Dice, keys: bool) {
        let infinite = f64::NEG_INFINITY;
        if !keys && dice.chance(50) {
            self.code = dice.pick(&[
                Code::KeepInt,
                Code::Additive(-1e4, Dtype::F32),
                Code::Additive(-1e4, Dtype::F16),
                Code::Additive(f64::from(half_lowest()), Dtype::Bf16),
                Code::Additive(infinite, Dtype::Bf16),
                Code::Additive(infinite, Dtype::F64),
                Code::Additive(-1e30, Dtype::F32),
            ]);
        }
        let plain = !matches!(self.family, Family::Cross | Family::Ring | Family::Tree) && self.segments.is_none();
        if plain && dice.chance(40) {
            self.given = dice.pick(&[Given::Lengths, Given::Plane]);
        }
        self.flat = dice.chance(25);
        self.documents_by = if self.batch == 1 { dice.of(0, 2) as u8 } else { 2 * u8::from(dice.chance(40)) };
        self.kind_name = dice.of(0, 3) as u8;
        let harmless = matches!(self.code, Code::KeepBool | Code::KeepInt)
            || matches!(self.code, Code::Additive(fill, _) if fill.is_finite());
        if harmless {
            self.pad_rows = dice.pick(&[PadRows::AsTheRule, PadRows::Themselves, PadRows::Everything]);
        }
    }

    /// Returns whether key `j` is a non-padding token.
    pub(crate) fn real(&self, b: usize, j: usize) -> bool {
        if self.segments.as_ref().is_some_and(|s| s[b][j] == 0) {
            return false;
        }
        let n = self.lengths[b];
        if self.left { j >= self.k - n } else { j < n }
    }

    /// Returns whether query `i` is a non-padding token.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        match self.family {
            Family::Cross => i < self.q_lengths[b],
            Family::Ring | Family::Tree => true,
            _ => self.real(b, i + self.past),
        }
    }

    /// Returns whether the rule allows a cell.
    pub(crate) fn cell(&self, b: usize, i: usize, j: usize) -> bool {
        let p = i as i64 + self.stands;
        let x = self.slots.as_ref().map_or(j as i64, |s| s[j]);
        if x < 0 {
            return false;
        }
        if let Some(parents) = &self.parents {
            let (node, start) = (i, self.k - self.q);
            if j < start {
                return true;
            }
            let mut at = node as i64;
            while at >= 0 {
                if at as usize == j - start {
                    return true;
                }
                at = parents[at as usize];
            }
            return false;
        }
        let mut allowed = self.causal.is_none_or(|off| x <= p + off);
        if let Some(w) = self.window {
            allowed &= if self.both_ways { (p - x).abs() <= w } else { p - x < w };
        }
        let first = (0..self.k).find(|&j| self.real(b, j)).unwrap_or(0);
        if let Some((c, from_text)) = self.chunk {
            let o = if from_text { first as i64 } else { 0 };
            allowed &= (p - o).div_euclid(c) == (x - o).div_euclid(c);
        }
        allowed |= self.sinks > 0 && j >= first && j < first + self.sinks && x <= p;
        if let Some(s) = &self.segments {
            let q = i + self.past;
            allowed &= s[b][q] == s[b][j];
        }
        let real = !self.padding || self.real(b, j);
        if self.padding_first {
            allowed &= real;
        }
        allowed |= self.prefix.as_ref().is_some_and(|p| j < p[b.min(p.len() - 1)]);
        if let Some(blocks) = &self.blocks {
            allowed |= blocks[b][j] >= 0 && blocks[b][i] == blocks[b][j];
        }
        allowed && (real || self.padding_first)
    }

    /// Returns the correct cells.
    pub(crate) fn keep(&self) -> Keep {
        Keep::from_fn([self.batch, 1, self.q, self.k], |[b, _, i, j]| self.cell(b, i, j))
    }

    /// Returns the cells as a careful author stores them: padding rows read themselves where a row without keys would
    /// be NaN.
    pub(crate) fn stored(&self) -> Keep {
        let keep = self.keep();
        let hurts = !matches!(self.code, Code::Additive(fill, _) if fill.is_finite());
        let extra = |b: usize, i: usize, j: usize| match self.pad_rows {
            PadRows::AsTheRule => false,
            PadRows::Themselves => hurts && i == j,
            // The transformers library makes a row without keys read all keys.
            PadRows::Everything => (0..self.k).all(|j| !keep.get([b, 0, i, j])),
        };
        Keep::from_fn(keep.dims(), |[b, h, i, j]| {
            keep.get([b, h, i, j]) || (self.q == self.k && !self.real(b, i) && extra(b, i, j))
        })
    }

    fn kind(&self) -> &'static str {
        let other = match (self.family, self.kind_name) {
            (Family::Causal | Family::Cached | Family::KeysCausal, 1) => Some("decoder_causal"),
            (Family::Bidirectional | Family::KeysBoth, 1) => Some("full"),
            (Family::Bidirectional | Family::KeysBoth, 2) => Some("encoder"),
            (Family::Packed, 1) => Some("packed"),
            (Family::Packed, 2) => Some("causal_document"),
            (Family::PackedBidirectional, 1) => Some("full_packed"),
            (Family::Sliding | Family::CachedSliding | Family::Ring | Family::Sinks, 1) => Some("sliding_window"),
            (Family::Sliding | Family::CachedSliding, 2) => Some("causal_sliding"),
            (Family::SlidingBoth, 1) => Some("sliding_bidirectional"),
            (Family::Chunked, 1) => Some("chunked_causal"),
            (Family::Prefix, 1) => Some("prefix"),
            (Family::Cross, 1) => Some("cross_attention"),
            (Family::Tree, 1) => Some("speculative_tree"),
            _ => None,
        };
        if let Some(name) = other {
            return name;
        }
        match self.family {
            Family::Causal | Family::Cached | Family::StaticCache | Family::KeysCausal => "causal",
            Family::Bidirectional | Family::KeysBoth => "bidirectional",
            Family::Packed => "causal_packed",
            Family::PackedBidirectional => "bidirectional_packed",
            Family::Sliding | Family::CachedSliding | Family::Ring | Family::Sinks => "sliding",
            Family::SlidingBoth => "bidirectional_sliding",
            Family::Chunked => "chunked",
            Family::Prefix => "prefix_lm",
            Family::Tree => "tree",
            Family::Cross => "cross",
            Family::Blocks => "causal_image_blocks",
        }
    }

    /// Returns the declarations that a user would give.
    pub(crate) fn declaration(&self) -> Map<String, Value> {
        let keys = matches!(self.family, Family::KeysCausal | Family::KeysBoth);
        let (api, convention) = match (self.code, keys) {
            (Code::KeepBool, true) | (Code::KeepInt, true) if self.plane4 => ("sdpa", "keep_bool"),
            (Code::KeepBool, _) => ("sdpa", "keep_bool"),
            (Code::DropBool, true) => ("torch.nn.MultiheadAttention.key_padding_mask", "ignore_bool"),
            (Code::DropBool, false) => ("torch.nn.MultiheadAttention.attn_mask", "ignore_bool"),
            (Code::KeepInt, true) => ("transformers.attention_mask", "keep_01"),
            (Code::KeepInt, false) => ("keras.layers.MultiHeadAttention", "keep_01"),
            (Code::Additive(..), _) => ("additive", "additive"),
        };
        let role = match self.family {
            Family::Cross => "cross",
            _ if keys && !self.plane4 => "key_padding",
            _ => "attn",
        };
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.into(), value);
        put("api", json!(api));
        put("convention", json!(convention));
        put("role", json!(role));
        if self.declare_kind {
            put("kind", json!(self.kind()));
        }
        if let Code::Additive(_, dtype) = self.code {
            put("compute_dtype", json!(dtype.name()));
        }
        if self.given == Given::Lengths && self.padding {
            put("padding_side", json!(if self.left { "left" } else { "right" }));
        }
        if self.flat && self.heads > 1 {
            put("heads", json!(self.heads));
        }
        if self.given == Given::Ids {
            put("pad_token_id", json!(self.pad_id));
            if self.padding && self.left && self.family != Family::KeysBoth {
                put("padding_side", json!("left"));
            } else if self.family == Family::KeysCausal {
                put("padding_side", json!(if self.left { "left" } else { "right" }));
            }
        }
        if matches!(self.family, Family::Cached | Family::CachedSliding | Family::StaticCache)
            || self.past > 0 && self.parents.is_some()
        {
            put("past_len", json!(self.past));
            put("q_len", json!(self.q));
            put("kv_len", json!(self.k));
        }
        if self.slots.is_some() {
            put("past_len", json!(self.past));
        }
        if let Some(w) = self.window {
            put("window", json!(w));
            put(
                "window_means",
                json!(if self.both_ways { "keys on each side" } else { "keys visible, self included" }),
            );
        }
        if let Some((c, _)) = self.chunk {
            put("chunk", json!(c));
        }
        if let Some(p) = &self.prefix {
            put("prefix_len", json!(p[0]));
        }
        if self.sinks > 0 {
            put("sinks", json!(self.sinks));
        }
        map.extend(self.context.clone());
        map
    }

    /// Returns the companion arrays.
    fn beside(&self) -> Vec<(String, Values)> {
        let table =
            |rows: &[Vec<i64>]| Values::ints(&[rows.len(), rows[0].len()], rows.concat()).expect("a full table");
        let mut out = Vec::new();
        if self.given == Given::Lengths && self.padding {
            let lengths = self.lengths.iter().map(|&n| n as i64).collect();
            out.push(("lengths".to_string(), Values::ints(&[self.batch], lengths).expect("a list")));
        }
        if self.given == Given::Plane {
            let plane: Vec<Vec<i64>> =
                (0..self.batch).map(|b| (0..self.k).map(|j| i64::from(self.real(b, j))).collect()).collect();
            out.push(("attention_mask".to_string(), table(&plane)));
        }
        if self.given == Given::Ids && self.family != Family::Ring {
            let name = if self.family == Family::Cross { "encoder_input_ids" } else { "input_ids" };
            out.push((name.to_string(), table(&self.ids)));
        }
        if self.family == Family::Cross {
            let rows: Vec<Vec<i64>> =
                self.q_lengths.iter().map(|&n| (0..self.q).map(|i| i64::from(i < n) * 7).collect()).collect();
            out.push(("decoder_input_ids".to_string(), table(&rows)));
        }
        if let Some(segments) = &self.segments {
            out.push(match (self.documents_by, self.padding) {
                (1, false) if self.batch == 1 => {
                    let row = &segments[0];
                    let mut ends: Vec<i64> =
                        (0..row.len()).filter(|&j| j == 0 || row[j] != row[j - 1]).map(|j| j as i64).collect();
                    ends.push(row.len() as i64);
                    ("cu_seqlens".to_string(), Values::ints(&[ends.len()], ends).expect("a list"))
                }
                (2, false) => (
                    "segment_ids".to_string(),
                    table(&segments.iter().map(|r| r.iter().map(|s| s - 1).collect()).collect::<Vec<_>>()),
                ),
                _ => ("segment_ids".to_string(), table(segments)),
            });
        }
        if let Some(blocks) = &self.blocks {
            out.push(("block_ids".to_string(), table(blocks)));
        }
        if let Some(parents) = &self.parents {
            out.push(("parents".to_string(), Values::ints(&[parents.len()], parents.clone()).expect("a list")));
        }
        if let Some(slots) = &self.slots {
            out.push(("kv_positions".to_string(), Values::ints(&[slots.len()], slots.clone()).expect("a list")));
        }
        for (name, values) in &self.companions {
            out.retain(|(known, _)| known != name);
            out.push((name.clone(), values.clone()));
        }
        out
    }

    /// Returns the doctor's input whose mask holds `cells`.
    pub(crate) fn input(&self, cells: &Keep, dice: &mut Dice) -> Input {
        let keys = matches!(self.family, Family::KeysCausal | Family::KeysBoth);
        let values = match keys {
            true => {
                let [b, _, _, k] = cells.dims();
                let shape: &[usize] = if self.plane4 { &[b, 1, 1, k] } else { &[b, k] };
                encode(shape, (0..b * k).map(|i| cells.get([i / k, 0, 0, i % k])).collect(), self.code)
            }
            false => {
                let [b, _, q, k] = cells.dims();
                let uniform =
                    (1..b).all(|n| (0..q).all(|i| (0..k).all(|j| cells.get([n, 0, i, j]) == cells.get([0, 0, i, j]))));
                let b = if uniform && dice.chance(50) { 1 } else { b };
                let all = (0..b * self.heads * q * k)
                    .map(|at| cells.get([at / (q * k * self.heads), 0, at / k % q, at % k]))
                    .collect();
                let shape: Vec<usize> = match (b, self.heads) {
                    (b, h) if self.flat && h > 1 && b > 1 => vec![b * h, q, k],
                    (b, 1) if self.flat && b > 1 => vec![b, q, k],
                    (1, 1) if dice.chance(30) && q > 1 => vec![q, k],
                    (b, h) => vec![b, h, q, k],
                };
                encode(&shape, all, self.code)
            }
        };
        self.with_mask(values)
    }

    /// Returns the doctor's input with this stored mask.
    pub(crate) fn with_mask(&self, values: Values) -> Input {
        let context = Context::from_map(&self.declaration()).expect("a sound declaration");
        let input = Input::new(values).context(context);
        self.beside().into_iter().fold(input, |p, (name, values)| p.companion(name, values))
    }

    /// Returns the non-padding keys as a key padding mask `[batch, 1, 1, kv_len]`.
    pub(crate) fn plane(&self) -> Keep {
        Keep::from_fn([self.batch, 1, 1, self.k], |[b, _, _, j]| self.real(b, j))
    }
}

/// Returns the lowest number of bfloat16.
fn half_lowest() -> f32 {
    f32::from_bits(0xFF7F_0000)
}

/// Returns cells as stored numbers.
pub(crate) fn encode(shape: &[usize], cells: Vec<bool>, code: Code) -> Values {
    match code {
        Code::KeepBool => Values::bools(shape, cells),
        Code::DropBool => Values::bools(shape, cells.iter().map(|c| !c).collect()),
        Code::KeepInt => Values::ints(shape, cells.iter().map(|&c| i64::from(c)).collect()),
        Code::Additive(fill, dtype) => {
            let numbers = cells.iter().map(|&c| if c { 0.0 } else { fill as f32 }).collect();
            Values::new(shape, dtype, Numbers::Single(numbers))
        }
    }
    .expect("as many cells as the shape says")
}
