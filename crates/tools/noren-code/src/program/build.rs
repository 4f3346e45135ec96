//! [`build`]: converts a mask with its shape and facts (data given with a mask) to conditions on cells.

use crate::Error;
use crate::program::atoms::condition;
use crate::program::builder::{Builder, one_of_ranges};
use crate::program::ground::Ground;
use crate::program::names::Names;
use crate::program::table::Content;
use crate::program::{Num, Op, Part, Program, Range, Test};
use noren_mask::atom::AtomRef;
use noren_mask::{Arm, Mask, Node, Selector};
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum depth of nested operators in a mask; for a deeper mask, no code is written.
const MOST_DEPTH: usize = 64;
/// Maximum number of elementary masks in a mask; for a mask with more, no code is written.
const MOST_PARTS: usize = 256;
/// Maximum number of numbers of one table of facts that generated code contains as a list.
const MOST_LISTED: usize = 4096;
/// Maximum number of entries of all tables together, when the generated code runs.
const MOST_ENTRIES: u128 = 1 << 26;
/// Maximum number of heads of a mask with `heads(...)`, or of batch rows of a mask with `batch(...)`.
const MOST_ARMS: usize = 1 << 14;

/// The state of the conversion of a mask to conditions.
struct Building<'a> {
    to: Builder<'a>,
    /// The conditions of the elementary masks that have been converted.
    made: HashMap<AtomRef, Test>,
}

/// Converts `mask`, which has been bound to the shape and facts of `ground`, to a program of conditions. `scored` is
/// true if score modifiers read the positions of queries and keys.
pub(crate) fn build(mask: &Mask, ground: &Ground<'_>, scored: bool) -> Result<Program, Error> {
    let to = Builder { ground, names: Names::new(), tables: Vec::new(), parts: Vec::new(), given: Vec::new() };
    let mut building = Building { to, made: HashMap::new() };
    let query = building.query_position();
    let key = building.key_position()?;
    let mut root = building.mask(mask, 0)?;
    if ground.has_free_slots() {
        root = Num::K.at_least(0).and(root);
    }
    let Builder { tables, parts, given, .. } = building.to;
    drop(building.made);
    let mut program = Program { tables, parts, root, given, query, key };
    program.prune(scored);
    check_size(&program)?;
    if let (Test::Part(part), [_]) = (&program.root, &program.parts[..]) {
        program.root = part.test.clone();
        program.parts.clear();
    }
    Ok(program)
}

/// Returns an error if the lists of a program are too long to be read, or if its tables need too much memory.
fn check_size(program: &Program) -> Result<(), Error> {
    let longest = program.tables.iter().max_by_key(|table| table.listed());
    if let Some(table) = longest.filter(|table| table.listed() > MOST_LISTED) {
        let part = format!("a mask whose facts have {} numbers for `{}`", table.listed(), table.name);
        let advice =
            format!("give shorter facts, of at most {MOST_LISTED} numbers, and replace them in the code by your own");
        return Err(Error::unreadable(part, advice));
    }
    let entries: u128 = program.tables.iter().map(|table| table.entries()).sum();
    if entries > MOST_ENTRIES {
        let advice = format!("give fewer tokens, so that the tables have at most {MOST_ENTRIES} entries");
        return Err(Error::unreadable(format!("a mask whose tables have {entries} entries"), advice));
    }
    Ok(())
}

