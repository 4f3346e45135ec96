//! Attention over a batch of sequences of different lengths, with the arguments of flash-attention's varlen function.
//!
//! There are two arrangements of the sequences. Packed sequences are one after another (`[tokens, heads, head_dim]`
//! with `cu_seqlens`). Padded sequences are each at the beginning of one batch row (`[batch, heads, len, head_dim]`
//! with lengths). The arrays are read and written in place. Each sequence has its own plan. Therefore masks use
//! positions within the sequence, and the result of a sequence has the same bits whether the sequence is computed
//! alone, packed or padded. Values of other sequences and of padding, even NaN, change no bit of the result.
//!
//! ```
//! use noren::varlen::{Planner, Sequences, Varlen, packed};
//! use noren::Inputs;
//!
//! let planner = Planner::default(); // one for a whole program: it keeps plans for later sequences of the same lengths
//! let cu_seqlens = [0, 3, 3, 8]; // three sequences: 3, 0 and 5 tokens
//! let (q, kv) = (vec![0.5f32; 8 * 4 * 16], vec![0.25f32; 8 * 2 * 16]); // 4 query heads share 2 key-value heads
//! let (q, kv) = (packed(&q, [8, 4, 16])?, packed(&kv, [8, 2, 16])?);
//! let call = Varlen::new(Sequences::packed(&cu_seqlens, &cu_seqlens)?).causal(true).window_size(1023, 0);
//! let result = call.forward(&planner, &Inputs { q, k: kv, v: kv })?;
//! assert_eq!((result.out.len(), result.out[0]), (8 * 4 * 16, 0.25)); // [tokens, heads, v_dim]
//! assert_eq!(planner.len(), 2); // plans for the lengths 3 and 5
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! [`Varlen::forward_into`] and [`Varlen::backward_into`] write to the caller's memory. Interleaved arrays, such as
//! queries, keys and values in one array, are views with strides:
//!
//! ```
//! use noren::{Inputs, Outputs, View, varlen::{Planner, Sequences, Varlen, packed_mut}};
//!
//! let qkv = vec![0.5f32; 6 * 3 * 2 * 4]; // [tokens, 3, heads, head_dim]
//! let part = |n: usize| View::strided(&qkv, [1, 2, 6, 4], [0, 4, 3 * 2 * 4, 1], n * 2 * 4); // [1, heads, tokens, head_dim]
//! let mut out = vec![0.0; 6 * 2 * 4];
//! let outputs = Outputs { out: packed_mut(&mut out, [6, 2, 4])?, lse: None };
//! let call = Varlen::new(Sequences::packed(&[0, 2, 6], &[0, 2, 6])?).mask("sliding(3) | keys(0..1)")?;
//! call.forward_into(&Planner::default(), &Inputs { q: part(0)?, k: part(1)?, v: part(2)? }, outputs)?;
//! assert_eq!(out[0], 0.5);
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! # Differences from flash-attention
//!
//! `q`, `k`, `v`, `cu_seqlens_q`, `cu_seqlens_k`, `softmax_scale`, `causal`, `window_size`, `softcap` and
//! `alibi_slopes` have the names and the meaning of `flash_attn_varlen_func`. Query `i` has the position `i + k_len -
//! q_len`: causal masks and windows are aligned to the last key (bottom right). The differences:
//!
//! | | flash-attention | here |
//! |---|---|---|
//! | types | `f16`, `bf16` | also `f32` |
//! | `head_dim` | a multiple of 8, at most 256; `v` as `q` | any; `v` may have another length of rows than `q` |
//! | `max_seqlen_q`, `max_seqlen_k` | arguments | computed from the lengths |
//! | `cu_seqlens` | `i32` | any integer type with values up to 2^31 - 1; checked: the first value is 0, no value is smaller than the value before, the last value is within the arrays |
//! | tokens after the last sequence | not written | output 0, log-sum-exp minus infinity |
//! | log-sum-exp of a query that reads no key | plus infinity | minus infinity |
//! | log-sum-exp with ALiBi and `causal` | of scores without the part of the bias that is the same for all keys of a query | of scores with the complete bias |
//! | `window_size` with more queries than keys | a limit of `max_seqlen_k` or more is no limit; if only the left limit is given, the right limit is `max_seqlen_k` | both limits are used as given: `i - left <= j <= i + right`, where `i` and `j` are positions |
//! | `dropout_p`, `return_attn_probs`, `block_table` | supported | no; [`attention`](crate::attention()) has dropout, [`KvCache`](crate::KvCache) has pages |
//! | `deterministic` | an option | always |
//! | sinks, masks other than windows, data that masks need | no | [`Varlen::sinks`], [`Varlen::mask`], [`Varlen::facts`] |
//! | padded batches | `flash_attn_func`, without lengths | [`Sequences::padded`] |

mod call;
mod pass;
mod planner;
mod sequences;

pub use call::{Varlen, VarlenOutput, WindowLimit};
pub use planner::Planner;
pub use sequences::{Sequences, packed, packed_mut};
