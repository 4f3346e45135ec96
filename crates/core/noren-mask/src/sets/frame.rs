//! [`Frame`]: the positions of the query rows and keys of one batch row.
//!
//! Atoms use positions; kernels use indices. The position of a query row is its index plus an offset. The position of a
//! key is its index unless the facts give positions. Given positions are stored as runs; a ring buffer has two runs.

use crate::sets::interval::{Interval, IntervalSet};
use std::sync::Arc;

/// The map between indices and positions for one batch row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Number of query rows.
    pub q_len: u32,
    /// Number of keys.
    pub kv_len: u32,
    /// Position of query row 0.
    pub offset: i64,
    /// The positions of the keys as runs; `None` means that key `j` has position `j`.
    pub runs: Option<Arc<[PlacedKeys]>>,
}

/// A run of keys whose positions are consecutive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlacedKeys {
    /// The keys, by index.
    pub keys: Interval,
    /// Position of the first key of the run.
    pub position: i64,
}

impl PlacedKeys {
    /// Returns the first position after the last key.
    pub(crate) fn end(self) -> i64 {
        self.position + i64::from(self.keys.len())
    }

    /// Returns `position - index`, which is equal for all keys of the run.
    fn shift(self) -> i64 {
        self.position - i64::from(self.keys.start)
    }
}

impl Frame {
    /// Returns the runs of a list of key positions. Keys with a negative position are in no run.
    pub fn runs_of(positions: &[i64]) -> Arc<[PlacedKeys]> {
        let mut runs: Vec<PlacedKeys> = Vec::new();
        for (index, &position) in positions.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run.end() == position && run.keys.end as usize == index => run.keys.end += 1,
                _ if position >= 0 => {
                    runs.push(PlacedKeys { keys: Interval::new(index as u32, index as u32 + 1), position })
                }
                _ => {}
            }
        }
        runs.into()
    }

    /// Returns the position of query row `row`.
    pub fn query(&self, row: u32) -> i64 {
        self.offset + i64::from(row)
    }

    /// Returns the position of key `index`, or -1 if this slot of the cache holds no key.
    pub fn key(&self, index: u32) -> i64 {
        let Some(runs) = &self.runs else { return i64::from(index) };
        let i = runs.partition_point(|run| run.keys.end <= index);
        runs.get(i).filter(|run| run.keys.start <= index).map_or(-1, |run| run.shift() + i64::from(index))
    }

    /// Returns the first position after the last key.
    pub fn end(&self) -> i64 {
        match &self.runs {
            None => self.kv_len.into(),
            Some(runs) => runs.iter().map(|run| run.end()).max().unwrap_or(0),
        }
    }

    /// Returns the indices of the slots of the key cache that hold a key, or `None` if every slot holds a key.
    pub fn live(&self) -> Option<IntervalSet> {
        let live: IntervalSet = self.runs.as_ref()?.iter().map(|run| run.keys.start..run.keys.end).collect();
        (live.count() < u64::from(self.kv_len)).then_some(live)
    }

    /// Splits the keys from `keys.0` to `keys.1` (excluded) into runs in which each position is the index plus `shift`.
    /// Calls `piece(start, end, shift)` for each run, by ascending index. Cache slots without a key are in no run.
    pub fn pieces(&self, keys: (u32, u32), piece: &mut impl FnMut(u32, u32, i64)) {
        match &self.runs {
            None => piece(keys.0, keys.1, 0),
            Some(runs) => {
                let first = runs.partition_point(|run| run.keys.end <= keys.0);
                for run in runs[first..].iter().take_while(|run| run.keys.start < keys.1) {
                    piece(run.keys.start.max(keys.0), run.keys.end.min(keys.1), run.shift());
                }
            }
        }
    }

    /// Selects the keys from `keys.0` to `keys.1` (excluded) whose positions are in `from..to`. Calls `emit(start,
    /// end)` for each run of them, by ascending index.
    pub fn emit(&self, from: i64, to: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        self.pieces(keys, &mut |first, last, shift| {
            let a = (from - shift).max(i64::from(first));
            let z = (to - shift).min(i64::from(last));
            if a < z {
                emit(a as u32, z as u32);
            }
        });
    }
}
