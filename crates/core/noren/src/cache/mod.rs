//! [`KvCache`]: the keys and values of earlier tokens, which a decoder keeps between its steps in the memory layout of
//! the kernels.

mod remove;
mod step;
#[cfg(test)]
mod tests;

pub use step::{Queries, StepPlan};

use crate::inputs::options::MOST_DIM;
use crate::kernel::keys::store::{Packing, Ring, Store};
use crate::{Element, Error, Isa, View};
use std::marker::PhantomData;

/// The sizes of a [`KvCache`].
///
/// ```
/// use noren::KvShape;
/// let shape = KvShape::new(8, 128).sequences(4); // 8 key-value heads of 128 numbers, 4 sequences
/// # let _ = shape;
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvShape {
    sequences: usize,
    kv_heads: usize,
    head_dim: usize,
    v_dim: usize,
    isa: Option<Isa>,
}

impl KvShape {
    /// Returns the sizes for one sequence with `kv_heads` key-value heads, and keys and values of `head_dim` numbers.
    pub fn new(kv_heads: usize, head_dim: usize) -> Self {
        KvShape { sequences: 1, kv_heads, head_dim, v_dim: head_dim, isa: None }
    }

    /// Sets the number of sequences, which are the batch rows of every step (default: 1).
    pub fn sequences(mut self, sequences: usize) -> Self {
        self.sequences = sequences;
        self
    }

    /// Sets the length of a value in numbers (default: `head_dim`).
    pub fn v_dim(mut self, v_dim: usize) -> Self {
        self.v_dim = v_dim;
        self
    }

    /// Sets the processor path (default: see [`Isa::choose`]). The layout of packed keys depends on the path, so a
    /// cache uses one path only.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    fn check(&self) -> Result<(), Error> {
        for (name, given) in [
            ("sequences", self.sequences),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("v_dim", self.v_dim),
        ] {
            if !(1..=MOST_DIM).contains(&given) {
                return Err(Error::Option { name, given: given.to_string(), problem: "give 1 to 2^24".to_owned() });
            }
        }
        Ok(())
    }
}

/// The sizes of a [rotating](KvCache::rotating) cache, in tokens of each sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotating {
    /// Number of last tokens that a query reads, including its own.
    pub window: usize,
    /// Number of first tokens that every query reads.
    pub sink_tokens: usize,
    /// Maximum number of tokens that a step appends.
    pub ahead: usize,
}

/// The keys and values of several sequences, stored in the memory layout of the kernels. Appended keys and values are
/// converted to this layout.
///
/// Three forms share one interface:
///
/// * [`contiguous`](Self::contiguous): space for a fixed number of tokens in each sequence;
/// * [`rotating`](Self::rotating): the last tokens (a window) and the first few tokens (sink tokens) of each sequence;
///   newer tokens overwrite the tokens between them;
/// * [`paged`](Self::paged): blocks of tokens from a pool that all sequences share.
///
/// A step appends the keys and values of new tokens, then computes the attention of the queries of these tokens with
/// any mask:
///
/// ```
/// use noren::{KvCache, KvShape, Options, View, atoms};
///
/// // A decoder of one layer with 4 tokens. Its head reads the embedding, and the next token is the one whose embedding is
/// // most similar to the output.
/// let embedding = [[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 0.5, 0.0], [0.5, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 1.0]];
/// let mut cache = KvCache::<f32>::contiguous(&KvShape::new(1, 4), 16)?;
/// let mut tokens = vec![2];
/// while tokens.len() < 8 {
///     let x = embedding[tokens[tokens.len() - 1]];
///     let x = View::new(&x, [1, 1, 1, 4])?; // [batch, heads, new tokens, head_dim]
///     cache.append(x, x)?;
///     let out = cache.attend(x, &atoms::causal(), &Options::default())?.out;
///     let likeness = |token: &usize| (0..4).map(|d| out[d] * embedding[*token][(d + 1) % 4]).sum::<f32>();
///     tokens.push((0..4).max_by(|a, b| likeness(a).total_cmp(&likeness(b))).expect("four tokens"));
/// }
/// assert_eq!(cache.len(0), 7);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// With many layers, or for a mask that needs facts (data such as documents), make the [plan](Self::plan) of a step
/// once and pass it to the [`attention`](Self::attention) of each layer's cache. The queries of a step are those of the
/// last tokens of each sequence, and a long prompt may therefore be appended in chunks. For speculative decoding,
/// append several guessed tokens and use a tree mask: [`keep`](Self::keep) then keeps the accepted guesses, and
/// [`truncate`](Self::truncate) removes the last tokens.
///
/// # Guarantees
///
/// In `f32`, the output of a step has the same bits as the same rows of one pass over the whole sequence with the same
/// ISA. This holds for every form of cache, step size and number of threads. For a rotating cache, the mask of the pass
/// must also have the window of the cache: `sliding(window) | causal & keys(..sink_tokens)`. A pass may read the keys
/// of some masks, such as strides, in another order (see [`Reorder`](crate::Reorder)); the bits are equal to those of a
/// pass whose plan has `Reorder::Never`. With `bf16` and `f16`, the bits are equal for contiguous and paged caches, and
/// for a rotating cache if `sink_tokens` is even, on [`Isa::Amx`] a multiple of 32, and if padding and documents that have
/// left the window are a multiple of as many tokens.
///
/// A cache slot is the place of one token. The content of slots that were never written, were freed or are hidden by a
/// mask changes no bit of the output, even if the content is NaN.
///
/// `bf16` and `f16` take two bytes per number. A step reads each key and value once for all query heads that share its
/// key-value head.
pub struct KvCache<T> {
    shape: KvShape,
    isa: Isa,
    form: Form,
    store: Store,
    sequences: Vec<Sequence>,
    /// The indices of the pages that no sequence uses. In a paged cache, a page is one block of tokens; in the other
    /// forms, every sequence always has one page, and this list is empty.
    free: Vec<u32>,
    element: PhantomData<T>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Contiguous { capacity: usize },
    Rotating { window: usize, ahead: usize, ring: Ring },
    Paged { block: usize },
}

