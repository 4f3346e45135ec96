//! text-embeddings-inference: its function `flash_attn_varlen`, which only CUDA has.

// begin
use noren_candle::candle_core::{Error, Tensor};
use noren_candle::flash::flash_attn_varlen_alibi_windowed_softcap;

/// Computes attention over packed sequences on the CPU, with the arguments of `flash_attn_varlen` in
/// `backends/candle/src/flash_attn.rs`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn flash_attn_varlen(
    q: &Tensor, // [tokens, heads, head_size]
    k: &Tensor,
    v: &Tensor,
    alibi_slopes: Option<&Tensor>,
    seqlens_q: &Tensor,
    seqlens_k: &Tensor,
    max_seqlen_q: usize,
    max_seqlen_k: usize,
    softmax_scale: f32,
    causal: bool,
    window_size_left: Option<usize>,
    window_size_right: Option<usize>,
) -> Result<Tensor, Error> {
    let right = if causal { Some(0) } else { window_size_right };
    let (lens, most) = ([seqlens_q, seqlens_k], [max_seqlen_q, max_seqlen_k]);
    flash_attn_varlen_alibi_windowed_softcap(
        q,
        k,
        v,
        alibi_slopes,
        lens[0],
        lens[1],
        most[0],
        most[1],
        softmax_scale,
        window_size_left,
        right,
        0.0,
    )
}
// end

use super::{close, random, textbook};
use noren_candle::candle_core::{self, Device};

/// Two packed sequences against each sequence alone, as a CPU program computes it with candle's operations.
#[test]
fn packed_sequences_equal_the_textbook() -> candle_core::Result<()> {
    let (q, kv) = (random(&[9, 4, 8], 1)?, random(&[9, 2, 8], 2)?);
    let lens = Tensor::new(&[0u32, 6, 9], &Device::Cpu)?;
    for causal in [false, true] {
        let out = flash_attn_varlen(&q, &kv, &kv, None, &lens, &lens, 6, 6, 0.5, causal, None, None)?;
        for (start, len) in [(0, 6), (6, 3)] {
            let by_head = |x: &Tensor| x.narrow(0, start, len)?.transpose(0, 1)?.unsqueeze(0);
            let keep = |q: usize, k: usize| !causal || k <= q;
            let expected = textbook(&by_head(&q)?, &by_head(&kv)?, &by_head(&kv)?, 0.5, keep)?;
            close(&by_head(&out)?, &expected)?;
        }
    }
    Ok(())
}
