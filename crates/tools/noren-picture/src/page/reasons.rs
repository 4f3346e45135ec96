//! [`Book`]: the reasons of all cells as data: a tree of subexpressions for each batch row and head, sentences, tables of words.
//!
//! The script of the page (`page.js`) evaluates these data. The functions that write the values document their forms.

use super::cells::Cells;
use super::limit::{MOST_BYTES, MOST_PARTS, MOST_WORDS, SHORT, too_large};
use noren_mask::atoms::Random;
use noren_mask::sentence::{Piece, Sentence, Test, Token};
use noren_mask::{Arm, BoundMask, Error, Mask, Node, Reasons, bits, philox};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The largest integer up to which JavaScript's numbers represent every integer exactly.
const EXACT: u64 = 1 << 53;

/// A list of distinct values. The number of a value is its index in the list.
#[derive(Default)]
struct Values {
    numbers: HashMap<String, usize>,
    values: Vec<Value>,
    bytes: usize,
}

impl Values {
    /// Returns the number of `value`; adds the value first if the list does not contain it.
    fn number(&mut self, value: Value) -> Result<usize, Error> {
        let text = value.to_string();
        if let Some(number) = self.numbers.get(&text) {
            return Ok(*number);
        }
        self.bytes += text.len();
        if self.bytes > MOST_BYTES {
            return Err(too_large(format!("its reasons have more than {MOST_BYTES} bytes")));
        }
        self.numbers.insert(text, self.values.len());
        self.values.push(value);
        Ok(self.values.len() - 1)
    }
}

/// The reasons of a bound mask, for the pairs of batch row and head that the page shows.
pub(super) struct Book<'a> {
    bound: &'a BoundMask,
    pairs: Vec<(usize, usize)>,
    queries: Range<u32>,
    keys: Range<u32>,
    cells: Cells,
    /// The index in `part_sets` of each subexpression. The entry there has the number of the set of cells for each pair
    /// of batch row and head, or a single number if all pairs have the same set.
    parts: HashMap<Mask, usize>,
    part_sets: Vec<Value>,
    /// The sentences of atoms, by (batch row, atom).
    sentences: HashMap<(usize, Mask), Value>,
    tables: Values,
    nodes: Values,
    words: usize,
}

/// The kind of tokens to which the words in a table belong: queries or keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Queries,
    Keys,
}

impl<'a> Book<'a> {
    pub(super) fn new(bound: &'a BoundMask, pairs: Vec<(usize, usize)>, queries: Range<u32>, keys: Range<u32>) -> Self {
        Book {
            bound,
            pairs,
            cells: Cells::new(queries.clone(), keys.clone()),
            queries,
            keys,
            parts: HashMap::new(),
            part_sets: Vec::new(),
            sentences: HashMap::new(),
            tables: Values::default(),
            nodes: Values::default(),
            words: 0,
        }
    }

    /// Adds the reasons of all pairs of batch row and head. Returns the number of each pair's root node.
    pub(super) fn roots(&mut self) -> Result<Vec<usize>, Error> {
        let pairs = self.pairs.clone();
        pairs.into_iter().map(|(batch, head)| self.node(&self.bound.reasons(batch, head)?, batch)).collect()
    }

    /// Adds the node of an expression, `[text, cells, sentence, nodes of the operands]`, and the nodes of its operands.
    /// Returns the node's number.
    fn node(&mut self, reasons: &Reasons<'_>, batch: usize) -> Result<usize, Error> {
        let parts = reasons.parts.iter().map(|part| self.node(part, batch)).collect::<Result<Vec<_>, _>>()?;
        let cells = self.part(reasons.mask)?;
        let sentence = match reasons.mask.atom() {
            None => self.sentence(&reasons.sentence, reasons.mask, batch)?,
            Some(_) => {
                let place = (batch, reasons.mask.clone());
                match self.sentences.get(&place) {
                    Some(known) => known.clone(),
                    None => {
                        let sentence = self.sentence(&reasons.sentence, reasons.mask, batch)?;
                        self.sentences.insert(place, sentence.clone());
                        sentence
                    }
                }
            }
        };
        self.nodes.number(json!([reasons.mask.to_string(), cells, sentence, parts]))
    }