#[derive(Clone, Debug, Default)]
struct Sequence {
    pages: Vec<u32>,
    /// The number of tokens of the sequence, including overwritten tokens. This number is also the position of the next
    /// token.
    len: usize,
    /// In a rotating cache, the largest value of `len` since the sequence was last empty. The ring is the slots in
    /// which newer tokens overwrite older tokens, `ring.len` slots. Tokens at positions below `written - ring.len` are
    /// overwritten, apart from sink tokens.
    written: usize,
}

impl<T: Element> KvCache<T> {
    /// Returns a cache with space for `capacity` tokens in each sequence.
    ///
    /// # Errors
    /// Returns an error if a size is 0 or exceeds the address space, or if this processor lacks the instruction
    /// set that `shape` names. All constructors return these errors.
    pub fn contiguous(shape: &KvShape, capacity: usize) -> Result<Self, Error> {
        check_tokens("capacity", capacity)?;
        let (isa, packing) = packing::<T>(shape)?;
        let page = capacity.next_multiple_of(packing.group());
        Self::new(shape, isa, packing, Form::Contiguous { capacity }, page, shape.sequences)
    }

    /// Returns a cache that holds the first and the last tokens of each sequence.
    ///
    /// ```
    /// use noren::{KvCache, KvShape, Rotating};
    /// let sizes = Rotating { window: 1024, sink_tokens: 4, ahead: 16 };
    /// let cache = KvCache::<f32>::rotating(&KvShape::new(8, 64), sizes)?;
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// Before and at its own position, a query can read only the sink tokens and the last `window` tokens (the query
    /// itself included), even if the mask allows more keys. This limit does not depend on the number of tokens in a
    /// step. If the mask allows keys after the query, as `full` does, a query can also read the later tokens of the
    /// same step. Positions are counted over the whole sequence, so masks, biases and rotary embeddings have the same
    /// meaning as in a cache that keeps all tokens. [`StepPlan::key_position`] gives the position of a key.
    ///
    /// # Errors
    /// Returns [`Error::Option`] if `window`, `ahead` or `sink_tokens` is out of range or if there is not enough
    /// memory, and an error if `shape` is invalid.
    pub fn rotating(shape: &KvShape, Rotating { window, sink_tokens, ahead }: Rotating) -> Result<Self, Error> {
        for (name, given) in [("window", window), ("ahead", ahead), ("sink_tokens + 1", sink_tokens.saturating_add(1))]
        {
            check_tokens(name, given)?;
        }
        let (isa, packing) = packing::<T>(shape)?;
        let group = packing.group();
        let kept = sink_tokens.next_multiple_of(group);
        // The ring has one additional group, because the first key of the oldest group may be older than the window.
        let len = (window - 1 + ahead).next_multiple_of(group) + group;
        let form = Form::Rotating { window, ahead, ring: Ring { sink_tokens, kept, first: 0, len } };
        Self::new(shape, isa, packing, form, kept + len, shape.sequences)
    }

