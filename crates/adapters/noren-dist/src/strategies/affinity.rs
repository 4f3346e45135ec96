//! Chooses the rank that owns each token, after the rank that computes each cell is known. The saving of a rank for a
//! token is the number of bytes that it receives less if it owns the token. Each token goes to the rank with the
//! largest saving, among the ranks that own fewer than their maximum number of tokens.
//!
//! The bytes that a rank receives are a sum over tokens. For a token that another rank owns, the rank receives the
//! query, or the key and value, if its cells need them. For a token that the rank owns, it receives the results that
//! other ranks computed for the query of the token. If a token gets another owner, the bytes of only two ranks change.
//! Therefore single moves can reduce the bytes of the busiest rank (the rank that receives the most bytes).

use crate::partition::layout::Block;
use crate::partition::runs::{Owners, Runs, merged, within};
use crate::partition::strips::Strips;
use crate::partition::wire::Sizes;

/// Consecutive positions of one axis (query rows, keys or tokens) that always have the same owner.
#[derive(Clone, Debug)]
struct Grain {
    start: u32,
    end: u32,
    /// The ranks that compute cells with queries or keys of this grain, in ascending order of ranks.
    readers: Vec<Reader>,
    /// The number of ranks that compute at least one cell of a query row in `start..end`; 0 if the positions are keys
    /// without queries.
    computing: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    rank: u32,
    computes: bool,
    reads_keys: bool,
}

/// The kind of positions that get owners: query rows, keys, or tokens that have a query and a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// Query rows only.
    Queries,
    /// Keys only.
    Keys,
    /// Tokens, each with a query and a key that get the same owner. Query row `i` belongs to the token of key `i +
    /// shift`; the field is `shift`.
    Tokens(u32),
}

/// The maximum number of moves is `MOVES[0] + MOVES[1] * ranks`. A move gives a run of consecutive positions to another
/// rank, to reduce the bytes of the busiest rank.
const MOVES: [usize; 2] = [2000, 2];

/// Returns the rank that owns each position of `axis`. Each rank computes its rectangle of `blocks`, and owners are
/// chosen so that ranks receive few bytes for this computation. No rank owns more than `most` positions. Positions get
/// owners in runs of at most `grain` consecutive positions.
pub(crate) fn owners(strips: &Strips, blocks: &[Block], axis: Axis, grain: u32, most: f64, sizes: &Sizes) -> Owners {
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

/// Returns, for the rectangle `block`, the query rows that read at least one key of the rectangle, and the keys of the
/// rectangle that these rows read, `(rows, keys)`.
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

/// Splits the positions of `axis` into grains: runs of at most `most` consecutive positions that the same ranks read.
/// If two neighbouring positions are read by different ranks, a new grain begins.
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
    /// For each rank, the indices of the grains (runs of consecutive positions with one owner) that it owns.
    owned: Vec<Vec<usize>>,
    /// For each rank, the number of positions that it owns.
    held: Vec<f64>,
    /// For each rank, the number of bytes that it receives.
    received: Vec<u64>,
    grains: &'a [Grain],
    /// For each rank, the indices of the grains (runs of consecutive positions) with queries or keys that the rank
    /// needs for its cells.
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

    /// Returns the bytes that `rank` would receive for a grain (a run of consecutive positions) if `rank` owned the
    /// grain. These are the results that other ranks compute for query rows of the grain.
    fn owning(&self, grain: usize, rank: u32) -> u64 {
        let own = self.reader(grain, rank).is_some_and(|r| r.computes);
        self.len(grain) * self.sizes.result * (self.grains[grain].computing - u64::from(own))
    }

    /// Returns the bytes that `rank` would receive for a grain (a run of consecutive positions) if another rank owned
    /// the grain. These are the queries and keys of the grain that `rank` needs for its cells.
    fn reading(&self, grain: usize, rank: u32) -> u64 {
        let Some(reader) = self.reader(grain, rank) else { return 0 };
        let query = if reader.computes { self.sizes.query } else { 0 };
        self.len(grain) * (query + if reader.reads_keys { self.sizes.key } else { 0 })
    }

    fn fits(&self, grain: usize, rank: u32) -> bool {
        self.held[rank as usize] + self.len(grain) as f64 <= self.most
    }

    /// Gives each grain (a run of consecutive positions) to a rank. For a grain and a rank, the saving is the number of
    /// bytes per token that the rank receives less if it owns the grain. Pairs of grain and rank are processed from the
    /// largest saving to the smallest. A pair is skipped if the grain already has an owner, or if the rank would own
    /// more than `most` positions. Then each grain without an owner goes to the same rank as the previous such grain;
    /// if that rank is full, to the rank that owns the fewest positions.
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
                // the bytes saved per token, negated: the largest saving is sorted first
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
                let space = |r: &u32| (self.held[*r as usize], self.received[*r as usize], *r);
                let all = 0..self.held.len() as u32;
                last = all.min_by(|a, b| space(a).partial_cmp(&space(b)).expect("finite")).expect("a rank");
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

    /// Moves grains (runs of consecutive positions) to or from the busiest rank, which receives the most bytes. After a
    /// move, the old and the new owner of the grain must both receive fewer bytes than the busiest rank received before
    /// the move. Stops if no such move exists or if the maximum number of moves is reached.
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
