//! Random valid test cases: a shape, facts that fit the shape, and masks over all atoms, with parameters
//! that fit shape and facts.

use noren_mask::atom::Reach;
use noren_mask::interval::IntervalSet;
use noren_mask::{
    Arm, Array, BoundMask, Cell, Cells, Facts, Mask, Node, Padding, PlanOptions, Reorder, Rows, Selector, Shape, Side,
    Span, atoms,
};
use proptest::prelude::*;
use std::fmt;
use std::ops::Range;

/// A shape and facts for random masks.
#[derive(Clone)]
pub struct World {
    /// The shape for every mask of the case.
    pub shape: Shape,
    /// Facts that fit the shape.
    pub facts: Facts,
    /// The exclusive upper limit of positions of keys and queries.
    pub extent: usize,
}

/// Writes the world in one line, so that the mask, the last part of a counterexample, is easy to find.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.shape, self.facts)
    }
}

impl World {
    /// Binds a mask of this world. Panics if the mask does not bind.
    pub fn bind(&self, mask: &Mask) -> BoundMask {
        mask.bind(&self.shape, &self.facts).unwrap_or_else(|error| panic!("{mask} in {self:?}: {error}"))
    }
}

/// A small generator of pseudo-random numbers for facts. The numbers depend only on the seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Splits `0..total` into parts in order. Parts may be empty.
    fn parts(&mut self, total: usize) -> Vec<usize> {
        let mut parts = Vec::new();
        let mut rest = total;
        while rest > 0 {
            let part = self.below(1 + rest.min(1 + total / 2)).min(rest);
            rest -= part;
            if part > 0 || self.chance(20) {
                parts.push(part);
            }
        }
        parts
    }

    fn runs(&mut self, len: usize) -> Vec<Range<usize>> {
        let count = self.below(4);
        let run = |_| {
            let start = self.below(len);
            start..start + 1 + self.below(len - start)
        };
        (0..count).map(run).collect()
    }
}

/// Returns a hash of `x`; similar numbers have very different hashes.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns a function without a pattern as a mask.
fn odd(seed: u64) -> Mask {
    Mask::from_fn(move |Cell { batch, head, query, key }| {
        let parts = [batch as u64, head as u64, query as u64, key as u64];
        parts.into_iter().fold(seed, |h, i| mix(h ^ i)).is_multiple_of(3)
    })
}

/// Returns a function with bounds as a mask.
fn near() -> Mask {
    let first = |head: usize, query: i64| query - 1 - head as i64;
    let near = Mask::from_fn(move |Cell { head, query, key, .. }| (first(head, query)..query + 9).contains(&key));
    let bounds = move |Cells { head, queries, .. }: Cells| {
        let (start, last) = (queries.start, queries.end - 1);
        Reach::Keys { some: vec![first(head, start)..last + 9], every: vec![first(head, last)..start + 9] }
    };
    near.with_bounds(bounds).expect("a mask of a function")
}

/// Returns shapes of at most about `cells` cells with lengths below `longest`: square, cached, cross and ragged shapes.
pub fn shapes(longest: usize, cells: usize) -> impl Strategy<Value = Shape> {
    let lengths =
        (1..=longest, 1..=longest).prop_map(move |(q, k)| if q * k > cells { (q.min(cells / k), k) } else { (q, k) });
    (lengths, 0..5u8, -20i64..60, 1..4usize, (0..4usize, 0..3usize), any::<u64>()).prop_map(
        move |((q, k), kind, offset, batch, (heads, groups), seed)| {
            let (heads, kv_heads) =
                [[(1, 1), (2, 1), (3, 3)], [(2, 2), (4, 1), (4, 2)], [(1, 1); 3], [(3, 1); 3]][heads][groups];
            let (batch, heads, kv_heads) =
                if batch * heads * q * k > cells { (1, 1, 1) } else { (batch, heads, kv_heads) };
            let shape = match kind {
                0 => Shape::square(q.min(k)),
                1 => Shape::cached(k - q.min(k), q.min(k)),
                2 => Shape::cross(q, k),
                3 => Shape::new(q, k, offset),
                _ => {
                    let mut dice = Dice(seed);
                    let offsets: Vec<i64> = (0..batch).map(|_| dice.below(60) as i64 - 15).collect();
                    Shape::new(q, k, 0).query_offsets(offsets)
                }
            };
            shape.batch(batch).heads(heads).kv_heads(kv_heads)
        },
    )
}

