//! The functions of the crate `candle-flash-attn`, for tensors on the CPU.
//!
//! The names, arguments and results are those of `candle-flash-attn` 0.11. A program that calls `candle-flash-attn`
//! behind a feature for CUDA also runs on CPUs after a change of its `use`:
//!
//! ```
//! # /*
//! #[cfg(feature = "cuda")]
//! use candle_flash_attn::flash_attn_varlen;
//! #[cfg(not(feature = "cuda"))]
//! use noren_candle::flash::flash_attn_varlen;
//! # */
//! # use noren_candle::flash::flash_attn_varlen;
//! use noren_candle::candle_core::{Device, Tensor};
//!
//! let qkv = Tensor::randn(0f32, 1., (8, 3, 4, 16), &Device::Cpu)?; // [tokens, 3, heads, head_size], read in place
//! let part = |n| qkv.narrow(1, n, 1).and_then(|x| x.squeeze(1));
//! let seqlens = Tensor::new(&[0u32, 5, 8], &Device::Cpu)?; // two sequences: 5 and 3 tokens
//! let out = flash_attn_varlen(&part(0)?, &part(1)?, &part(2)?, &seqlens, &seqlens, 5, 5, 0.25, true)?;
//! assert_eq!(out.dims(), [8, 4, 16]);
//! # Ok::<(), noren_candle::candle_core::Error>(())
//! ```
//!
//! The last query of a sequence has the position of its last key. Causal masks, windows and ALiBi compare these
//! positions. The functions return errors for the same arguments as the functions of `candle-flash-attn`: wrong ranks
//! and shapes, head sizes above 512 or not a multiple of 8, a last dimension whose stride is not 1, and slopes of other
//! types. The differences:
//!
//! | | `candle-flash-attn` | here |
//! |---|---|---|
//! | device | CUDA | CPU |
//! | types | `f16`, `bf16` | also `f32` |
//! | gradients | none: the backward pass returns an error | of `q`, `k` and `v`; not of `alibi_slopes` |
//! | `seqlens_q`, `seqlens_k` | `u32`, not checked | `u32` or `i64`; checked: they begin at 0, never decrease, and end inside the tensors |
//! | `max_seqlen_q`, `max_seqlen_k` | must be right | an error if a sequence is longer |
//! | a query that may read no key | output 0 | output 0 |
//! | `flash_attn_varlen_paged_windowed` | supported | no: [`KvCache`](noren::KvCache) has pages |
//!
//! All calls share one [`Planner`], which keeps plans for later sequences of the same lengths. [`noren::varlen`] supports
//! more: sinks, any mask, log-sum-exps, outputs in given memory.

use crate::attention::op::{Computed, Operation};
use crate::attention::storage::{Stored, cpu};
use crate::error::{Error, into_candle};
use candle_core::{CpuStorage, DType, Layout, Result, Shape, Tensor, bail};
use noren::varlen::{Planner, Sequences, Varlen};
use noren::{GradientsMut, Inputs, Outputs, Saved, View, ViewMut};
use std::sync::{LazyLock, OnceLock};

static PLANNER: LazyLock<Planner> = LazyLock::new(Planner::default);

