//! Decodes stored numbers into allowed cells by the convention, and finds the mistakes that are visible in the values
//! without a declared mask.

use crate::read::context::Context;
use crate::read::kinds::Convention;
use crate::read::values::{Dtype, Numbers, Values};
use crate::report::wrong::listed;
use crate::report::{Certainty, Finding, Open, SHOWN, Severity};
use noren_mask::HIDES;
use noren_mask::Keep;
use std::collections::BTreeSet;

/// Maximum number of distinct values in a mask. An array with more distinct values is read as a bias.
const FEW: usize = 24;

/// A number up to this, alone or with its double, is a number that should hide cells and not a bias.
const NO_BIAS: f64 = -10.0;

/// A number up to this hides cells at usual scores, such as the -100 of Swin transformers.
const USUALLY_HIDES: f64 = -80.0;

/// The decoded values of an array.
pub(crate) struct Decoded {
    /// The allowed cells that the author of the array probably intended. For example, a cell with +inf counts as hidden
    /// if +inf was probably written instead of -inf.
    pub(crate) keep: Keep,
    /// The allowed cells in the second possible reading of the values; `None` if the values have only one reading.
    pub(crate) other: Option<Keep>,
    /// The allowed cells with which the attention function computes; `None` if they equal `keep`. For example, all
    /// cells are allowed if the author wrote 1e-9 instead of -1e9 into hidden cells.
    pub(crate) effective: Option<Keep>,
    /// Findings that follow from the values alone, without a declared mask.
    pub(crate) findings: Vec<Finding>,
    /// The kind of number with which the array hides cells: logical, infinite or finite.
    pub(crate) fill: Fill,
    /// The segment number of each key, for each batch row; `None` if the array holds no segment numbers.
    pub(crate) segments: Option<Vec<Vec<i64>>>,
    /// The question what the numbers above 1 mean; `None` if the array holds none, or if they are segment numbers.
    pub(crate) question: Option<Open>,
    /// The largest finite number in hidden cells, which is the least reliable in hiding a cell; `None` if hidden cells
    /// hold no finite number.
    pub(crate) weakest: Option<f64>,
    /// True when visible cells hold different numbers: the array is then a bias that is added to scores.
    pub(crate) bias: bool,
    /// True when a stored true or 1 hides a cell.
    pub(crate) drop: bool,
    /// A description of the convention by which the values were read.
    pub(crate) reading: String,
}

impl Decoded {
    /// Returns a decoded array without cells. `fill` is the kind of number in hidden cells; `reading` describes the
    /// convention.
    fn new(fill: Fill, reading: &str) -> Self {
        Decoded {
            keep: Keep::empty([0; 4]),
            other: None,
            effective: None,
            findings: Vec::new(),
            fill,
            segments: None,
            question: None,
            weakest: None,
            bias: false,
            drop: false,
            reading: reading.to_string(),
        }
    }

    /// Adds a finding of class `class` with the text `says`. Its certainty is `Certainty::Certain`.
    fn say(&mut self, class: &'static str, says: impl Into<String>) {
        self.findings.push(Finding::of(class, Certainty::Certain, says));
    }
}

/// The kind of number in a hidden cell. The output of a row without visible keys depends on this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    /// A truth value: false or 0, or, if true hides a cell, true or 1. The output of a query without visible keys
    /// depends on the attention function.
    Logical,
    /// Minus infinity. The output of a query without visible keys is NaN.
    Infinite,
    /// Minus infinity in some cells and a finite number in others.
    Mixed,
    /// A finite number such as -1e9. The output of a query without visible keys is the average of all values.
    Finite,
}

impl Fill {
    /// Returns true if some hidden cells hold minus infinity.
    pub(crate) fn is_infinite(self) -> bool {
        matches!(self, Fill::Infinite | Fill::Mixed)
    }
}

/// A summary of the numbers in an array: up to `FEW` distinct finite numbers, and whether the array holds NaN or
/// infinities.
struct Seen {
    /// Up to `FEW` distinct finite numbers of the array in ascending order. The smallest and the largest finite number
    /// are always included; NaN and infinities are recorded in other fields.
    few: Vec<f64>,
    /// True if the array has more than `FEW` distinct finite numbers.
    many: bool,
    nan: bool,
    plus: bool,
    minus: bool,
}