/// Returns shapes with facts that fit them.
pub fn worlds(longest: usize, cells: usize) -> impl Strategy<Value = World> {
    (shapes(longest, cells), any::<u64>()).prop_map(|(shape, seed)| world(shape, seed, false))
}

/// Returns worlds whose queries are tokens of the keys' own sequence and whose facts have a serial form.
/// Keys may have any order of positions, empty slots, and positions beyond the number of keys.
pub fn sequences(longest: usize) -> impl Strategy<Value = World> {
    (1..=longest, 1..=longest, 1..4usize, 1..4usize, any::<u64>()).prop_map(|(q, k, batch, heads, seed)| {
        let (q, mut dice) = (q.min(k), Dice(seed));
        let (same, far) = (dice.chance(50), dice.chance(15));
        let most = if far { 3 * k } else { k - q };
        let first = dice.below(most + 1) as i64;
        let offsets: Vec<i64> = (0..batch).map(|_| if same { first } else { dice.below(most + 1) as i64 }).collect();
        let offsets = if same && dice.chance(50) { vec![first] } else { offsets };
        world(Shape::new(q, k, 0).query_offsets(offsets).batch(batch).heads(heads), dice.next(), true)
    })
}

fn world(shape: Shape, seed: u64, sequence: bool) -> World {
    let mut dice = Dice(seed);
    let (batch, kv_len) = (shape.batch_len(), shape.kv_len());
    let queries_end =
        (0..batch).map(|b| shape.query_offset(b) + shape.q_len() as i64).max().unwrap_or(0).max(0) as usize;
    let mut facts = Facts::new();
    let mut keys_end = kv_len;
    let placed = dice.chance(25) || sequence && queries_end > kv_len;
    if placed {
        let positions = (0..batch).map(|row| match sequence {
            true => sequence_positions(&mut dice, &shape, row),
            false => key_positions(&mut dice, kv_len),
        });
        let positions: Vec<_> = positions.collect();
        keys_end = positions.iter().flatten().max().map_or(0, |&p| (p + 1).max(0) as usize);
        facts = facts.positions(positions);
    }
    let extent = keys_end.max(queries_end);
    let lengths: Vec<usize> = (0..batch).map(|_| dice.below(kv_len + 1)).collect();
    let real_keys = dice.chance(20);
    let side = if dice.chance(50) { Side::Left } else { Side::Right };
    let of_real_tokens = !real_keys && !placed && side == Side::Left && queries_end <= kv_len && dice.chance(30);
    let documents = |dice: &mut Dice| match of_real_tokens {
        true => Rows::Each(lengths.iter().map(|&n| dice.parts(n)).collect()),
        false if dice.chance(50) => Rows::All(dice.parts(extent)),
        false => Rows::Each((0..batch).map(|_| dice.parts(extent)).collect()),
    };
    facts = facts.documents(documents(&mut dice));
    facts = match real_keys {
        true => facts.real_keys((0..batch).map(|_| key_set(&mut dice, kv_len)).collect()),
        false => facts.lengths(lengths).side(side),
    };
    facts = facts.query_lengths((0..batch).map(|_| dice.below(1 + shape.q_len())).collect::<Vec<_>>());
    facts = facts.label("a", dice.runs(extent));
    let rows = (0..batch).map(|_| dice.runs(extent).into_iter().map(Span::from).collect()).collect();
    facts = facts.label_rows("b", rows);
    let levels = |dice: &mut Dice| -> Vec<i64> {
        let spread = dice.below(5) as u64 + 1;
        let run = dice.below(9) + 1;
        (0..extent).map(|i| mix(seed ^ (i / run) as u64) % spread).map(|l| l as i64 - 2).collect()
    };
    facts = match dice.chance(50) {
        true => facts.levels(levels(&mut dice)),
        false => facts.levels((0..batch).map(|_| levels(&mut dice)).collect::<Vec<_>>()),
    };
    facts = arrays(facts, &shape, &mut dice);
    World { shape, facts, extent }
}

