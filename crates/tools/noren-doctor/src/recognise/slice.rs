//! The cells of one batch row and head of an array, and their comparison with expressions.

use noren_mask::Keep;
use noren_mask::Mask;
use noren_mask::bits::row_words;
use noren_mask::bits::{bit, count, ends, ones};
use noren_mask::interval::{Interval, IntervalSet};
use noren_mask::{Facts, Shape, atoms};
use std::cell::OnceCell;
use std::ops::Range;

/// Number of mask rows that `Slice::differences` computes in one call.
const ROWS: usize = 32;

/// The cells of one batch row and head of an array, with data about each row that are computed once.
pub(super) struct Slice<'a> {
    keep: &'a Keep,
    batch: usize,
    head: usize,
    /// The shape of this slice of the array: one batch row and one head.
    pub(super) shape: Shape,
    /// Position of query 0.
    pub(super) offset: i64,
    /// The query rows that read at least one key.
    pub(super) rows: Vec<usize>,
    /// The first and the last key that each query in `rows` reads.
    pub(super) ends: Vec<(usize, usize)>,
    /// One bit for each key, 1 if at least one row reads the key.
    pub(super) seen: Vec<u64>,
    runs: OnceCell<Vec<Option<(usize, usize)>>>,
}

impl<'a> Slice<'a> {
    pub(super) fn new(keep: &'a Keep, batch: usize, head: usize, offset: i64) -> Self {
        let [_, _, q_len, kv_len] = keep.dims();
        let shape = Shape::new(q_len, kv_len, offset);
        let mut slice = Slice {
            keep,
            batch,
            head,
            shape,
            offset,
            rows: Vec::new(),
            ends: Vec::new(),
            seen: vec![0; kv_len.div_ceil(64)],
            runs: OnceCell::new(),
        };
        for i in 0..q_len {
            let row = keep.row(batch, head, i);
            if let Some(range) = ends(row) {
                slice.rows.push(i);
                slice.ends.push(range);
                slice.seen.iter_mut().zip(row).for_each(|(s, w)| *s |= w);
            }
        }
        slice
    }

    pub(super) fn q_len(&self) -> usize {
        self.keep.dims()[2]
    }

    pub(super) fn kv_len(&self) -> usize {
        self.keep.dims()[3]
    }

    pub(super) fn row(&self, i: usize) -> &[u64] {
        self.keep.row(self.batch, self.head, i)
    }

    /// Returns the position of query row `i`.
    pub(super) fn position(&self, i: usize) -> i64 {
        i as i64 + self.offset
    }