    /// Returns a cache of `blocks` blocks for all sequences together. A block holds `block` tokens: a multiple of 16,
    /// from 16 to 256.
    ///
    /// # Errors
    /// Returns [`Error::Option`] if `block` or `blocks` is out of range or if there is not enough memory, and an
    /// error if `shape` is invalid.
    pub fn paged(shape: &KvShape, block: usize, blocks: usize) -> Result<Self, Error> {
        if !(16..=256).contains(&block) || !block.is_multiple_of(16) {
            let problem = "give a number of tokens from 16 to 256 that is a multiple of 16".to_owned();
            return Err(Error::Option { name: "block", given: block.to_string(), problem });
        }
        check_tokens("blocks", blocks)?;
        let (isa, packing) = packing::<T>(shape)?;
        Self::new(shape, isa, packing, Form::Paged { block }, block, blocks)
    }

    fn new(shape: &KvShape, isa: Isa, packing: Packing, form: Form, page: usize, pages: usize) -> Result<Self, Error> {
        let store = Store::new(packing, T::DTYPE, shape.kv_heads, page, pages)?;
        let pages = 0..pages as u32;
        let (sequences, free) = match form {
            Form::Paged { .. } => (vec![Sequence::default(); shape.sequences], pages.rev().collect()),
            _ => (pages.map(|page| Sequence { pages: vec![page], ..Sequence::default() }).collect(), Vec::new()),
        };
        Ok(KvCache { shape: shape.clone(), isa, form, store, sequences, free, element: PhantomData })
    }

    /// Returns the sizes of the cache.
    pub fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Returns the processor path on which the cache computes. The memory layout of its keys and values is made for
    /// this path.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the number of tokens of a sequence, including tokens that a rotating cache has overwritten. This number
    /// is also the position of the next token.
    ///
    /// # Panics
    /// Panics if there is no such sequence, as indexing does.
    pub fn len(&self, sequence: usize) -> usize {
        self.sequences[sequence].len
    }

    /// Returns the number of sequences.
    pub fn sequence_count(&self) -> usize {
        self.sequences.len()
    }

    /// Returns whether every sequence has 0 tokens.
    pub fn is_empty(&self) -> bool {
        self.sequences.iter().all(|sequence| sequence.len == 0)
    }

    /// Returns the number of bytes of memory that is allocated for keys and values, including unused memory.
    pub fn bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Returns the number of unused blocks of a paged cache; 0 in other forms.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Appends the same number of tokens to every sequence: `k` is `[sequences, kv_heads, new, head_dim]` and `v` is
    /// `[sequences, kv_heads, new, v_dim]`.
    ///
    /// # Errors
    /// Returns an error if the arrays have other shapes, if there is not enough space for the new tokens, or if a
    /// rotating cache gets more than `ahead` new tokens. After an error the cache is unchanged.
    pub fn append(&mut self, k: View<'_, T>, v: View<'_, T>) -> Result<(), Error> {
        let new = k.shape()[2];
        self.check_new(&k, &v, [self.shape.sequences, self.shape.kv_heads, new])?;
        let tokens: Vec<_> = (0..self.shape.sequences).map(|b| (b, 0..new)).collect();
        self.write(&k, &v, &tokens)
    }

    /// Appends different numbers of tokens to the sequences: `k` is `[1, kv_heads, total, head_dim]` and `v` is `[1,
    /// kv_heads, total, v_dim]`. Sequence `b` gets the tokens `cu_seqlens[b]..cu_seqlens[b + 1]`; this range may be
    /// empty.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append), and an error if `cu_seqlens` does not ascend from 0 to `total`
    /// or does not have one entry more than there are sequences.
    pub fn append_ragged(&mut self, k: View<'_, T>, v: View<'_, T>, cu_seqlens: &[usize]) -> Result<(), Error> {
        let total = k.shape()[2];
        self.check_new(&k, &v, [1, self.shape.kv_heads, total])?;
        self.check_starts(cu_seqlens, Some(total))?;
        let tokens: Vec<_> = cu_seqlens.windows(2).map(|w| (0, w[0]..w[1])).collect();
        self.write(&k, &v, &tokens)
    }

    /// Returns an error if the new keys `k` or values `v` do not have the shape `[batch, kv_heads, new, ...]` that the
    /// cache needs.
    fn check_new(&self, k: &View<'_, T>, v: &View<'_, T>, [batch, kv_heads, new]: [usize; 3]) -> Result<(), Error> {
        for (name, given, width, what) in
            [("k", k.shape(), self.shape.head_dim, "head_dim"), ("v", v.shape(), self.shape.v_dim, "v_dim")]
        {
            let expected = [batch, kv_heads, new, width];
            if given != expected {
                let expected = format!(
                    "the sizes of the cache and the number of new tokens in k require the shape [sequences, kv_heads, new, {what}] \
                     = {expected:?}"
                );
                return Err(Error::Shape { name, given: given.to_vec(), expected });
            }
        }
        Ok(())
    }

