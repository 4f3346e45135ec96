//! Compares the given mask with the complete mask expression that the user declared, and searches for mistakes that
//! explain the differences.

use crate::array::align::Alignment;
use crate::array::decode::decode;
use crate::array::polarity::{inverted, open_polarity, which_polarity};
use crate::candidates::expect::which_positions;
use crate::candidates::planes::Plane;
use crate::candidates::rewrites::{Rewrite, real_queries, regroupings, rewrites, terms, width, without_padding};
use crate::candidates::scope::exchanged;
use crate::candidates::target::{Mistake, Target, is_full, rolled};
use crate::diagnose::evidence::{Evidence, name_causes};
use crate::diagnose::repair::{Check, Form, Repair};
use crate::intent::edits::Post;
use crate::intent::known::{Companions, Known, Sizes};
use crate::intent::row;
use crate::read::input::Input;
use crate::read::kinds::Role;
use crate::read::values::Values;
use crate::recognise::recognise;
use crate::report::verdict::{Outcome, decide};
use crate::report::wrong::{Wrong, difference, differing};
use crate::report::{Certainty, Finding, Report, Severity};
use noren_mask::bits::{ends, row_of};
use noren_mask::interval::IntervalSet;
use noren_mask::{BoundMask, Error, Keep};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The additional cost of a mistake that is in only some batch rows or heads. The report names the explanation with the
/// lowest cost.
const PART: f64 = 0.15;

/// The maximum number of pairs of mistakes that are tried as an explanation of the given mask.
const MOST_PAIRS: usize = 4096;

/// The maximum difference (excluded) of cost at which the report names a second explanation beside the best one. An
/// explanation with a lower cost is more likely.
const CLOSE: f64 = 0.25;

