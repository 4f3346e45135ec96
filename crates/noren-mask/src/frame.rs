//! [`Frame`]: where query rows and keys of one batch row stand.
//!
//! Atoms speak of positions, kernels of indices. Query rows map by an offset; keys map one to one, or by runs when the facts
//! place them (a ring buffer is two runs).

use crate::interval::IntervalSet;
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
    pub runs: Option<Arc<[Run]>>,
}

/// Keys `index..index + len` stand at positions `position..position + len`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Index of the first key.
    pub index: u32,
    /// Number of keys.
    pub len: u32,
    /// Position of the first key.
    pub position: i64,
}

impl Frame {
    /// Cuts a list of key positions into runs; negative positions are left out.
    pub fn runs_of(positions: &[i64]) -> Arc<[Run]> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, &position) in positions.iter().enumerate() {
            match runs.last_mut() {
                Some(r) if r.position + i64::from(r.len) == position && (r.index + r.len) as usize == index => {
                    r.len += 1
                }
                _ if position >= 0 => runs.push(Run { index: index as u32, len: 1, position }),
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
        let i = runs.partition_point(|r| r.index + r.len <= index);
        runs.get(i).filter(|r| r.index <= index).map_or(-1, |r| r.position + i64::from(index - r.index))
    }

    /// Position after that of the last key.
    pub fn end(&self) -> i64 {
        match &self.runs {
            None => self.kv_len.into(),
            Some(runs) => runs.iter().map(|r| r.position + i64::from(r.len)).max().unwrap_or(0),
        }
    }

    /// The slots that hold a key, when some do not.
    pub fn live(&self) -> Option<IntervalSet> {
        let live: IntervalSet = self.runs.as_ref()?.iter().map(|r| r.index..r.index + r.len).collect();
        (live.count() < u64::from(self.kv_len)).then_some(live)
    }

    /// Calls `piece(start, end, shift)` for the parts of `keys` in which position = index + shift, by ascending index; empty
    /// slots are in none.
    pub fn pieces(&self, keys: (u32, u32), piece: &mut impl FnMut(u32, u32, i64)) {
        match &self.runs {
            None => piece(keys.0, keys.1, 0),
            Some(runs) => {
                let first = runs.partition_point(|r| r.index + r.len <= keys.0);
                for r in runs[first..].iter().take_while(|r| r.index < keys.1) {
                    let shift = r.position - i64::from(r.index);
                    piece(r.index.max(keys.0), (r.index + r.len).min(keys.1), shift);
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