    /// Returns (query row, (first key, last key)) for each query row that reads at least one key.
    pub(super) fn reading(&self) -> impl Iterator<Item = (usize, (usize, usize))> + '_ {
        self.rows.iter().copied().zip(self.ends.iter().copied())
    }

    /// Returns the first and the last key that at least one row reads; `None` if no row reads a key.
    pub(super) fn seen_ends(&self) -> Option<(usize, usize)> {
        ends(&self.seen)
    }

    /// Returns the positions of the query rows that read at least one key, as ranges; `None` if every row reads a key.
    pub(super) fn reading_positions(&self) -> Option<Vec<Range<usize>>> {
        let positions = self.rows.iter().map(|&i| self.position(i).max(0) as u32);
        (self.rows.len() < self.q_len()).then(|| runs_of(positions))
    }

    /// Returns, for each row in `rows`, the consecutive keys that the row reads around the position of its query, as
    /// (start, end (exclusive)); `None` if the row does not read the key at this position.
    pub(super) fn runs_around(&self) -> &[Option<(usize, usize)>] {
        self.runs.get_or_init(|| self.rows.iter().map(|&i| self.run_around(i)).collect())
    }

    fn run_around(&self, i: usize) -> Option<(usize, usize)> {
        let row = self.row(i);
        let own = usize::try_from(self.position(i)).ok().filter(|&k| k < self.kv_len() && bit(row, k))?;
        let start = (0..own).rev().find(|&k| !bit(row, k)).map_or(0, |k| k + 1);
        let end = (own..self.kv_len()).find(|&k| !bit(row, k)).unwrap_or(self.kv_len());
        Some((start, end))
    }

    /// Returns the maximum of `key - position of the query` over all allowed cells, for example 0 for a causal mask; 0
    /// if no cell is allowed.
    pub(super) fn furthest_ahead(&self) -> i64 {
        self.reading().map(|(i, (_, last))| last as i64 - self.position(i)).max().unwrap_or(0)
    }

    /// Returns the number of cells of this batch row and head in which `mask` differs; `None` if `mask` does not bind
    /// to the shape. If the number exceeds `limit`, counting stops, and the number counted so far is returned.
    pub(super) fn differences(&self, mask: &Mask, limit: u64) -> Option<u64> {
        let bound = mask.bind(&self.shape, &Facts::new()).ok()?;
        let mut wrong = 0;
        let wide = row_words(self.kv_len() as u32);
        let mut words = vec![0; ROWS * wide];
        // the last, the first and two middle rows are enough to reject most wrong masks
        let last = self.q_len() - 1;
        let telling = [last, 0, self.q_len() / 2, self.q_len() / 3].map(|i| i..i + 1);
        let blocks = (0..self.q_len()).step_by(ROWS).map(|i| i..(i + ROWS).min(self.q_len()));
        for (rows, counts) in telling.into_iter().map(|r| (r, false)).chain(blocks.map(|r| (r, true))) {
            let words = &mut words[..rows.len() * wide];
            let (start, end) = (rows.start as u32, rows.end as u32);
            bound.fill_bits(0, start..end, Interval::new(0, self.kv_len() as u32), words);
            let mut found = 0;
            for (i, line) in rows.zip(words.chunks(wide)) {
                let row = self.row(i);
                found += line.iter().zip(row).map(|(w, g)| u64::from((w ^ g).count_ones())).sum::<u64>();
            }
            wrong += if counts { found } else { 0 };
            if wrong > limit || found > limit {
                return Some(wrong.max(found));
            }
        }
        Some(wrong)
    }

    /// Returns true if `mask` allows exactly the cells of this batch row and head. Returns false if `mask` cannot be
    /// bound to the shape.
    pub(super) fn is(&self, mask: &Mask) -> bool {
        self.differences(mask, 0) == Some(0)
    }

    /// Returns the allowed cells of this batch row and head that `mask` denies, as an array of one batch row and head;
    /// `None` if `mask` does not bind to the shape.
    pub(super) fn without(&self, mask: &Mask) -> Option<Keep> {
        let given = self.cells_of(mask)?;
        Some(self.combined(&given, |own, other| own & !other))
    }

    /// Returns the cells that `mask` allows and that are denied in this batch row and head, as an array of one batch
    /// row and head; `None` if `mask` does not bind to the shape.
    pub(super) fn missing_of(&self, mask: &Mask) -> Option<Keep> {
        let given = self.cells_of(mask)?;
        Some(self.combined(&given, |own, other| other & !own))
    }

    fn cells_of(&self, mask: &Mask) -> Option<Keep> {
        Some(Keep::of(&mask.bind(&self.shape, &Facts::new()).ok()?))
    }

    fn combined(&self, other: &Keep, combine: impl Fn(u64, u64) -> u64) -> Keep {
        let mut out = Keep::empty([1, 1, self.q_len(), self.kv_len()]);
        for i in 0..self.q_len() {
            let pairs = self.row(i).iter().zip(other.row(0, 0, i));
            out.row_mut(0, 0, i).iter_mut().zip(pairs).for_each(|(o, (a, b))| *o = combine(*a, *b));
        }
        out
    }

    /// Returns `mask` restricted to the keys that at least one row reads. If `rows` is true, the mask is also
    /// restricted to the queries that read at least one key.
    pub(super) fn restricted(&self, mask: &Mask, rows: bool) -> Mask {
        let mut parts = vec![mask.clone()];
        if count(&self.seen) < self.kv_len() as u64 {
            parts.push(atoms::keys(runs_of(ones(&self.seen).map(|k| k as u32))));
        }
        if let Some(positions) = self.reading_positions().filter(|_| rows) {
            parts.push(atoms::queries(positions));
        }
        match parts.len() {
            1 => mask.clone(),
            _ => Mask::all(parts),
        }
    }
}

/// Returns ascending numbers as ranges of consecutive numbers, whose ends are exclusive: for example, 0, 1, 5 as 0..2
/// and 5..6.
pub(super) fn runs_of(numbers: impl IntoIterator<Item = u32>) -> Vec<Range<usize>> {
    let mut set = IntervalSet::new();
    numbers.into_iter().for_each(|n| set.push(n, n + 1));
    set.iter().map(|run| run.start as usize..run.end as usize).collect()
}