/// Compares the given mask with the complete mask expression that the user declared, and adds the result to the report.
pub(crate) fn against_expression(
    mask: &Values,
    input: &Input,
    alignment: &Alignment,
    bound: &BoundMask,
    report: &mut Report,
) -> Result<(), Error> {
    let own = alignment.dims;
    let decoded = decode(mask, own, &input.context);
    report.findings.extend(decoded.findings.iter().cloned());
    let (meant, text) = (Keep::of(bound), bound.mask().to_string());
    let [batch, heads, q_len, kv_len] = meant.dims();
    let fits = |axis: usize, n: usize| own[axis] == 1 || n == 1 && axis < 2 || own[axis] == n;
    if !(fits(0, batch) && fits(1, heads) && fits(2, q_len) && fits(3, kv_len)) {
        return Err(Error::invalid(format!(
            "the array has shape {:?}, which does not fit the shape {:?} of the declared mask: bind the mask to the sizes of the array",
            mask.shape(),
            meant.dims()
        )));
    }
    let dims = [batch.max(own[0]), heads.max(own[1]), q_len, kv_len];
    let (given, meant) = (decoded.keep.expand(dims), meant.expand(dims));
    let known = Known::new(&Companions(&input.companions), &input.context, Sizes { batch: dims[0], q_len, kv_len });
    // In cross-attention, the padding of the keys is not the padding of the queries. Queries without known positions are no known tokens.
    let own_keys = input.context.role != Role::Cross
        && !(input.unplaced && q_len < kv_len)
        && (0..batch)
            .all(|b| bound.shape().query_offset(b.min(bound.shape().batch_len() - 1)) + q_len as i64 == kv_len as i64);
    let rows = real_rows(real_queries(bound).filter(|_| own_keys), &known, dims);
    let cares = |b: usize, i: usize| row(&rows, b)[i];
    let wrong = difference(&given, &meant, &cares);
    let found = match wrong.count {
        0 => Vec::new(),
        _ => Search::new(&given, &meant, bound, &cares).mistakes(&wrong.slices),
    };
    let equals = |given: &Keep, meant: &Keep| difference(given, meant, &cares).count == 0;
    let first = || first_tokens(bound).filter(|first| input.unplaced && equals(&given, &Keep::of(first).expand(dims)));
    let open = match wrong.count {
        0 => None,
        _ if open_polarity(&decoded, &input.context) && equals(&inverted(&given), &meant) => {
            Some(which_polarity(true, &format!("`{text}`")))
        }
        _ => first().map(|_| which_positions(q_len, kv_len, None)),
    };
    if wrong.count > 0 && open.is_none() {
        let seen = differing(&given, &meant, &cares, |given, meant| given & !meant).count;
        report.findings.extend(findings(&found, &wrong, seen, &text));
    }
    let intent = terms(bound);
    let evidence = Evidence { mask, decoded: &decoded, given: &given, intent: Some(&intent), means: None };
    name_causes(report, Some(&evidence));
    report.description =
        format!("{} {:?}, {}: {}", mask.dtype().name(), mask.shape(), decoded.reading, recognise(&given).expression());
    report.given = Some(given.clone());
    if report.faulty() {
        let form = Form { mask, decoded: &decoded, context: &input.context, dims: own };
        let check = |values: &Values| {
            let again = decode(values, if values.shape() == mask.shape() { own } else { dims }, &input.context);
            let sound = again.findings.iter().all(|f| f.severity == Severity::Note);
            let sound = sound && values.shape().len() == mask.shape().len();
            if sound && equals(&again.keep.expand(dims), &meant) { Check::Correct } else { Check::Faulty }
        };
        let repair = Repair::new(&form, &given, &meant, &cares, &check);
        repair.into_iter().for_each(|repair| repair.offer(report));
        report.findings.iter_mut().filter(|f| f.repair.is_some()).for_each(|f| f.repair = Some(text.clone()));
    } else {
        report.fixed = Some(given);
    }
    report.expected = Some(meant);
    report.rank();
    let real = rows.iter().flatten().filter(|cares| **cares).count() * dims[0] / rows.len() * dims[1];
    report.compared = (real * kv_len) as u64;
    report.rows_left_out = (dims[0] * dims[1] * q_len - real) as u64;
    let outcome =
        Outcome { fits: wrong.count == 0, open: open.into_iter().map(Rc::new).collect(), ..Outcome::default() };
    decide(report, &outcome, Some(&format!("`{text}`, {}", decoded.reading)));
    report.intended = Some(text);
    Ok(())
}

/// Returns the mask with the first tokens as queries; `None` if they are the first tokens already.
fn first_tokens(bound: &BoundMask) -> Option<BoundMask> {
    let shape = bound.shape();
    bound.mask().bind(&shape.clone().query_offsets([0]), bound.facts()).ok().filter(|_| shape.q_len() < shape.kv_len())
}

/// Returns, for each batch row and query, true if the query is a non-padding token. `declared` has the rows of these queries by the
/// padding of the declared mask, `known` the padding of the arrays given with the mask. Rows of padding queries are not compared,
/// because their outputs are unused.
fn real_rows(declared: Option<Vec<IntervalSet>>, known: &Known, [batch, _, q_len, _]: [usize; 4]) -> Vec<Vec<bool>> {
    let real = |b: usize, i: usize| {
        let by_mask = declared.as_ref().is_none_or(|rows| rows[b.min(rows.len() - 1)].contains(i as u32));
        by_mask && known.q_valid.as_ref().is_none_or(|rows| row(rows, b).get(i).copied().unwrap_or(true))
    };
    (0..batch).map(|b| (0..q_len).map(|i| real(b, i)).collect()).collect()
}

