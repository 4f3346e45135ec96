//! [`Sequences`]: the ranges of rows that the sequences have in the arrays of a call.

use crate::{Element, Error, View, ViewMut};
use std::fmt::Display;
use std::ops::Range;

/// The queries and keys of each sequence of a batch, as ranges of rows in the arrays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequences {
    pub(super) form: Form,
    pub(super) rows: Vec<SequenceRows>,
}

/// The arrangement of the sequences in the arrays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// All sequences are one after another in batch row 0.
    Packed,
    /// Each sequence is at the beginning of one batch row.
    Padded,
}

/// The batch row of one sequence, with the ranges of its query rows (`q`) and key rows (`k`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SequenceRows {
    pub(super) batch: usize,
    pub(super) q: Range<usize>,
    pub(super) k: Range<usize>,
}

impl Sequences {
    /// Returns sequences that are packed one after another. Sequence `i` has the queries
    /// `cu_seqlens_q[i]..cu_seqlens_q[i + 1]` and the keys `cu_seqlens_k[i]..cu_seqlens_k[i + 1]`. A sequence may be
    /// without queries, without keys, or without both.
    ///
    /// The arrays of the call are `[1, heads, tokens, head_dim]`: [`packed`] returns such a view of `[tokens, heads,
    /// head_dim]`.
    ///
    /// ```
    /// use noren::varlen::Sequences;
    /// assert_eq!(Sequences::packed(&[0, 5, 12], &[0, 5, 12])?.len(), 2);
    /// let error = Sequences::packed(&[0, 5, 4], &[0, 5, 12]).unwrap_err().to_string();
    /// assert!(error.starts_with("cu_seqlens_q is 5, 4 at index 1: no value may be smaller"), "{error}");
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a list has fewer than 2 values, does not begin at 0, falls, or has a value above 2^31 - 1,
    /// or if the lists have different lengths.
    pub fn packed<I: Copy + Display + TryInto<i64>>(cu_seqlens_q: &[I], cu_seqlens_k: &[I]) -> Result<Self, Error> {
        let (q, k) = (cumulative("cu_seqlens_q", cu_seqlens_q)?, cumulative("cu_seqlens_k", cu_seqlens_k)?);
        same_count("cu_seqlens_k", k.len(), "cu_seqlens_q", q.len())?;
        let ranges = |list: &[usize], i: usize| list[i]..list[i + 1];
        let rows = (0..q.len() - 1).map(|i| SequenceRows { batch: 0, q: ranges(&q, i), k: ranges(&k, i) });
        Ok(Sequences { form: Form::Packed, rows: rows.collect() })
    }

    /// Returns the sequences of a padded batch, `[batch, heads, len, head_dim]`. Each sequence is at the beginning of
    /// one batch row: row `i` begins with `q_lens[i]` queries and `k_lens[i]` keys.
    ///
    /// ```
    /// use noren::{Inputs, View, varlen::{Planner, Sequences, Varlen}};
    /// let x = [0.5, 2.0, f32::NAN, 1.0, 1.0, 1.0]; // the first row has one token of padding
    /// let x = View::new(&x, [2, 1, 3, 1])?; // [batch, heads, len, head_dim]
    /// let call = Varlen::new(Sequences::padded(&[2, 3], &[2, 3])?).causal(true);
    /// let result = call.forward(&Planner::default(), &Inputs { q: x, k: x, v: x })?;
    /// assert_eq!((result.out[0], result.out[2], result.lse[2]), (0.5, 0.0, f32::NEG_INFINITY));
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a length is negative or above 2^31 - 1, if there is no length, or if the lists have
    /// different lengths.
    pub fn padded<I: Copy + Display + TryInto<i64>>(q_lens: &[I], k_lens: &[I]) -> Result<Self, Error> {
        let lengths = |name: &'static str, list: &[I]| -> Result<Vec<usize>, Error> {
            list.iter().map(|len| count(name, *len)).collect()
        };
        let (q, k) = (lengths("q_lens", q_lens)?, lengths("k_lens", k_lens)?);
        if q.is_empty() {
            return Err(refuse("q_lens", "empty".to_owned(), "give one length for each batch row"));
        }
        same_count("k_lens", k.len(), "q_lens", q.len())?;
        let rows = q.into_iter().zip(k).enumerate();
        let rows = rows.map(|(batch, (q, k))| SequenceRows { batch, q: 0..q, k: 0..k }).collect();
        Ok(Sequences { form: Form::Padded, rows })
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no sequences. The result is always false, because the constructors refuse empty lists.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns an error if the arrays do not contain all sequences. The arrays have `batch` batch rows of `q_len`
    /// queries and `kv_len` keys.
    pub(super) fn check(&self, batch: usize, q_len: usize, kv_len: usize) -> Result<(), Error> {
        let last = |of: fn(&SequenceRows) -> usize| self.rows.iter().map(of).max().unwrap_or(0);
        let (expected, names) = match self.form {
            Form::Packed => (1, ["cu_seqlens_q", "cu_seqlens_k"]),
            Form::Padded => (self.len(), ["q_lens", "k_lens"]),
        };
        if batch != expected {
            let expected = match self.form {
                Form::Packed => "packed arrays have one batch row: give [1, heads, tokens, head_dim]".to_owned(),
                Form::Padded => format!("there are {expected} lengths: give one batch row for each length"),
            };
            return Err(Error::Shape { name: "q's batch dimension", given: vec![batch], expected });
        }
        for (name, of, last, rows) in
            [(names[0], "q", last(|rows| rows.q.end), q_len), (names[1], "k", last(|rows| rows.k.end), kv_len)]
        {
            if last > rows {
                let problem =
                    format!("{of} has only {rows} tokens: give lengths that fit the array, or the complete array");
                return Err(refuse(name, format!("up to {last}"), &problem));
            }
        }
        Ok(())
    }

