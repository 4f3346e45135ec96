//! [`Local`] and [`Options`]: the arrays of one rank, and what is done to scores.

use crate::Error;
use crate::agree::Said;
use crate::array::Array;
use noren::{Bias, Element, Inputs, View};
use noren_mask::{Facts, Shape, atoms};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a rank owns: contiguous arrays of the rows that a [`Split`](crate::Split) gives it, ascending.
///
/// Where batch rows own different numbers, `own` is the most that one has ([`Split::lengths`](crate::Split::lengths)) and what lies beyond is ignored.
/// A rank that owns nothing gives empty slices.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a, T = f32> {
    /// Queries, `[batch, heads, own queries, head_dim]`.
    pub q: &'a [T],
    /// Keys, `[batch, kv_heads, own keys, head_dim]`.
    pub k: &'a [T],
    /// Values, `[batch, kv_heads, own keys, v_dim]`.
    pub v: &'a [T],
    /// Numbers in a query and in a key.
    pub head_dim: usize,
    /// Numbers in a value.
    pub v_dim: usize,
}

impl<T: Element> Local<'_, T> {
    /// Refuses arrays of other sizes than `[q, k, v]`; `owned` says whose these are.
    pub(crate) fn check(&self, sizes: [[usize; 4]; 3], owned: impl Fn() -> String) -> Result<(), Error> {
        for ((name, values), shape) in [("q", self.q), ("k", self.k), ("v", self.v)].iter().zip(sizes) {
            if values.len() != shape.iter().product::<usize>() || shape[3] == 0 {
                let (given, owned) = (values.len(), owned());
                return Err(Error::Input(format!(
                    "{name} has {given} values, but {shape:?} is expected, with at least one column: {owned}"
                )));
            }
        }
        Ok(())
    }

    /// Returns `rows` queries and `keys` keys and values of each batch row in `batch`, widened, from arrays of sizes `[q, k, v]`.
    pub(crate) fn part(&self, [q, k, v]: [[usize; 4]; 3], batch: &[usize], [rows, keys]: [usize; 2]) -> [Array; 3] {
        [Array::part(self.q, q, batch, rows), Array::part(self.k, k, batch, keys), Array::part(self.v, v, batch, keys)]
    }

    /// What ranks must agree on.
    pub(crate) fn said(&self, options: &Options) -> Said {
        vec![
            ("types", T::DTYPE.to_string()),
            ("head_dim and v_dim", format!("{} {}", self.head_dim, self.v_dim)),
            ("options", format!("{:?} {:?} {:?}", options.scale, options.softcap, options.alibi)),
            ("whether gradients are computed", options.gradients.to_string()),
        ]
    }
}

/// What is done to scores, the same on every rank. Biases by array, soft weights, sinks and dropout do not go over ranks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// [`noren::Options::scale`].
    pub scale: Option<f32>,
    /// [`noren::Options::softcap`].
    pub softcap: Option<f32>,
    /// Slopes of [`Bias::Alibi`], one for each head.
    pub alibi: Option<Vec<f32>>,
    /// Threads that compute on this rank; ranks may differ in it.
    pub threads: Option<usize>,
    /// Whether gradients will be asked for: ranks that differ in it learn so before anything is sent.
    pub gradients: bool,
    /// [`noren::Options::cancel`]: computing ends soon after the flag is set, and the link carries nothing any more.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Options {
    pub(crate) fn of_part(&self) -> noren::Options<'_> {
        let Options { scale, softcap, threads, .. } = *self;
        let options = noren::Options::new().scale(scale).softcap(softcap).threads(threads).partial(true);
        let options = self.cancel.iter().fold(options, |options, flag| options.cancel(flag));
        self.alibi.iter().fold(options, |options, slopes| options.bias(Bias::Alibi(slopes.clone())))
    }

    /// Refuses what the kernel refuses, also on a rank that computes nothing.
    pub(crate) fn check(&self, shape: &Shape) -> Result<(), Error> {
        let (heads, kv_heads) = (shape.head_count(), shape.kv_head_count());
        let cell = Shape::square(1).heads(heads).kv_heads(kv_heads);
        let plan = atoms::causal().bind(&cell, &Facts::new())?.plan();
        let zeros = vec![0.0; heads.max(kv_heads)];
        let [q, k] = [heads, kv_heads].map(|heads| View::new(&zeros[..heads], [1, heads, 1, 1]));
        let (q, k) = (q?, k?);
        noren::attention(&Inputs { q, k, v: k }, &plan, &self.of_part())?;
        Ok(())
    }
}
