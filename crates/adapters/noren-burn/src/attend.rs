//! [`attend()`]: attention over tensors in one call.

use crate::attention::attention;
use crate::error::{Error, Result};
use crate::options::{Bias, Options};
use burn::tensor::Tensor;
use noren::{Attend, IntoMasking, Masking, Score, Shape};

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
        for score in &spec.scores {
            add(&mut options, score, heads)?;
        }
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

/// Adds the score modifier `score` of the mask text to `options`. Returns an error for a modifier that needs a tensor,
/// such as a dense bias, because a text cannot contain a tensor.
fn add(options: &mut Options, score: &Score, heads: usize) -> Result<()> {
    match score {
        Score::Softcap { cap } if options.softcap.is_none() => options.softcap = Some(cap.get() as f32),
        Score::Softcap { .. } => {
            return Err(Error::input(
                "score",
                format!("`{score}`"),
                "a mask takes at most one softcap: remove one of the softcaps",
            ));
        }
        Score::Alibi { slopes } => {
            let given = slopes.as_ref().map(|slopes| slopes.iter().map(|slope| slope.get()).collect());
            let slopes: Vec<f64> = given.unwrap_or_else(|| Score::alibi_slopes(heads));
            options.bias.push(Bias::Alibi(slopes.into_iter().map(|slope| slope as f32).collect()));
        }
        _ => {
            return Err(noren::Error::Missing {
                part: score.to_string(),
                what: "a tensor".to_owned(),
                fix: "make a plan, and give this tensor to `attention` in its `Options`".to_owned(),
            }
            .into());
        }
    }
    Ok(())
}