/// The arguments of the functions of this module. Each function sets only some of them.
#[derive(Default)]
struct Arguments<'a> {
    alibi_slopes: Option<&'a Tensor>,
    /// The cumulative lengths of queries and keys, and the maximum lengths; `None` for tensors of rank 4.
    varlen: Option<([&'a Tensor; 2], [usize; 2])>,
    softmax_scale: f32,
    window: [Option<usize>; 2],
    softcap: f32,
}

/// Returns the limits `[left, right]` of a window: the right limit is 0 if `causal` is true, otherwise there are no
/// limits (`None`).
fn causal_window(causal: bool) -> [Option<usize>; 2] {
    [None, causal.then_some(0)]
}

/// Computes attention, `softmax(softmax_scale * q k^T) v`.
///
/// `q` is `[batch, seq_len_q, heads, head_size]`, `k` and `v` are `[batch, seq_len_kv, kv_heads, head_size]`, and
/// `heads` is a multiple of `kv_heads`. Returns a tensor of the shape of `q`. If `causal` is true, a query reads only
/// keys up to its own position.
///
/// # Errors
/// Returns an error for shapes, types and devices that do not fit, as [the module](self) describes.
pub fn flash_attn(q: &Tensor, k: &Tensor, v: &Tensor, softmax_scale: f32, causal: bool) -> Result<Tensor> {
    run([q, k, v], Arguments { softmax_scale, window: causal_window(causal), ..Arguments::default() })
}

/// Computes [`flash_attn`] with a window: a query at position `i` reads the keys at positions `i - window_size_left..=i
/// + window_size_right`. `None` is no limit. With `None` on the left and 0 on the right, the window is a causal mask.
///
/// # Errors
/// Returns the errors of [`flash_attn`].
pub fn flash_attn_windowed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Tensor> {
    let window = [window_size_left, window_size_right];
    run([q, k, v], Arguments { softmax_scale, window, ..Arguments::default() })
}

/// Computes [`flash_attn`] with ALiBi: `-slope * distance` is added to each score. `alibi_slopes` is `[heads]` of `f32`.
///
/// # Errors
/// Returns the errors of [`flash_attn`], and an error if `alibi_slopes` has another shape or type.
pub fn flash_attn_alibi(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: &Tensor,
    softmax_scale: f32,
    causal: bool,
) -> Result<Tensor> {
    let (alibi_slopes, window) = (Some(alibi_slopes), causal_window(causal));
    run([q, k, v], Arguments { softmax_scale, alibi_slopes, window, ..Arguments::default() })
}

/// Computes [`flash_attn_alibi`] with the window that [`flash_attn_windowed`] describes.
///
/// # Errors
/// Returns the errors of [`flash_attn_alibi`].
pub fn flash_attn_alibi_windowed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: &Tensor,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Tensor> {
    let (alibi_slopes, window) = (Some(alibi_slopes), [window_size_left, window_size_right]);
    run([q, k, v], Arguments { softmax_scale, alibi_slopes, window, ..Arguments::default() })
}

/// Computes [`flash_attn_windowed`] with optional ALiBi and a softcap: each score becomes
/// `softcap * tanh(score / softcap)`. A `softcap` of 0 means no softcap.
///
/// # Errors
/// Returns the errors of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_alibi_windowed_softcap(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: Option<&Tensor>,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
    softcap: f32,
) -> Result<Tensor> {
    let window = [window_size_left, window_size_right];
    run([q, k, v], Arguments { softmax_scale, alibi_slopes, window, softcap, ..Arguments::default() })
}

/// Computes attention over packed sequences of different lengths.
///
/// `q` is `[total_q, heads, head_size]`, `k` and `v` are `[total_kv, kv_heads, head_size]`. `seqlens_q` and `seqlens_k`
/// are the cumulative lengths of the sequences, `0, len_1, len_1 + len_2, ...`. Each query reads only keys of its own
/// sequence. If `causal` is true, the query reads only keys up to its own position. `max_seqlen_q` and `max_seqlen_k`
/// are limits: a longer sequence is an error. Scores are multiplied by `softmax_scale`. Returns a tensor of the shape
/// of `q`.
///
/// # Errors
/// Returns an error for shapes, types, devices and lengths that do not fit, as [the module](self) describes.
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_varlen(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    causal: bool,
) -> Result<Tensor> {
    let varlen = Some(([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]));
    run([q, k, v], Arguments { softmax_scale, varlen, window: causal_window(causal), ..Arguments::default() })
}

/// Computes [`flash_attn_varlen`] with the window that [`flash_attn_windowed`] describes.
///
/// # Errors
/// Returns the errors of [`flash_attn_varlen`].
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_varlen_windowed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Tensor> {
    let varlen = Some(([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]));
    let window = [window_size_left, window_size_right];
    run([q, k, v], Arguments { softmax_scale, varlen, window, ..Arguments::default() })
}

