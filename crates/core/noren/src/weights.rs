//! [`attention_weights`]: attention probabilities as an array, for inspection.

use crate::attention::check;
use crate::{Element, Error, Inputs, Options, reference};
use noren_mask::Plan;
use std::ops::Range;

/// Returns the attention probabilities `[rows, kv_len]` of the query rows `rows` in one batch row and head. A
/// probability is the factor by which attention multiplies the value of a key, dropout included; it is 0 for cells that
/// the plan does not allow.
///
/// Each row is computed in `f64` and rounded once, which is slow: use this function for some heads and rows, for
/// example to draw them. [`attention`](crate::attention()) never stores this array.
///
/// ```
/// use noren::{Facts, Inputs, Options, Shape, View, atoms, attention_weights};
///
/// let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// let x = View::new(&[0f32, 0.0, 0.0], [1, 1, 3, 1])?;
/// let weights = attention_weights(&Inputs { q: x, k: x, v: x }, &plan, &Options::default(), [0, 0], 1..3)?;
/// assert_eq!(weights, [0.5, 0.5, 0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`attention`](crate::attention()), and an error if there is no such batch row, head or query
/// row.
pub fn attention_weights<T: Element>(
    inputs: &Inputs<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    [batch, head]: [usize; 2],
    rows: Range<usize>,
) -> Result<Vec<f32>, Error> {
    let [batches, heads, q_len, _] = check(inputs, plan.shape(), options)?;
    for (name, given, end, what) in [
        ("batch", batch.saturating_add(1), batches, "batch rows"),
        ("head", head.saturating_add(1), heads, "heads"),
        ("rows", rows.end, q_len, "query rows"),
    ] {
        if given > end {
            let given = if name == "rows" { format!("{rows:?}") } else { (given - 1).to_string() };
            return Err(Error::Option {
                name,
                given,
                problem: format!("the plan has only {end} {what}, counted from 0"),
            });
        }
    }
    let row = |i| reference::row(inputs, plan, options, [batch, head, i]).weights;
    Ok(rows.flat_map(|i| row(i).into_iter().map(|p| p as f32)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Facts, Shape, View, atoms};

    #[test]
    fn what_is_not_there_is_refused() {
        let plan = atoms::full().bind(&Shape::square(2), &Facts::new()).unwrap().plan();
        let x = View::new(&[1f32, 2.0], [1, 1, 2, 1]).unwrap();
        let ask = |at, rows| attention_weights(&Inputs { q: x, k: x, v: x }, &plan, &Options::default(), at, rows);
        for (at, rows, message) in [
            ([1, 0], 0..1, "batch is 1: the plan has only 1 batch rows, counted from 0"),
            ([0, 5], 0..1, "head is 5: the plan has only 1 heads, counted from 0"),
            ([0, 0], 1..3, "rows is 1..3: the plan has only 2 query rows, counted from 0"),
        ] {
            assert_eq!(ask(at, rows).unwrap_err().to_string(), message);
        }
        assert!(ask([0, 0], 1..1).unwrap().is_empty());
    }
}