impl Seen {
    fn of(values: &Values) -> Self {
        let mut seen = Seen { few: Vec::new(), many: false, nan: false, plus: false, minus: false };
        match values.numbers() {
            Numbers::Bool(v) => v.iter().for_each(|&x| seen.add(f64::from(u8::from(x)))),
            Numbers::Int(v) => seen.scan(v, |x| x as f64),
            Numbers::Single(v) => seen.scan(v, f64::from),
            Numbers::Double(v) => seen.scan(v, |x| x),
        }
        seen.few.sort_by(f64::total_cmp);
        seen
    }

    fn scan<T: Copy + PartialEq>(&mut self, values: &[T], number: impl Fn(T) -> f64) {
        let mut last = None;
        for &value in values {
            // Masks contain long runs of one number.
            if last != Some(value) {
                last = Some(value);
                self.add(number(value));
            }
        }
    }

    fn add(&mut self, x: f64) {
        if x.is_nan() {
            self.nan = true;
        } else if x == f64::INFINITY {
            self.plus = true;
        } else if x == f64::NEG_INFINITY {
            self.minus = true;
        } else if !self.few.contains(&x) {
            match self.few.len() < FEW {
                true => self.few.push(x),
                false => {
                    self.many = true;
                    // Beyond the limit, only a new minimum or maximum is recorded.
                    let (low, high) = self.extremes();
                    if x < self.few[low] {
                        self.few[low] = x;
                    } else if x > self.few[high] {
                        self.few[high] = x;
                    }
                }
            }
        }
    }

    fn extremes(&self) -> (usize, usize) {
        let order = |a: &usize, b: &usize| self.few[*a].total_cmp(&self.few[*b]);
        let all = 0..self.few.len();
        (all.clone().min_by(order).unwrap_or(0), all.max_by(order).unwrap_or(0))
    }

    fn within(&self, allowed: &[f64]) -> bool {
        self.finite() && self.few.iter().all(|x| allowed.contains(x))
    }

    fn finite(&self) -> bool {
        !(self.nan || self.plus || self.minus || self.many)
    }

    fn has(&self, x: f64) -> bool {
        self.few.contains(&x)
    }

    /// Returns true if the numbers are 0, 1 and numbers that hide cells.
    fn is_split(&self) -> bool {
        let known = self.few.iter().all(|&x| x == 0.0 || x == 1.0 || x <= HIDES);
        known && !self.nan && !self.plus && !self.many && (self.minus || self.low() <= HIDES)
    }

    /// Returns the number in hidden cells that does not hide them reliably: the only number beside 0, or a negative number beside -inf or
    /// beside twice this number, as in the sum of two masks. `None` if the numbers may be a bias, or if they hide the cells.
    fn weak(&self) -> Option<f64> {
        let nonzero: Vec<f64> = self.few.iter().copied().filter(|&x| x != 0.0).collect();
        let fill = *nonzero.last().filter(|&&fill| fill > HIDES && self.has(0.0) && !self.many)?;
        match nonzero[..] {
            [_] if !self.minus => Some(fill),
            [_] => Some(fill).filter(|fill| *fill <= NO_BIAS),
            [sum, _] => Some(fill).filter(|fill| *fill <= NO_BIAS && (sum == 2.0 * fill || sum <= HIDES)),
            _ => None,
        }
    }

    fn low(&self) -> f64 {
        self.few.first().copied().unwrap_or(0.0)
    }
}