/// Computes [`flash_attn_varlen`] with the ALiBi bias that [`flash_attn_alibi`] describes.
///
/// # Errors
/// Returns the errors of [`flash_attn_varlen`] and of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_varlen_alibi(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: &Tensor,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    causal: bool,
) -> Result<Tensor> {
    let varlen = Some(([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]));
    let (alibi_slopes, window) = (Some(alibi_slopes), causal_window(causal));
    run([q, k, v], Arguments { softmax_scale, varlen, alibi_slopes, window, softcap: 0.0 })
}

/// Computes [`flash_attn_varlen_alibi`] with the window that [`flash_attn_windowed`] describes.
///
/// # Errors
/// Returns the errors of [`flash_attn_varlen`] and of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_varlen_alibi_windowed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: &Tensor,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Tensor> {
    let varlen = Some(([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]));
    let (alibi_slopes, window) = (Some(alibi_slopes), [window_size_left, window_size_right]);
    run([q, k, v], Arguments { softmax_scale, varlen, alibi_slopes, window, softcap: 0.0 })
}

/// Computes [`flash_attn_varlen_windowed`] with optional ALiBi and a softcap, as [`flash_attn_alibi_windowed_softcap`]
/// describes both.
///
/// # Errors
/// Returns the errors of [`flash_attn_varlen`] and of [`flash_attn_alibi`].
#[allow(clippy::too_many_arguments)] // the arguments of candle-flash-attn
pub fn flash_attn_varlen_alibi_windowed_softcap(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: Option<&Tensor>,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
    softcap: f32,
) -> Result<Tensor> {
    let varlen = Some(([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]));
    run(
        [q, k, v],
        Arguments { softmax_scale, varlen, alibi_slopes, window: [window_size_left, window_size_right], softcap },
    )
}

/// Checks the tensors and arguments, and computes the attention as an operation of candle.
fn run([q, k, v]: [&Tensor; 3], arguments: Arguments<'_>) -> Result<Tensor> {
    let rank = if arguments.varlen.is_some() { 3 } else { 4 };
    for (name, tensor) in [("q", q), ("k", k), ("v", v)] {
        if tensor.rank() != rank {
            bail!("flash attention: {name} has shape {:?}: give a tensor of rank {rank}", tensor.dims());
        }
        if !matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) || tensor.dtype() != q.dtype() {
            let given = tensor.dtype();
            bail!(
                "flash attention: {name} is {given:?}: q, k and v must all be f32, f16 or bf16: convert with to_dtype"
            );
        }
        if tensor.layout().stride()[rank - 1] != 1 {
            bail!("flash attention: the last dimension of {name} has strides {:?}: call contiguous()", tensor.stride());
        }
        if !tensor.device().is_cpu() {
            bail!("flash attention: {name} is on {:?}: noren computes on the CPU", tensor.device().location());
        }
    }
    let ([heads, head_size], kv_heads) = ([q.dim(rank - 2)?, q.dim(rank - 1)?], k.dim(rank - 2)?);
    let batch_fits = rank == 3 || q.dim(0)? == k.dim(0)?;
    if k.dims() != v.dims() || k.dim(rank - 1)? != head_size || !batch_fits {
        let (q, k, v) = (q.dims(), k.dims(), v.dims());
        bail!(
            "flash attention: shape mismatch: q is {q:?}, k is {k:?}, v is {v:?}: k and v must have the same shape, with the batch and the head size of q"
        );
    }
    if head_size == 0 || head_size > 512 || head_size % 8 != 0 {
        bail!("flash attention: the head size is {head_size}: it must be a multiple of 8, from 8 to 512");
    }
    let elements = q.dims().iter().try_fold(1usize, |n, size| n.checked_mul(*size));
    if elements.is_none_or(|n| n > isize::MAX as usize / 64) {
        bail!("flash attention: q has shape {:?}: the output would not fit into memory", q.dims());
    }
    if rank == 4 && q.dim(0)? == 0 {
        bail!("flash attention: q has shape {:?}: the batch is empty: give at least one batch row", q.dims());
    }
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        bail!("flash attention: q has {heads} heads and k has {kv_heads}: the first must be a multiple of the second");
    }
    let slopes = match arguments.alibi_slopes {
        None => None,
        Some(slopes) if slopes.dtype() == DType::F32 && slopes.dims() == [heads] => Some(slopes.to_vec1::<f32>()?),
        Some(slopes) => {
            let (given, dtype) = (slopes.dims(), slopes.dtype());
            bail!(
                "flash attention: alibi_slopes is {given:?} of {dtype:?}: give [{heads}] of f32, one slope for each head"
            );
        }
    };
    let (sequences, most_keys) = match arguments.varlen {
        Some((lens, most)) => (packed(lens, most)?, most[1]),
        None => {
            let (batch, lens) = (q.dim(0)?, [q.dim(1)?, k.dim(1)?]);
            let sequences = Sequences::padded(&vec![lens[0]; batch], &vec![lens[1]; batch]).map_err(into_candle)?;
            (sequences, lens[1])
        }
    };
    let op = FlashOp {
        sequences,
        softmax_scale: arguments.softmax_scale,
        window: limits(arguments.window, most_keys),
        softcap: arguments.softcap,
        slopes,
        tracked: [q, k, v].into_iter().any(Tensor::track_op),
        lse: OnceLock::new(),
    };
    q.apply_op3(k, v, Operation(op))
}

