//! [`attention`] and [`attention_backward`]: each rank passes the queries, keys and values that it owns, and gets the
//! outputs or gradients of these.

use crate::ranks::agree::checked;
use crate::ranks::array::{Array, Message, Places};
use crate::ranks::inputs::{Local, Options};
use crate::ranks::link::{Messages, Sizes, exchange};
use crate::ranks::merge::Results;
use crate::ranks::split::{Family, Split, Step};
use crate::ranks::{Arrivals, Error, Link};
use noren::{Dtype, Element, Inputs, Saved};
use noren_mask::Plan;
use std::collections::BTreeMap;
use std::time::Duration;

/// The results of attention on this rank, as contiguous arrays of `f32`.
#[derive(Clone, PartialEq, Debug)]
pub struct Attended {
    /// Outputs, `[batch, heads, queries of this rank, v_dim]`. The output is 0 for query rows without readable keys. If
    /// this rank owns fewer queries in one batch row than in another, the additional rows of the array are 0 too.
    pub out: Vec<f32>,
    /// The natural logarithm of each query row's softmax denominator over the keys of all ranks,
    /// `[batch, heads, queries of this rank]`.
    pub lse: Vec<f32>,
    /// The number of the call that computed these results, which the backward pass compares between ranks.
    pub(crate) call: u64,
}

/// The gradients on this rank, as contiguous arrays of `f32`. They have the shapes of this rank's queries, keys and
/// values.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients {
    /// Gradients of this rank's queries.
    pub dq: Vec<f32>,
    /// Gradients of this rank's keys, summed over the query rows of all ranks.
    pub dk: Vec<f32>,
    /// Gradients of this rank's values, summed over the query rows of all ranks.
    pub dv: Vec<f32>,
}

/// Returns the masked attention of this rank's queries over the keys of all ranks.
///
/// The results equal the same rows of a computation in one process, up to rounding. Repeated runs give the same bits,
/// because the partition fixes the order of all additions. While data from other ranks arrives, a rank computes with
/// the keys that it already has. Queries, keys and values are sent in the number type `T`, and all other data in `f32`.
///
/// # Errors
/// Returns [`Error::Disagreement`] on every rank, before any array is sent, if the ranks differ in call, mask, facts
/// (data to which the mask is bound), shapes, types, options, partition or version. If one rank refuses its input, that
/// rank returns [`Error::Input`] for arrays of wrong sizes or a split of another link, or `Error::Attention` for
/// invalid options. The other ranks then return [`Error::Disagreement`]. After these errors, the link can be used
/// again.
///
/// Returns [`Error::Lost`] if a rank is gone or keeps this rank waiting beyond the time-out, or if an earlier exchange
/// over the link failed. Returns `Error::Attention` if the computation is cancelled. After these errors, the link
/// cannot be used again.
pub fn attention<T: Element>(
    split: &Split,
    link: &dyn Link,
    local: &Local<'_, T>,
    options: &Options,
) -> Result<Attended, Error> {
    let (sizes, call) = begin(split, link, "attention", local, options, || Ok(None))?;
    let families = &split.families;
    let pack = |f: &Family| {
        let [q, k, v] = local.part(sizes, &f.batch, [f.queries, f.keys]);
        Packed { by_key: vec![k, v], by_row: vec![(q, T::DTYPE)] }
    };
    let packed: Vec<Packed> = families.iter().map(pack).collect();
    let [batch, heads, rows, _] = sizes[0];
    let results = |rows: fn(&Family) -> usize| -> Vec<Results> {
        let of = |f: &Family| Results::nothing([f.batch.len(), heads, rows(f), local.v_dim]);
        families.iter().map(of).collect()
    };
    let (mut mine, mut theirs) = (results(|f| f.queries), results(|f| f.foreign));
    around(split, link, &packed, T::DTYPE, |received| {
        for (f, step) in split.steps() {
            let keys = received.keys(f, step)?;
            let rows = match step.foreign {
                true => received.foreign(f)?[0].select(&step.rows),
                false => packed[f].by_row[0].0.select(&step.rows),
            }
            .into_owned();
            let found = received.while_moving(|| {
                let inputs = Inputs { q: rows.view()?, k: keys[0].view()?, v: keys[1].view()? };
                Ok(noren::attention(&inputs, &step.plan, &options.of_part())?)
            })?;
            let [batch, heads, len, _] = found.shape;
            let lse = Array { data: found.lse, shape: [batch, heads, len, 1] };
            let out = Array { data: found.out, shape: found.shape };
            (if step.foreign { &mut theirs } else { &mut mine })[f].add(&step.rows, out, lse);
        }
        Ok(())
    })?;
    take_home(split, link, &mut mine, &theirs)?;
    let mut whole = Results::nothing([batch, heads, rows, local.v_dim]);
    for (family, results) in families.iter().zip(&mine) {
        whole.out.put_batch(&family.batch, &results.out);
        whole.lse.put_batch(&family.batch, &results.lse);
    }
    Ok(Attended { out: whole.out.data, lse: whole.lse.data, call })
}

