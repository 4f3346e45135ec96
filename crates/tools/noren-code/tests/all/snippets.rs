//! The Rust code of masks, one function for each. `NOREN_UPDATE=1 cargo test -p noren-code --test all snippets` writes this file.
#![allow(unused_variables)]

/// An array with its shape.
pub(crate) type Tensor<'a> = (&'a [f32], [usize; 4]);

/// The arrays that the code reads: query, key, value, and the arrays of scores.
pub(crate) type Given<'a> = [Tensor<'a>; 7];

/// Returns the output of attention.
pub(crate) type Snippet = fn(Given<'_>) -> Result<Vec<f32>, noren::Error>;

fn snippet_0([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = full();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_1([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = full();
    let attend = Attend::new(mask)?.query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_2([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = none();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_3([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_4([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_5([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 1, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(6);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_6([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_7([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(-2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_8([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(1);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_9([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [3, 1, 3, head_dim])
    // key, value: (&[f32], [3, 1, 6, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offsets([3, 0, -1]);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_10([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal_offset(-1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_11([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal_offset(2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_12([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = causal_offset(-9);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_13([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = window(2, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_14([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = window(2, None);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_15([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = window(None, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_16([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = window(0, 0);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_17([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = window(4, -2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_18([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = window(-1, 3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_19([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = window(-3, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_20([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = window(2, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_21([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = window(2, 0);
    let attend = Attend::new(mask)?.query_offset(5);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_22([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = sliding(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_23([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = sliding(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_24([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_25([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(50);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_26([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = sliding(4);
    let attend = Attend::new(mask)?.query_offset(6);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_27([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(3);
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_28([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = chunk(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_29([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = chunk(1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_30([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = chunk(4);
    let attend = Attend::new(mask)?.query_offset(6);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_31([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = chunk(3);
    let attend = Attend::new(mask)?.query_offset(-4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_32([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = stride(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_33([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = stride(1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_34([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = stride(3);
    let attend = Attend::new(mask)?.query_offset(-3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_35([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = distances([0, 1, 2, 4]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_36([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = distances([-1, 3]);
    let attend = Attend::new(mask)?.query_offset(2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_37([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = prefix(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_38([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = prefix(0);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_39([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = prefix(9);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_40([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = prefix([1, 3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_41([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = keys(2..3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_42([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = keys(1..3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_43([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = keys(3..);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_44([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = keys(0..2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_45([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};
    use noren::noren_mask::Span;

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = keys([Span::from(0..1), Span::from(2..4), Span::from(5..)]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_46([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = keys(3..90);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_47([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = keys(2..2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_48([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = keys([0..3, 2..4]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_49([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = queries(1..2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_50([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = queries([0..1, 3..5]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_51([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = queries(4..6);
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_52([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = queries(0..2);
    let attend = Attend::new(mask)?.query_offset(-2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_53([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = global(0..2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_54([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = global([1..2, 4..5]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_55([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = global([0..1, 5..6]);
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_56([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = spans([1..3, 4..7]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_57([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = spans([0..4, 2..6]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_58([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = spans([3..]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_59([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = spans([1..5]);
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_60([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = documents_of([2, 1, 3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_61([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = documents_of([2, 0, 2]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_62([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = documents_of([3, 3]);
    let attend = Attend::new(mask)?.query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_63([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = Tree::new([-1, 0, 0, 1, 1, 2]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_64([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 1, 1, 0, 4, 4]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_65([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 0, 1, 1, 2, 2]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_66([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = Tree::new([-1, 0, 1, 2]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_67([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = Tree::new([-1, -1, 0, 1, 2]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_68([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = Tree::new([2, 2, 4, 4, -1]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_69([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 0, 2]).start(3).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_70([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = Tree::new([-1, 0, 0, 1]).start(4).mask();
    let attend = Attend::new(mask)?.query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_71([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = Tree::new([-1, 0, 0, 1, 1, 2]).mask();
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_72([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 0]).runs([3, 2, 2]).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_73([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 0]).runs([3, 2, 2]).window(3).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_74([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = Tree::new([-1, 0, 0]).runs([3, 2, 2]).chunk(2).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_75([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = Tree::new([2, 2, 4, 4, -1]).window(2).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_76([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = Tree::new([-1, -1, 1]).runs([2, 2, 2]).window(3).start(1).mask();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_77([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = neighborhood([7], [3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_78([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = neighborhood([7], [4]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_79([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = neighborhood_dilated([8], [3], [2]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_80([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = neighborhood_dilated([7], [2], [3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_81([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = neighborhood([3, 4], [3, 3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_82([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 16, head_dim])
    // key, value: (&[f32], [1, 1, 16, head_dim])

    let mask = neighborhood_dilated([4, 4], [2, 2], [1, 2]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_83([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = neighborhood([2, 3, 2], [1, 3, 2]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_84([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = neighborhood([2, 2], [2, 2]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_85([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = neighborhood([4, 4], [3, 3]);
    let attend = Attend::new(mask)?.query_offset(5);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_86([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = causal() & window(2, None);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_87([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = causal() | keys(4..);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_88([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = !causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_89([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = !causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_90([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = full() - keys(1..3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_91([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = (causal() - keys(1..2)) - queries(3..4);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_92([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal() - (keys(0..3) - keys(1..2));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_93([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = sliding(2) | causal() & keys(0..1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_94([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = (sliding(2) | stride(2)) & causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_95([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = causal() & (full() - keys(1..2));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_96([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = !causal() & window(None, 2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_97([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = !!causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_98([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = !(causal() & chunk(2));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_99([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = !causal() | !chunk(2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_100([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = causal() & !causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_101([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = causal() | !causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_102([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 4, 5, head_dim])
    // key, value: (&[f32], [1, 4, 5, head_dim])

    let mask = heads([arm(0..1, causal()), arm(1..3, sliding(2)), arm(3..4, chunk(2) & causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_103([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 2, 3, head_dim])
    // key, value: (&[f32], [1, 2, 3, head_dim])

    let mask = heads([arm(0..1, causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_104([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 3, 4, head_dim])
    // key, value: (&[f32], [1, 3, 4, head_dim])

    let mask = heads([arm(0..1, full()), otherwise(causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_105([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};
    use noren::noren_mask::Selector;

    // query: (&[f32], [1, 4, 4, head_dim])
    // key, value: (&[f32], [1, 2, 4, head_dim])

    let mask = heads([arm(Selector::every(2), causal()), otherwise(sliding(2))]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_106([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};
    use noren::noren_mask::Selector;

    // query: (&[f32], [1, 5, 2, head_dim])
    // key, value: (&[f32], [1, 5, 2, head_dim])

    let mask = heads([arm(Selector::Every { step: 3, from: 1 }, full()), otherwise(none())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_107([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 5, 3, head_dim])
    // key, value: (&[f32], [1, 5, 3, head_dim])

    let mask = heads([arm([0..1, 2..4], causal()), otherwise(full())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_108([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 3, 3, head_dim])
    // key, value: (&[f32], [1, 3, 3, head_dim])

    let mask = heads([arm(0..1, full()), arm(1.., causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_109([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = batch([arm(0..1, causal()), arm(1..2, full())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_110([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [3, 1, 3, head_dim])
    // key, value: (&[f32], [3, 1, 3, head_dim])

    let mask = batch([arm(1..2, full()), otherwise(causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_111([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [2, 2, 4, head_dim])
    // key, value: (&[f32], [2, 2, 4, head_dim])

    let mask = batch([arm(0..1, heads([arm(0..1, causal()), otherwise(full())])), otherwise(sliding(2))]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_112([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [2, 2, 3, head_dim])
    // key, value: (&[f32], [2, 2, 3, head_dim])

    let mask = heads([arm(1..2, batch([arm(0..1, causal())])), otherwise(full())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_113([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 2, 5, head_dim])
    // key, value: (&[f32], [1, 2, 5, head_dim])

    let mask = causal() & (heads([arm(0..1, sliding(2)), otherwise(full())]) - keys(0..1));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_114([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 2, 3, head_dim])
    // key, value: (&[f32], [1, 2, 3, head_dim])

    let mask = !heads([arm(0..1, causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_115([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_116([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_117([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_118([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = none();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_119([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = full();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_120([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 2, 5, head_dim])
    // key, value: (&[f32], [2, 2, 5, head_dim])

    let mask = causal() & documents() & padding() & heads([arm(0..1, sliding(2)), otherwise(full())]);
    let facts = Facts::new().lengths([5, 3]).documents(vec![vec![2, 3], vec![3]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_121([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal() & window(1, None) & keys(0..3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_122([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([5, 3]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_123([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([5, 3]).side(Side::Left);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_124([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding_with(Padding { side: Some(Side::Left), lengths: None, both: false });
    let facts = Facts::new().lengths([5, 3]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_125([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = padding_with(Padding { side: Some(Side::Right), lengths: None, both: false });
    let facts = Facts::new().lengths([4, 1]).side(Side::Left);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_126([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = padding_with(Padding { side: None, lengths: Some(vec![3, 1]), both: false });
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_127([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Side, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = padding_with(Padding { side: Some(Side::Left), lengths: Some(vec![2]), both: true });
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_128([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding_with(Padding { side: None, lengths: None, both: true });
    let facts = Facts::new().lengths([5, 3]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_129([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding_with(Padding { side: Some(Side::Left), lengths: None, both: true });
    let facts = Facts::new().lengths([5, 3]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_130([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 3, head_dim])
    // key, value: (&[f32], [2, 1, 3, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([3, 0]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_131([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 3, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([5, 2]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_132([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 3, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding_with(Padding { side: None, lengths: None, both: true });
    let facts = Facts::new().lengths([5, 2]).query_lengths([2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_133([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 3, head_dim])

    let mask = padding_with(Padding { side: Some(Side::Left), lengths: None, both: true });
    let facts = Facts::new().lengths([1, 3]).query_lengths([2, 4]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_134([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 3, head_dim])
    // key, value: (&[f32], [2, 1, 6, head_dim])

    let mask = padding_with(Padding { side: None, lengths: None, both: true });
    let facts = Facts::new().lengths([6, 4]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_135([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};
    use noren::noren_mask::interval::IntervalSet;

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new()
        .real_keys(vec![IntervalSet::from_iter([0..1, 2..4]), IntervalSet::from(1..5)]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_136([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};
    use noren::noren_mask::interval::IntervalSet;

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding_with(Padding { side: None, lengths: None, both: true });
    let facts = Facts::new()
        .real_keys(vec![IntervalSet::from_iter([0..1, 2..4]), IntervalSet::from(1..5)]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_137([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};
    use noren::noren_mask::interval::IntervalSet;

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = padding();
    let facts = Facts::new().real_keys(vec![IntervalSet::from(0..3), IntervalSet::from(1..4)]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_138([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([2, 4]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_139([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 6, head_dim])
    // key, value: (&[f32], [2, 1, 6, head_dim])

    let mask = documents();
    let facts = Facts::new().documents(vec![4, 2]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_140([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = documents();
    let facts = Facts::new().documents(vec![vec![2, 3], vec![1, 1, 3]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_141([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = documents();
    let facts = Facts::new().lengths([5, 3]).documents(vec![vec![2, 3], vec![1, 2]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_142([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = causal() & documents() & padding();
    let facts = Facts::new()
        .lengths([5, 3])
        .side(Side::Left)
        .documents(vec![vec![2, 3], vec![1, 2]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_143([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = documents();
    let facts = Facts::new().lengths([4]).documents(vec![2, 2, 1]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_144([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal() & documents();
    let facts = Facts::new().documents(vec![3, 4]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_145([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = documents();
    let facts = Facts::new().documents(vec![2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(1);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_146([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = clearance();
    let facts = Facts::new().levels(vec![0, 2, 1, 1, 0]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_147([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = clearance();
    let facts = Facts::new().levels(vec![vec![0, 0, 1, 1], vec![3, -1, 0, 3]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_148([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = clearance();
    let facts = Facts::new().levels(vec![2, 0, 1, 1, 0]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_149([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = clearance();
    let facts = Facts::new().lengths([5, 3]).levels(vec![vec![1, 0, 2, 0, 1], vec![1, 0, 0]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_150([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = clearance();
    let facts = Facts::new().levels(vec![1, 0, 2]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(-2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_151([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = keys(Positions::label("pii"));
    let facts = Facts::new().label("pii", [1..2, 3..5]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_152([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal() - keys(Positions::label("pii"));
    let facts = Facts::new().label("pii", [1..2, 2..3]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_153([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = queries(Positions::label("boss"));
    let facts = Facts::new().label_rows("boss", vec![vec![(0..1).into()], vec![(2..).into()]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_154([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = global(Positions::label("cls"));
    let facts = Facts::new().label("cls", [0..1, 3..4]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_155([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};
    use noren::noren_mask::Span;

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = keys(Positions::label("x"));
    let facts = Facts::new().label("x", Vec::<Span>::new());
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_156([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = full() - (queries(Positions::label("a")) & keys(Positions::label("b")));
    let facts = Facts::new().label("a", [0..2]).label("b", [3..]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_157([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = causal();
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(9);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_158([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = sliding(5);
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(9);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_159([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = window(2, 1);
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(7);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_160([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = chunk(4) & causal();
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(8);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_161([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = stride(3);
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(9);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_162([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = keys([0..6, 10..11]);
    let facts = Facts::new().positions(vec![8, 9, 10, 11, 4, 5, 6, 7]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(10);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_163([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = full();
    let facts = Facts::new().positions(vec![4, 5, -1, -1, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_164([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = !causal_offset(-2);
    let facts = Facts::new().positions(vec![4, 5, -1, -1, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_165([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = sliding(3);
    let facts = Facts::new().positions(vec![4, 5, -1, -1, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_166([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 1, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = causal();
    let facts = Facts::new().positions(vec![-1, -1, -1]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_167([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 1, head_dim])
    // key, value: (&[f32], [2, 1, 4, head_dim])

    let mask = causal();
    let facts = Facts::new().positions(vec![vec![4, 5, 2, 3], vec![0, 1, 2, -1]]);
    let attend = Attend::new(mask)?.facts(facts).query_offsets([5, 2]);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_168([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal();
    let facts = Facts::new().positions(vec![3, 0, 4, 1, 2]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_169([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = causal() & documents();
    let facts = Facts::new().documents(vec![3, 3]).positions(vec![4, 5, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_170([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = clearance();
    let facts = Facts::new().levels(vec![0, 0, 2, 1, 1, 2]).positions(vec![4, 5, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_171([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = Tree::new([-1, 0, 0, 1]).start(2).mask();
    let facts = Facts::new().positions(vec![4, 5, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_172([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = dense("mine");
    let facts = Facts::new()
        .array("mine", Array::keep(&[1, 1, 3, 3], &[1, 0, 0, 1, 1, 0, 0, 1, 1].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_173([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = dense("mine");
    let facts = Facts::new()
        .array("mine", Array::keep(&[1, 1, 3, 3], &[0, 1, 1, 0, 0, 1, 1, 0, 0].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_174([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = dense("mine");
    let facts = Facts::new()
        .array("mine", Array::keep(&[1, 1, 2, 3], &[1, 0, 1, 0, 1, 1].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_175([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [2, 1, 1, head_dim])
    // key, value: (&[f32], [2, 1, 3, head_dim])

    let mask = dense("a");
    let facts = Facts::new()
        .array("a", Array::keep(&[2, 1, 1, 3], &[1, 0, 1, 0, 1, 1].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_176([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [2, 2, 1, head_dim])
    // key, value: (&[f32], [2, 2, 3, head_dim])

    let mask = dense("a");
    let facts = Facts::new()
        .array("a", Array::keep(&[1, 2, 1, 3], &[1, 0, 1, 0, 1, 1].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_177([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [2, 2, 1, head_dim])
    // key, value: (&[f32], [2, 2, 3, head_dim])

    let mask = dense("a") & keys(0..2);
    let facts = Facts::new()
        .array("a", Array::keep(&[2, 2, 1, 3], &[1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_178([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = dense("few");
    let facts = Facts::new()
        .array("few", Array::keep(&[1, 1, 3, 4], &[0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_179([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = dense("csr");
    let facts = Facts::new()
        .array("csr", Array::keep(&[1, 1, 3, 4], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_180([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = dense("blocks");
    let facts = Facts::new()
        .array("blocks", Array::keep(&[1, 1, 7, 7], &[
            1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1,
            0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0,
        ].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_181([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Array, Facts, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = dense("mine") & causal();
    let facts = Facts::new()
        .array("mine", Array::keep(&[1, 1, 3, 3], &[1, 0, 0, 1, 1, 0, 0, 1, 1].map(|cell| cell == 1))?);
    let attend = Attend::new(mask)?.facts(facts).query_offset(-1);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_182([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_183([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [3, 1, 6, head_dim])
    // key, value: (&[f32], [3, 1, 6, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([6, 4, 1]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_184([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Side, atoms::*};

    // query: (&[f32], [2, 1, 6, head_dim])
    // key, value: (&[f32], [2, 1, 6, head_dim])

    let mask = causal() & padding();
    let facts = Facts::new().lengths([6, 3]).side(Side::Left);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_185([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 8, head_dim])
    // key, value: (&[f32], [2, 1, 8, head_dim])

    let mask = sliding(4) & padding();
    let facts = Facts::new().lengths([8, 6]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_186([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 1, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = sliding(4);
    let facts = Facts::new().positions(vec![4, 5, 6, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(6);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_187([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = sliding(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_188([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_189([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = sliding(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_190([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 10, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = causal() & chunk(4);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_191([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 10, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_192([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 1, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = causal() & chunk(4);
    let attend = Attend::new(mask)?.query_offset(9);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_193([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = sliding(4);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_194([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = sliding(3) | causal() & keys(0..2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_195([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 5, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([5, 2]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_196([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 4, head_dim])
    // key, value: (&[f32], [2, 1, 5, head_dim])

    let mask = padding();
    let facts = Facts::new().lengths([5, 2]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_197([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal() | prefix(3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_198([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 6, head_dim])
    // key, value: (&[f32], [2, 1, 6, head_dim])

    let mask = (causal() | prefix([4, 2])) & padding();
    let facts = Facts::new().lengths([6, 5]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_199([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 9, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = causal() | spans([1..4, 6..8]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_200([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = window(1, 1) | global(0..1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_201([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 10, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = window(1, 1) | global(0..1) | random_blocks(2, 1, 3);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_202([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 9, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = causal() & (window(2, None) | stride(3));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_203([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 9, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = causal() & (chunk(3) | keys([2..3, 5..6, 8..9]));
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_204([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 9, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = window(4, 4) & stride(2);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_205([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = chunk(4);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_206([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = neighborhood([3, 4], [3, 3]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_207([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 9, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = chunk(3) | causal();
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_208([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = chunk(3) | causal();
    let attend = Attend::new(mask)?.query_offset(6);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_209([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 9, head_dim])

    let mask = keys(0..4) | Tree::new([-1, 0, 0, 1, 2]).start(4).mask();
    let attend = Attend::new(mask)?.query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_210([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = keys(0..3) | Tree::new([-1, 0, 0, 1, 1, 2, 2]).start(3).mask();
    let attend = Attend::new(mask)?.query_offset(3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_211([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 8, head_dim])
    // key, value: (&[f32], [2, 1, 8, head_dim])

    let mask = causal() & documents();
    let facts = Facts::new().documents(vec![vec![3, 5], vec![2, 2, 4]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_212([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = sliding(2) & documents();
    let facts = Facts::new().documents(vec![3, 5]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_213([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 8, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = documents() & (causal() | spans([0..2, 4..6]));
    let facts = Facts::new().documents(vec![4, 4]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_214([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 7, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = full() - keys(5..7);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_215([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = full();
    let attend = Attend::new(mask)?.query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_216([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [2, 1, 6, head_dim])
    // key, value: (&[f32], [2, 1, 6, head_dim])

    let mask = documents() & padding_with(Padding { side: None, lengths: None, both: true });
    let facts = Facts::new().lengths([6, 4]).documents(vec![vec![2, 4], vec![3, 1]]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_217([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Positions, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = causal() & (clearance() - keys(Positions::label("secret")));
    let facts = Facts::new().label("secret", [3..4]).levels(vec![0, 1, 1, 2, 0, 2]);
    let attend = Attend::new(mask)?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_218([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 4, 5, head_dim])
    // key, value: (&[f32], [1, 2, 5, head_dim])

    let mask = heads([arm(0..2, sliding(2)), arm(2..4, causal())]);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_219([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [3, 1, 1, head_dim])
    // key, value: (&[f32], [3, 1, 6, head_dim])

    let mask = causal() & padding();
    let facts = Facts::new().lengths([6, 3, 1]);
    let attend = Attend::new(mask)?.facts(facts).query_offsets([5, 2, 0]);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_220([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 8, head_dim])

    let mask = causal();
    let attend = Attend::new(mask)?.query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_221([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])

    let mask = causal_offset(-1) | queries(0..1) & keys(0..1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_222([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random(0.5, 42);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_223([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random(0.5, 43);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_224([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random(0.5, 42);
    let attend = Attend::new(mask)?.query_offset(8);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_225([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 20, head_dim])

    let mask = random(0.1, 7);
    let attend = Attend::new(mask)?.query_offset(0);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_226([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = random(0.0, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_227([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 3, head_dim])

    let mask = random(1.0, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_228([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = random(0.5, 42);
    let attend = Attend::new(mask)?.query_offset(-2);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_229([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = random(0.5, 9223372036854775813);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_230([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, atoms::*};

    // query: (&[f32], [1, 1, 2, head_dim])
    // key, value: (&[f32], [1, 1, 4, head_dim])

    let mask = random(0.5, 42);
    let facts = Facts::new().positions(vec![4, 5, 2, 3]);
    let attend = Attend::new(mask)?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_231([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random_blocks(2, 2, 42);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_232([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 12, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random_blocks(2, 2, 43);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_233([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 10, head_dim])
    // key, value: (&[f32], [1, 1, 10, head_dim])

    let mask = random_blocks(3, 1, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_234([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 6, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = random_blocks(4, 9, 1);
    let attend = Attend::new(mask)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_235([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 4, head_dim])
    // key, value: (&[f32], [1, 1, 12, head_dim])

    let mask = random_blocks(2, 2, 42);
    let attend = Attend::new(mask)?.query_offset(8);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_236([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 6, head_dim])

    let mask = random_blocks(2, 1, 5);
    let attend = Attend::new(mask)?.query_offset(-3);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_237([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [1, 1, 5, head_dim])
    // key, value: (&[f32], [1, 1, 5, head_dim])
    // bias: (&[f32], [1, 1, 5, 5])

    let mask = causal();
    let facts = Facts::new().lengths([5]).side(Side::Left);
    let attend = Attend::new(mask + Score::bias("bias"))?.facts(facts).array("bias", bias)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_238([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])
    // relative: (&[f32], [1, 4, 1, 2 * reach + 1])

    let mask = causal() & padding();
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::relative("relative"))?
        .facts(facts)
        .array("relative", relative)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_239([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])

    let mask = causal() & padding();
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::alibi())?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_240([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])

    let mask = sliding(3);
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::alibi_with([0.5, 0.25, 1.0, 2.0]))?.facts(facts);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_241([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [1, 1, 3, head_dim])
    // key, value: (&[f32], [1, 1, 7, head_dim])

    let mask = causal();
    let facts = Facts::new().lengths([7]).side(Side::Left);
    let attend = Attend::new(mask + Score::softcap(2.5))?.facts(facts).query_offset(4);
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_242([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])
    // soft: (&[f32], [2, 4, 6, 6])

    let mask = full();
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::soft("soft"))?.facts(facts).array("soft", soft)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_243([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])
    // sinks: (&[f32], [1, 1, 1, 4])

    let mask = padding();
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::sinks("sinks"))?.facts(facts).array("sinks", sinks)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

fn snippet_244([query, key, value, bias, relative, soft, sinks]: Given<'_>) -> Result<Vec<f32>, noren::Error> {
    use noren::{Attend, Facts, Score, Side, atoms::*};

    // query: (&[f32], [2, 4, 6, head_dim])
    // key, value: (&[f32], [2, 2, 6, head_dim])
    // bias: (&[f32], [2, 4, 6, 6])
    // relative: (&[f32], [2, 4, 6, 6])
    // soft: (&[f32], [2, 4, 6, 6])
    // sinks: (&[f32], [1, 1, 1, 4])

    let mask = causal() & padding();
    let facts = Facts::new().lengths([6, 4]).side(Side::Left);
    let attend = Attend::new(mask + Score::softcap(5.0) + Score::bias("bias") + Score::bias("relative") + Score::alibi() + Score::soft("soft") + Score::sinks("sinks"))?
        .facts(facts)
        .array("bias", bias)?
        .array("relative", relative)?
        .array("soft", soft)?
        .array("sinks", sinks)?;
    let output = attend.forward(query, key, value)?.out;
    Ok(output)
}

/// The functions of this file.
pub(crate) const SNIPPETS: [Snippet; 245] = [
    snippet_0,
    snippet_1,
    snippet_2,
    snippet_3,
    snippet_4,
    snippet_5,
    snippet_6,
    snippet_7,
    snippet_8,
    snippet_9,
    snippet_10,
    snippet_11,
    snippet_12,
    snippet_13,
    snippet_14,
    snippet_15,
    snippet_16,
    snippet_17,
    snippet_18,
    snippet_19,
    snippet_20,
    snippet_21,
    snippet_22,
    snippet_23,
    snippet_24,
    snippet_25,
    snippet_26,
    snippet_27,
    snippet_28,
    snippet_29,
    snippet_30,
    snippet_31,
    snippet_32,
    snippet_33,
    snippet_34,
    snippet_35,
    snippet_36,
    snippet_37,
    snippet_38,
    snippet_39,
    snippet_40,
    snippet_41,
    snippet_42,
    snippet_43,
    snippet_44,
    snippet_45,
    snippet_46,
    snippet_47,
    snippet_48,
    snippet_49,
    snippet_50,
    snippet_51,
    snippet_52,
    snippet_53,
    snippet_54,
    snippet_55,
    snippet_56,
    snippet_57,
    snippet_58,
    snippet_59,
    snippet_60,
    snippet_61,
    snippet_62,
    snippet_63,
    snippet_64,
    snippet_65,
    snippet_66,
    snippet_67,
    snippet_68,
    snippet_69,
    snippet_70,
    snippet_71,
    snippet_72,
    snippet_73,
    snippet_74,
    snippet_75,
    snippet_76,
    snippet_77,
    snippet_78,
    snippet_79,
    snippet_80,
    snippet_81,
    snippet_82,
    snippet_83,
    snippet_84,
    snippet_85,
    snippet_86,
    snippet_87,
    snippet_88,
    snippet_89,
    snippet_90,
    snippet_91,
    snippet_92,
    snippet_93,
    snippet_94,
    snippet_95,
    snippet_96,
    snippet_97,
    snippet_98,
    snippet_99,
    snippet_100,
    snippet_101,
    snippet_102,
    snippet_103,
    snippet_104,
    snippet_105,
    snippet_106,
    snippet_107,
    snippet_108,
    snippet_109,
    snippet_110,
    snippet_111,
    snippet_112,
    snippet_113,
    snippet_114,
    snippet_115,
    snippet_116,
    snippet_117,
    snippet_118,
    snippet_119,
    snippet_120,
    snippet_121,
    snippet_122,
    snippet_123,
    snippet_124,
    snippet_125,
    snippet_126,
    snippet_127,
    snippet_128,
    snippet_129,
    snippet_130,
    snippet_131,
    snippet_132,
    snippet_133,
    snippet_134,
    snippet_135,
    snippet_136,
    snippet_137,
    snippet_138,
    snippet_139,
    snippet_140,
    snippet_141,
    snippet_142,
    snippet_143,
    snippet_144,
    snippet_145,
    snippet_146,
    snippet_147,
    snippet_148,
    snippet_149,
    snippet_150,
    snippet_151,
    snippet_152,
    snippet_153,
    snippet_154,
    snippet_155,
    snippet_156,
    snippet_157,
    snippet_158,
    snippet_159,
    snippet_160,
    snippet_161,
    snippet_162,
    snippet_163,
    snippet_164,
    snippet_165,
    snippet_166,
    snippet_167,
    snippet_168,
    snippet_169,
    snippet_170,
    snippet_171,
    snippet_172,
    snippet_173,
    snippet_174,
    snippet_175,
    snippet_176,
    snippet_177,
    snippet_178,
    snippet_179,
    snippet_180,
    snippet_181,
    snippet_182,
    snippet_183,
    snippet_184,
    snippet_185,
    snippet_186,
    snippet_187,
    snippet_188,
    snippet_189,
    snippet_190,
    snippet_191,
    snippet_192,
    snippet_193,
    snippet_194,
    snippet_195,
    snippet_196,
    snippet_197,
    snippet_198,
    snippet_199,
    snippet_200,
    snippet_201,
    snippet_202,
    snippet_203,
    snippet_204,
    snippet_205,
    snippet_206,
    snippet_207,
    snippet_208,
    snippet_209,
    snippet_210,
    snippet_211,
    snippet_212,
    snippet_213,
    snippet_214,
    snippet_215,
    snippet_216,
    snippet_217,
    snippet_218,
    snippet_219,
    snippet_220,
    snippet_221,
    snippet_222,
    snippet_223,
    snippet_224,
    snippet_225,
    snippet_226,
    snippet_227,
    snippet_228,
    snippet_229,
    snippet_230,
    snippet_231,
    snippet_232,
    snippet_233,
    snippet_234,
    snippet_235,
    snippet_236,
    snippet_237,
    snippet_238,
    snippet_239,
    snippet_240,
    snippet_241,
    snippet_242,
    snippet_243,
    snippet_244,
];