/// Returns the limits `[left, right]` that the kernels of flash-attention use for the limits `window`. A limit above
/// `most_keys`, the maximum number of keys, becomes no limit (`None`). If only the left limit is given, the right limit
/// becomes `most_keys`. These changes matter only for sequences with more queries than keys.
fn limits(window: [Option<usize>; 2], most_keys: usize) -> [Option<usize>; 2] {
    let [left, right] = window.map(|limit| limit.filter(|limit| *limit <= most_keys));
    [left, if left.is_some() { right.or(Some(most_keys)) } else { right }]
}

/// Returns packed sequences with the cumulative lengths `lens` of queries and keys. Returns an error if a sequence has
/// more queries or keys than `most`, which is `[queries, keys]`.
fn packed(lens: [&Tensor; 2], most: [usize; 2]) -> Result<Sequences> {
    let mut lists = [Vec::new(), Vec::new()];
    for (i, name) in ["seqlens_q", "seqlens_k"].into_iter().enumerate() {
        lists[i] = match lens[i].dtype() {
            DType::U32 => lens[i].to_vec1::<u32>()?.into_iter().map(i64::from).collect(),
            DType::I64 => lens[i].to_vec1::<i64>()?,
            other => bail!("flash attention: {name} is of {other:?}: give a tensor of u32 of rank 1"),
        };
    }
    let sequences = Sequences::packed(&lists[0], &lists[1]).map_err(into_candle)?;
    for (i, (name, list)) in ["max_seqlen_q", "max_seqlen_k"].into_iter().zip(&lists).enumerate() {
        let longest = list.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        if longest as usize > most[i] {
            bail!(
                "flash attention: {name} is {}: the longest sequence has {longest} tokens: give at least {longest}",
                most[i]
            );
        }
    }
    Ok(sequences)
}

/// The operation of candle that computes flash attention from `q`, `k` and `v`. The output has the shape of `q`.
struct FlashOp {
    sequences: Sequences,
    softmax_scale: f32,
    window: [Option<usize>; 2],
    softcap: f32,
    slopes: Option<Vec<f32>>,
    /// True if `q`, `k` or `v` needs a gradient, so that the forward pass keeps the log-sum-exps.
    tracked: bool,
    /// The log-sum-exps of the forward pass, `[batch, heads, len]` or `[heads, total_q]`.
    lse: OnceLock<Vec<f32>>,
}

impl FlashOp {
    fn call(&self) -> Varlen<'_> {
        Varlen::new(self.sequences.clone())
            .softmax_scale(self.softmax_scale)
            .window_size(self.window[0], self.window[1])
            .softcap(self.softcap)
            .alibi_slopes(self.slopes.as_deref())
    }
}

