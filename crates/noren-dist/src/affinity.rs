//! Who owns which tokens when blocks say who computes which cells: whoever needs a token most, as far as there is room.
//!
//! What a rank receives is a sum over tokens once the blocks are fixed: a token that it does not own costs what it reads of it,
//! one that it owns costs the results that come back from others. So moving a token changes two ranks and nothing else,
//! and the busiest rank can be relieved move by move.

use crate::layout::Block;
use crate::runs::{Owners, Runs, merged, within};
use crate::strips::Strips;
use crate::wire::Sizes;

/// Positions of one axis that move together.
#[derive(Clone, Debug)]
struct Grain {
    start: u32,
    end: u32,
    /// Ranks that read it, ascending.
    readers: Vec<Reader>,
    /// How many of them compute its query rows.
    computing: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    rank: u32,
    computes: bool,
    reads_keys: bool,
}

/// Which of a token's parts stand on an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// Queries only.
    Queries,
    /// Keys only.
    Keys,
    /// Tokens: query row `i` is key `i + shift`.
    Tokens(u32),
}

/// Moves of the local search, at most: so many, and so many for each rank.
const MOVES: [usize; 2] = [2000, 8];

/// Owners of `0..len` by what the blocks read; nobody owns more than `most` positions.
pub(crate) fn owners(
    strips: &Strips,
    blocks: &[Block],
    axis: Axis,
    grain: u32,
    most: f64,
    sizes: &Sizes,
) -> Owners {
    let ranks = blocks.len();
    let grains = grains(strips, blocks, axis, grain);
    let mut reads = vec![Vec::new(); ranks];
    for (i, grain) in grains.iter().enumerate() {
        grain.readers.iter().for_each(|reader| reads[reader.rank as usize].push(i));
    }
    let mut state = State {
        owner: vec![u32::MAX; grains.len()],
        owned: vec![Vec::new(); ranks],
        held: vec![0.0; ranks],
        received: vec![0; ranks],
        grains: &grains,
        reads,
        sizes,
        most,
    };
    state.assign();
    state.relieve();
    let parts = grains.iter().zip(&state.owner).map(|(g, owner)| ([g.start, g.end], *owner));
    Owners::from_parts(parts.collect())
}

/// What each block reads: rows that read anything, and keys.
fn reading(strips: &Strips, block: &Block) -> (Runs, Runs) {
    let (mut rows, mut keys) = (Runs::new(), Runs::new());
    for strip in strips.within(block.rows[0], block.rows[1]) {
        let before = keys.len();
        keys.extend(strip.pieces_within(block.keys[0], block.keys[1]).map(|(part, _)| part));
        if keys.len() > before {
            rows.push([strip.start, strip.end]);
        }
    }
    (merged(rows), merged(keys))
}

/// The axis cut where readers change, in grains of at most `most` positions.
fn grains(strips: &Strips, blocks: &[Block], axis: Axis, most: u32) -> Vec<Grain> {
    let (len, shift) = match axis {
        Axis::Queries => (strips.q_len(), 0),
        Axis::Keys => (strips.kv_len(), 0),
        Axis::Tokens(shift) => (strips.kv_len(), shift),
    };
    let mut read: Vec<(u32, Runs, Runs)> = Vec::with_capacity(blocks.len());
    let mut borders: Vec<u32> = vec![0, len];
    for block in blocks {
        let (rows, keys) = reading(strips, block);
        let rows: Runs = match axis {
            Axis::Keys => Runs::new(),
            _ => rows.iter().map(|[a, z]| [a + shift, z + shift]).collect(),
        };
        let keys = if axis == Axis::Queries { Runs::new() } else { keys };
        borders.extend(rows.iter().chain(&keys).flatten());
        read.push((block.rank, rows, keys));
    }
    borders.sort_unstable();
    borders.dedup();
    let mut out: Vec<Grain> = Vec::new();
    for pair in borders.windows(2) {
        let mut start = pair[0];
        while start < pair[1] {
            let end = pair[1].min(start + most);
            out.push(Grain { start, end, readers: Vec::new(), computing: 0 });
            start = end;
        }
    }
    read.sort_by_key(|r| r.0);
    for (rank, rows, keys) in &read {
        let both: Runs = merged(rows.iter().chain(keys).copied().collect());
        for [start, end] in both {
            let first = out.partition_point(|g| g.start < start);
            for grain in out[first..].iter_mut().take_while(|g| g.start < end) {
                let meets = |runs: &Runs| within(runs, grain.start, grain.end).next().is_some();
                let reader = Reader { rank: *rank, computes: meets(rows), reads_keys: meets(keys) };
                grain.computing += u64::from(reader.computes);
                grain.readers.push(reader);
            }
        }
    }
    out
}

struct State<'a> {
    owner: Vec<u32>,
    /// Grains by their owners.
    owned: Vec<Vec<usize>>,
    /// Positions by rank.
    held: Vec<f64>,
    /// Bytes by rank.
    received: Vec<u64>,
    grains: &'a [Grain],
    /// Grains by the ranks that read them.
    reads: Vec<Vec<usize>>,
    sizes: &'a Sizes,
    most: f64,
}

