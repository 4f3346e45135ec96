//! [`condition`]: converts an elementary mask to a condition on a query and a key.

use crate::Error;
use crate::program::builder::{Builder, one_of_ranges};
use crate::program::names::Names;
use crate::program::table::Content;
use crate::program::{Num, Op, Test};
use noren_mask::Rows;
use noren_mask::atom::AtomRef;
use noren_mask::atoms::*;

/// Maximum number of cells of a boolean array that generated code contains as a list.
const MOST_CELLS: usize = 256;
/// The number that a table of levels stores for a position without a level; all levels are larger.
const NO_LEVEL: i64 = i64::MIN + 1;

/// Returns the condition under which an elementary mask (atom) allows a cell, and a variable name for the condition.
pub(crate) fn condition(to: &mut Builder<'_>, atom: &AtomRef) -> Result<(&'static str, Test), Error> {
    let (q, k) = (Num::Q, Num::K);
    if let Some(atom) = atom.downcast::<Causal>() {
        return Ok(("causal", k.at_most(q.plus(atom.offset))));
    }
    if let Some(atom) = atom.downcast::<Window>() {
        let left = atom.left.map_or(Test::Always(true), |left| k.clone().at_least(q.clone().minus(left)));
        return Ok(("in_window", left.and(atom.right.map_or(Test::Always(true), |right| k.at_most(q.plus(right))))));
    }
    if let Some(atom) = atom.downcast::<Sliding>() {
        let near = k.clone().above(q.clone().minus(number(atom.window)));
        return Ok(("sliding", near.and(k.at_most(q))));
    }
    if let Some(atom) = atom.downcast::<Chunk>() {
        let size = number(atom.size);
        return Ok(("same_chunk", q.op(Op::Div, size).equals(k.op(Op::Div, size))));
    }
    if let Some(atom) = atom.downcast::<Stride>() {
        return Ok(("on_stride", q.minus(k).op(Op::Rem, number(atom.step)).equals(0)));
    }
    if let Some(atom) = atom.downcast::<Distances>() {
        let distance = q.minus(k);
        let test = match &atom.distances[..] {
            list if list.len() > 3 => Test::OneOf(distance, list.to_vec()),
            list => Test::any(list.iter().map(|&d| distance.clone().equals(d))),
        };
        return Ok(("at_distance", test));
    }
    if let Some(atom) = atom.downcast::<Prefix>() {
        let end = match &atom.lengths {
            Rows::All(n) => Num::Const(number(*n)),
            Rows::Each(list) => {
                let table = to.table("prefix_lengths", Content::PerRow(list.iter().map(|n| number(*n)).collect()));
                Num::Entry(table, vec![Num::Batch])
            }
        };
        return Ok(("in_prefix", k.below(end)));
    }
    if let Some(Keys(set)) = atom.downcast::<Keys>() {
        return Ok(("key_in_set", to.in_set(set, k)));
    }
    if let Some(Queries(set)) = atom.downcast::<Queries>() {
        return Ok(("query_in_set", to.in_set(set, q)));
    }
    if let Some(Global(set)) = atom.downcast::<Global>() {
        return Ok(("is_global", Test::any([to.in_set(set, q), to.in_set(set, k)])));
    }
    of_facts(to, atom)
}