impl Building<'_> {
    /// Returns the expression for the position of a query; `None` if each position is equal to the index of the query
    /// row.
    fn query_position(&mut self) -> Option<Num> {
        match self.to.ground.offsets()[..] {
            [0] => None,
            [offset] => Some(Num::Row.plus(offset)),
            ref offsets => {
                let table = self.to.table("query_offset", Content::PerRow(offsets.to_vec()));
                Some(Num::Row.plus(Num::Entry(table, vec![Num::Batch])))
            }
        }
    }

    /// Returns the expression for the position of a key; `None` if each position is equal to the index of the key.
    fn key_position(&mut self) -> Result<Option<Num>, Error> {
        if !self.to.ground.places_keys() {
            return Ok(None);
        }
        let shape = self.to.ground.shape;
        if shape.kv_len().saturating_mul(shape.batch_len()) > MOST_LISTED * 4 {
            let part = format!("a mask with positions of {} keys in {} batch rows", shape.kv_len(), shape.batch_len());
            return Err(Error::unreadable(
                part,
                "give positions of fewer keys, and replace them in the code by your own",
            ));
        }
        let rows = self.to.ground.key_positions();
        let len = shape.kv_len() as i64;
        let note = "position of each key, -1 for a slot without a key";
        let table = self.to.table("key_position", Content::Numbers { rows, len, fill: -1, note });
        Ok(Some(self.to.entry_number(&table, Num::Key)))
    }

    fn mask(&mut self, mask: &Mask, depth: usize) -> Result<Test, Error> {
        if depth > MOST_DEPTH {
            let advice = format!("write the mask with at most {MOST_DEPTH} nested operators");
            return Err(Error::unreadable("a mask with deeply nested operators", advice));
        }
        let mut each =
            |masks: &[Mask]| masks.iter().map(|mask| self.mask(mask, depth + 1)).collect::<Result<Vec<Test>, Error>>();
        Ok(match mask.node() {
            Node::Full => Test::Always(true),
            Node::None => Test::Always(false),
            Node::Atom(atom) => self.atom(atom)?,
            Node::Not(a) => self.mask(a, depth + 1)?.negated(),
            Node::And(parts) => Test::all(each(parts)?),
            Node::Or(parts) => Test::any(each(parts)?),
            Node::Minus(a, b) => {
                let kept = self.mask(a, depth + 1)?;
                kept.and(self.mask(b, depth + 1)?.negated())
            }
            Node::Heads(arms) => self.arms(arms, Num::Head, self.to.ground.shape.head_count(), depth)?,
            Node::Batch(arms) => self.arms(arms, Num::Batch, self.to.ground.shape.batch_len(), depth)?,
            _ => return Err(Error::unreadable(format!("`{mask}`"), "give the mask of one layer")),
        })
    }

    /// Returns the condition of `heads(...)` or `batch(...)`, whose masks are `arms`. `index` is the expression for the
    /// index of the head or batch row, and `count` is the number of heads or batch rows.
    fn arms(&mut self, arms: &[Arm], index: Num, count: usize, depth: usize) -> Result<Test, Error> {
        if count > MOST_ARMS {
            let advice = format!("give at most {MOST_ARMS}");
            return Err(Error::unreadable(
                format!("a mask with another mask for some of {count} heads or batch rows"),
                advice,
            ));
        }
        let mut tests = Vec::new();
        for (at, arm) in arms.iter().enumerate() {
            let chosen: Vec<i64> = (0..count).filter(|i| picked(arms, *i) == Some(at)).map(|i| i as i64).collect();
            if chosen.is_empty() {
                continue;
            }
            let named = chosen.len() == (0..count).filter(|i| arm.selector.names(*i)).count();
            let when = match arm.selector {
                _ if chosen.len() == count => Test::Always(true),
                Selector::Every { step, from } if named && chosen.len() > 2 => {
                    let (step, from) = (step as i64, from as i64);
                    let first = if from == 0 { Test::Always(true) } else { index.clone().at_least(from) };
                    first.and(index.clone().minus(from).op(Op::Rem, step).equals(0))
                }
                _ => one_of_ranges(&index, &ranges_of(&chosen, count as i64)),
            };
            tests.push(when.and(self.mask(&arm.mask, depth + 1)?));
        }
        Ok(Test::any(tests))
    }

    fn atom(&mut self, atom: &AtomRef) -> Result<Test, Error> {
        if let Some(test) = self.made.get(atom) {
            return Ok(test.clone());
        }
        if self.to.parts.len() >= MOST_PARTS {
            let advice = format!("write the mask with at most {MOST_PARTS} elementary masks");
            return Err(Error::unreadable("a mask of very many elementary masks", advice));
        }
        let (name, test) = condition(&mut self.to, atom)?;
        let test = match test {
            Test::Always(_) => test,
            test => {
                let name = self.to.names.fresh(name);
                let part = Rc::new(Part { name, test });
                self.to.parts.push(part.clone());
                Test::Part(part)
            }
        };
        self.made.insert(atom.clone(), test.clone());
        Ok(test)
    }
}

/// Returns the index of the entry of `arms` whose mask applies to the head or batch row `index`.
fn picked(arms: &[Arm], index: usize) -> Option<usize> {
    let named = arms.iter().position(|arm| arm.selector.names(index));
    named.or_else(|| arms.iter().position(|arm| arm.selector == Selector::Else))
}

/// Returns ascending numbers below `count` as ranges. The last range has no end if it ends at `count` and has more than
/// one number.
fn ranges_of(numbers: &[i64], count: i64) -> Vec<Range> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for &n in numbers {
        match ranges.last_mut() {
            Some(range) if range.1 == n => range.1 = n + 1,
            _ => ranges.push((n, n + 1)),
        }
    }
    let open = |(start, end)| (start, (end != count || end == start + 1).then_some(end));
    ranges.into_iter().map(open).collect()
}