/// Returns the gradients of this rank's queries, keys and values: the derivatives of the sum of `out * dout` over all
/// ranks, where `out` is the output of [`attention`].
///
/// `attended` is the result of the forward pass. `dout` is the gradient of its output, contiguous and of the type of
/// `local`. Ranks send their keys and values again, so that no rank must store the data of other ranks between the
/// passes. Gradients of keys and values are sent to the ranks that own the keys.
///
/// # Errors
/// Returns the errors of [`attention`], [`Error::Input`] if `attended` or `dout` has the wrong size, and
/// [`Error::Disagreement`] if the ranks give results of different forward calls.
pub fn attention_backward<T: Element>(
    split: &Split,
    link: &dyn Link,
    local: &Local<'_, T>,
    (attended, dout): (&Attended, &[T]),
    options: &Options,
) -> Result<Gradients, Error> {
    let [batch, heads, len, _] = sizes(split, local)[0];
    let rows = batch * heads * len;
    let (sizes, _) = begin(split, link, "the gradients of attention", local, options, || {
        let wrong = |name: &str, given: usize, wanted: usize| {
            let problem = format!("{name} has {given} values, but the query rows of this rank need {wanted} values");
            if given == wanted { Ok(()) } else { Err(Error::Input(problem)) }
        };
        wrong("out", attended.out.len(), rows * local.v_dim)?;
        wrong("lse", attended.lse.len(), rows)?;
        wrong("dout", dout.len(), rows * local.v_dim)?;
        Ok(Some(attended.call))
    })?;
    let families = &split.families;
    let outs: Vec<Array> = families
        .iter()
        .map(|f| Array::part(&attended.out, [batch, heads, len, local.v_dim], &f.batch, f.queries))
        .collect();
    let pack = |(f, out): (&Family, &Array)| {
        let [q, k, v] = local.part(sizes, &f.batch, [f.queries, f.keys]);
        let dout = Array::part(dout, [batch, heads, len, local.v_dim], &f.batch, f.queries);
        let lse = Array::part(&attended.lse, [batch, heads, len, 1], &f.batch, f.queries);
        // other ranks need only the dot product of each output row and its gradient
        let sums = row_sums(out, &dout);
        let by_row = vec![(q, T::DTYPE), (dout, T::DTYPE), (lse, Dtype::F32), (sums, Dtype::F32)];
        Packed { by_key: vec![k, v], by_row }
    };
    let packed: Vec<Packed> = families.iter().zip(&outs).map(pack).collect();
    let mut sums: Vec<Sums> = families.iter().zip(&packed).map(|(f, packed)| Sums::new(f, packed)).collect();
    around(split, link, &packed, T::DTYPE, |received| {
        for (f, step) in split.steps() {
            let keys = received.keys(f, step)?;
            let select = |x: &Array| x.select(&step.rows).into_owned();
            let rows: Vec<Array> = match step.foreign {
                true => received.foreign(f)?.iter().map(select).collect(),
                false => packed[f].by_row.iter().map(|(x, _)| select(x)).collect(),
            };
            let found = received.while_moving(|| match step.foreign {
                true => foreign_gradients(&step.plan, &rows, &keys, options),
                false => gradients(&step.plan, &rows[0], &keys, [&select(&outs[f]), &rows[2], &rows[1]], options),
            })?;
            sums[f].add(step, split.rank, found);
        }
        Ok(())
    })?;
    bring_home(split, link, &mut sums)?;
    let mut whole = sizes.map(|size| Array::filled(size, 0.0));
    for (family, sums) in families.iter().zip(&sums) {
        for (whole, part) in whole.iter_mut().zip([&sums.queries, &sums.own[0], &sums.own[1]]) {
            whole.put_batch(&family.batch, part);
        }
    }
    let [dq, dk, dv] = whole.map(|x| x.data);
    Ok(Gradients { dq, dk, dv })
}