    /// Returns an error if `cu_seqlens` does not divide `total` new tokens into one range for each sequence. If `total`
    /// is `None`, the end of the last range is not checked.
    fn check_starts(&self, cu_seqlens: &[usize], total: Option<usize>) -> Result<(), Error> {
        let expected = match self.shape.sequences + 1 {
            n if cu_seqlens.len() != n => {
                format!(
                    "the cache has {} sequences: cu_seqlens needs {n} entries, the start of each sequence and the end of the last one",
                    n - 1
                )
            }
            _ if cu_seqlens[0] != 0 || !cu_seqlens.is_sorted() => {
                "the first entry of cu_seqlens must be 0, and no entry may be smaller than the entry before it"
                    .to_owned()
            }
            n if total.is_some_and(|total| cu_seqlens[n - 1] != total) => {
                format!(
                    "{} new tokens are given: the last entry of cu_seqlens must be equal to this number",
                    total.unwrap_or(0)
                )
            }
            _ => return Ok(()),
        };
        refuse(format!("cu_seqlens are {cu_seqlens:?}: {expected}"))
    }

    /// Appends new tokens to each sequence. If a sequence has not enough space, returns an error and changes nothing.
    /// `tokens` has one entry `(batch row of k and v, range of tokens in this batch row)` for each sequence.
    fn write(
        &mut self,
        k: &View<'_, T>,
        v: &View<'_, T>,
        tokens: &[(usize, std::ops::Range<usize>)],
    ) -> Result<(), Error> {
        let mut pages = 0;
        for (b, ((_, tokens), sequence)) in tokens.iter().zip(&self.sequences).enumerate() {
            let (new, len) = (tokens.len(), sequence.len);
            check_tokens("sequence length", len.saturating_add(new).max(1))?;
            match self.form {
                Form::Contiguous { capacity } if len + new > capacity => {
                    return refuse(format!(
                        "sequence {b} has {len} tokens and {new} more were appended, but there is room for {capacity}: make \
                         the cache larger, or clear the sequence"
                    ));
                }
                Form::Rotating { ahead, .. } if new > ahead => {
                    return refuse(format!(
                        "{new} tokens were appended to sequence {b} at once, but the cache accepts at most {ahead}: \
                         append and plan in chunks, or create the cache with a larger `ahead`"
                    ));
                }
                Form::Paged { block } => pages += (len + new).div_ceil(block) - sequence.pages.len(),
                _ => {}
            }
        }
        if pages > self.free.len() {
            return refuse(format!(
                "the new tokens need {pages} more blocks, but only {} are free: clear or truncate a sequence, or create \
                 the cache with more blocks",
                self.free.len()
            ));
        }
        let ring = self.ring();
        for ((batch, tokens), sequence) in tokens.iter().zip(&mut self.sequences) {
            if let Form::Paged { block } = self.form {
                let missing = (sequence.len + tokens.len()).div_ceil(block) - sequence.pages.len();
                sequence.pages.extend(self.free.drain(self.free.len() - missing..).rev());
            }
            self.store.write(&sequence.pages, ring, sequence.len, [k, v], *batch, tokens.clone());
            sequence.len += tokens.len();
            sequence.written = sequence.written.max(sequence.len);
        }
        Ok(())
    }

    fn ring(&self) -> Ring {
        match self.form {
            Form::Rotating { ring, .. } => ring,
            _ => Ring::ENDLESS,
        }
    }
}

impl<T> std::fmt::Debug for KvCache<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lengths: Vec<usize> = self.sequences.iter().map(|sequence| sequence.len).collect();
        let Self { shape, isa, form, .. } = self;
        f.debug_struct("KvCache")
            .field("shape", shape)
            .field("isa", isa)
            .field("form", form)
            .field("lengths", &lengths)
            .finish_non_exhaustive()
    }
}

/// Returns the processor path of a cache with the sizes `shape`, and the memory layout of its keys and values.
fn packing<T: Element>(shape: &KvShape) -> Result<(Isa, Packing), Error> {
    shape.check()?;
    let isa = Isa::choose(shape.isa)?;
    Ok((isa, Packing::new(isa, T::DTYPE, shape.head_dim, shape.v_dim)))
}

/// Returns an error if the number of tokens `given` is 0 or too large for a plan. `name` is the name of the checked
/// option in the error message.
fn check_tokens(name: &'static str, given: usize) -> Result<(), Error> {
    match (1..=noren_mask::Shape::MAX_LEN / 2).contains(&given) {
        true => Ok(()),
        false => {
            let problem = format!("give a number from 1 to {}", noren_mask::Shape::MAX_LEN / 2);
            Err(Error::Option { name, given: given.to_string(), problem })
        }
    }
}

fn refuse<R>(problem: String) -> Result<R, Error> {
    Err(Error::Cache { problem })
}