/// Returns the mistakes of the most likely explanation, with notes on at most two other explanations of similar cost.
/// If there is no explanation, returns one finding with the number of wrong cells, `seen` of which are visible. `text` is the declared
/// expression.
fn findings(found: &[Explanation], wrong: &Wrong, seen: u64, text: &str) -> Vec<Finding> {
    let Some(best) = found.first() else {
        let place = wrong.place().map(|place| format!(", all of them in {place}")).unwrap_or_default();
        let parts = [(seen, "visible cells should be hidden"), (wrong.count - seen, "hidden cells should be visible")];
        let parts: Vec<String> =
            parts.iter().filter(|part| part.0 > 0).map(|(count, should)| format!("{count} {should}")).collect();
        let says = format!("the mask differs from the declared mask `{text}`: {}{place}", parts.join(", "));
        return vec![wrong.marked(Finding::of("unexplained_difference", Certainty::Likely, says))];
    };
    let mut others: Vec<&'static str> = Vec::new();
    for other in found.iter().filter(|e| e.cost < best.cost + CLOSE && e.mistakes.len() == best.mistakes.len()) {
        let class = other.mistakes[0].0;
        if class != best.mistakes[0].0 && !others.contains(&class) {
            others.push(class);
        }
    }
    let one_class = found.iter().all(|e| e.mistakes.len() == 1 && e.mistakes[0].0 == best.mistakes[0].0);
    let certainty = if one_class { Certainty::Certain } else { Certainty::Likely };
    let named = best.mistakes.iter().map(|(class, says)| wrong.marked(Finding::of(class, certainty, says.clone())));
    let same = "this class of mistake would produce the same array, so it may be the cause too";
    let notes = others.iter().take(2).map(|class| Finding::of(class, Certainty::Possible, same).note());
    named.chain(notes).collect()
}

/// One or two mistakes that together explain every cell in which the given mask differs from the declared mask.
struct Explanation {
    mistakes: Vec<Mistake>,
    /// The sum of the costs of the mistakes. An explanation with a lower sum is more likely.
    cost: f64,
}

/// The search for mistakes that turn the declared mask into the given mask.
struct Search<'a> {
    given: &'a Keep,
    meant: &'a Keep,
    bound: &'a BoundMask,
    target: Target<'a>,
    /// True for the batch row and index of a non-padding query. Only rows of these queries are compared.
    cares: &'a dyn Fn(usize, usize) -> bool,
}

impl<'a> Search<'a> {
    fn new(given: &'a Keep, meant: &'a Keep, bound: &'a BoundMask, cares: &'a dyn Fn(usize, usize) -> bool) -> Self {
        let mut target = Target::new(given);
        target.order.retain(|&(b, i)| cares(b, i));
        Search { given, meant, bound, target, cares }
    }