/// Decodes `values` with the sizes `dims`, `[batch, heads, q_len, kv_len]`. The convention follows from the
/// declarations, the API and the type of the values.
pub(crate) fn decode(values: &Values, dims: [usize; 4], context: &Context) -> Decoded {
    let seen = Seen::of(values);
    let slot_adds = context.slot.adds();
    let zero_one = seen.within(&[0.0, 1.0]);
    let api_drops = context.slot.drops();
    let convention = match context.convention {
        Some(Convention::Additive) => Convention::Additive,
        // An API whose masks are truth values still adds masks of floats to the scores.
        Some(_) if values.is_real() && (!zero_one || slot_adds) => Convention::Additive,
        Some(said) => said,
        None if values.is_real() && (!zero_one || slot_adds) => Convention::Additive,
        // An array of floats that are all 0 adds nothing to the scores; read as truth values, the zeros would hide
        // every key.
        None if values.is_real() && seen.within(&[0.0]) => Convention::Additive,
        None if values.dtype() != Dtype::Bool && seen.low() <= HIDES => Convention::Additive,
        None if api_drops => Convention::Drop,
        None if context.slot.additive() => Convention::Additive,
        None => Convention::Keep,
    };
    let cells = Reading { values, dims };
    let logical_declared = context.convention.is_some_and(|said| said != Convention::Additive) && !slot_adds;
    match convention {
        Convention::Additive if logical_declared && !seen.nan && !seen.many && (seen.minus || seen.low() <= HIDES) => {
            Decoded { question: Some(which_numbers(&seen)), ..additive(&cells, &seen, context) }
        }
        Convention::Additive => additive(&cells, &seen, context),
        convention => logical(&cells, &seen, convention == Convention::Drop),
    }
}

struct Reading<'a> {
    values: &'a Values,
    dims: [usize; 4],
}

impl Reading<'_> {
    fn keep(&self, test: impl Fn(f64) -> bool) -> Keep {
        match self.values.numbers() {
            Numbers::Bool(v) => {
                let (no, yes) = (test(0.0), test(1.0));
                Keep::from_cells(self.dims, v.iter().map(|&x| if x { yes } else { no }))
            }
            Numbers::Int(v) => Keep::from_cells(self.dims, v.iter().map(|&x| test(x as f64))),
            Numbers::Single(v) => Keep::from_cells(self.dims, v.iter().map(|&x| test(f64::from(x)))),
            Numbers::Double(v) => Keep::from_cells(self.dims, v.iter().map(|&x| test(x))),
        }
    }
}

impl Reading<'_> {
    /// Returns the number of each key, for each batch row: the number that all nonzero cells of the key hold. The number
    /// of a key without nonzero cells is 0. `None` if two nonzero cells of one key hold different numbers.
    fn numbers(&self) -> Option<Vec<Vec<i64>>> {
        let Numbers::Int(cells) = self.values.numbers() else { return None };
        let [batch, heads, q_len, kv_len] = self.dims;
        let mut numbers = vec![vec![0i64; kv_len]; batch];
        for (n, row) in cells.chunks(kv_len.max(1)).enumerate() {
            for (key, &number) in numbers[n / (heads * q_len)].iter_mut().zip(row).filter(|(_, number)| **number != 0) {
                if *key != 0 && *key != number {
                    return None;
                }
                *key = number;
            }
        }
        Some(numbers)
    }

    /// Returns true if the cells of a query hold two different nonzero numbers.
    fn mixed(&self) -> bool {
        let Numbers::Int(cells) = self.values.numbers() else { return false };
        let differ = |row: &[i64]| {
            let mut shown = row.iter().filter(|number| **number != 0);
            let first = shown.next();
            shown.any(|number| Some(number) != first)
        };
        cells.chunks(self.dims[3].max(1)).any(differ)
    }
}

