//! [`recognise`]: finds an expression that allows exactly the given cells.
//!
//! Parameters are read from the cells of each distinct batch row and head ([`simple`], [`families`]). The joined
//! expression counts as exact only after it was bound and compared with every cell.

mod families;
mod join;
mod simple;
mod slice;

use crate::read::words::counted;
use join::{Fit, join};
use noren_mask::Keep;
use noren_mask::Mask;
use noren_mask::bits::row_words;
use noren_mask::bits::{count, ones};
use noren_mask::interval::Interval;
use noren_mask::{BoundMask, Error, Facts, Shape, atoms};
use slice::Slice;
use std::collections::HashMap;

/// Maximum number of differing cells that a result lists.
const MOST_EXCEPTIONS: usize = 64;

/// The result of [`recognise`]: an expression that allows exactly the cells of an array, or the nearest expression with
/// the cells that differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Recognised {
    nearest: Mask,
    /// The shape to which the expression is bound, without facts (data such as lengths). If there are fewer queries than
    /// keys, the queries are the last tokens.
    pub shape: Shape,
    /// The cells `[batch, head, query, key]` in which the array differs from [`nearest`](Self::nearest); empty if more
    /// than 64 cells differ.
    pub exceptions: Vec<[usize; 4]>,
    /// Number of cells that differ from [`nearest`](Self::nearest); 0 when the expression is exact.
    pub wrong: u64,
}

impl Recognised {
    /// Returns the expression that allows exactly the cells. The expression was bound to [`shape`](Self::shape) and
    /// compared with every cell.
    ///
    /// ```
    /// use noren_doctor::recognise;
    /// use noren_mask::Keep;
    /// let keep = Keep::from_fn([1, 1, 9, 9], |[_, _, q, k]| k <= q && (q - k) % 3 != 0);
    /// assert_eq!(recognise(&keep).mask()?.to_string(), "causal & !stride(3)");
    /// let leak = Keep::from_fn([1, 1, 9, 9], |[_, _, q, k]| k <= q || (q, k) == (2, 7));
    /// let found = recognise(&leak);
    /// assert!(found.mask().unwrap_err().to_string().contains("the nearest, `causal`, differs in 1 of 81 cells"));
    /// assert_eq!((found.nearest().to_string(), found.wrong), ("causal".into(), 1));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if no exact expression was found, or if a dimension of the array is 0.
    pub fn mask(&self) -> Result<&Mask, Error> {
        if let Some(name) = self.empty_dimension() {
            return Err(Error::invalid(format!(
                "cannot compare: the array has no cells: the dimension `{name}` is 0; give an array with a size of at least 1 in every dimension"
            )));
        }
        match self.wrong {
            0 => Ok(&self.nearest),
            n => Err(Error::invalid(format!(
                "cannot compare: no expression was found that allows exactly these cells: the nearest, `{}`, differs in {n} of {} cells; \
                 use the array itself",
                self.nearest,
                self.shape.cells()
            ))),
        }
    }

    /// Returns the nearest expression found, which may be exact. [`wrong`](Self::wrong) is the number of cells that
    /// differ.
    pub fn nearest(&self) -> &Mask {
        &self.nearest
    }

    /// Returns true if the expression allows exactly the cells. An array with a dimension of 0 has no exact expression.
    pub fn is_exact(&self) -> bool {
        self.wrong == 0 && self.empty_dimension().is_none()
    }