fn key_set(dice: &mut Dice, kv_len: usize) -> IntervalSet {
    dice.runs(kv_len).into_iter().map(|r| r.start as u32..r.end as u32).collect()
}

/// Returns the positions of a ring buffer, which may be partly filled, or keys in any order with empty slots.
fn key_positions(dice: &mut Dice, slots: usize) -> Vec<i64> {
    if dice.chance(60) {
        let written = dice.below(3 * slots + 1) as i64;
        let slots = slots as i64;
        return (0..slots).map(|slot| written - 1 - (written - 1 - slot).rem_euclid(slots)).collect();
    }
    let mut positions: Vec<i64> = (0..slots as i64).map(|p| p + p / 7).collect();
    for i in (1..slots).rev() {
        if dice.chance(30) {
            positions.swap(i, dice.below(i + 1));
        }
    }
    positions.iter_mut().filter(|_| dice.chance(10)).for_each(|p| *p = -1);
    positions
}

/// Returns positions for the keys of a batch row: those of all queries of the row, other positions
/// and empty slots, in any order.
fn sequence_positions(dice: &mut Dice, shape: &Shape, row: usize) -> Vec<i64> {
    let (first, slots) = (shape.query_offset(row), shape.kv_len());
    let mut positions: Vec<i64> = (first..first + shape.q_len() as i64).collect();
    let mut others = (0..).filter(|p| !(first..first + shape.q_len() as i64).contains(p));
    while positions.len() < slots {
        let skipped = dice.below(3);
        let next = others.nth(skipped);
        positions.push(next.filter(|_| !dice.chance(20)).unwrap_or(-1));
    }
    match dice.below(3) {
        0 => positions.rotate_left(dice.below(slots)),
        1 => positions.sort_unstable(),
        _ => (1..slots).for_each(|i| positions.swap(i, dice.below(i + 1))),
    }
    positions
}

fn arrays(facts: Facts, shape: &Shape, dice: &mut Dice) -> Facts {
    let (q_len, kv_len) = (shape.q_len(), shape.kv_len());
    let b = if dice.chance(50) { 1 } else { shape.batch_len() };
    let h = if dice.chance(50) { 1 } else { shape.head_count() };
    let (seed, density) = (dice.next(), dice.next() % 5);
    let bits: Vec<bool> = (0..b * h * q_len * kv_len).map(|i| mix(seed ^ i as u64) % 4 < density).collect();
    let cells: Vec<_> = (0..dice.below(60)).map(|_| (dice.below(q_len), dice.below(kv_len))).collect();
    let block = (dice.below(20) + 1, dice.below(20) + 1);
    let blocks = (q_len.div_ceil(block.0), kv_len.div_ceil(block.1));
    let pairs: Vec<_> = (0..dice.below(20)).map(|_| (dice.below(blocks.0), dice.below(blocks.1))).collect();
    facts
        .array("bits", Array::keep(&[b, h, q_len, kv_len], &bits).expect("the number of cells fits the shape"))
        .array("cells", Array::cells(q_len, kv_len, &cells).expect("the cells are inside the shape"))
        .array("blocks", Array::blocks(q_len, kv_len, block, &pairs).expect("the blocks are inside the shape"))
}

/// Returns valid masks for `world`, over all atoms, as expressions of depth up to 5.
pub fn masks(world: &World) -> BoxedStrategy<Mask> {
    let (batch, heads) = (world.shape.batch_len(), world.shape.head_count());
    leaves(world)
        .prop_recursive(5, 20, 3, move |part| {
            prop_oneof![
                4 => proptest::collection::vec(part.clone(), 2..4).prop_map(Mask::all),
                4 => proptest::collection::vec(part.clone(), 2..4).prop_map(Mask::any),
                3 => (part.clone(), part.clone()).prop_map(|(a, b)| a - b),
                2 => part.clone().prop_map(|a| !a),
                1 => arms(part.clone(), heads).prop_map(atoms::heads),
                1 => arms(part, batch).prop_map(atoms::batch),
            ]
        })
        .boxed()
}

/// Returns [`masks`] with a serial form (without functions), and without arms that no head or batch row uses, which flow
/// refuses.
pub fn stack_masks(world: &World) -> BoxedStrategy<Mask> {
    let (heads, batch) = (world.shape.head_count(), world.shape.batch_len());
    masks(world).prop_map(move |mask| for_stack(&mask, heads, batch)).boxed()
}