/// Returns true if the numbers are those of documents packed into a row: each number except 0 is in one run, and the next
/// run has the next number.
fn are_documents(numbers: &[i64]) -> bool {
    let runs: Vec<i64> = numbers.chunk_by(|a, b| a == b).map(|run| run[0]).filter(|n| *n != 0).collect();
    runs.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

fn logical(cells: &Reading<'_>, seen: &Seen, drop: bool) -> Decoded {
    let mut decoded = Decoded::new(Fill::Logical, if drop { "true = ignored" } else { "true = may attend" });
    decoded.drop = drop;
    let two = |a: f64, b: f64| seen.within(&[a, b]) && (seen.has(a) || seen.has(b));
    // `~` on integers: ~1 = -2 (254), ~0 = -1 (255). Both results count as true.
    let inverted = [(-2.0, -1.0), (254.0, 255.0)].into_iter().find(|&(a, b)| two(a, b));
    if let Some((was_one, was_zero)) = inverted {
        decoded.keep = cells.keep(|x| (x == was_zero) != drop);
        decoded.effective = Some(cells.keep(|_| !drop));
        decoded.say(
            "mask_built_with_NaN_or_int_ops",
            format!(
                "the mask holds {was_one} and {was_zero}: `~` was applied to a 0/1 array of integers, which flips every bit instead of \
                 the truth value, so every cell counts as true"
            ),
        );
        return decoded;
    }
    let above_1 = seen.low() >= 0.0 && seen.few.iter().any(|&x| x > 1.0) && !cells.values.is_real();
    let several = seen.few.iter().filter(|&&x| x > 0.0).count() > 1;
    if above_1 && (cells.mixed() || several && cells.numbers().is_none()) {
        let documents = cells.numbers().filter(|rows| rows.iter().all(|row| are_documents(row)) && !drop);
        match documents {
            Some(_) => decoded.findings.push(Finding::of(
                "segment_ids_cast_to_bool",
                Certainty::Likely,
                "the mask holds segment numbers (0, 1, 2, ...) where a 0/1 mask is expected: after a cast to bool, the tokens of all documents count as non-padding and read each other",
            )),
            None => decoded.question = Some(what_it_means(seen)),
        }
        decoded.segments = documents;
    } else if seen.low() < 0.0 || seen.nan {
        let low = if seen.nan { f64::NAN } else { seen.low() };
        decoded.findings.push(Finding::of(
            "mask_built_with_NaN_or_int_ops",
            Certainty::Likely,
            format!("the mask should hold only 0 and 1, but holds {low}: arithmetic changed the truth values"),
        ));
    }
    decoded.keep = cells.keep(|x| (x != 0.0) != drop);
    decoded
}

/// Returns the question what the numbers above 1 mean in an array that should hold only 0 and 1.
fn what_it_means(seen: &Seen) -> Open {
    let above: Vec<String> = seen.few.iter().filter(|x| **x > 1.0).take(4).map(f64::to_string).collect();
    Open::new(
        &[
            "a number above 1 marks global tokens, as in Longformer: every query reads them, and they read every key",
            "the numbers are segment numbers in another order, or types of tokens",
            "the sum of several masks: a cell is visible only if all of them allow it",
        ],
        format!(
            "what does {} mean in this array of integers? It does not number documents: these would be consecutive, each in one run. Give an array of 0 and 1, and declare the documents as segment_ids or the intended mask as an expression, such as `(window(left=2, right=2) | global([0])) & padding`",
            above.join(", ")
        ),
    )
}

/// Returns the question about an array with numbers that are added to scores, for which a convention of truth values is declared.
fn which_numbers(seen: &Seen) -> Open {
    let low = if seen.minus { f64::NEG_INFINITY } else { seen.low() };
    Open::new(
        &[
            "the function adds the numbers to the scores: declare convention=additive",
            "the function reads truth values, as declared: 0 is then the opposite of the 0 in this array, and the mask should hold 0 and 1, such as `mask == 0`",
        ],
        format!(
            "the array holds {low:e} and 0, as a mask that is added to scores does, but a convention of truth values (keep or ignore) is declared: which one does the function use?"
        ),
    )
}

fn additive(cells: &Reading<'_>, seen: &Seen, context: &Context) -> Decoded {
    let values = cells.values;
    let mut decoded = Decoded::new(if seen.minus { Fill::Infinite } else { Fill::Finite }, "added to scores");
    if context.bias.is_none()
        && seen.within(&[0.0, 1.0])
        && seen.has(1.0)
        && (seen.has(0.0) || values.dtype() == Dtype::Bool)
    {
        return truth_values_added(cells, seen, context, decoded);
    }
    if context.bias.is_none() && seen.has(1.0) && seen.is_split() {
        return two_conventions(cells, decoded);
    }
    if seen.nan {
        decoded.say("mask_built_with_NaN_or_int_ops", nan_text(cells, seen));
        decoded.keep = cells.keep(|x| x.is_nan() || x > HIDES && x != f64::INFINITY);
        decoded.other = Some(cells.keep(|x| !x.is_nan() && x > HIDES && x != f64::INFINITY));
        return decoded;
    }
    let compute = context.compute_dtype.unwrap_or(values.dtype());
    overflow(seen, compute, values.dtype(), &mut decoded);
    if seen.plus {
        decoded.say(
            "fill_value_wrong",
            "the mask holds +inf: the cells that should be hidden get all weight in the softmax, or make its result NaN (usual cause: two minus signs, as in -float('-inf'))",
        );
        decoded.keep = cells.keep(|x| x > HIDES && x != f64::INFINITY);
        decoded.effective = Some(cells.keep(|x| x == f64::INFINITY));
        return decoded;
    }
    if let Some(fill) = seen.weak().filter(|_| context.bias.is_none()) {
        decoded.say("fill_value_wrong", hides_nothing(fill));
        decoded.keep = cells.keep(|x| x == 0.0);
        match fill <= USUALLY_HIDES {
            true => {
                decoded.weakest = Some(fill);
                decoded.findings.iter_mut().for_each(|f| f.severity = Severity::Note);
            }
            false => decoded.effective = Some(cells.keep(|x| x > HIDES)),
        }
        return decoded;
    }
    let visible = seen.few.iter().filter(|&&x| x > HIDES).count();
    decoded.bias = seen.many || visible > 1;
    let threshold = match decoded.bias {
        false => HIDES,
        true if compute == Dtype::F16 || values.dtype() == Dtype::F16 => -3e4,
        true if seen.low() <= -1e8 || seen.minus => -1e8,
        true => HIDES,
    };
    let hidden = seen.few.iter().copied().filter(|&x| x <= threshold);
    decoded.weakest = hidden.clone().reduce(f64::max);
    if seen.minus && decoded.weakest.is_some() {
        decoded.fill = Fill::Mixed;
    }
    if let [own] = seen.few.iter().copied().filter(|&x| x > threshold).collect::<Vec<_>>()[..]
        && own != 0.0
        && context.bias.is_none()
        && (seen.minus || hidden.count() > 0)
    {
        let text = format!(
            "visible cells hold {own} instead of 0: the cause is an arithmetic mistake or an undeclared bias (adding one number to all cells of a row is harmless)"
        );
        decoded
            .findings
            .push(Finding::of("mask_built_with_NaN_or_int_ops", Certainty::Likely, text).severity(Severity::Warning));
    }
    decoded.keep = cells.keep(|x| x > threshold);
    decoded
}

/// Decodes an array of 0 and 1 that the attention function adds to the scores by mistake. The author intended that 1
/// allows a cell and 0 hides it.
fn truth_values_added(cells: &Reading<'_>, seen: &Seen, context: &Context, mut decoded: Decoded) -> Decoded {
    let dtype = cells.values.dtype();
    if seen.has(0.0) && !(dtype == Dtype::Bool && context.slot.sdpa()) {
        decoded.say(
            "float01_added",
            format!(
                "a mask of 0 and 1 with the type {} is added to the scores: at equal scores, the weight of a cell with 1 is only 2.718 times that of a cell with 0, so no cell is hidden",
                dtype.name()
            ),
        );
        decoded.effective = Some(cells.keep(|_| true));
        decoded.other = Some(cells.keep(|x| x == 0.0));
    }
    decoded.keep = cells.keep(|x| x != 0.0);
    decoded
}

/// Decodes an array of 0, 1 and numbers that hide cells, which is joined of a mask of 0 and 1 and a mask that is added to scores. If the two
/// masks are in different keys (or queries, heads, batch rows), a 0 hides cells only in the mask of 0 and 1. Otherwise they were added,
/// and a 0 is a cell that the first mask hides.
fn two_conventions(cells: &Reading<'_>, mut decoded: Decoded) -> Decoded {
    let (ones, fills) = (cells.keep(|x| x == 1.0), cells.keep(|x| x <= HIDES));
    let along = |keep: &Keep, axis: usize| -> BTreeSet<usize> {
        let of_cell = |at: usize| at / cells.dims[axis + 1..].iter().product::<usize>() % cells.dims[axis];
        keep.cells().enumerate().filter(|(_, cell)| *cell).map(|(at, _)| of_cell(at)).collect()
    };
    let split = [(3, "key"), (2, "query"), (1, "head"), (0, "batch row")].into_iter().find_map(|(axis, name)| {
        let (ones, fills) = (along(&ones, axis), along(&fills, axis));
        // A key with only zeros belongs to the mask of 0 and 1 if it is on the other side of it than the other mask.
        let own: BTreeSet<usize> = match () {
            () if fills.last() < ones.first() => (*ones.first()?..cells.dims[axis]).collect(),
            () if ones.last() < fills.first() => (0..=*ones.last()?).collect(),
            () => ones.clone(),
        };
        ones.is_disjoint(&fills).then_some((axis, name, own))
    });
    let visible = cells.keep(|x| x > HIDES);
    let text = match &split {
        Some((_, name, own)) => {
            format!("{} hold a mask of 0 and 1, in which 0 hides a cell, and the others 0 and", listed(name, own))
        }
        None => "a mask of 0 and 1 was added to a mask of 0 and".to_string(),
    };
    decoded.findings.push(Finding::of(
        "float01_added",
        Certainty::Likely,
        format!("the array mixes two conventions: {text} a number that hides cells; added to scores, the 0 of the first mask hides nothing"),
    ));
    let is_own = |at: [usize; 4]| split.as_ref().is_none_or(|(axis, _, own)| own.contains(&at[*axis]));
    decoded.keep = Keep::from_fn(cells.dims, |at| if is_own(at) { ones.get(at) } else { visible.get(at) });
    decoded.other = Some(Keep::from_fn(cells.dims, |at| visible.get(at) && !ones.get(at)));
    decoded.effective = Some(visible);
    decoded
}

/// Adds a finding if the number in hidden cells overflows to -inf, either because two masks were added or because the
/// number is outside of the range of the score type. `compute` is the type of the scores, and `stored` the type of the
/// array.
fn overflow(seen: &Seen, compute: Dtype, stored: Dtype, decoded: &mut Decoded) {
    let Some(lowest) = compute.largest().or(stored.largest()).map(|x| -x) else { return };
    let text = if let Some(x) = seen.few.iter().find(|&&x| x < lowest * 1.000_001) {
        format!(
            "the fill {x:e} is outside of the range of {}, whose lowest number is {lowest:e}: in this type the fill becomes -inf",
            compute.name()
        )
    } else if seen.minus && seen.few.iter().any(|&x| x <= lowest * 0.98) {
        format!(
            "the mask holds both -inf and {lowest:e}, the lowest number of {}: two masks with this fill were added, and \
             {lowest:e} + {lowest:e} overflows to -inf",
            compute.name()
        )
    } else {
        return;
    };
    decoded.say("double_mask_overflow", text);
}

/// Returns the message about NaN in a mask. If the mask holds only NaN and -inf, the message has the usual cause, otherwise the first
/// cells with NaN.
fn nan_text(cells: &Reading<'_>, seen: &Seen) -> String {
    let says = "the mask holds NaN: the output of every query with a NaN in its row is NaN";
    if seen.few.is_empty() && seen.minus {
        return format!("{says} (usual cause: `(1 - mask) * -inf`, where 0 * -inf is NaN)");
    }
    let [batch, heads, q_len, kv_len] = cells.dims;
    let nan = cells.keep(f64::is_nan);
    let rows = (0..batch * heads * q_len).map(|n| [n / (heads * q_len), n / q_len % heads, n % q_len]);
    let all = rows.flat_map(|[b, h, q]| (0..kv_len).map(move |k| [b, h, q, k])).filter(|&at| nan.get(at));
    let first: Vec<String> = all.take(SHOWN).map(|[b, h, q, k]| format!("({b}, {h}, {q}, {k})")).collect();
    format!("{says}; the first cells with NaN (batch, head, query, key) are {}", first.join(", "))
}

/// Returns the message about the number `fill`, which does not reliably hide cells.
fn hides_nothing(fill: f64) -> String {
    match fill {
        v if v > 0.0 => {
            format!(
                "cells that should be hidden hold {v:e}, which is not negative: no cell is hidden (was {:e} intended?)",
                -1e9
            )
        }
        v if v.abs() < 1.0 => {
            format!("cells that should be hidden hold {v:e}, which is almost 0: no cell is hidden (was -1e9 intended?)")
        }
        v => format!(
            "hidden cells hold {v}: a score that is {:.0} larger than the other scores makes a hidden cell visible; fill hidden cells with -inf or with the lowest number of the type",
            -v
        ),
    }
}