impl State<'_> {
    fn reader(&self, grain: usize, rank: u32) -> Option<Reader> {
        let readers = &self.grains[grain].readers;
        readers.binary_search_by_key(&rank, |r| r.rank).ok().map(|i| readers[i])
    }

    fn len(&self, grain: usize) -> u64 {
        u64::from(self.grains[grain].end - self.grains[grain].start)
    }

    /// What `rank` receives for a grain that it owns.
    fn owning(&self, grain: usize, rank: u32) -> u64 {
        let own = self.reader(grain, rank).is_some_and(|r| r.computes);
        self.len(grain) * self.sizes.result * (self.grains[grain].computing - u64::from(own))
    }

    /// What `rank` receives for a grain of somebody else.
    fn reading(&self, grain: usize, rank: u32) -> u64 {
        let Some(reader) = self.reader(grain, rank) else { return 0 };
        let query = if reader.computes { self.sizes.query } else { 0 };
        self.len(grain) * (query + if reader.reads_keys { self.sizes.key } else { 0 })
    }

    fn fits(&self, grain: usize, rank: u32) -> bool {
        self.held[rank as usize] + self.len(grain) as f64 <= self.most
    }

    /// Grains to those who save most by owning them, where there is room; the rest, run by run, to whoever has the most room.
    fn assign(&mut self) {
        for (grain, about) in self.grains.iter().enumerate() {
            for reader in &about.readers {
                self.received[reader.rank as usize] += self.reading(grain, reader.rank);
            }
        }
        let mut wishes: Vec<(i64, u32, usize)> = Vec::new();
        for (grain, about) in self.grains.iter().enumerate() {
            for reader in &about.readers {
                let saved = self.reading(grain, reader.rank) as i64 - self.owning(grain, reader.rank) as i64;
                // what a token saves, not what a grain does
                wishes.push((-saved / self.len(grain) as i64, reader.rank, grain));
            }
        }
        wishes.sort_unstable_by_key(|w| (w.0, w.2, w.1));
        for (_, rank, grain) in wishes {
            if self.owner[grain] == u32::MAX && self.fits(grain, rank) {
                self.give(grain, rank);
            }
        }
        let mut last = u32::MAX;
        for grain in 0..self.grains.len() {
            if self.owner[grain] != u32::MAX {
                continue;
            }
            if last == u32::MAX || !self.fits(grain, last) {
                let room = |r: &u32| (self.held[*r as usize], self.received[*r as usize], *r);
                let all = 0..self.held.len() as u32;
                last = all.min_by(|a, b| room(a).partial_cmp(&room(b)).expect("finite")).expect("a rank");
            }
            self.give(grain, last);
        }
    }

    fn give(&mut self, grain: usize, rank: u32) {
        self.owner[grain] = rank;
        self.owned[rank as usize].push(grain);
        self.held[rank as usize] += self.len(grain) as f64;
        let received = self.received[rank as usize] + self.owning(grain, rank) - self.reading(grain, rank);
        self.received[rank as usize] = received;
    }

    fn take(&mut self, grain: usize) {
        let rank = std::mem::replace(&mut self.owner[grain], u32::MAX);
        self.owned[rank as usize].retain(|g| *g != grain);
        self.held[rank as usize] -= self.len(grain) as f64;
        let received = self.received[rank as usize] + self.reading(grain, rank) - self.owning(grain, rank);
        self.received[rank as usize] = received;
    }

    /// Moves grains to or from the busiest rank as long as that makes it less busy and nobody as busy as it was.
    fn relieve(&mut self) {
        for _ in 0..MOVES[0] + MOVES[1] * self.held.len() {
            let busiest = (0..self.received.len()).max_by_key(|r| (self.received[*r], usize::MAX - r)).expect("a rank");
            if !self.relieve_rank(busiest as u32) {
                return;
            }
        }
    }

    fn relieve_rank(&mut self, busiest: u32) -> bool {
        let before = self.received[busiest as usize];
        let mut best: Option<(u64, usize, u32)> = None;
        let mut consider = |grain: usize, taker: u32| {
            let owner = self.owner[grain];
            if owner == taker || !self.fits(grain, taker) {
                return;
            }
            let [giver, receiver] = [owner, taker].map(|r| self.received[r as usize]);
            let giver = giver + self.reading(grain, owner) - self.owning(grain, owner);
            let receiver = receiver + self.owning(grain, taker) - self.reading(grain, taker);
            let worst = giver.max(receiver);
            if worst < before && best.is_none_or(|b| worst < b.0) {
                best = Some((worst, grain, taker));
            }
        };
        for &grain in &self.reads[busiest as usize] {
            consider(grain, busiest);
        }
        for &grain in &self.owned[busiest as usize] {
            self.grains[grain].readers.iter().for_each(|reader| consider(grain, reader.rank));
        }
        let Some((_, grain, taker)) = best else { return false };
        self.take(grain);
        self.give(grain, taker);
        true
    }
}