    /// Returns the name of the first dimension that is 0; `None` if no dimension is 0.
    fn empty_dimension(&self) -> Option<&'static str> {
        let shape = &self.shape;
        let sizes = [
            ("batch", shape.batch_len()),
            ("heads", shape.head_count()),
            ("q_len", shape.q_len()),
            ("kv_len", shape.kv_len()),
        ];
        sizes.into_iter().find(|(_, size)| *size == 0).map(|(name, _)| name)
    }

    /// Returns the number of elementary masks (atoms) and operators of the nearest expression.
    pub(crate) fn parts(&self) -> usize {
        fn parts(mask: &Mask) -> usize {
            1 + mask.children().into_iter().map(parts).sum::<usize>()
        }
        parts(&self.nearest)
    }

    /// Returns the expression as text; if the expression is not exact, the text also has the number of differing cells.
    pub fn expression(&self) -> String {
        if let Some(name) = self.empty_dimension() {
            return format!("the mask has no cells: `{name}` is 0");
        }
        match self.wrong {
            0 => self.nearest.to_string(),
            n if self.exceptions.is_empty() => {
                format!(
                    "no expression was found that allows exactly these cells (the nearest expression, `{}`, differs in {n} cells)",
                    self.nearest
                )
            }
            n => format!("{} except for {}", self.nearest, counted(n, "cell")),
        }
    }
}

/// Returns the smallest expression found that allows exactly the cells of `keep`, or the nearest expression with the
/// cells that differ.
///
/// For each distinct batch row and head, `recognise` tries causality and its offset, windows, chunks, prefixes, first
/// keys that every query reads, documents and padding. Then it tries strides, global keys and queries in union with a
/// window, spans, causal blocks, trees, the complement of one of these, and repeated rows. An expression counts as
/// exact only after it was bound to [`Recognised::shape`] without facts (data such as lengths) and compared with every
/// cell. Rows are compared in words of 64 cells, so 16384 x 16384 cells take about a second.
///
/// ```
/// use noren_doctor::recognise;
/// use noren_mask::Keep;
/// let keep = Keep::from_fn([2, 1, 8, 8], |[b, _, q, k]| k <= q && q - k < 3 && k >= 2 * b);
/// assert_eq!(recognise(&keep).mask()?.to_string(), "sliding(3) & padding(side=left, lengths=[8, 6])");
/// # Ok::<(), noren_mask::Error>(())
/// ```
pub fn recognise(keep: &Keep) -> Recognised {
    let [batch, heads, q_len, kv_len] = keep.dims();
    if [batch, heads, q_len, kv_len].contains(&0) {
        let shape = Shape::new(q_len, kv_len, 0).batch(batch).heads(heads);
        return Recognised { nearest: atoms::none(), shape, exceptions: Vec::new(), wrong: 0 };
    }
    let offset = if q_len <= kv_len { kv_len as i64 - q_len as i64 } else { 0 };
    let shape = Shape::new(q_len, kv_len, offset).batch(batch).heads(heads);
    let mut distinct: Vec<(usize, usize)> = Vec::new();
    let mut which = Vec::with_capacity(batch * heads);
    for b in 0..batch {
        for h in 0..heads {
            let same = |&(b0, h0): &(usize, usize)| (0..q_len).all(|i| keep.row(b0, h0, i) == keep.row(b, h, i));
            let known = distinct.iter().position(same);
            which.push(known.unwrap_or_else(|| {
                distinct.push((b, h));
                distinct.len() - 1
            }));
        }
    }
    let fits: Vec<Fit> = distinct.iter().map(|&(b, h)| fit(&Slice::new(keep, b, h, offset))).collect();
    let joined = join(&fits, &which, keep.dims());
    // arms by batch row and head need no padding term, and always bind
    let plain = join::by_arms(&fits, &which, keep.dims());
    let found = [joined, plain, atoms::full()].into_iter().filter_map(|mask| {
        let bound = mask.bind(&shape, &Facts::new()).ok()?;
        let (wrong, exceptions) = differences(keep, &bound, &which);
        Some(Recognised { nearest: mask, shape: shape.clone(), exceptions, wrong })
    });
    let mut best: Option<Recognised> = None;
    for found in found {
        if best.as_ref().is_none_or(|best| found.wrong < best.wrong) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(Recognised::is_exact) {
            break;
        }
    }
    best.expect("the mask `full` can be bound to every shape that has cells")
}

