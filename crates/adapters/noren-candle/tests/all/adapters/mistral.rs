//! mistral.rs: `Sdpa::run_attention`, with a causal description instead of a dense mask where there is one.

/// A copy of the part of mistral.rs that the adapter uses.
mod theirs {
    pub(super) struct FlashParams {
        pub(super) causal: bool,
    }

    pub(super) struct SdpaParams {
        pub(super) softcap: Option<f32>,
        pub(super) softmax_scale: f32,
        pub(super) sliding_window: Option<usize>,
    }

    pub(super) struct Sdpa;
}

use theirs::{FlashParams, Sdpa, SdpaParams};

// begin
use noren_candle::candle_core::{Result, Tensor};
use noren_candle::flash::flash_attn_alibi_windowed_softcap;
use noren_candle::{Bias, Options, attention, plan};

impl Sdpa {
    /// Computes attention. `q` is `[batch, heads, q_len, head_dim]`, `k` and `v` are `[batch, kv_heads, kv_len, head_dim]`: keys
    /// and values are not repeated. With `flash_params`, no mask tensor is needed; a mask tensor is additive.
    pub(crate) fn run_attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        flash_params: Option<&FlashParams>,
        sdpa_params: &SdpaParams,
    ) -> Result<Tensor> {
        let &SdpaParams { softcap, softmax_scale, sliding_window } = sdpa_params;
        if let Some(params) = flash_params {
            let [q, k, v] = [q.transpose(1, 2)?, k.transpose(1, 2)?, v.transpose(1, 2)?];
            let (right, cap) = (params.causal.then_some(0), softcap.unwrap_or(0.0));
            return flash_attn_alibi_windowed_softcap(&q, &k, &v, None, softmax_scale, sliding_window, right, cap)?
                .transpose(1, 2);
        }
        let mut options = Options { scale: Some(softmax_scale), softcap, ..Options::default() };
        if let Some(mask) = mask {
            let mask = match mask.rank() {
                2 => mask.unsqueeze(0)?.unsqueeze(0)?, // [q_len, kv_len]
                3 => mask.unsqueeze(1)?,               // [batch, q_len, kv_len]
                _ => mask.clone(),
            };
            options.bias.push(Bias::Dense(mask));
        }
        let shape = noren::Shape::cross(q.dim(2)?, k.dim(2)?).batch(q.dim(0)?).heads(q.dim(1)?).kv_heads(k.dim(1)?);
        let all = plan(&noren::atoms::full(), &shape, &noren::Facts::new())
            .map_err(noren_candle::candle_core::Error::wrap)?;
        attention(q, k, v, &all, &options).map_err(noren_candle::candle_core::Error::wrap)
    }
}
// end

use super::{close, random, textbook};
use noren_candle::candle_core::Device;

/// A prompt and a step with a cache, by description and by a dense mask.
#[test]
fn descriptions_and_dense_masks_equal_the_textbook() -> Result<()> {
    for (q_len, kv_len) in [(7, 7), (1, 9), (3, 12)] {
        let (q, kv) = (random(&[2, 4, q_len, 8], 3)?, random(&[2, 2, kv_len, 8], 4)?);
        let keep = |q: usize, k: usize| k <= q + kv_len - q_len && k + 4 >= q + kv_len - q_len;
        let params = SdpaParams { softcap: None, softmax_scale: 0.5, sliding_window: Some(4) };
        let expected = textbook(&q, &kv, &kv, 0.5, keep)?;
        close(&Sdpa.run_attention(&q, &kv, &kv, None, Some(&FlashParams { causal: true }), &params)?, &expected)?;
        let cells = (0..q_len).flat_map(|i| (0..kv_len).map(move |j| if keep(i, j) { 0.0 } else { f32::NEG_INFINITY }));
        let mask = Tensor::from_vec(cells.collect(), (q_len, kv_len), &Device::Cpu)?;
        close(&Sdpa.run_attention(&q, &kv, &kv, Some(&mask), None, &params)?, &expected)?;
    }
    Ok(())
}
