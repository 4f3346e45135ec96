//! Finds which dimensions of a stored array are batch rows, heads, queries and keys.

use crate::intent::known::{
    Companions, ENCODER_IDS, ENCODER_PADDING, KV_POSITIONS, LENGTHS, POSITIONS, Q_POSITIONS, Sizes, declared,
};
use crate::read::context::Context;
use crate::read::input::Input;
use crate::read::kinds::Role;
use crate::read::values::Values;
use noren_mask::{Error, Shape};

/// The dimensions of a stored array: batch rows, heads, queries and keys.
#[derive(Clone, Debug)]
pub(crate) struct Alignment {
    /// The sizes `[batch, heads, q_len, kv_len]` of the array as stored; 1 for a dimension that is missing or
    /// broadcast.
    pub(crate) dims: [usize; 4],
    /// The numbers of batch rows, queries and keys after broadcasting.
    pub(crate) sizes: Sizes,
    /// True when the array has one row of keys for each batch row. Such an array defines only padding, and the
    /// attention function adds causality.
    pub(crate) keys_only: bool,
    /// True when the batch size is declared or follows from an array given with the mask, such as the token ids.
    pub(crate) batch_known: bool,
    /// The sizes `[batch, heads, q_len, kv_len]` if the shape is read in its second possible interpretation; `None` if
    /// the shape has only one.
    pub(crate) other: Option<[usize; 4]>,
    /// True when the batch rows and heads are one dimension of the array: the first dimension has one entry for each
    /// pair of batch row and head.
    pub(crate) flat: bool,
    /// If the declared number of keys differs from that of the array, the declared numbers of batch rows, queries and
    /// keys; otherwise `None`.
    pub(crate) wanted: Option<Sizes>,
}

impl Input {
    /// Returns the shape to which an intended mask is bound: the sizes of the mask after broadcasting. The position of the first query is
    /// the declared `past_len`; without it, the queries of self-attention are the last tokens. `None` if no mask is given. `batch` is the
    /// number of batch rows if it is known from elsewhere, such as from lengths.
    ///
    /// # Errors
    /// Returns an error if the array has a shape that no interpretation fits.
    pub fn shape(&self, batch: Option<usize>) -> Result<Option<Shape>, Error> {
        let Some(mask) = &self.mask else { return Ok(None) };
        let context = Context { batch: self.context.batch.or(batch), ..self.context.clone() };
        let Alignment { dims, sizes, .. } = align(mask, &Companions(&self.companions), &context)?;
        let shape = Shape::cross(sizes.q_len, sizes.kv_len).batch(sizes.batch).heads(dims[1]);
        Ok(Some(match (&context.past[..], context.role) {
            ([], Role::Cross) => shape,
            ([], _) => shape.query_offsets([sizes.kv_len as i64 - sizes.q_len as i64]),
            (past, _) => shape.query_offsets(past.to_vec()),
        }))
    }
}

/// Finds which dimensions of `mask` are batch rows, heads, queries and keys, from the shape, the declarations in
/// `context` and the other given arrays.
pub(crate) fn align(mask: &Values, companions: &Companions<'_>, context: &Context) -> Result<Alignment, Error> {
    let shape = mask.shape();
    if shape.contains(&0) || shape.is_empty() || shape.len() > 4 {
        return Err(Error::invalid(format!(
            "the shape is {shape:?}, expected 1 to 4 dimensions that are all at least 1: [batch, heads, q_len, kv_len] or some of these dimensions"
        )));
    }
    let (batch, tokens) = declared(companions, context);
    let key_role = context.role == Role::KeyPadding;
    let mut other = None;
    let mut flat = false;
    let (dims, keys_only) = match *shape {
        [k] => {
            let query = context.role_declared && context.role == Role::Attention || !context.past.is_empty();
            ([1, 1, 1, k], !query && context.q_len != Some(1))
        }
        [b, k] if key_role => ([b, 1, 1, k], true),
        [a, b] => {
            // Positions of the new tokens state that the rows are queries.
            let new =
                |names| companions.get(names).and_then(|v| v.shape().last().copied()).filter(|n| *n == a && a != b);
            two(a, b, batch, new(Q_POSITIONS).or_else(|| new(POSITIONS)).or(tokens), context, &mut other)
        }
        [b, 1, k] if key_role => ([b, 1, 1, k], true),
        [n, q, k] => (three(n, q, k, batch, context, &mut other, &mut flat), false),
        [b, h, q, k] => ([b, h, q, k], q == 1 && context.q_len.unwrap_or(2) != 1 && key_role),
        _ => unreachable!("the number of dimensions was checked to be from 1 to 4"),
    };
    let sizes = sizes(dims, batch, tokens, companions, context, keys_only);
    let mut out = Alignment { dims, sizes, keys_only, batch_known: batch.is_some(), other, flat, wanted: None };
    let ring = companions.get(KV_POSITIONS).is_some();
    let encoder = companions.get(ENCODER_IDS).or_else(|| companions.get(ENCODER_PADDING));
    out.wanted = match context.role {
        Role::Cross => wanted_of_encoder(&out, encoder.and_then(|v| v.shape().last().copied()), context),
        _ => wanted(&out, tokens, context).filter(|_| !ring),
    };
    Ok(out)
}

