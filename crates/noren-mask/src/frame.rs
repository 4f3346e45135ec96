//! [`Frame`]: where query rows and keys of one batch row stand.
//!
//! Atoms speak of positions, kernels of indices. Query rows map by an offset; keys map one to one, or by runs when the facts
//! place them (a ring buffer is two runs).

use crate::interval::{Interval, IntervalSet};
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
    /// `None`: key `j` stands at position `j`.
    pub runs: Option<Arc<[PlacedKeys]>>,
}

/// Adjacent keys that stand at adjacent positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlacedKeys {
    /// The keys, by index.
    pub keys: Interval,
    /// Position of the first key.
    pub position: i64,
}

impl PlacedKeys {
    /// Position after that of the last key.
    pub(crate) fn end(self) -> i64 {
        self.position + i64::from(self.keys.len())
    }

    /// Position minus index, which all its keys share.
    fn shift(self) -> i64 {
        self.position - i64::from(self.keys.start)
    }
}

impl Frame {
    /// Cuts a list of key positions into runs; negative positions are left out.
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

    /// Position of query row `row`.
    pub fn query(&self, row: u32) -> i64 {
        self.offset + i64::from(row)
    }

    /// Position of key `index`; -1 for an empty slot.
    pub fn key(&self, index: u32) -> i64 {
        let Some(runs) = &self.runs else { return i64::from(index) };
        let i = runs.partition_point(|run| run.keys.end <= index);
        runs.get(i).filter(|run| run.keys.start <= index).map_or(-1, |run| run.shift() + i64::from(index))
    }

    /// Position after that of the last key.
    pub fn end(&self) -> i64 {
        match &self.runs {
            None => self.kv_len.into(),
            Some(runs) => runs.iter().map(|run| run.end()).max().unwrap_or(0),
        }
    }

    /// The slots that hold a key, when some do not.
    pub fn live(&self) -> Option<IntervalSet> {
        let live: IntervalSet = self.runs.as_ref()?.iter().map(|run| run.keys.start..run.keys.end).collect();
        (live.count() < u64::from(self.kv_len)).then_some(live)
    }

    /// Calls `piece(start, end, shift)` for the parts of `keys` in which position = index + shift, by ascending index; empty
    /// slots are in none.
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

    /// Calls `emit(start, end)` with the keys among `keys` whose positions lie in `from..to`, by ascending index.
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
