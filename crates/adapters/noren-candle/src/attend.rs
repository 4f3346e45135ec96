//! [`attend`]: attention over tensors in one call.

use crate::attention::{Bias, Options, attention};
use crate::error::{Error, Result};
use candle_core::Tensor;
use noren::{Attend, IntoMasking, Masking, Shape};

/// Computes masked attention over tensors in one call, with gradients: [`noren::attend`](noren::attend()) for candle.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]` and `v` is
/// `[batch, kv_heads, kv_len, v_dim]`. `mask` is a text, a [`Mask`](noren::Mask), a [`Spec`](noren::Spec) or a
/// [`Plan`](noren::Plan) (`&Arc<Plan>` is not copied). The text may contain ALiBi and a softcap.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
///
/// let q = Var::randn(0f32, 1., (1, 4, 8, 16), &Device::Cpu)?;
/// let kv = Tensor::randn(0f32, 1., (1, 2, 8, 16), &Device::Cpu)?;
/// let out = noren_candle::attend(&q, &kv, &kv, "causal & documents([5, 3])")?;
/// assert_eq!(out.sqr()?.sum_all()?.backward()?.get(&q).unwrap().dims(), [1, 4, 8, 16]);
/// # Ok::<(), noren_candle::Error>(())
/// ```
///
/// For facts (data that a mask needs, such as documents), query positions, or score modifiers that need tensors, make a
/// [`plan`](crate::plan()) and call [`attention`](crate::attention()) with [`Options`].
///
/// # Errors
/// Returns the errors of [`noren::attend`](noren::attend()) and of [`attention`](crate::attention()).
pub fn attend<'a>(q: &Tensor, k: &Tensor, v: &Tensor, mask: impl IntoMasking<'a>) -> Result<Tensor> {
    let four = |name, tensor: &Tensor| {
        <[usize; 4]>::try_from(tensor.dims())
            .map_err(|_| Error::tensor(name, tensor, "give a tensor of shape [batch, heads, length, head_dim]"))
    };
    let ([batch, heads, q_len, _], [_, kv_heads, kv_len, _]) = (four("q", q)?, four("k", k)?);
    let masking = mask.into_masking()?;
    let mut options = Options::default();
    if let Masking::Spec(spec) = &masking {
        if q_len != kv_len {
            return Err(noren::Error::Alignment { q_len, kv_len }.into());
        }
        // A text cannot contain a tensor.
        let scores = noren::Options::for_scores(&spec.scores, heads, |score, _| {
            Err(noren::Error::Missing {
                part: score.to_string(),
                what: "a tensor".to_owned(),
                fix: "make a plan, and give this tensor to `attention` in its `Options`".to_owned(),
            })
        })?;
        options.softcap = scores.softcap;
        let alibi = |bias| if let noren::Bias::Alibi(slopes) = bias { Some(Bias::Alibi(slopes)) } else { None };
        options.bias = scores.bias.into_iter().filter_map(alibi).collect();
    }
    let plan = match masking {
        Masking::Shared(plan) => plan,
        other => {
            let shape = Shape::new(q_len, kv_len, 0).batch(batch).heads(heads).kv_heads(kv_heads);
            Attend::new(other)?.plan(&shape)?
        }
    };
    attention(q, k, v, &plan, &options)
}