/// Returns the shapes that this rank's queries, keys and values must have, each as `[batch, heads, rows, width]`.
fn sizes<T>(split: &Split, local: &Local<'_, T>) -> [[usize; 4]; 3] {
    let (shape, [queries, keys]) = (&split.shape, split.lengths());
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    [
        [batch, heads, queries, local.head_dim],
        [batch, kv_heads, keys, local.head_dim],
        [batch, kv_heads, keys, local.v_dim],
    ]
}

/// Checks this rank's input, and compares it with the input of the other ranks. Returns the shapes of queries, keys and
/// values, and the number of this call. `check` does the checks specific to the forward or backward pass. In a backward
/// pass, `check` returns the number of the forward call whose results were given; in a forward pass, it returns `None`.
fn begin<T: Element>(
    split: &Split,
    link: &dyn Link,
    what: &str,
    local: &Local<'_, T>,
    options: &Options,
    check: impl FnOnce() -> Result<Option<u64>, Error>,
) -> Result<([[usize; 4]; 3], u64), Error> {
    let call = link.job().call();
    checked(link, what, || {
        split.check(link)?;
        let expected = sizes(split, local);
        local.check(expected, || {
            let (rank, [queries, keys]) = (split.rank, split.lengths());
            format!("rank {rank} owns {queries} queries and {keys} keys (Split::rows, Split::keys)")
        })?;
        let of = check()?;
        options.check(&split.shape)?;
        let mut said = split.said(local, options);
        said.push(("number of calls", format!("{call}")));
        said.push(("given forward call", format!("{of:?}")));
        Ok((said, (expected, call)))
    })
}

// --- exchange of keys and rows ------------------------------------------------------------------------------------------------

/// The time between two calls of the transport during a computation, for transports that send and receive only while
/// they are called.
const MOMENT: Duration = Duration::from_micros(200);

/// The arrays of this rank for one family (the batch rows with equal partitions). This rank sends some rows of these
/// arrays to other ranks.
struct Packed {
    /// Keys and values: arrays with a row for each key of this rank. They are sent in the number type of the caller's
    /// arrays.
    by_key: Vec<Array>,
    /// Arrays with a row for each query of this rank, each with the number type in which it is sent.
    by_row: Vec<(Array, Dtype)>,
}

/// The data from one other rank: for each family (the batch rows with equal partitions, by index), its arrays of keys
/// and its arrays of query rows, in this order.
type Opened = BTreeMap<usize, (Vec<Array>, Vec<Array>)>;

/// The data that arrives from other ranks during a pass. A message is unpacked when its data is first used.
struct Received<'a> {
    split: &'a Split,
    packed: &'a [Packed],
    dtype: Dtype,
    arrivals: &'a mut dyn Arrivals,
    opened: BTreeMap<usize, Opened>,
    /// For each family (the batch rows with equal partitions, by index): the arrays of all query rows that other ranks
    /// sent.
    foreign: BTreeMap<usize, Vec<Array>>,
}

/// Returns the messages that this rank sends to other ranks, and the number of bytes that it receives from each of
/// them. Adds the sizes of these messages to the counted traffic. A family is a set of batch rows with equal
/// partitions; `family` is its index:
///
/// * `write(family, peer, message)` appends the data of a family for the rank `peer` to `message`.
/// * `size(family, peer)` returns the number of bytes of a family that this rank receives from the rank `peer`.
fn letters(
    split: &Split,
    link: &dyn Link,
    write: impl Fn(usize, usize, &mut Vec<u8>),
    size: impl Fn(usize, usize) -> usize,
) -> (Messages, Sizes) {
    let families = || 0..split.families.len();
    let message = |peer| {
        let mut message = Vec::new();
        families().for_each(|family| write(family, peer, &mut message));
        (peer, message)
    };
    let peers = || 0..link.ranks();
    let outgoing: Messages = peers().map(message).filter(|(_, message)| !message.is_empty()).collect();
    let size = |peer| (peer, families().map(|family| size(family, peer)).sum());
    let expected: Sizes = peers().map(size).filter(|(_, size)| *size > 0).collect();
    link.job().moved(&outgoing, &expected);
    (outgoing, expected)
}