fn for_stack(mask: &Mask, heads: usize, batch: usize) -> Mask {
    match mask.node() {
        Node::Atom(atom) if atom.name() == "function" => atoms::causal(),
        Node::Heads(arms) if heads == 1 => for_stack(&arms[0].mask, heads, batch),
        Node::Batch(arms) if batch == 1 => for_stack(&arms[0].mask, heads, batch),
        Node::Heads(arms) => atoms::heads(taken(arms, heads).map(|(s, part)| (s, for_stack(&part, heads, batch)))),
        Node::Batch(arms) => atoms::batch(taken(arms, batch).map(|(s, part)| (s, for_stack(&part, heads, batch)))),
        _ => mask.map_children(|part| for_stack(part, heads, batch)),
    }
}

/// Returns the arms that at least one of `count` indices uses.
fn taken(arms: &[Arm], count: usize) -> impl Iterator<Item = (Selector, Mask)> {
    let named = |index: usize| arms.iter().any(|arm| arm.selector.names(index));
    let takes = move |arm: &&Arm| {
        (0..count).any(|index| arm.selector.names(index) || (arm.selector == Selector::Else && !named(index)))
    };
    arms.iter().filter(takes).map(|arm| (arm.selector.clone(), arm.mask.clone()))
}

/// Returns arms (selectors with their masks) over the indices `0..count`, without overlaps.
fn arms(part: impl Strategy<Value = Mask> + Clone, count: usize) -> impl Strategy<Value = Vec<(Selector, Mask)>> {
    (part.clone(), part, 0..7u8, 0..count).prop_map(move |(a, b, kind, at)| {
        let first = Selector::from(..at + 1);
        match kind {
            0 => vec![(first, a)],
            1 => vec![(first, a), (Selector::Else, b)],
            2 if at + 1 < count => vec![(Selector::from(at + 1..), a), (first, b)],
            3 => vec![(Selector::every(2), a), (Selector::Else, b)],
            4 => vec![(Selector::Every { step: 2, from: 1 }, a), (Selector::every(2), b)],
            5 => vec![(Selector::Every { step: 1, from: at + 1 }, a), (first, b)],
            _ => vec![(Selector::from([at]), a), (Selector::Else, b)],
        }
    })
}

fn spans(extent: usize) -> impl Strategy<Value = Vec<Span>> + Clone {
    let span = (0..extent + 3, 0..extent / 2 + 2, 0..8u8).prop_map(|(start, len, kind)| match kind {
        0 => Span::from(start..),
        1 => Span::from(start),
        2 => Span::from(..start),
        _ => Span::from(start..start + len),
    });
    proptest::collection::vec(span, 0..4)
}