/// Does the same as [`condition`] for atoms that depend on facts (data given with a mask) or on a tree, a grid or
/// random numbers.
fn of_facts(to: &mut Builder<'_>, atom: &AtomRef) -> Result<(&'static str, Test), Error> {
    if let Some(atom) = atom.downcast::<Padding>() {
        return Ok(("is_token", padding(to, atom)));
    }
    if let Some(atom) = atom.downcast::<Documents>() {
        return Ok(("same_document", documents(to, atom)));
    }
    if let Some(atom) = atom.downcast::<Spans>() {
        let ranges = to.ranges(&atom.spans);
        let both = |range| one_of_ranges(&Num::Q, &[range]).and(one_of_ranges(&Num::K, &[range]));
        let test = match ranges.len() {
            0..=2 => Test::any(ranges.iter().map(|&range| {
                let start = if range.0 == 0 { to.not_before(&Num::Q) } else { Test::Always(true) };
                start.and(both(range))
            })),
            _ => Test::SameRange(Num::Q, Num::K, ranges),
        };
        return Ok(("same_span", test));
    }
    if let Some(atom) = atom.downcast::<Tree>() {
        return Ok(("on_path", tree(to, atom)));
    }
    if atom.downcast::<Clearance>().is_some() {
        return Ok(("cleared", clearance(to)));
    }
    if let Some(atom) = atom.downcast::<Neighborhood>() {
        return Ok(("is_neighbor", neighborhood(to, atom)));
    }
    if let Some(atom) = atom.downcast::<Random>() {
        let threshold = (atom.p.get() * 4_294_967_296.0).round() as u64;
        return Ok(("random_cell", Test::Drawn { seed: atom.seed, threshold }));
    }
    if let Some(atom) = atom.downcast::<RandomBlocks>() {
        return Ok(("random_block", random_blocks(to, atom)));
    }
    if let Some(atom) = atom.downcast::<Dense>() {
        return Ok(("given_cell", dense(to, &atom.name)));
    }
    let advice = "it is a function of the program that made the mask: evaluate the mask in that program and give its cells as an array, with dense(name)";
    Err(Error::unreadable(format!("`{atom}`"), advice))
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn padding(to: &mut Builder<'_>, atom: &Padding) -> Test {
    let (shape, batch) = (to.ground.shape, to.ground.frames.len());
    let side = atom.side.unwrap_or(to.ground.facts.padding_side());
    let lengths = atom.lengths.as_deref();
    let sets: Vec<_> = (0..batch).map(|row| to.ground.row(row).real_keys(atom.side, lengths)).collect();
    let keys = to.in_rows("lengths", &sets, shape.kv_len(), Num::Key, side);
    if !atom.both {
        return keys;
    }
    let given = to.ground.facts.has_query_lengths();
    if !given && !to.ground.places_keys() {
        // the queries are the last tokens of the sequence of keys
        let queries = to.in_rows("lengths", &sets, shape.kv_len(), Num::Q, side);
        return queries.and(keys);
    }
    let sets: Vec<_> = (0..batch).map(|row| to.ground.row(row).real_queries(atom.side, lengths)).collect();
    let name = if given { "query_lengths" } else { "query_tokens" };
    to.in_rows(name, &sets, shape.q_len(), Num::Row, side).and(keys)
}

fn documents(to: &mut Builder<'_>, atom: &Documents) -> Test {
    let rows = to.ground.rows(|row| {
        let ranges: Vec<_> =
            row.documents(atom.lengths.as_deref()).iter().flat_map(|d| d.ranges().collect::<Vec<_>>()).collect();
        let lengths: Vec<i64> = ranges.iter().map(|range| range.end - range.start).collect();
        (ranges.first().map_or(0, |range| range.start), lengths)
    });
    let end = |(start, lengths): &(i64, Vec<i64>)| lengths.iter().fold(*start, |end, n| end.saturating_add(*n));
    let last = rows.iter().map(end).max().unwrap_or(0);
    let covered = rows.iter().all(|row| row.0 == 0 && end(row) >= to.ground.len);
    let len = last.max(to.ground.len);
    let table = to.table("document_id", Content::Documents { rows, len });
    let of_query = to.entry_number(&table, Num::Q);
    let inside = if covered { Test::Always(true) } else { of_query.clone().at_least(0) };
    let same = of_query.equals(to.entry_number(&table, Num::K));
    to.not_before(&Num::Q).and(same).and(inside)
}

fn tree(to: &mut Builder<'_>, atom: &Tree) -> Test {
    let nodes = number(atom.node_count());
    if nodes == 0 {
        return Test::Always(false);
    }
    let runs: Vec<i64> = atom.runs.iter().map(|n| number(*n)).collect();
    let content = Content::Tree {
        parents: atom.parents.clone(),
        runs,
        window: atom.window.map(number),
        chunk: atom.chunk.map(number),
        nodes,
    };
    let table = to.table("reads_node", content);
    let start = number(atom.start);
    let last = start.saturating_add(nodes);
    let (len, first) = (to.ground.len, to.ground.first_query);
    let mut guards = Vec::new();
    let mut at = |num: Num, least: i64| {
        if least < start {
            guards.push(num.clone().at_least(start));
        }
        if len > last {
            guards.push(num.clone().below(last));
        }
        let node = num.minus(start);
        let node = if least < start { node.op(Op::Max, 0) } else { node };
        if len > last { node.op(Op::Min, nodes - 1) } else { node }
    };
    let free = if to.ground.has_free_slots() { -1 } else { 0 };
    let indices = vec![at(Num::Q, first), at(Num::K, free)];
    Test::all(guards).and(Test::Entry(table, indices))
}

fn clearance(to: &mut Builder<'_>) -> Test {
    let rows = to.ground.rows(|row| row.levels().unwrap_or(&[]).to_vec());
    let len = rows.iter().map(|row| row.len() as i64).max().unwrap_or(0).max(to.ground.len);
    let complete = rows.iter().all(|row| row.len() as i64 >= to.ground.len);
    let lowest = rows.iter().flatten().min().copied().unwrap_or(0);
    let fill = if complete { 0 } else { lowest.saturating_sub(1).max(NO_LEVEL) };
    let table = to.table("level", Content::Numbers { rows, len, fill, note: "clearance level of each position" });
    let of_key = to.entry_number(&table, Num::K);
    let known = if complete { Test::Always(true) } else { of_key.clone().differs(fill) };
    let reads = to.entry_number(&table, Num::Q).at_least(of_key);
    to.not_before(&Num::Q).and(reads).and(known)
}

fn neighborhood(to: &mut Builder<'_>, atom: &Neighborhood) -> Test {
    let cells = number(atom.cells());
    let mut tests = vec![to.not_before(&Num::Q)];
    if to.ground.len > cells {
        tests.push(Num::Q.below(cells));
        tests.push(Num::K.below(cells));
    }
    let mut below = cells;
    for (i, &length) in atom.grid.iter().enumerate() {
        let length = number(length);
        below /= length.max(1);
        let coordinate = |num: Num| {
            let at = num.op(Op::Div, below);
            if i == 0 { at } else { at.op(Op::Rem, length) }
        };
        let at = (coordinate(Num::Q), coordinate(Num::K));
        tests.push(Test::Near { at, length, window: number(atom.size[i]), step: number(atom.dilation[i]) });
    }
    Test::all(tests)
}

fn random_blocks(to: &mut Builder<'_>, atom: &RandomBlocks) -> Test {
    let (block, count) = (number(atom.block), number(atom.count));
    let blocks = number(to.ground.shape.kv_len().div_ceil(atom.block));
    let first = to.ground.first_query.div_euclid(block);
    let last = (to.ground.len - 1).div_euclid(block);
    let cols = blocks.max(last + 1);
    let content =
        Content::Blocks { first, rows: last - first + 1, cols, blocks, count: count.min(blocks), seed: atom.seed };
    let table = to.table("reads_block", content);
    let key = if to.ground.has_free_slots() { Num::K.op(Op::Max, 0) } else { Num::K };
    Test::Entry(table, vec![Num::Q.op(Op::Div, block).minus(first), key.op(Op::Div, block)])
}

fn dense(to: &mut Builder<'_>, name: &str) -> Test {
    let found = to.ground.facts.arrays().find(|(known, _)| *known == name);
    let Some((_, array)) = found else { return Test::Always(false) };
    let shape @ [batch, heads, q_len, kv_len] = array.shape();
    let count = [batch, heads, q_len, kv_len].iter().fold(1usize, |n, len| n.saturating_mul(*len));
    let content = if count > MOST_CELLS {
        Content::Given { shape }
    } else {
        let cells = (0..count).map(|i| {
            let (k, i) = (i % kv_len, i / kv_len);
            let (q, i) = (i % q_len, i / q_len);
            array.allowed(i / heads, i % heads, q, k)
        });
        Content::Cells { shape, cells: cells.collect() }
    };
    let supplied = matches!(content, Content::Given { .. });
    let table = to.table(&Names::variable(name), content);
    if supplied {
        to.given.push((name.into(), table.name.clone()));
    }
    let mut indices = Vec::new();
    if batch > 1 || heads > 1 {
        indices.push(if batch > 1 { Num::Batch } else { Num::Const(0) });
        indices.push(if heads > 1 { Num::Head } else { Num::Const(0) });
    }
    indices.extend([Num::Row, Num::Key]);
    Test::Entry(table, indices)
}