/// Returns the number of cells in which `keep` and `bound` differ, and these cells as `[batch, head, query, key]`; the
/// list is empty if there are more than `MOST_EXCEPTIONS`. A slice is the cells of one batch row and head, and `which[b
/// * heads + h]` is the index of the distinct slice of batch row `b` and head `h`.
fn differences(keep: &Keep, bound: &BoundMask, which: &[usize]) -> (u64, Vec<[usize; 4]>) {
    let [batch, heads, q_len, kv_len] = keep.dims();
    if cfg!(debug_assertions) {
        // in debug builds, planning also compares the pattern with the definition
        bound.plan();
    }
    // for a pattern and a slice: the number of wrong cells, and the first wrong cells `[query, key]`
    type Wrong = (u64, Vec<[usize; 2]>);
    let mut known: HashMap<(usize, usize), Wrong> = HashMap::new();
    let (mut wrong, mut exceptions) = (0, Vec::new());
    let mut words = vec![0; row_words(kv_len as u32)];
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let number = bound.pattern_of(b, h);
        let (off, cells) = known.entry((number, which[b * heads + h])).or_insert_with(|| {
            let (mut off, mut cells) = (0, Vec::new());
            for i in 0..q_len {
                let keys = Interval::new(0, kv_len as u32);
                bound.fill_bits(number, i as u32..i as u32 + 1, keys, &mut words);
                words.iter_mut().zip(keep.row(b, h, i)).for_each(|(w, g)| *w ^= g);
                off += count(&words);
                let left = (MOST_EXCEPTIONS + 1).saturating_sub(cells.len());
                cells.extend(ones(&words).take(left).map(|k| [i, k]));
            }
            (off, cells)
        });
        wrong += *off;
        let left = (MOST_EXCEPTIONS + 1).saturating_sub(exceptions.len());
        exceptions.extend(cells.iter().take(left).map(|&[q, k]| [b, h, q, k]));
    }
    if wrong > MOST_EXCEPTIONS as u64 {
        exceptions.clear();
    }
    (wrong, exceptions)
}

/// Returns the expression of one slice (the cells of one batch row and head): an exact expression if one is found,
/// otherwise the nearest simple expression.
fn fit(slice: &Slice<'_>) -> Fit {
    let Some((first, last)) = slice.seen_ends() else { return Fit { mask: atoms::none(), real: None, both: false } };
    let kv_len = slice.kv_len();
    // if the keys that are read are a run at one end, the other keys are padding
    let run = count(&slice.seen) == (last - first + 1) as u64 && (first > 0) != (last + 1 < kv_len);
    let real = run.then_some((first, last + 1));
    let simple = simple::candidates(slice);
    let rows = real.filter(|&(a, z)| slice.reading_positions() == Some(vec![a..z]));
    let mut best: Option<(u64, &Mask)> = None;
    for mask in &simple {
        let limit = best.map_or(u64::MAX, |(wrong, _)| wrong.saturating_sub(1));
        let Some(wrong) = slice.differences(&slice.restricted(mask, false), limit) else { continue };
        if wrong > 0 && rows.is_some() && slice.is(&slice.restricted(mask, true)) {
            return Fit { mask: mask.clone(), real, both: true };
        }
        if best.is_none_or(|(least, _)| wrong < least) {
            best = Some((wrong, mask));
        }
        if wrong == 0 {
            break;
        }
    }
    if best.is_none_or(|(wrong, _)| wrong > 0)
        && let Some(mask) = families::exact(slice, &simple)
    {
        return Fit { mask, real: None, both: false };
    }
    let nearest = best.map_or_else(atoms::full, |(_, mask)| mask.clone());
    match run {
        // an expression that is exact without padding needs no padding
        true => Fit { real: real.filter(|_| !slice.is(&nearest)), mask: nearest, both: false },
        false => Fit { mask: slice.restricted(&nearest, false), real: None, both: false },
    }
}
