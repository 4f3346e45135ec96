//! Compares the given mask with the complete mask expression that the user declared, and searches for mistakes that
//! explain the differences.

use crate::array::align::Alignment;
use crate::array::decode::decode;
use crate::array::polarity::{inverted, open_polarity, which_polarity};
use crate::candidates::expect::which_positions;
use crate::candidates::rewrites::{Rewrite, real_queries, regroupings, rewrites, rewritten, terms, width};
use crate::candidates::scope::exchanged;
use crate::candidates::search::Explanation;
use crate::candidates::target::{Mistake, Rows, Target, is_full};
use crate::diagnose::evidence::{Evidence, name_causes};
use crate::diagnose::repair::{Check, Form, Repair};
use crate::intent::Intent;
use crate::intent::edits::{Edit, Post};
use crate::intent::known::{Companions, Known, Sizes};
use crate::intent::row;
use crate::read::input::Input;
use crate::read::kinds::Role;
use crate::read::values::Values;
use crate::recognise::recognise;
use crate::report::verdict::{Outcome, decide};
use crate::report::wrong::{Wrong, difference, differing};
use crate::report::{Certainty, Finding, Report, Severity};
use noren_mask::bits::ends;
use noren_mask::interval::{Interval, IntervalSet};
use noren_mask::{BoundMask, Error, Keep};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The additional cost of a mistake that is in only some batch rows or heads. The report names the explanation with the
/// lowest cost.
const PART: f64 = 0.15;

/// The maximum number of pairs of mistakes that are tried as an explanation of the given mask.
const MOST_PAIRS: usize = 4096;

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
    let (mut given, meant) = (decoded.keep.expand(dims), meant.expand(dims));
    if alignment.keys_only && q_len > 1 {
        // The attention function adds all terms but the padding.
        let open =
            rewritten(Edit::DropPadding, bound).map_or_else(|| meant.clone(), |open| Keep::of(&open).expand(dims));
        let rows = (0..dims[0]).flat_map(|b| (0..dims[1]).flat_map(move |h| (0..q_len).map(move |i| (b, h, i))));
        rows.for_each(|(b, h, i)| given.row_mut(b, h, i).iter_mut().zip(open.row(b, h, i)).for_each(|(g, o)| *g &= o));
    }
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
    let numbers = decoded.question.clone().filter(|_| mask.is_real());
    let open = match wrong.count {
        _ if numbers.is_some() => numbers,
        0 => None,
        _ if open_polarity(&decoded, &input.context) && equals(&inverted(&given), &meant) => {
            Some(which_polarity(true, &format!("`{text}`")))
        }
        _ => first().map(|_| which_positions(q_len, kv_len, None)),
    };
    if wrong.count > 0 && open.is_none() {
        report.findings.extend(differences(&found, &wrong, [&given, &meant], (bound, &cares), &text));
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

/// Returns the findings on the cells `wrong`, in which the masks `[given, meant]` differ. `text` is the declared expression.
fn differences(
    found: &[Explanation],
    wrong: &Wrong,
    [given, meant]: [&Keep; 2],
    (bound, cares): (&BoundMask, &dyn Fn(usize, usize) -> bool),
    text: &str,
) -> Vec<Finding> {
    let seen = differing(given, meant, cares, |given, meant| given & !meant).count;
    let one_term = (found.is_empty() && seen == wrong.count).then(|| leaking(bound, given, cares)).flatten();
    match one_term {
        Some((class, what)) => {
            let says = format!("{seen} cells let queries read {what}; all other cells are as declared");
            vec![wrong.marked(Finding::of(class, Certainty::Likely, says))]
        }
        None => findings(found, wrong, seen, text),
    }
}

/// Returns (class, description) of the wrong cells, which are all visible, if one term of the declared mask hides them all.
fn leaking(
    bound: &BoundMask,
    given: &Keep,
    cares: &dyn Fn(usize, usize) -> bool,
) -> Option<(&'static str, &'static str)> {
    let terms = [
        (Edit::DropCausal, "causal_leak", "keys after the query"),
        (Edit::DropPadding, "padding_keys_visible", "padding keys"),
        (Edit::DropDocuments, "cross_document", "keys of another document"),
        (Edit::DropWindow, "window_missing_or_wrong_layer", "keys outside of the declared window"),
        (Edit::DropChunk, "chunk_boundary", "keys of another chunk"),
    ];
    let hides = |edit: Edit| {
        let open = Keep::of(&rewritten(edit, bound)?).expand(given.dims());
        Some(differing(given, &open, cares, |given, open| given & !open).count == 0)
    };
    let found = terms.into_iter().find(|(edit, ..)| hides(*edit) == Some(true))?;
    Some((found.1, found.2))
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
    if found.is_empty() {
        let place = wrong.place().map(|place| format!(", all of them in {place}")).unwrap_or_default();
        let parts = [(seen, "visible cells should be hidden"), (wrong.count - seen, "hidden cells should be visible")];
        let parts: Vec<String> =
            parts.iter().filter(|part| part.0 > 0).map(|(count, should)| format!("{count} {should}")).collect();
        let says = format!("the mask differs from the declared mask `{text}`: {}{place}", parts.join(", "));
        return vec![wrong.marked(Finding::of("unexplained_difference", Certainty::Likely, says))];
    }
    Explanation::findings(found, true, wrong, &|class| class)
}

/// The search for mistakes that turn the declared mask into the given mask.
#[derive(Clone)]
struct Search<'a> {
    meant: &'a Keep,
    bound: &'a BoundMask,
    /// The sizes and the padding of the declared mask.
    right: Intent,
    /// The given mask, and the rows and heads that are compared.
    target: Target<'a>,
}