fn two(
    a: usize,
    b: usize,
    batch: Option<usize>,
    tokens: Option<usize>,
    context: &Context,
    other: &mut Option<[usize; 4]>,
) -> ([usize; 4], bool) {
    let plane = [a, 1, 1, b];
    let square = [1, 1, a, b];
    let queries = context.q_len.or(tokens.filter(|_| context.past.is_empty() && context.role != Role::Cross));
    let is_batch = batch == Some(a) && (a > 1 || queries != Some(1));
    let fits_queries = queries.is_none_or(|q| q == a);
    match (is_batch, fits_queries) {
        (true, false) => (plane, true),
        (true, true)
            if a > 1 && a != b && queries.is_none() && context.past.is_empty() && context.role != Role::Cross =>
        {
            (plane, true)
        }
        (true, true) if a > 1 && (queries == Some(a) || queries.is_none() && a == b) => {
            *other = Some(plane);
            (square, false)
        }
        _ => (square, false),
    }
}

fn three(
    n: usize,
    q: usize,
    k: usize,
    batch: Option<usize>,
    context: &Context,
    other: &mut Option<[usize; 4]>,
    flat: &mut bool,
) -> [usize; 4] {
    let (by_batch, by_head) = ([n, 1, q, k], [1, n, q, k]);
    match (batch, context.heads) {
        _ if n == 1 => by_batch,
        (Some(b), Some(h)) if b * h == n && b > 1 && h > 1 => {
            *flat = true;
            [b, h, q, k]
        }
        (None, Some(h)) if h > 1 && n.is_multiple_of(h) && n > h => {
            *flat = true;
            [n / h, h, q, k]
        }
        (Some(b), None) if b > 1 && n.is_multiple_of(b) && n > b => {
            *flat = true;
            [b, n / b, q, k]
        }
        // Broadcasting aligns the last dimensions, so the attention function reads a first dimension of batch rows as
        // heads.
        (Some(b), Some(h)) if b == n && h == n && context.slot.broadcasts() => {
            *other = Some(by_batch);
            by_head
        }
        (Some(b), Some(h)) if b == n && h == n => {
            *other = Some(by_head);
            by_batch
        }
        (b, Some(h)) if h == n && b != Some(n) => by_head,
        _ => by_batch,
    }
}