/// Sends keys and query rows to the ranks that need them. Meanwhile, `work` computes with the data that arrives on this
/// rank. `packed` holds the arrays of each family (the batch rows with equal partitions), and `dtype` is the number
/// type in which keys and values are sent.
fn around(
    split: &Split,
    link: &dyn Link,
    packed: &[Packed],
    dtype: Dtype,
    mut work: impl FnMut(&mut Received<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let families = &split.families;
    let (outgoing, expected) = letters(
        split,
        link,
        |f, peer, message| {
            let Some(to) = families[f].to(peer) else { return };
            packed[f].by_key.iter().for_each(|x| x.select(&to.keys).write(dtype, message));
            packed[f].by_row.iter().for_each(|(x, dtype)| x.select(&to.rows).write(*dtype, message));
        },
        |f, peer| families[f].from(peer).map_or(0, |from| packed[f].sizes(from.keys, from.rows.len(), dtype)),
    );
    exchange(link, outgoing, &expected, |arrivals| {
        let (opened, foreign) = Default::default();
        work(&mut Received { split, packed, dtype, arrivals, opened, foreign })
    })
}

impl Packed {
    /// Returns the number of bytes that `keys` keys, as many values, and `rows` query rows take in a message. `dtype`
    /// is the number type of keys and values.
    fn sizes(&self, keys: usize, rows: usize, dtype: Dtype) -> usize {
        let of = |x: &Array, rows: usize, dtype: Dtype| x.with_rows(rows).iter().product::<usize>() * dtype.size();
        let by_key: usize = self.by_key.iter().map(|x| of(x, keys, dtype)).sum();
        by_key + self.by_row.iter().map(|(x, dtype)| of(x, rows, *dtype)).sum::<usize>()
    }
}

impl Received<'_> {
    /// Runs `compute` while messages are sent and received. If the transport sends and receives only while it is
    /// called, `compute` runs on another thread, and this thread calls the transport.
    fn while_moving<R: Send>(&mut self, compute: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
        if !self.arrivals.poke() {
            return compute();
        }
        std::thread::scope(|scope| {
            let computing = scope.spawn(compute);
            while !computing.is_finished() {
                self.arrivals.poke();
                std::thread::sleep(MOMENT);
            }
            computing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Returns the unpacked data from the rank `peer`. The first call for this rank waits until the data arrives.
    fn open(&mut self, peer: usize) -> Result<&Opened, Error> {
        if !self.opened.contains_key(&peer) {
            let bytes = self.arrivals.take(peer)?;
            let mut message = Message(&bytes);
            let mut opened = Opened::new();
            for (i, (family, packed)) in self.split.families.iter().zip(self.packed).enumerate() {
                let Some(from) = family.from(peer) else { continue };
                let by_key = packed.by_key.iter().map(|x| message.array(self.dtype, x.with_rows(from.keys))).collect();
                let by_row = packed.by_row.iter();
                let by_row = by_row.map(|(x, dtype)| message.array(*dtype, x.with_rows(from.rows.len()))).collect();
                opened.insert(i, (by_key, by_row));
            }
            self.opened.insert(peer, opened);
        }
        Ok(&self.opened[&peer])
    }

    /// Returns `[keys, values]`, the arrays that `step` reads. `family` is the index of the step's family (a set of
    /// batch rows with equal partitions).
    fn keys(&mut self, family: usize, step: &Step) -> Result<Vec<Array>, Error> {
        let held = match step.peer == self.split.rank {
            true => &self.packed[family].by_key,
            false => &self.open(step.peer)?[&family].0,
        };
        Ok(held.iter().map(|x| x.select(&step.keys).into_owned()).collect())
    }

    /// Returns the arrays of the query rows that other ranks sent to this rank, in ascending order of rows. `family` is
    /// the index of a set of batch rows with equal partitions.
    fn foreign(&mut self, family: usize) -> Result<&[Array], Error> {
        if !self.foreign.contains_key(&family) {
            let form = &self.split.families[family];
            let of = |(x, _): &(Array, Dtype)| Array::filled(x.with_rows(form.foreign), 0.0);
            let mut whole: Vec<Array> = self.packed[family].by_row.iter().map(of).collect();
            for from in form.receives.iter().filter(|from| !from.rows.is_empty()) {
                let parts = &self.open(from.peer)?[&family].1;
                whole.iter_mut().zip(parts).for_each(|(whole, part)| whole.copy_to(&from.rows, part));
            }
            self.foreign.insert(family, whole);
        }
        Ok(&self.foreign[&family])
    }
}

/// Sends results or gradients in `f32` back to the ranks from which keys and query rows came. `family` is the index of
/// a set of batch rows with equal partitions:
///
/// * `outgoing(family, peer)` returns the arrays to send to the rank `peer`.
/// * `expected(family, peer)` returns the shapes of the arrays that the rank `peer` sends.
/// * `take(family, peer, arrays)` gets the arrays that arrive, in ascending order of ranks, then of families.
fn back(
    split: &Split,
    link: &dyn Link,
    outgoing: impl Fn(usize, usize) -> Vec<Array>,
    expected: impl Fn(usize, usize) -> Vec<[usize; 4]>,
    mut take: impl FnMut(usize, usize, Vec<Array>),
) -> Result<(), Error> {
    let families = &split.families;
    let (messages, sizes) = letters(
        split,
        link,
        |f, peer, message| {
            if families[f].from(peer).is_some() {
                outgoing(f, peer).iter().for_each(|x| x.write(Dtype::F32, message));
            }
        },
        |f, peer| {
            let shapes = families[f].to(peer).map_or(Vec::new(), |_| expected(f, peer));
            shapes.iter().map(|shape| 4 * shape.iter().product::<usize>()).sum()
        },
    );
    exchange(link, messages, &sizes, |arrivals| {
        for (peer, _) in &sizes {
            let bytes = arrivals.take(*peer)?;
            let mut message = Message(&bytes);
            for (i, family) in split.families.iter().enumerate() {
                if family.to(*peer).is_some() {
                    let shapes = expected(i, *peer);
                    take(i, *peer, shapes.into_iter().map(|shape| message.array(Dtype::F32, shape)).collect());
                }
            }
        }
        Ok(())
    })
}

fn length(places: &Places, all: usize) -> usize {
    match places {
        Places::All => all,
        Places::At(places) => places.len(),
    }
}

// --- forward ------------------------------------------------------------------------------------------------------------------

/// Sends the results `theirs`, which this rank computed for query rows of other ranks, to the ranks that own these
/// rows. Merges the results that arrive into `mine`, the results of this rank's query rows, in the order of ranks.
fn take_home(split: &Split, link: &dyn Link, mine: &mut [Results], theirs: &[Results]) -> Result<(), Error> {
    let families = &split.families;
    let shapes: Vec<[[usize; 4]; 2]> = mine.iter().map(|r| [r.out.shape, r.lse.shape]).collect();
    let rows = |f: usize, peer: usize| families[f].to(peer).map_or(0, |to| length(&to.rows, families[f].queries));
    back(
        split,
        link,
        |f, peer| {
            let places = Places::At(families[f].from(peer).map_or(Vec::new(), |from| from.rows.clone()));
            [&theirs[f].out, &theirs[f].lse].map(|x| x.select(&places).into_owned()).into()
        },
        |f, peer| shapes[f].map(|[b, h, _, d]| [b, h, rows(f, peer), d]).into(),
        |f, peer, arrays| {
            let [out, lse] = <[Array; 2]>::try_from(arrays)
                .expect("a message of results contains two arrays: outputs and log-sum-exps");
            if let Some(to) = families[f].to(peer).filter(|_| out.shape[2] > 0) {
                mine[f].add(&to.rows, out, lse);
            }
        },
    )
}

// --- backward -----------------------------------------------------------------------------------------------------------------

/// The sums of gradients in one family (the batch rows with equal partitions):
///
/// * `queries`: for this rank's query rows; `foreign`: for query rows of other ranks;
/// * `own`: for this rank's keys and values; `others`: for the keys and values of each other rank.
struct Sums {
    queries: Array,
    foreign: Array,
    own: [Array; 2],
    others: BTreeMap<usize, [Array; 2]>,
}

impl Sums {
    fn new(family: &Family, packed: &Packed) -> Self {
        let zeros = |x: &Array, rows: usize| Array::filled(x.with_rows(rows), 0.0);
        let keys = |rows: usize| std::array::from_fn(|i| zeros(&packed.by_key[i], rows));
        let q = &packed.by_row[0].0;
        Sums {
            queries: zeros(q, family.queries),
            foreign: zeros(q, family.foreign),
            own: keys(family.keys),
            others: family.receives.iter().map(|from| (from.peer, keys(from.keys))).collect(),
        }
    }

    fn add(&mut self, step: &Step, rank: usize, [dq, dk, dv]: [Array; 3]) {
        let rows = if step.foreign { &mut self.foreign } else { &mut self.queries };
        rows.add_to(&step.rows, &dq);
        let keys = match step.peer == rank {
            true => &mut self.own,
            false => self
                .others
                .get_mut(&step.peer)
                .expect("a step reads keys of this rank or of a rank that sends keys to this rank"),
        };
        keys[0].add_to(&step.keys, &dk);
        keys[1].add_to(&step.keys, &dv);
    }
}

/// Returns the dot product of each row of `out` with the same row of `dout`, the gradient of the output:
/// `[batch, heads, rows, 1]`.
fn row_sums(out: &Array, dout: &Array) -> Array {
    let width = out.shape[3];
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    let data = out.data.chunks(width).zip(dout.data.chunks(width)).map(|(a, b)| product(a, b)).collect();
    let [batch, heads, rows, _] = out.shape;
    Array { data, shape: [batch, heads, rows, 1] }
}

/// Returns the gradients `[dq, dk, dv]` of the queries `q`, and of the keys and values that `plan` reads. The
/// log-sum-exps `lse` include the keys of all ranks, so the attention weights equal those of a single computation over
/// all keys, of which `plan` reads a part.
fn gradients(
    plan: &Plan,
    q: &Array,
    keys: &[Array],
    [out, lse, dout]: [&Array; 3],
    options: &Options,
) -> Result<[Array; 3], Error> {
    let inputs = Inputs { q: q.view()?, k: keys[0].view()?, v: keys[1].view()? };
    let saved = Saved { out: out.view()?, lse: &lse.data, dout: dout.view()? };
    let found = noren::attention_backward(&inputs, &saved, plan, &options.of_part())?;
    let array = |data, like: &Array| Array { data, shape: like.shape };
    Ok([array(found.dq, q), array(found.dk, &keys[0]), array(found.dv, &keys[1])])
}

/// Returns the gradients `[dq, dk, dv]` for query rows of another rank. This rank does not have the outputs of these
/// rows. The kernel uses an output row only in the dot product with its gradient. The other rank has sent this dot
/// product (from `row_sums`). The kernel gets outputs of 0 with an additional column, which holds the dot product and
/// has a gradient of 1. The values have an additional column of 0.
fn foreign_gradients(plan: &Plan, rows: &[Array], keys: &[Array], options: &Options) -> Result<[Array; 3], Error> {
    let [q, dout, lse, sums] = rows else {
        unreachable!("`rows` always has four arrays: queries, output gradients, log-sum-exps and row sums")
    };
    let out = Array::filled(dout.shape, 0.0).beside(sums);
    let dout = dout.beside(&Array::filled(sums.shape, 1.0));
    let [batch, heads, len, v_dim] = keys[1].shape;
    let wide = [keys[0].clone(), keys[1].beside(&Array::filled([batch, heads, len, 1], 0.0))];
    let [dq, dk, dv] = gradients(plan, q, &wide, [&out, lse, &dout], options)?;
    Ok([dq, dk, dv.columns(v_dim)])
}

/// Sends the gradients of other ranks' queries, keys and values to the ranks that own them. Adds the gradients that
/// arrive to the `sums` of this rank, in the order of ranks.
fn bring_home(split: &Split, link: &dyn Link, sums: &mut [Sums]) -> Result<(), Error> {
    let families = &split.families;
    let here: Vec<(Array, BTreeMap<usize, [Array; 2]>)> =
        sums.iter_mut().map(|s| (s.foreign.clone(), std::mem::take(&mut s.others))).collect();
    let shapes: Vec<[[usize; 4]; 3]> = sums.iter().map(|s| [s.own[0].shape, s.own[1].shape, s.queries.shape]).collect();
    back(
        split,
        link,
        |f, peer| {
            let (foreign, others) = &here[f];
            let places = Places::At(families[f].from(peer).map_or(Vec::new(), |from| from.rows.clone()));
            others[&peer].iter().cloned().chain([foreign.select(&places).into_owned()]).collect()
        },
        |f, peer| {
            let Some(to) = families[f].to(peer) else { return Vec::new() };
            let (keys, rows) = (length(&to.keys, families[f].keys), length(&to.rows, families[f].queries));
            shapes[f].iter().zip([keys, keys, rows]).map(|([b, h, _, d], rows)| [*b, *h, rows, *d]).collect()
        },
        |f, peer, arrays| {
            let Some(to) = families[f].to(peer) else { return };
            let Sums { queries, own: [dk, dv], .. } = &mut sums[f];
            for (sum, (places, part)) in
                [dk, dv, queries].into_iter().zip([&to.keys, &to.keys, &to.rows].into_iter().zip(&arrays))
            {
                if part.shape[2] > 0 {
                    sum.add_to(places, part);
                }
            }
        },
    )
}