    /// Returns the index in `part_sets` of the mask `mask`, whose cells the page needs. Computes its cells first if it
    /// has no index.
    fn part(&mut self, mask: &Mask) -> Result<usize, Error> {
        if let Some(number) = self.parts.get(mask) {
            return Ok(*number);
        }
        if self.part_sets.len() == MOST_PARTS {
            return Err(too_large(format!("it has more than {MOST_PARTS} different parts")));
        }
        let bound = self.bind(mask)?;
        let mut known: HashMap<usize, usize> = HashMap::new();
        let mut sets = Vec::with_capacity(self.pairs.len());
        for pair in 0..self.pairs.len() {
            let (batch, head) = self.pairs[pair];
            let pattern = bound.pattern_of(batch, head);
            let set = match known.get(&pattern) {
                Some(set) => *set,
                None => self.set(mask, &bound, pair)?,
            };
            known.insert(pattern, set);
            sets.push(set);
        }
        let all_equal = sets.iter().all(|set| *set == sets[0]);
        self.part_sets.push(if all_equal { json!(sets[0]) } else { json!(sets) });
        self.parts.insert(mask.clone(), self.part_sets.len() - 1);
        Ok(self.part_sets.len() - 1)
    }

    /// Returns the subexpression `mask`, bound to the shape and the facts of the whole mask.
    fn bind(&self, mask: &Mask) -> Result<Cow<'a, BoundMask>, Error> {
        Ok(match mask == self.bound.mask() {
            true => Cow::Borrowed(self.bound),
            false => Cow::Owned(mask.bind(self.bound.shape(), self.bound.facts())?),
        })
    }

    /// Returns the number of the set of cells that `mask` allows, for the pair of batch row and head with the index
    /// `pair`.
    fn set(&mut self, mask: &Mask, bound: &BoundMask, pair: usize) -> Result<usize, Error> {
        let (batch, head) = self.pairs[pair];
        let pattern = bound.pattern_of(batch, head);
        self.cells.count()?;
        if let Some(number) = self.cells.add(bound, pattern, SHORT)? {
            return Ok(number);
        }
        if let Some(number) = self.computed(mask, bound, pair)? {
            return Ok(number);
        }
        let rows = self.cells.add(bound, pattern, usize::MAX)?;
        rows.ok_or_else(|| too_large(format!("its cells have more than {MOST_BYTES} bytes")))
    }

    /// Returns the number of the set of cells of `mask` if a rule computes exactly these cells, from other sets or from
    /// random numbers. Otherwise returns `None`.
    fn computed(&mut self, mask: &Mask, bound: &BoundMask, pair: usize) -> Result<Option<usize>, Error> {
        let (batch, head) = self.pairs[pair];
        let pattern = bound.pattern_of(batch, head);
        let sign = match mask.node() {
            Node::And(_) => "&",
            Node::Or(_) => "|",
            Node::Minus(..) => "-",
            Node::Not(_) => "!",
            Node::Heads(arms) => return self.arm(arms, head, bound, pair),
            Node::Batch(arms) => return self.arm(arms, batch, bound, pair),
            Node::Atom(_) => return self.random(mask, bound, pair),
            _ => return Ok(None),
        };
        let operands = mask.children().into_iter().map(|operand| self.operand(operand, pair));
        let operands = operands.collect::<Result<Vec<_>, Error>>()?;
        let numbers = operands.iter().map(|(_, _, number)| json!(number));
        let rule = std::iter::once(json!(sign)).chain(numbers).collect();
        self.cells.compute(bound, pattern, Value::Array(rule), |cells, rows| {
            let all = operands.iter().map(|(bound, pattern, _)| cells.fill(bound, *pattern, rows));
            let whole = || bits::row_of(cells.keys().len(), 0, cells.keys().len()).repeat(rows.len());
            let both = |join: fn(u64, u64) -> u64| {
                move |a: Vec<u64>, b: Vec<u64>| a.iter().zip(&b).map(|(a, b)| join(*a, *b)).collect::<Vec<u64>>()
            };
            match sign {
                "&" => all.reduce(both(|a, b| a & b)),
                "|" => all.reduce(both(|a, b| a | b)),
                "-" => all.reduce(both(|a, b| a & !b)),
                _ => std::iter::once(whole()).chain(all).reduce(both(|a, b| a & !b)),
            }
            .unwrap_or_default()
        })
    }

    /// Returns (bound mask, pattern, number of the set of cells) of an operand, for the pair of batch row and head with
    /// the index `pair`.
    fn operand(&mut self, mask: &Mask, pair: usize) -> Result<(Cow<'a, BoundMask>, usize, usize), Error> {
        let part = self.part(mask)?;
        let numbers = &self.part_sets[part];
        let number = numbers.get(pair).unwrap_or(numbers).as_u64().unwrap_or(0) as usize;
        let bound = self.bind(mask)?;
        let (batch, head) = self.pairs[pair];
        let pattern = bound.pattern_of(batch, head);
        Ok((bound, pattern, number))
    }

    /// Returns the number of the set of cells of the arm (a mask in `heads(...)` or `batch(...)`) that applies to
    /// `index`, the index of a head or batch row.
    fn arm(&mut self, arms: &[Arm], index: usize, bound: &BoundMask, pair: usize) -> Result<Option<usize>, Error> {
        let Some(mask) = Arm::pick(arms, index) else { return Ok(None) };
        let (arm, of_arm, number) = self.operand(mask, pair)?;
        let (batch, head) = self.pairs[pair];
        let rule = json!(["&", number]);
        self.cells.compute(bound, bound.pattern_of(batch, head), rule, |cells, rows| cells.fill(&arm, of_arm, rows))
    }

    /// Returns the number of the set of cells of the atom `random`, which the page computes from random numbers.
    fn random(&mut self, mask: &Mask, bound: &BoundMask, pair: usize) -> Result<Option<usize>, Error> {
        let Some(random) = mask.atom_as::<Random>() else { return Ok(None) };
        let (batch, head) = self.pairs[pair];
        let (seed, limit) = (random.seed, (random.p.get() * 4_294_967_296.0).round());
        let position = |token: Token| token.position.to_string();
        let queries = self.table(Axis::Queries, batch, &position)?;
        let keys = self.table(Axis::Keys, batch, &position)?;
        let rule = json!(["random", limit, seed as u32, (seed >> 32) as u32, queries, keys]);
        let halves = |n: i64| [n as u32, (n >> 32) as u32];
        self.cells.compute(bound, bound.pattern_of(batch, head), rule, |cells, rows| {
            let words = cells.words();
            let mut block = vec![0; words * rows.len()];
            for (q, row) in rows.clone().zip(block.chunks_mut(words)) {
                let [low, high] = halves(bound.query_position(batch, q as usize));
                let mut last = (0, [0; 4]);
                for (at, k) in cells.keys().enumerate() {
                    let k = bound.key_position(batch, k as usize);
                    if k < 0 {
                        continue;
                    }
                    // four keys share one computation
                    let four = k.div_euclid(4) + 1;
                    if last.0 != four {
                        let [a, b] = halves(four - 1);
                        last = (four, philox([a, b, low, high], seed));
                    }
                    if f64::from(last.1[k.rem_euclid(4) as usize]) < limit {
                        bits::set_bit(row, at);
                    }
                }
            }
            block
        })
    }

    /// Returns a sentence as a list of pieces:
    ///
    /// ```text
    /// "text"                                       the text
    /// ["q", table] ["k", table]                    the word of the query, of the key
    /// ["-", table, table]                          the number of the query minus that of the key
    /// ["?", test, sentence, sentence]              the first sentence if the test is true, else the second
    /// ["1", truth, [sentence, ...], sentence]      the sentence of the first operand with this result, else the last
    /// ["o", index]                                 the reason of an operand
    ///
    /// tests: null (the result of the node), ["o", index] (of an operand), ["m", cells] (of another mask)
    /// ```
    pub(super) fn sentence(&mut self, sentence: &Sentence<'_>, mask: &Mask, batch: usize) -> Result<Value, Error> {
        let pieces = sentence.0.iter().map(|piece| {
            Ok(match piece {
                Piece::Text(text) => json!(text),
                Piece::Query(words) => json!(["q", self.table(Axis::Queries, batch, words)?]),
                Piece::Key(words) => json!(["k", self.table(Axis::Keys, batch, words)?]),
                Piece::Difference(query, key) => {
                    let query = self.table(Axis::Queries, batch, &|token| query(token).to_string())?;
                    json!(["-", query, self.table(Axis::Keys, batch, &|token| key(token).to_string())?])
                }
                Piece::If(test, yes, no) => {
                    let test = match test {
                        Test::Allowed => Value::Null,
                        Test::Operand(index) => json!(["o", index]),
                        Test::Mask(mask) => json!(["m", self.part(mask)?]),
                    };
                    json!(["?", test, self.sentence(yes, mask, batch)?, self.sentence(no, mask, batch)?])
                }
                Piece::First(truth, each, none) => {
                    let each = each.iter().map(|one| self.sentence(one, mask, batch)).collect::<Result<Vec<_>, _>>()?;
                    json!(["1", truth, each, self.sentence(none, mask, batch)?])
                }
                Piece::Operand(index) => json!(["o", index]),
                Piece::Atom(_) => json!(["?", null, [no_reason(mask, "allows")], [no_reason(mask, "denies")]]),
            })
        });
        pieces.collect::<Result<Vec<_>, Error>>().map(Value::Array)
    }

    /// Adds a table with the word of each query or each key (`axis`) of batch row `batch`, and returns the number of
    /// the table.
    pub(super) fn table(&mut self, axis: Axis, batch: usize, words: &dyn Fn(Token) -> String) -> Result<usize, Error> {
        let range = if axis == Axis::Queries { self.queries.clone() } else { self.keys.clone() };
        self.words += range.len();
        if self.words > MOST_WORDS {
            return Err(too_large(format!("its reasons have more than {MOST_WORDS} words")));
        }
        let token = |index: u32| {
            let index = index as usize;
            let position = match axis {
                Axis::Queries => self.bound.query_position(batch, index),
                Axis::Keys => self.bound.key_position(batch, index),
            };
            Token { index, position }
        };
        let table = table(range.map(|index| words(token(index))));
        self.tables.number(table)
    }

    /// Returns (the data of the page as JSON, the sets of cells as bytes).
    pub(super) fn end(self) -> (Value, Vec<Vec<u8>>) {
        let (rules, sets) = self.cells.into_sets();
        let data = json!({ "tables": self.tables.values, "nodes": self.nodes.values, "masks": self.part_sets, "rules": rules });
        (data, sets)
    }
}