fn sizes(
    dims: [usize; 4],
    batch: Option<usize>,
    tokens: Option<usize>,
    companions: &Companions<'_>,
    context: &Context,
    keys_only: bool,
) -> Sizes {
    let [b, _, q, k] = dims;
    let cross = context.role == Role::Cross;
    let past = context.past.iter().copied().max().and_then(|p| usize::try_from(p).ok());
    let kv_len = match k {
        1 if !keys_only => {
            // If lengths are declared, a mask whose key dimension is 1 applies to as many keys as queries.
            let lengths = companions.get(LENGTHS).is_some() || !context.lengths.is_empty();
            let square = (lengths && !cross && past.is_none()).then_some(q);
            context.kv_len.or(tokens).or(square).unwrap_or(1)
        }
        k => k,
    };
    let decoder = companions
        .get(&["decoder_input_ids", "decoder_ids", "target_ids", "tgt_ids"])
        .and_then(|v| v.shape().last().copied());
    let q_len = match q {
        1 if context.q_len.is_some() => context.q_len.unwrap_or(1),
        1 if cross => decoder.unwrap_or(1),
        1 if companions.get(KV_POSITIONS).is_some() => {
            companions.get(POSITIONS).and_then(|v| v.shape().last().copied()).unwrap_or(1)
        }
        // A row of a causal mask belongs to one query, unless the attention function makes it causal.
        1 if past.is_some() && !keys_only && context.kind.is_some_and(|kind| kind.causal) => 1,
        1 if past.is_some() => {
            let end = context.kv_len.unwrap_or(kv_len).min(kv_len.max(1));
            past.map_or(1, |p| end.saturating_sub(p).max(1))
        }
        1 if keys_only || k > 1 && tokens == Some(k) => kv_len,
        1 if !keys_only && k > 1 && context.kind.is_none_or(|kind| !kind.causal) && b > 1 => kv_len,
        q => q,
    };
    // A mask of one batch row applies to all batch rows. Without a declared batch size, the batch ends with the highest
    // batch row that a redaction names.
    let named = context.redactions.iter().flat_map(|r| r.batch.iter()).max().map_or(1, |row| row.saturating_add(1));
    let batch = match (b, batch) {
        (1, Some(declared)) => declared,
        (1, None) => named,
        _ => b,
    };
    // An array without tokens would give a size of 0, so every size is at least 1.
    Sizes { batch: batch.max(1), q_len: q_len.max(1), kv_len: kv_len.max(1) }
}

/// Returns the declared sizes of a cross-attention mask if the declared number of keys differs from the number of keys
/// of the array; otherwise `None`. The declared number of keys is `kv_len`; if `kv_len` is not declared, the number of
/// encoder tokens, `tokens`.
fn wanted_of_encoder(alignment: &Alignment, tokens: Option<usize>, context: &Context) -> Option<Sizes> {
    let sizes = alignment.sizes;
    let kv_len = context.kv_len.or(tokens)?;
    let q_len = context.q_len.unwrap_or(sizes.q_len);
    (kv_len != sizes.kv_len && kv_len > 0 && alignment.dims[3] != 1).then_some(Sizes { q_len, kv_len, ..sizes })
}

/// Returns the declared sizes if the declared number of keys or queries differs from that of the array; otherwise
/// `None`. Cached tokens and new tokens together are at most as many as the keys. `tokens` is the number of tokens per batch row in the other given arrays, such as the token ids; `None` if
/// unknown.
fn wanted(alignment: &Alignment, tokens: Option<usize>, context: &Context) -> Option<Sizes> {
    let sizes = alignment.sizes;
    if alignment.dims[3] == 1 && !alignment.keys_only {
        return None;
    }
    let past = context.past.iter().copied().max().and_then(|p| usize::try_from(p).ok());
    let q_len = context.q_len.unwrap_or(sizes.q_len);
    let kv_len = match (context.kv_len, past, tokens) {
        (Some(kv_len), ..) => kv_len,
        (None, Some(past), Some(tokens)) if context.q_len.is_none() && tokens > sizes.kv_len && tokens > past => tokens,
        // A cache may have more slots than stored tokens, but not fewer.
        (None, Some(past), _) => (past + q_len).max(sizes.kv_len),
        (None, None, Some(tokens)) if alignment.keys_only || tokens == sizes.q_len => tokens,
        _ => sizes.kv_len,
    };
    let other_queries = context.q_len.is_some() && alignment.dims[2] > 1 && q_len != sizes.q_len;
    ((kv_len != sizes.kv_len || other_queries) && kv_len > 0).then(|| {
        let square = sizes.q_len == sizes.kv_len && context.q_len.is_none();
        let q_len = match past {
            Some(past) if context.q_len.is_none() => kv_len.saturating_sub(past).max(1),
            _ if square => kv_len,
            _ => q_len,
        };
        Sizes { batch: sizes.batch, q_len, kv_len }
    })
}
