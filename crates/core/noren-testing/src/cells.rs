//! All cells of a small mask, computed one by one.

use noren_mask::{BoundMask, PatternPlan, Plan, Shape, SpanKind};

/// The cells of a mask as Booleans, `[batch, heads, q_len, kv_len]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Cells {
    /// The dimensions `[batch, heads, q_len, kv_len]`.
    pub dims: [usize; 4],
    /// Whether each cell is allowed, in row-major order.
    pub keep: Vec<bool>,
}

/// Returns `[batch, heads, q_len, kv_len]` of a shape.
pub fn dims(shape: &Shape) -> [usize; 4] {
    [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()]
}

impl Cells {
    /// Returns the cells of a bound mask by its definition, `BoundMask::allowed`.
    pub fn of(bound: &BoundMask) -> Self {
        Self::from_fn(dims(bound.shape()), |[b, h, q, k]| bound.allowed(b, h, q, k))
    }

    /// Returns the cells that `allowed` computes from `[batch, head, query, key]`.
    pub fn from_fn(dims: [usize; 4], allowed: impl Fn([usize; 4]) -> bool) -> Self {
        let [batch, heads, q_len, kv_len] = dims;
        let mut keep = Vec::with_capacity(batch * heads * q_len * kv_len);
        for b in 0..batch {
            for h in 0..heads {
                for q in 0..q_len {
                    keep.extend((0..kv_len).map(|k| allowed([b, h, q, k])));
                }
            }
        }
        Cells { dims, keep }
    }

    /// Returns the cells that a plan allows, from its spans and bits.
    pub fn of_plan(plan: &Plan) -> Self {
        let dims = dims(plan.shape());
        let [batch, heads, q_len, kv_len] = dims;
        let mut keep = Vec::with_capacity(batch * heads * q_len * kv_len);
        let patterns: Vec<Vec<bool>> = plan.patterns().iter().map(pattern_cells).collect();
        for b in 0..batch {
            for h in 0..heads {
                keep.extend_from_slice(&patterns[plan.pattern_of(b, h)]);
            }
        }
        Cells { dims, keep }
    }

    /// Combines each cell of `self` with the same cell of `other` by `rule(self, other)`.
    pub fn zip(&self, other: &Self, rule: impl Fn(bool, bool) -> bool) -> Self {
        assert_eq!(self.dims, other.dims);
        let keep = self.keep.iter().zip(&other.keep).map(|(&a, &b)| rule(a, b)).collect();
        Cells { dims: self.dims, keep }
    }

    /// Returns whether a cell is allowed.
    pub fn get(&self, [b, h, q, k]: [usize; 4]) -> bool {
        let [_, heads, q_len, kv_len] = self.dims;
        self.keep[((b * heads + h) * q_len + q) * kv_len + k]
    }

    /// Returns the number of allowed cells.
    pub fn count(&self) -> usize {
        self.keep.iter().filter(|&&k| k).count()
    }

    /// Returns the first allowed cell as `[batch, head, query, key]`.
    pub fn first(&self) -> Option<[usize; 4]> {
        self.all().next()
    }

    /// Returns all allowed cells as `[batch, head, query, key]`, in order.
    pub fn all(&self) -> impl Iterator<Item = [usize; 4]> + '_ {
        let [_, heads, q_len, kv_len] = self.dims;
        let at =
            move |i: usize| [i / kv_len / q_len / heads, i / kv_len / q_len % heads, i / kv_len % q_len, i % kv_len];
        self.keep.iter().enumerate().filter(|(_, k)| **k).map(move |(i, _)| at(i))
    }

    /// Returns the number of query rows without an allowed key, over all batch rows and heads.
    pub fn empty_rows(&self) -> usize {
        self.keep.chunks(self.dims[3]).filter(|row| !row.contains(&true)).count()
    }
}

/// Returns the `[q_len, kv_len]` cells of a plan: all cells of full spans, and the set bits of mixed spans.
fn pattern_cells(plan: &PatternPlan) -> Vec<bool> {
    let kv_len = plan.kv_len() as usize;
    let mut keep = vec![false; plan.q_len() as usize * kv_len];
    for tile in plan.tiles() {
        for span in tile.spans {
            let bits = match span.kind {
                SpanKind::Full => vec![u64::MAX; tile.rows() as usize * (span.keys() as usize).div_ceil(64)],
                SpanKind::Mixed => fill(plan, tile.start..tile.end, span.start..span.end),
            };
            for (place, line) in (tile.start..).zip(bits.chunks((span.keys() as usize).div_ceil(64))) {
                let row = plan.query_at(place) as usize * kv_len;
                for k in 0..span.keys() as usize {
                    let cell = &mut keep[row + plan.key_at(span.start + k as u32) as usize];
                    let reads = line[k / 64] >> (k % 64) & 1 == 1;
                    assert!(!(reads && *cell), "the query at place {place} reads a key twice");
                    *cell |= reads;
                }
            }
        }
    }
    keep
}

/// Returns the mask bits of the rectangle `rows` x `keys` of a plan.
pub fn fill(plan: &PatternPlan, rows: std::ops::Range<u32>, keys: std::ops::Range<u32>) -> Vec<u64> {
    // the words start with bits set, to test that the old content is overwritten
    let mut words = vec![0xAAAA_5555_AAAA_5555; rows.len() * keys.len().div_ceil(64)];
    plan.fill_bits(rows, keys, &mut words);
    words
}