impl<'a> Search<'a> {
    fn new(given: &'a Keep, meant: &'a Keep, bound: &'a BoundMask, cares: &dyn Fn(usize, usize) -> bool) -> Self {
        let [batch, heads, ..] = given.dims();
        let mut target = Target::new(given);
        target.heads = vec![(0..heads).collect(); batch];
        target.order.retain(|&(b, i)| cares(b, i));
        Search { meant, bound, right: Intent { batch, ..terms(bound) }, target }
    }

    /// Returns explanations of all differing cells, the most likely explanation first. Three searches run one after
    /// another until a search finds an explanation: for one mistake in the whole mask, for one mistake in only the
    /// pairs (batch row, head) of `slices`, and for two mistakes.
    fn mistakes(&self, slices: &BTreeSet<(usize, usize)>) -> Vec<Explanation> {
        let given = self.target.given;
        let mut rewrites = rewrites(self.bound, self.left(), given.count() > self.meant.count());
        // A mask that hides nothing lacks its terms: no operator between them is wrong.
        rewrites.retain(|rewrite| rewrite.class != "wrong_operator" || !is_full(given));
        let mut found = self.singles(&rewrites);
        found.extend(self.rows_changed());
        found.extend(self.padding());
        if found.is_empty() {
            found = self.singles(&regroupings(self.bound, given));
        }
        let [batch, heads, ..] = given.dims();
        if found.is_empty() && slices.len() < batch * heads {
            let place = self.target.place(slices);
            found = Search { target: self.target.part(slices), ..self.clone() }.singles(&rewrites);
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

    /// Returns the explanations with one mistake.
    fn singles(&self, rewrites: &[Rewrite]) -> Vec<Explanation> {
        let [.., q_len, kv_len] = self.meant.dims();
        let complement = Some(Post::Complement).filter(|post| self.is(self.meant, *post));
        let transpose = (q_len == kv_len && self.is(&self.meant.transposed(), Post::None)).then_some(Post::Transpose);
        let made = rewrites.iter().filter(|rewrite| self.is_bound(&rewrite.bound, Post::None));
        let made = made.map(|rewrite| explained((rewrite.class, rewrite.says.clone()), rewrite.cost));
        complement.into_iter().chain(transpose).map(by_post).chain(made).collect()
    }

    /// Returns the explanations in which batch rows have the masks of other batch rows, or in which all rows of keys
    /// are rotated by the same number of keys, as in a ring buffer.
    fn rows_changed(&self) -> Vec<Explanation> {
        let given = self.target.given;
        let [batch, heads, q_len, kv_len] = given.dims();
        let rows = [Post::RowZero].into_iter().filter(|_| batch > 1);
        let ring = kv_len <= 2048 && (self.bound.facts().place_keys() || kv_len > q_len);
        let rolls = (1..if ring { kv_len } else { 1 }).map(Post::Roll);
        let exchanged = exchanged(batch, &mut |b, from| {
            let same = |i: usize| (0..heads).all(|h| given.row(b, h, i) == self.meant.row(from, h, i));
            self.target.order.iter().filter(|row| row.0 == b).all(|row| same(row.1))
        });
        let exchanged = exchanged.map(|mistake| explained(mistake, 1.3));
        rows.chain(rolls).filter(|post| self.is(self.meant, *post)).map(by_post).chain(exchanged).collect()
    }

    /// Returns the explanation that the given mask hides the wrong keys as padding. `None` if cells differ for another
    /// reason, or if no padding is declared.
    fn padding(&self) -> Option<Explanation> {
        let open = Keep::of(&rewritten(Edit::DropPadding, self.bound)?).expand(self.target.given.dims());
        let rows: Rows<'_> = &|b, h, i, words| words.copy_from_slice(open.row(b, h, i));
        let plane = self.target.plane_of(&self.right, rows)?;
        let (mistake, cost) = plane.judge(&self.right, self.right.valid.as_ref()?, &self.target)?;
        Some(explained(mistake, cost))
    }

    /// Returns the explanations with two mistakes: two rewrites of the declared expression, or one rewrite and the
    /// inversion of all cells.
    fn pairs(&self, rewrites: &[Rewrite]) -> Vec<Explanation> {
        let mut found = Vec::new();
        let mut tried = 0;
        for first in rewrites {
            let mut pair = |class: &'static str, says: String, cost: f64| {
                let mistakes = vec![(first.class, first.says.clone()), (class, says)];
                found.push(Explanation { hypothesis: 0, mistakes, cost: first.cost + cost });
            };
            if self.is_bound(&first.bound, Post::Complement) {
                let Explanation { mistakes, cost, .. } = by_post(Post::Complement);
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
                if !twice && self.is_bound(&second.bound, Post::None) {
                    pair(second.class, second.says, second.cost);
                }
            }
        }
        found
    }

    /// Returns whether the given mask equals `keep` after the mistake `post`.
    fn is(&self, keep: &Keep, post: Post) -> bool {
        let rows: Rows<'_> = &|b, h, i, words| words.copy_from_slice(keep.row(b, h, i));
        self.target.same_as(&self.right, rows, post, |_, _| true)
    }

    /// Returns whether the given mask equals `bound` after the mistake `post`.
    fn is_bound(&self, bound: &BoundMask, post: Post) -> bool {
        let (shape, keys) = (bound.shape(), Interval::new(0, bound.shape().kv_len() as u32));
        let rows: Rows<'_> = &|b, h, i, words| {
            let pattern = bound.pattern_of(b.min(shape.batch_len() - 1), h.min(shape.head_count() - 1));
            bound.fill_bits(pattern, i as u32..i as u32 + 1, keys, words);
        };
        self.target.same_as(&self.right, rows, post, |_, _| true)
    }

    /// Returns the window width that the given mask shows in batch row 0, head 0. The width is the largest distance
    /// between the position of a query and the position of the first key that the query reads; queries that read key 0
    /// are left out. `None` if no query remains, or if this distance is negative.
    fn left(&self) -> Option<i64> {
        let width = |&(_, i): &(usize, usize)| {
            let first = ends(self.target.given.row(0, 0, i)).map(|ends| ends.0).filter(|first| *first > 0)?;
            Some(self.bound.query_position(0, i) - self.bound.key_position(0, first))
        };
        let rows = self.target.order.iter().filter(|row| row.0 == 0);
        rows.filter_map(width).max().filter(|left| *left >= 0)
    }
}

fn explained(mistake: Mistake, cost: f64) -> Explanation {
    Explanation { hypothesis: 0, mistakes: vec![mistake], cost }
}

/// Returns the explanation with the one mistake `post`, which changes the finished array, such as a transposition.
fn by_post(post: Post) -> Explanation {
    explained((post.class().unwrap_or("unexplained_difference"), post.says()), post.cost())
}