    /// Returns the rows that belong to no sequence, as `(batch row, range of rows after the last sequence)` for each
    /// batch row. The rows are those of the queries if `q` is true, otherwise those of the keys. Each batch row has
    /// `len` rows.
    pub(super) fn unused(&self, batch: usize, q: bool, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        (0..batch).map(move |b| {
            let end = |rows: &SequenceRows| if q { rows.q.end } else { rows.k.end };
            let last = match self.form {
                Form::Packed => self.rows.last().map_or(0, end),
                Form::Padded => end(&self.rows[b]),
            };
            (b, last..len)
        })
    }
}

/// Returns a view `[1, heads, tokens, head_dim]` of the packed array `data`, which is `[tokens, heads, head_dim]`.
/// Nothing is copied.
///
/// # Errors
/// Returns an error if a dimension is 0 or if `data` does not have exactly the values of the shape.
pub fn packed<T: Element>(data: &[T], shape: [usize; 3]) -> Result<View<'_, T>, Error> {
    let (shape, strides) = by_token(data.len(), shape)?;
    View::strided(data, shape, strides, 0)
}

/// Returns a view like [`packed`] that can be written.
///
/// # Errors
/// Returns the errors of [`packed`].
pub fn packed_mut<T: Element>(data: &mut [T], shape: [usize; 3]) -> Result<ViewMut<'_, T>, Error> {
    let (shape, strides) = by_token(data.len(), shape)?;
    ViewMut::strided(data, shape, strides, 0)
}

/// Returns the shape and the strides of a view `[1, heads, tokens, width]` of contiguous memory `[tokens, heads,
/// width]`. Returns an error if a dimension is 0 or if `len`, the number of values in the memory, does not fit the
/// shape.
fn by_token(len: usize, [tokens, heads, width]: [usize; 3]) -> Result<([usize; 4], [isize; 4]), Error> {
    let given = vec![tokens, heads, width];
    let wrong = |expected: String| Error::Shape { name: "a packed array", given: given.clone(), expected };
    for (name, size) in [("tokens", tokens), ("heads", heads), ("head_dim", width)] {
        if size == 0 {
            return Err(wrong(format!(
                "the dimension {name} is 0: give [tokens, heads, head_dim] with at least 1 for each dimension"
            )));
        }
    }
    let count = tokens.checked_mul(heads).and_then(|n| n.checked_mul(width));
    if count != Some(len) {
        return Err(wrong(format!(
            "the memory has {len} values: give a shape [tokens, heads, head_dim] with exactly as many values"
        )));
    }
    Ok(([1, heads, tokens, width], [0, width as isize, (heads * width) as isize, 1]))
}

/// Returns the values of `list`, or an error if they are not cumulative lengths.
fn cumulative<I: Copy + Display + TryInto<i64>>(name: &'static str, list: &[I]) -> Result<Vec<usize>, Error> {
    let values = list.iter().map(|value| count(name, *value)).collect::<Result<Vec<_>, _>>()?;
    let [first, _, ..] = values[..] else {
        let given = format!("a list of {} values", values.len());
        return Err(refuse(name, given, "give at least 2 values: 0, and then the end of each sequence"));
    };
    if first != 0 {
        return Err(refuse(
            name,
            format!("{first} at index 0"),
            "the first sequence begins at 0: insert 0 as the first value",
        ));
    }
    match values.windows(2).position(|pair| pair[0] > pair[1]) {
        None => Ok(values),
        Some(i) => {
            let problem = "no value may be smaller than the value before it: give the sum of the lengths of all sequences up to each end";
            Err(refuse(name, format!("{}, {} at index {i}", values[i], values[i + 1]), problem))
        }
    }
}

/// Returns `value` as a number of tokens, or an error if it is negative or above 2^31 - 1.
fn count<I: Copy + Display + TryInto<i64>>(name: &'static str, value: I) -> Result<usize, Error> {
    match value.try_into() {
        Ok(count) if (0..=i64::from(i32::MAX)).contains(&count) => Ok(count as usize),
        _ => Err(refuse(name, value.to_string(), "give numbers of tokens from 0 to 2147483647, the largest i32")),
    }
}

fn same_count(name: &'static str, given: usize, other: &str, expected: usize) -> Result<(), Error> {
    match given == expected {
        true => Ok(()),
        false => {
            let problem = format!("{other} has {expected} values: give as many values in both lists");
            Err(refuse(name, format!("a list of {given} values"), &problem))
        }
    }
}

fn refuse(name: &'static str, given: String, problem: &str) -> Error {
    Error::Option { name, given, problem: problem.to_owned() }
}
