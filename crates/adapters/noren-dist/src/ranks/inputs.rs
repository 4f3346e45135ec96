//! [`Local`] and [`Options`]: the arrays of one rank, and the score modifiers.

use crate::ranks::Error;
use crate::ranks::agree::Said;
use crate::ranks::array::Array;
use noren::{Bias, Element, Inputs, View};
use noren_mask::{Facts, Shape, atoms};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The arrays of one rank, contiguous. They contain the query rows and keys that the rank owns according to a
/// [`Split`](crate::ranks::Split), in ascending order.
///
/// A rank may own more rows in one batch row than in another. The arrays then have the largest number of rows
/// ([`Split::lengths`](crate::ranks::Split::lengths)) for every batch row, and the additional rows are ignored. A rank that
/// owns nothing gives empty slices.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a, T = f32> {
    /// Queries, `[batch, heads, queries of this rank, head_dim]`.
    pub q: &'a [T],
    /// Keys, `[batch, kv_heads, keys of this rank, head_dim]`.
    pub k: &'a [T],
    /// Values, `[batch, kv_heads, keys of this rank, v_dim]`.
    pub v: &'a [T],
    /// The number of elements of a query and of a key.
    pub head_dim: usize,
    /// The number of elements of a value.
    pub v_dim: usize,
}

impl<T: Element> Local<'_, T> {
    /// Returns an error if the arrays do not have the shapes `sizes`, in the order `[q, k, v]`. The error message
    /// contains the text that `owned` returns, which states the numbers of queries and keys of this rank.
    pub(crate) fn check(&self, sizes: [[usize; 4]; 3], owned: impl Fn() -> String) -> Result<(), Error> {
        for ((name, values), shape) in [("q", self.q), ("k", self.k), ("v", self.v)].iter().zip(sizes) {
            if values.len() != shape.iter().product::<usize>() || shape[3] == 0 {
                let (given, owned) = (values.len(), owned());
                return Err(Error::Input(format!(
                    "{name} has {given} values, but the shape {shape:?} is expected, and its last dimension must be at least 1: {owned}"
                )));
            }
        }
        Ok(())
    }

    /// Returns parts of this rank's queries, keys and values, in this order, converted to `f32`: for each batch index
    /// in the list `batch`, the first `rows` queries, the first `keys` keys and their values. `[q, k, v]` are the
    /// shapes of the whole arrays.
    pub(crate) fn part(&self, [q, k, v]: [[usize; 4]; 3], batch: &[usize], [rows, keys]: [usize; 2]) -> [Array; 3] {
        [Array::part(self.q, q, batch, rows), Array::part(self.k, k, batch, keys), Array::part(self.v, v, batch, keys)]
    }

    /// Returns the values that must be equal on all ranks, as (name, value): the number type, `head_dim` and `v_dim`,
    /// and the options.
    pub(crate) fn said(&self, options: &Options) -> Said {
        vec![
            ("types", T::DTYPE.to_string()),
            ("head_dim and v_dim", format!("{} {}", self.head_dim, self.v_dim)),
            ("options", format!("{:?} {:?} {:?}", options.scale, options.softcap, options.alibi)),
            ("option gradients", options.gradients.to_string()),
        ]
    }
}

/// The score modifiers, which must be equal on every rank, and settings that may differ between ranks. Bias arrays,
/// soft weights, sinks and dropout are not supported over ranks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number by which scores are multiplied, see [`noren::Options::scale`].
    pub scale: Option<f32>,
    /// The softcap of scores, see [`noren::Options::softcap`].
    pub softcap: Option<f32>,
    /// The slopes of [`Bias::Alibi`], one for each head; `None` for no ALiBi.
    pub alibi: Option<Vec<f32>>,
    /// The number of threads on this rank [default: the size of the rayon pool]. The number may differ between ranks.
    pub threads: Option<usize>,
    /// Whether [`attention_backward`](crate::ranks::attention_backward) will be called. If ranks have different values, every
    /// rank returns an error before any array is sent.
    pub gradients: bool,
    /// A flag that cancels the computation, see [`noren::Options::cancel`]. After a cancelled computation, the link
    /// cannot be used again.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Options {
    pub(crate) fn of_part(&self) -> noren::Options<'_> {
        let Options { scale, softcap, threads, .. } = *self;
        let options = noren::Options::new().scale(scale).softcap(softcap).threads(threads).partial(true);
        let options = self.cancel.iter().fold(options, |options, flag| options.cancel(flag));
        self.alibi.iter().fold(options, |options, slopes| options.bias(Bias::Alibi(slopes.clone())))
    }

    /// Returns the errors that the kernel would return for these options, so that a rank without computations also
    /// returns them.
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