    /// Returns explanations of all differing cells, the most likely explanation first. Three searches run one after
    /// another until a search finds an explanation: for one mistake in the whole mask, for one mistake in only the
    /// pairs (batch row, head) of `slices`, and for two mistakes.
    fn mistakes(&self, slices: &BTreeSet<(usize, usize)>) -> Vec<Explanation> {
        let mut rewrites = rewrites(self.bound, self.left(), self.given.count() > self.meant.count());
        // A mask that hides nothing lacks its terms: no operator between them is wrong.
        rewrites.retain(|rewrite| rewrite.class != "wrong_operator" || !is_full(self.given));
        let everywhere = |_: usize, _: usize| true;
        let mut found = self.singles(&rewrites, &everywhere);
        found.extend(self.rows_changed());
        found.extend(self.padding());
        if found.is_empty() {
            found = self.singles(&regroupings(self.bound, self.given), &everywhere);
        }
        let [batch, heads, ..] = self.given.dims();
        if found.is_empty() && slices.len() < batch * heads {
            let place = self.target.place(slices);
            found = self.singles(&rewrites, &|b, h| slices.contains(&(b, h)));
            for explanation in &mut found {
                explanation.cost += PART;
                explanation.mistakes.iter_mut().for_each(|(_, says)| *says = format!("{place} only: {says}"));
            }
        }
        if found.is_empty() {
            found = self.pairs(&rewrites);
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    /// Returns the explanations with one mistake in the selected batch rows and heads: those for which `part(batch row,
    /// head)` is true.
    fn singles(&self, rewrites: &[Rewrite], part: &dyn Fn(usize, usize) -> bool) -> Vec<Explanation> {
        let mut found = Vec::new();
        let turned = self.turned();
        let after = |post: Post, b: usize, h: usize, i: usize| -> Vec<u64> {
            match post {
                Post::Complement => self.complement(self.meant.row(b, h, i)),
                _ => turned.as_ref().unwrap_or(self.meant).row(b, h, i).to_vec(),
            }
        };
        for post in [Post::Complement, Post::Transpose] {
            if (post != Post::Transpose || turned.is_some())
                && self.all(part, |b, h, i| self.given.row(b, h, i) == after(post, b, h, i))
            {
                found.push(by_post(post));
            }
        }
        for rewrite in rewrites.iter().filter(|rewrite| self.is(&rewrite.bound, part)) {
            found.push(Explanation { mistakes: vec![(rewrite.class, rewrite.says.clone())], cost: rewrite.cost });
        }
        found
    }

    /// Returns the explanations in which batch rows have the masks of other batch rows, or in which all rows of keys
    /// are rotated by the same number of keys, as in a ring buffer.
    fn rows_changed(&self) -> Vec<Explanation> {
        let [batch, _, q_len, kv_len] = self.given.dims();
        let rows = [Post::RowZero].into_iter().filter(|_| batch > 1);
        let ring = kv_len <= 2048 && (self.bound.facts().place_keys() || kv_len > q_len);
        let rolls = (1..if ring { kv_len } else { 1 }).map(Post::Roll);
        let is = |post: &Post| {
            self.all(&|_, _| true, |b, h, i| {
                let given = self.given.row(b, h, i);
                match *post {
                    Post::Roll(n) => given == rolled(self.meant.row(b, h, i), kv_len, n),
                    _ => given == self.meant.row(0, h, i),
                }
            })
        };
        let exchanged = exchanged(batch, &mut |b, from| {
            self.all(&|row, _| row == b, |_, h, i| self.given.row(b, h, i) == self.meant.row(from, h, i))
        });
        let exchanged = exchanged.map(|mistake| Explanation { mistakes: vec![mistake], cost: 1.3 });
        rows.chain(rolls).filter(is).map(by_post).chain(exchanged).collect()
    }

    /// Returns the explanation that the given mask hides the wrong keys as padding. `None` if cells differ for another
    /// reason, or if no padding is declared.
    fn padding(&self) -> Option<Explanation> {
        let open = without_padding(self.bound)?;
        let [batch, heads, q_len, kv_len] = self.given.dims();
        let open = Keep::of(&open).expand(self.given.dims());
        let none = vec![0u64; kv_len.div_ceil(64)];
        let (mut seen, mut hidden) = (vec![none.clone(); batch], vec![none; batch]);
        for b in 0..batch {
            for h in 0..heads {
                for i in (0..q_len).filter(|&i| (self.cares)(b, i)) {
                    for (w, (given, open)) in self.given.row(b, h, i).iter().zip(open.row(b, h, i)).enumerate() {
                        if given & !open != 0 {
                            return None;
                        }
                        seen[b][w] |= given;
                        hidden[b][w] |= open & !given;
                    }
                }
            }
            if seen[b].iter().zip(&hidden[b]).any(|(s, h)| s & h != 0) {
                return None;
            }
        }
        let mut right = terms(self.bound);
        right.batch = batch;
        let plane = Plane { seen, hidden, rows: (0..batch).collect() };
        let (mistake, cost) = plane.judge(&right, right.valid.as_ref()?, &self.target)?;
        Some(Explanation { mistakes: vec![mistake], cost })
    }

    /// Returns the explanations with two mistakes: two rewrites of the declared expression, or one rewrite and the
    /// inversion of all cells.
    fn pairs(&self, rewrites: &[Rewrite]) -> Vec<Explanation> {
        let mut found = Vec::new();
        let mut tried = 0;
        let everywhere = |_: usize, _: usize| true;
        for first in rewrites {
            let mut pair = |class: &'static str, says: String, cost: f64| {
                let mistakes = vec![(first.class, first.says.clone()), (class, says)];
                found.push(Explanation { mistakes, cost: first.cost + cost });
            };
            if self.rows_are(&first.bound, &everywhere, |row| self.complement(row)) {
                let Explanation { mistakes, cost } = by_post(Post::Complement);
                mistakes.into_iter().for_each(|(class, says)| pair(class, says, cost));
            }
            let left = width(&first.bound);
            let resized = left != width(self.bound);
            for second in self::rewrites(&first.bound, None, true) {
                tried += 1;
                if tried > MOST_PAIRS {
                    return found;
                }
                // Two changes of the window width equal one change of the width. That change is already in the list.
                let twice = resized && width(&second.bound) != left;
                if !twice && self.is(&second.bound, &everywhere) {
                    pair(second.class, second.says, second.cost);
                }
            }
        }
        found
    }

    /// Returns whether the given mask equals `bound` in the batch rows and heads for which `part(batch row, head)` is true.
    fn is(&self, bound: &BoundMask, part: &dyn Fn(usize, usize) -> bool) -> bool {
        self.rows_are(bound, part, <[u64]>::to_vec)
    }

    /// Returns whether each row of the given mask equals the result of `change` for the same row of `bound`. Only the
    /// batch rows and heads for which `part(batch row, head)` is true are compared.
    fn rows_are(
        &self,
        bound: &BoundMask,
        part: &dyn Fn(usize, usize) -> bool,
        change: impl Fn(&[u64]) -> Vec<u64>,
    ) -> bool {
        let (shape, kv_len) = (bound.shape(), self.given.dims()[3]);
        let mut words = vec![0; kv_len.div_ceil(64)];
        self.all(part, |b, h, i| {
            let pattern = bound.pattern_of(b.min(shape.batch_len() - 1), h.min(shape.head_count() - 1));
            let (row, keys) = (i as u32, noren_mask::interval::Interval::new(0, kv_len as u32));
            bound.fill_bits(pattern, row..row + 1, keys, &mut words);
            self.given.row(b, h, i) == change(&words)
        })
    }

    /// Returns whether `test(batch row, head, query)` is true for all queries of the batch rows and heads for which
    /// `part(batch row, head)` is true. Rows in which masks usually differ, such as the last query, are tested first.
    fn all(&self, part: &dyn Fn(usize, usize) -> bool, mut test: impl FnMut(usize, usize, usize) -> bool) -> bool {
        let heads = self.given.dims()[1];
        self.target.order.iter().all(|&(b, i)| (0..heads).all(|h| !part(b, h) || test(b, h, i)))
    }

    fn complement(&self, row: &[u64]) -> Vec<u64> {
        let kv_len = self.given.dims()[3];
        row.iter().zip(&row_of(kv_len, 0, kv_len)).map(|(word, all)| !word & all).collect()
    }

    /// Returns the transposed declared mask (queries and keys exchanged); `None` if the mask has different numbers of
    /// queries and keys.
    fn turned(&self) -> Option<Keep> {
        let [.., q_len, kv_len] = self.meant.dims();
        (q_len == kv_len).then(|| self.meant.transposed())
    }

    /// Returns the window width that the given mask shows in batch row 0, head 0. The width is the largest distance
    /// between the position of a query and the position of the first key that the query reads; queries that read key 0
    /// are left out. `None` if no query remains, or if this distance is negative.
    fn left(&self) -> Option<i64> {
        let width = |i: usize| {
            let first = ends(self.given.row(0, 0, i)).map(|ends| ends.0).filter(|first| *first > 0)?;
            Some(self.bound.query_position(0, i) - self.bound.key_position(0, first))
        };
        (0..self.given.dims()[2]).filter(|&i| (self.cares)(0, i)).filter_map(width).max().filter(|left| *left >= 0)
    }
}

/// Returns the explanation with the one mistake `post`, which changes the finished array, such as a transposition.
fn by_post(post: Post) -> Explanation {
    let class = post.class().unwrap_or("unexplained_difference");
    Explanation { mistakes: vec![(class, post.says())], cost: post.cost() }
}