fn leaves(world: &World) -> BoxedStrategy<Mask> {
    let extent = world.extent;
    let n = extent as i64;
    let (batch, kv_len) = (world.shape.batch_len(), world.shape.kv_len());
    let seed = 0..u64::MAX;
    let side = prop_oneof![Just(None), Just(Some(Side::Left)), Just(Some(Side::Right))];
    let lengths = proptest::collection::vec(0..=kv_len, batch);
    let positional = prop_oneof![
        1 => Just(atoms::full()),
        1 => Just(atoms::none()),
        3 => (-3..4i64).prop_map(atoms::causal_offset),
        1 => (-n..=n).prop_map(atoms::causal_offset),
        3 => (-9..n, -9..9i64).prop_map(|(l, r)| atoms::window(l, r)),
        1 => (-9..n).prop_map(|l| atoms::window(l, None)),
        1 => (-9..n).prop_map(|r| atoms::window(None, r)),
        3 => (1..extent + 2).prop_map(atoms::sliding),
        2 => (1..extent + 2).prop_map(atoms::chunk),
        2 => (1..13usize).prop_map(atoms::stride),
        1 => (0..extent + 2).prop_map(atoms::prefix),
        1 => proptest::collection::vec(0..extent + 2, batch).prop_map(atoms::prefix),
        1 => spans(extent).prop_map(atoms::keys),
        1 => spans(extent).prop_map(atoms::queries),
        1 => spans(extent).prop_map(atoms::global),
        2 => spans(extent).prop_map(atoms::spans),
        1 => (0..=4u32, seed.clone()).prop_map(|(p, seed)| atoms::random(f64::from(p) / 4.0, seed)),
        1 => (1..20usize, 0..5usize, seed.clone()).prop_map(|(block, count, seed)| atoms::random_blocks(block, count + 1, seed)),
    ];
    let named = prop_oneof![
        1 => Just(atoms::keys(noren_mask::Positions::label("a"))),
        1 => Just(atoms::queries(noren_mask::Positions::label("b"))),
        1 => Just(atoms::global(noren_mask::Positions::label("b"))),
        2 => Just(atoms::padding()),
        1 => (side, lengths, any::<bool>())
            .prop_map(|(side, lengths, both)| atoms::padding_with(Padding { side, lengths: Some(lengths), both })),
        1 => Just(atoms::padding_with(Padding { both: true, ..Padding::default() })),
        3 => Just(atoms::documents()),
        1 => seed.clone().prop_map(move |s| atoms::documents_of(Dice(s).parts(extent))),
        2 => Just(atoms::clearance()),
        2 => (seed.clone(), 1..40usize, 0..=extent).prop_map(|(s, nodes, start)| tree(&mut Dice(s), nodes, start)),
        2 => seed.prop_map(move |s| neighborhood(&mut Dice(s), extent)),
        1 => Just(atoms::dense("bits")),
        1 => Just(atoms::dense("cells")),
        1 => Just(atoms::dense("blocks")),
        1 => any::<u64>().prop_map(odd),
        1 => Just(near()),
    ];
    prop_oneof![positional, named].boxed()
}

/// Returns a tree: a chain, a depth-first tree, a breadth-first tree, or a tree whose parents come after their
/// children. Some trees have runs of nodes, a window or chunks.
fn tree(dice: &mut Dice, nodes: usize, start: usize) -> Mask {
    let kind = dice.below(3);
    let parents = (0..nodes as i64).map(|i| match kind {
        _ if i == 0 => -1,
        0 if dice.chance(80) => i - 1,
        1 => (i - 1) / 2,
        _ => dice.below(i as usize + 1) as i64 - 1,
    });
    let mut parents: Vec<i64> = parents.collect();
    if dice.chance(20) {
        let last = nodes as i64 - 1;
        parents = parents.iter().rev().map(|&p| if p < 0 { -1 } else { last - p }).collect();
    }
    let mut tree = atoms::Tree::new(parents).start(start);
    if dice.chance(30) {
        let runs: Vec<usize> = (0..nodes).map(|_| 1 + dice.below(6)).collect();
        tree = tree.runs(runs);
    }
    if dice.chance(30) {
        tree = tree.window(1 + dice.below(12));
    }
    if dice.chance(30) {
        tree = tree.chunk(1 + dice.below(9));
    }
    tree.mask()
}

fn neighborhood(dice: &mut Dice, extent: usize) -> Mask {
    let dimensions = dice.below(3) + 1;
    let mut grid: Vec<usize> = (1..dimensions).map(|_| dice.below(6) + 1).collect();
    let cells: usize = grid.iter().product();
    grid.insert(dice.below(dimensions), extent.max(1).div_ceil(cells) + dice.below(2));
    let dilation: Vec<usize> = grid.iter().map(|_| dice.below(3) + 1).collect();
    let size: Vec<usize> = grid.iter().zip(&dilation).map(|(g, d)| dice.below(((g - 1) / d + 1).min(9)) + 1).collect();
    atoms::neighborhood_dilated(grid, size, dilation)
}

/// Returns plan options with tile sizes from 1 to 64.
pub fn options() -> impl Strategy<Value = PlanOptions> {
    let block = || prop_oneof![1..=64u32, Just(1), Just(16), Just(64)];
    let reorder = prop_oneof![
        3 => Just(Reorder::Auto),
        1 => Just(Reorder::Never),
        2 => Just(Reorder::Always),
        2 => (0u32..=9).prop_map(Reorder::Residues),
        1 => any::<u32>().prop_map(Reorder::Residues),
    ];
    (block(), block(), reorder).prop_map(|(block_q, block_kv, reorder)| PlanOptions { block_q, block_kv, reorder })
}