impl Computed for FlashOp {
    const NAME: &str = "noren-flash-attn";

    fn forward<T: Stored>(&self, parts: [(&CpuStorage, &Layout); 3]) -> crate::Result<(CpuStorage, Shape)> {
        let [q, k, v] = [view::<T>(parts[0])?, view::<T>(parts[1])?, view::<T>(parts[2])?];
        let [batch, heads, len, _] = q.shape();
        let dims = parts[0].1.dims();
        let mut lse = vec![0.0; if self.tracked { batch * heads * len } else { 0 }];
        let mut out = vec![T::from_f32(0.0); parts[0].1.shape().elem_count()];
        let outputs = Outputs { out: view_mut(&mut out, dims)?, lse: self.tracked.then_some(&mut lse[..]) };
        self.call().forward_into(&PLANNER, &Inputs { q, k, v }, outputs)?;
        // A second forward pass of the same operation would write the same numbers.
        let _ = self.lse.set(lse);
        Ok((T::store(out), dims.into()))
    }

    fn backward<T: Stored>(&self, tensors: [&Tensor; 5]) -> crate::Result<[Tensor; 3]> {
        let held = tensors.map(Tensor::storage_and_layout);
        let mut views = Vec::with_capacity(5);
        for (storage, layout) in &held {
            views.push(view::<T>((cpu(storage)?, layout))?);
        }
        let [q, k, v, out, dout] = views[..] else { unreachable!("five tensors have five views") };
        let lse = self.lse.get();
        let lse = lse.ok_or_else(|| {
            Error::input("the attention output", "not computed yet", "run the forward pass before the backward pass")
        })?;
        let dims = [0, 1, 2].map(|i| tensors[i].dims());
        let mut memory = dims.map(|dims| vec![T::from_f32(0.0); dims.iter().product()]);
        let [dq, dk, dv] = &mut memory;
        let gradients = GradientsMut::new(view_mut(dq, dims[0])?, view_mut(dk, dims[1])?, view_mut(dv, dims[2])?);
        self.call().backward_into(&PLANNER, &Inputs { q, k, v }, &Saved { out, lse, dout }, gradients)?;
        let device = tensors[0].device();
        let [dq, dk, dv] = memory;
        Ok([
            Tensor::from_vec(dq, dims[0], device)?,
            Tensor::from_vec(dk, dims[1], device)?,
            Tensor::from_vec(dv, dims[2], device)?,
        ])
    }
}

/// Returns the shape and the strides of the view `[batch, heads, len, head_size]` of a tensor
/// `[batch, len, heads, head_size]`. Packed tokens `[tokens, heads, head_size]` become one batch row.
fn by_head(dims: &[usize], strides: &[usize]) -> crate::Result<([usize; 4], [isize; 4])> {
    let strides: Vec<isize> = strides.iter().map(|stride| *stride as isize).collect();
    match (dims, &strides[..]) {
        (&[tokens, heads, width], &[t, h, w]) => Ok(([1, heads, tokens, width], [0, h, t, w])),
        (&[batch, len, heads, width], &[b, l, h, w]) => Ok(([batch, heads, len, width], [b, h, l, w])),
        _ => Err(Error::input("a tensor's shape", format!("{dims:?}"), "give a tensor of rank 3 or 4")),
    }
}

fn view<'a, T: Stored>((storage, layout): (&'a CpuStorage, &Layout)) -> crate::Result<View<'a, T>> {
    let expected = "all tensors of a call must have one type: convert with to_dtype";
    let values = T::values(storage).ok_or_else(|| Error::input("a tensor's type", "another type", expected))?;
    let (shape, strides) = by_head(layout.dims(), layout.stride())?;
    Ok(View::strided(values, shape, strides, layout.start_offset())?)
}

fn view_mut<'a, T: Stored>(memory: &'a mut [T], dims: &[usize]) -> crate::Result<ViewMut<'a, T>> {
    let (shape, strides) = by_head(dims, Layout::contiguous(dims).stride())?;
    Ok(ViewMut::strided(memory, shape, strides, 0)?)
}
