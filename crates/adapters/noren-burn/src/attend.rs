//! [`attend()`]: attention over tensors in one call.

use crate::attention::attention;
use crate::error::Result;
use crate::options::{Bias, Options};
use burn::tensor::Tensor;
use noren::{Attend, IntoMasking, Masking, Shape};

/// Computes masked attention over tensors in one call, with gradients: [`noren::attend`](noren::attend()) for burn.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]` and `v` is
/// `[batch, kv_heads, kv_len, v_dim]`. `mask` is a text, a [`Mask`](noren::Mask), a [`Spec`](noren::Spec) or a
/// [`Plan`](noren::Plan) (`&Arc<Plan>` is not copied). The text may contain ALiBi and a softcap.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
///
/// let device = Device::flex().autodiff();
/// let q = Tensor::<4>::random([1, 4, 8, 16], Distribution::Default, &device).require_grad();
/// let kv = Tensor::<4>::random([1, 2, 8, 16], Distribution::Default, &device);
/// let out = noren_burn::attend(q.clone(), kv.clone(), kv, "causal & documents([5, 3])")?;
/// assert_eq!(q.grad(&out.sum().backward()).unwrap().dims(), [1, 4, 8, 16]);
/// # Ok::<(), noren_burn::Error>(())
/// ```
///
/// For facts (data given with a mask, such as lengths), query positions, or score modifiers that need tensors, make a
/// [`plan`](crate::plan()) and call [`attention`](crate::attention()) with [`Options`].
///
/// # Errors
/// Returns the errors of [`noren::attend`](noren::attend()) and of [`attention`](crate::attention()).
pub fn attend<'a>(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, mask: impl IntoMasking<'a>) -> Result<Tensor<4>> {
    let ([batch, heads, q_len, _], [_, kv_heads, kv_len, _]) = (q.dims(), k.dims());
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
