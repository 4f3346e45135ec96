//! Times candle on the CPU: its fused attention (`--impl flash`), or two products and a softmax
//! (`--impl plain`), which is the only implementation with gradients.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::attention::{AttnMask, flash_attn};
use peer_common::{Case, normal, refuse};

fn main() {
    let case = Case::from_arguments();
    let plain = std::env::args().any(|arg| arg == "plain");
    if let Err(error) = if plain { products(&case) } else { fused(&case) } {
        refuse(error);
    }
}

fn dtype(case: &Case) -> DType {
    match case.dtype.as_str() {
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        _ => DType::F32,
    }
}

fn array(case: &Case, shape: (usize, usize, usize, usize), seed: u64) -> Result<Tensor> {
    let len = shape.0 * shape.1 * shape.2 * shape.3;
    Tensor::from_vec(normal(len, seed), shape, &Device::Cpu)?.to_dtype(dtype(case))
}

/// Returns 0 where the query may attend, minus infinity elsewhere.
fn additive(case: &Case) -> Result<Tensor> {
    let values: Vec<f32> = case.keep().into_iter().map(|keep| if keep { 0.0 } else { f32::NEG_INFINITY }).collect();
    Tensor::from_vec(values, (case.n, case.m), &Device::Cpu)?.to_dtype(dtype(case))
}

/// Arrays are `[batch, length, heads, head_dim]`.
fn fused(case: &Case) -> Result<()> {
    if case.op == "fwdbwd" {
        refuse("the fused attention has no backward");
    }
    let q = array(case, (1, case.n, case.heads, case.dim), 1)?;
    let k = array(case, (1, case.m, case.kv_heads, case.dim), 2)?;
    let v = array(case, (1, case.m, case.kv_heads, case.dim), 3)?;
    let mask = match case.mask.as_str() {
        _ if !case.is_masked() => AttnMask::None,
        "causal" => AttnMask::causal_with_offset(case.m - case.n),
        _ => AttnMask::Mask(additive(case)?),
    };
    let scale = 1.0 / (case.dim as f32).sqrt();
    let run = || match dtype(case) {
        DType::BF16 => flash_attn::<half::bf16>(&q, &k, &v, scale, mask.clone(), None, None),
        DType::F16 => flash_attn::<half::f16>(&q, &k, &v, scale, mask.clone(), None, None),
        _ => flash_attn::<f32>(&q, &k, &v, scale, mask.clone(), None, None),
    };
    run()?;
    case.measure(|| drop(run().expect("it ran before")));
    Ok(())
}

/// Arrays are `[batch, heads, length, head_dim]`; the heads of a group are rows of one product.
fn products(case: &Case) -> Result<()> {
    let group = case.heads / case.kv_heads;
    let q = Var::from_tensor(&array(case, (1, case.kv_heads, group * case.n, case.dim), 1)?)?;
    let k = Var::from_tensor(&array(case, (1, case.kv_heads, case.m, case.dim), 2)?)?;
    let v = Var::from_tensor(&array(case, (1, case.kv_heads, case.m, case.dim), 3)?)?;
    let mask = if case.is_masked() { Some(additive(case)?) } else { None };
    let backward = case.op == "fwdbwd";
    let scale = 1.0 / (case.dim as f64).sqrt();
    let scores = (1, case.heads, case.n, case.m);
    let run = || -> Result<()> {
        // A detached query, key and value keep no graph of gradients, as in inference.
        let [q, k, v] = [&q, &k, &v].map(|x| if backward { x.as_tensor().clone() } else { x.as_detached_tensor() });
        let mut weights = (q.matmul(&k.transpose(2, 3)?)? * scale)?.reshape(scores)?;
        if let Some(mask) = &mask {
            weights = weights.broadcast_add(mask)?;
        }
        // The fast softmax has no backward.
        let weights = match backward {
            true => candle_nn::ops::softmax(&weights, D::Minus1)?,
            false => candle_nn::ops::softmax_last_dim(&weights)?,
        };
        let out = weights.reshape((1, case.kv_heads, group * case.n, case.m))?.matmul(&v)?;
        if backward {
            out.sum_all()?.backward()?;
        }
        Ok(())
    };
    run()?;
    case.measure(|| run().expect("it ran before"));
    Ok(())
}
