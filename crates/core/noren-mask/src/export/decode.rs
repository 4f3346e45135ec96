//! [`DecodePlan`]: the flat arrays that a GPU kernel for decoding reads.
//!
//! In decoding, few queries read many keys. A kernel therefore splits the keys into chunks that run in parallel, and
//! processes the queries of all heads of a key-value head together. Chunks have a fixed length and begin at the first
//! key that is read. So a row has the same chunks in any batch and with any padding.

use super::Runs;
use super::device::{RowKeys, Words};
use crate::Error;
use crate::plan::Plan;
use crate::sets::interval::IntervalSet;
use std::collections::HashMap;

/// The maximum number of rows of a decode kernel. The number of rows is the number of queries times the number of query
/// heads per key-value head.
const MOST_ROWS: u32 = 64;

/// The keys that the queries of each key-value head read, in chunks, for kernels that compute `block[1]` keys per step.
///
/// A block has `block[1]` keys, and the query rows of all query heads that share one key-value head. In a block, query
/// `query` of the `h`-th of these heads (counted from 0) is row `h * q_len + query`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodePlan {
    /// `[rows of a block, keys of a block]`. The number of rows is a power of two of at least 16.
    pub block: [u32; 2],
    /// The index of the pattern of each (batch row, key-value head), batch-major. Pairs whose queries read the same
    /// keys have the same pattern.
    pub pattern_of: Vec<u32>,
    /// The index of the first chunk of keys of each pattern (keys that the queries of a key-value head read). The last
    /// element is the number of chunks.
    pub first: Vec<u32>,
    /// The index in `runs` of the first run (consecutive keys) of each chunk. The last element is the number of runs.
    pub indptr: Vec<u32>,
    /// The runs as `[first key, end, block]`, in the form of [`DeviceSide::runs`](super::DeviceSide::runs).
    pub runs: Vec<[i32; 3]>,
    /// The cells of the mixed blocks as bits, `[blocks][block[0]][block[1] / 32]`, in the form of
    /// [`DevicePlan::words`](super::DevicePlan::words).
    pub words: Vec<u32>,
}

impl Plan {
    /// Returns the arrays for a GPU kernel that splits the keys into chunks of `chunk` keys and computes `block_kv` keys
    /// in one step.
    ///
    /// ```
    /// use noren_mask::{DevicePlan, Facts, Shape, atoms::*};
    /// let shape = Shape::cached(299, 1).heads(8).kv_heads(2); // one query reads 300 keys
    /// let plan = causal().bind(&shape, &Facts::new())?.plan();
    /// let decode = plan.device_decode(64, 128)?;
    /// assert_eq!(decode.pattern_of, [0, 0]);
    /// assert_eq!(decode.first, [0, 3]); // chunks of keys 0..128, 128..256, 256..300
    /// assert_eq!(decode.runs[0], [0, 128, DevicePlan::FULL]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the number of queries, times the number of query heads per key-value head, exceeds 64.
    ///
    /// # Panics
    /// Panics if `block_kv` is not a multiple of 32 above 0, or if `chunk` is not a multiple of `block_kv` above 0.
    pub fn device_decode(&self, block_kv: u32, chunk: u32) -> Result<DecodePlan, Error> {
        assert!(
            block_kv > 0 && block_kv.is_multiple_of(32),
            "`block_kv` is {block_kv}, but it must be a multiple of 32 above 0"
        );
        assert!(
            chunk > 0 && chunk.is_multiple_of(block_kv),
            "`chunk` is {chunk}, but it must be a multiple of `block_kv` ({block_kv}) above 0"
        );
        let shape = self.shape();
        let group = shape.head_count() / shape.kv_head_count();
        let rows = group * shape.q_len();
        if rows > MOST_ROWS as usize {
            return Err(Error::Budget(format!(
                "{} queries with {group} heads for each key-value head are {rows} rows, but a GPU kernel for decoding gets at most {MOST_ROWS} rows: use the kernel for many queries",
                shape.q_len()
            )));
        }
        let lists: Vec<Runs> = (0..self.patterns().len()).map(|pattern| self.row_runs(pattern)).collect();
        let block = [(rows as u32).next_power_of_two().max(16), block_kv];
        let mut words = Words::new(block);
        let mut known: HashMap<Vec<usize>, u32> = HashMap::new();
        let mut out = DecodePlan {
            block,
            pattern_of: Vec::new(),
            first: vec![0],
            indptr: vec![0],
            runs: Vec::new(),
            words: Vec::new(),
        };
        for b in 0..shape.batch_len() {
            for heads in (0..shape.head_count()).collect::<Vec<_>>().chunks(group) {
                let patterns: Vec<usize> = heads.iter().map(|&h| self.pattern_of(b, h)).collect();
                let next = known.len() as u32;
                let number = *known.entry(patterns).or_insert_with_key(|patterns| {
                    let rows = patterns.iter().flat_map(|&of| (0..shape.q_len()).map(move |row| (of, row)));
                    let rows = rows.map(|(of, row)| lists[of].set(row)).collect();
                    out.add_pattern(&RowKeys::new(rows), &mut words, shape.kv_len() as u32, chunk);
                    next
                });
                out.pattern_of.push(number);
            }
        }
        out.words = words.finish();
        Ok(out)
    }
}

impl DecodePlan {
    /// Adds the chunks of one pattern (the keys that the queries of a key-value head read).
    fn add_pattern(&mut self, rows: &RowKeys, words: &mut Words, kv_len: u32, chunk: u32) {
        if let Some(covering) = rows.any.covering_range() {
            for start in (covering.start..covering.end).step_by(chunk as usize) {
                let keys = IntervalSet::from(start..kv_len.min(start.saturating_add(chunk)));
                let inside = rows.each.iter().map(|row| row.intersect(&keys)).collect();
                let before = self.runs.len();
                RowKeys::new(inside).add_runs(&mut self.runs, words, start, kv_len);
                if self.runs.len() > before {
                    self.indptr.push(self.runs.len() as u32);
                }
            }
        }
        self.first.push(self.indptr.len() as u32 - 1);
    }
}
