//! The programs of random masks, evaluated cell by cell here, have the cells of the masks by definition.

use crate::program::build::build;
use crate::program::ground::Ground;
use crate::program::table::{Content, Table};
use crate::program::{Compare, Num, Op, Program, Range, Test};
use crate::{Error, Target, code};
use noren_mask::{Facts, Mask, philox};
use noren_testing::cases::{World, masks, worlds};
use noren_testing::check;
use proptest::prelude::*;

/// A program with the cell for which it is evaluated.
struct Cell<'a> {
    program: &'a Program,
    facts: &'a Facts,
    at: [i64; 4],
}

impl Cell<'_> {
    fn num(&self, num: &Num) -> i64 {
        let [batch, head, row, key] = self.at;
        match num {
            Num::Q => self.program.query.as_ref().map_or(row, |query| self.num(query)),
            Num::K => self.program.key.as_ref().map_or(key, |key| self.num(key)),
            Num::Row => row,
            Num::Key => key,
            Num::Batch => batch,
            Num::Head => head,
            Num::Const(n) => *n,
            Num::Op(op, a, b) => {
                let (a, b) = (self.num(a), self.num(b));
                match op {
                    Op::Add => a.checked_add(b).expect("no overflow"),
                    Op::Sub => a.checked_sub(b).expect("no overflow"),
                    Op::Div => a.div_euclid(b),
                    Op::Rem => a.rem_euclid(b),
                    Op::Max => a.max(b),
                    Op::Min => a.min(b),
                }
            }
            Num::Entry(table, indices) => self.entry(table, indices),
        }
    }

    fn test(&self, test: &Test) -> bool {
        let within = |n: i64, (start, end): &Range| n >= *start && end.is_none_or(|end| n < end);
        match test {
            Test::Always(value) => *value,
            Test::Compare(compare, a, b) => {
                let (a, b) = (self.num(a), self.num(b));
                match compare {
                    Compare::Equal => a == b,
                    Compare::Unequal => a != b,
                    Compare::Less => a < b,
                    Compare::AtMost => a <= b,
                    Compare::More => a > b,
                    Compare::AtLeast => a >= b,
                }
            }
            Test::Entry(table, indices) => self.entry(table, indices) == 1,
            Test::OneOf(a, list) => list.contains(&self.num(a)),
            Test::InRanges(a, ranges) => ranges.iter().any(|range| within(self.num(a), range)),
            Test::SameRange(a, b, ranges) => {
                ranges.iter().any(|range| within(self.num(a), range) && within(self.num(b), range))
            }
            Test::Near { at: (x, y), length, window, step } => {
                let (x, y) = (self.num(x), self.num(y));
                let cells = (length - x % step + step - 1) / step;
                let first = (x / step - window / 2).max(0).min((cells - window).max(0));
                x % step == y % step && y / step >= first && y / step < first + window
            }
            Test::Drawn { seed, threshold } => {
                let (q, k) = (self.num(&Num::Q) as u64, self.num(&Num::K) as u64);
                let block = k / 4;
                let words = philox([block as u32, (block >> 32) as u32, q as u32, (q >> 32) as u32], *seed);
                u64::from(words[k as usize % 4]) < *threshold
            }
            Test::All(tests) => tests.iter().all(|test| self.test(test)),
            Test::Any(tests) => tests.iter().any(|test| self.test(test)),
            Test::Not(test) => !self.test(test),
            Test::Part(part) => self.test(&part.test),
        }
    }

    /// Returns the entry of a table. An index outside of the table is an error, also where another condition denies the cell: code
    /// for whole arrays reads all entries.
    fn entry(&self, table: &Table, indices: &[Num]) -> i64 {
        let mut at: Vec<i64> = indices.iter().map(|index| self.num(index)).collect();
        let row = if table.by_batch() { at.remove(0) as usize } else { 0 };
        assert!(at.iter().all(|index| *index >= 0), "{table:?} at {at:?}");
        let first = at.first().copied().unwrap_or(0);
        let inside = |len: i64| assert!(first < len, "{table:?} at {at:?}");
        match &table.content {
            Content::PerRow(list) => list[row],
            Content::Numbers { rows, len, fill, .. } => {
                inside(*len);
                rows[row].get(first as usize).copied().unwrap_or(*fill)
            }
            Content::Documents { rows, len } => {
                inside(*len);
                let (mut start, lengths) = (rows[row].0, &rows[row].1);
                for (document, length) in lengths.iter().enumerate() {
                    if (start..start + length).contains(&first) {
                        return document as i64;
                    }
                    start += length;
                }
                -1
            }
            Content::Ranges { rows, len, .. } => {
                inside(*len);
                i64::from(rows[row].iter().any(|(start, end)| (*start..*end).contains(&first)))
            }
            Content::Tree { .. } => i64::from(reads_node(table, at[0], at[1])),
            Content::Blocks { .. } => i64::from(reads_block(table, at[0], at[1])),
            Content::Cells { shape: [_, heads, q_len, kv_len], cells } => {
                let at = if at.len() == 4 { at } else { [&[0, 0], &at[..]].concat() };
                let index = |at: &[i64]| at.iter().map(|n| *n as usize).collect::<Vec<_>>();
                let at = index(&at);
                i64::from(cells[((at[0] * heads + at[1]) * q_len + at[2]) * kv_len + at[3]])
            }
            Content::Given { .. } => {
                let given = self.facts.arrays().next().expect("an array").1;
                let at: Vec<usize> = at.iter().map(|n| *n as usize).collect();
                let (pair, cell) = if at.len() == 4 { ([at[0], at[1]], &at[2..]) } else { ([0, 0], &at[..]) };
                i64::from(given.allowed(pair[0], pair[1], cell[0], cell[1]))
            }
        }
    }
}