/// Returns the sentence for an atom whose reasons this crate does not know, because the user implements the atom.
fn no_reason(mask: &Mask, verb: &str) -> String {
    format!("`{mask}` {verb} the cell; the reason is computed by a program of its own, which is not in this file")
}

/// Returns a table as JSON. If all words are numbers, the table is `{"n": [first, difference, count, ...]}`: each pair
/// (difference, count) is a run of `count` numbers with this difference to the number before. Other tables are `{"w":
/// [word, count, ...]}`, in runs of equal words.
fn table(words: impl Iterator<Item = String>) -> Value {
    let words: Vec<String> = words.collect();
    let number = |word: &String| {
        let number: i64 = word.parse().ok()?;
        (number.unsigned_abs() < EXACT && number.to_string() == *word).then_some(number)
    };
    let numbers: Option<Vec<i64>> = words.iter().map(number).collect();
    if let Some(numbers) = numbers {
        let mut out = vec![numbers[0]];
        for pair in numbers.windows(2) {
            let difference = pair[1] - pair[0];
            match out.len() {
                len if len > 1 && out[len - 2] == difference => out[len - 1] += 1,
                _ => out.extend([difference, 1]),
            }
        }
        return json!({ "n": out });
    }
    let mut out: Vec<(String, usize)> = Vec::new();
    for word in words {
        match out.last_mut() {
            Some((last, count)) if *last == word => *count += 1,
            _ => out.push((word, 1)),
        }
    }
    json!({ "w": out.into_iter().flat_map(|(word, count)| [json!(word), json!(count)]).collect::<Vec<_>>() })
}