fn reads_node(table: &Table, node: i64, other: i64) -> bool {
    let Content::Tree { parents, runs, window, chunk, nodes } = &table.content else { return false };
    assert!(node < *nodes && other < *nodes, "{table:?} at {node}, {other}");
    let parent = |node: i64| -> i64 {
        if runs.is_empty() {
            return parents[node as usize];
        }
        let (mut start, mut ends) = (0, Vec::new());
        for length in runs {
            ends.push(start + length);
            start += length;
        }
        let run = ends.iter().position(|end| node < *end).expect("a run");
        let first = ends[run] - runs[run];
        if node > first { node - 1 } else { usize::try_from(parents[run]).map_or(-1, |run| ends[run] - 1) }
    };
    let mut path = vec![node];
    while parent(path[path.len() - 1]) >= 0 {
        path.push(parent(path[path.len() - 1]));
    }
    let mut most = path.len() as i64;
    most = window.map_or(most, |window| most.min(window));
    most = chunk.map_or(most, |chunk| most.min((path.len() as i64 - 1) % chunk + 1));
    path[..most as usize].contains(&other)
}

fn reads_block(table: &Table, row: i64, block: i64) -> bool {
    let Content::Blocks { first, rows, cols, blocks, count, seed } = &table.content else { return false };
    assert!(row < *rows && block < *cols, "{table:?} at {row}, {block}");
    let own = (row + first) as u64;
    let mut chosen = Vec::new();
    for (number, top) in (blocks - count..*blocks).enumerate() {
        let words = philox([number as u32, 0xB10C, own as u32, (own >> 32) as u32], *seed);
        let word = u128::from(words[0]) << 32 | u128::from(words[1]);
        let pick = ((word * (top as u128 + 1)) >> 64) as i64;
        chosen.push(if chosen.contains(&pick) { top } else { pick });
    }
    chosen.contains(&block)
}

fn compare(world: &World, mask: &Mask) {
    let (shape, facts, bound) = (&world.shape, &world.facts, world.bind(mask));
    let ground = Ground::new(shape, facts);
    let Ok(program) = build(mask, &ground, false) else { return };
    for b in 0..shape.batch_len() {
        for h in 0..shape.head_count() {
            for q in 0..shape.q_len() {
                for k in 0..shape.kv_len() {
                    let at = [b as i64, h as i64, q as i64, k as i64];
                    let cell = Cell { program: &program, facts, at };
                    assert_eq!(cell.test(&program.root), bound.allowed(b, h, q, k), "{mask} at {at:?}\n{program:#?}");
                }
            }
        }
    }
}

fn cases() -> impl Strategy<Value = (World, Mask)> {
    worlds(14, 400).prop_flat_map(|world| {
        let masks = masks(&world);
        (Just(world), masks)
    })
}

#[test]
fn programs_have_the_cells_of_their_masks() {
    check(3000, cases(), |(world, mask)| compare(&world, &mask));
}

#[test]
fn every_target_gives_code_or_a_reason() {
    check(600, cases(), |(world, mask)| {
        for target in Target::ALL {
            match code(&mask.clone().into(), &world.shape, &world.facts, target) {
                Ok(code) => assert!(code.text.ends_with('\n') && !code.text.contains("\n\n\n"), "{}", code.text),
                Err(Error::Mask(error)) => panic!("{mask} binds, but {target} refuses it: {error}"),
                Err(error) => assert!(error.to_string().contains(": "), "{error}"),
            }
        }
    });
}
