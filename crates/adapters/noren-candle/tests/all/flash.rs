//! The functions with the names of candle-flash-attn: against attention of candle in `f64`, gradients, and wrong input.

use candle_nn::ops::softmax;
use noren_candle::candle_core::{D, DType, Device, Result, Tensor, Var};
use noren_candle::flash::*;

/// The arguments of a call, and the function that has them.
#[derive(Clone, Copy, Debug)]
struct Case {
    varlen: bool,
    alibi: bool,
    causal: bool,
    window: Option<[Option<usize>; 2]>,
    softcap: Option<f32>,
}

/// Returns every combination of arguments that a function has.
fn cases() -> Vec<Case> {
    let windows = [None, Some([None, None]), Some([Some(3), None]), Some([None, Some(0)]), Some([Some(4), Some(2)])];
    let mut cases = Vec::new();
    for varlen in [false, true] {
        for alibi in [false, true] {
            for window in windows {
                cases.push(Case { varlen, alibi, causal: false, window, softcap: None });
                match window {
                    None => cases.push(Case { varlen, alibi, causal: true, window, softcap: None }),
                    Some(_) => cases.push(Case { varlen, alibi, causal: false, window, softcap: Some(2.0) }),
                }
            }
        }
    }
    cases
}

const SCALE: f32 = 0.3;

/// The lengths of queries and keys of each sequence.
fn lens(varlen: bool, equal: bool) -> (Vec<usize>, Vec<usize>) {
    match (varlen, equal) {
        (true, true) => (vec![5, 0, 9, 1], vec![5, 0, 9, 1]),
        (true, false) => (vec![5, 2, 1, 4], vec![9, 0, 11, 4]),
        (false, true) => (vec![7, 7], vec![7, 7]),
        (false, false) => (vec![3, 3], vec![8, 8]),
    }
}

fn cumulative(lens: &[usize]) -> Result<Tensor> {
    let mut sums = vec![0u32];
    lens.iter().for_each(|len| sums.push(sums[sums.len() - 1] + *len as u32));
    Tensor::new(sums, &Device::Cpu)
}

/// Calls the function of `case`. The tensors are `[batch, len, heads, head_size]` or `[tokens, heads, head_size]`.
fn call(case: Case, [q, k, v]: [&Tensor; 3], slopes: &Tensor, lens: &(Vec<usize>, Vec<usize>)) -> Result<Tensor> {
    let Case { varlen, alibi, causal, window, softcap } = case;
    if !varlen {
        return match (alibi, window, softcap) {
            (false, None, _) => flash_attn(q, k, v, SCALE, causal),
            (true, None, _) => flash_attn_alibi(q, k, v, slopes, SCALE, causal),
            (false, Some([l, r]), None) => flash_attn_windowed(q, k, v, SCALE, l, r),
            (true, Some([l, r]), None) => flash_attn_alibi_windowed(q, k, v, slopes, SCALE, l, r),
            (_, Some([l, r]), Some(cap)) => {
                flash_attn_alibi_windowed_softcap(q, k, v, alibi.then_some(slopes), SCALE, l, r, cap)
            }
        };
    }
    let (cu_q, cu_k) = (cumulative(&lens.0)?, cumulative(&lens.1)?);
    let (mq, mk) = (*lens.0.iter().max().unwrap(), *lens.1.iter().max().unwrap());
    match (alibi, window, softcap) {
        (false, None, _) => flash_attn_varlen(q, k, v, &cu_q, &cu_k, mq, mk, SCALE, causal),
        (true, None, _) => flash_attn_varlen_alibi(q, k, v, slopes, &cu_q, &cu_k, mq, mk, SCALE, causal),
        (false, Some([l, r]), None) => flash_attn_varlen_windowed(q, k, v, &cu_q, &cu_k, mq, mk, SCALE, l, r),
        (true, Some([l, r]), None) => {
            flash_attn_varlen_alibi_windowed(q, k, v, slopes, &cu_q, &cu_k, mq, mk, SCALE, l, r)
        }
        (_, Some([l, r]), Some(cap)) => {
            let slopes = alibi.then_some(slopes);
            flash_attn_varlen_alibi_windowed_softcap(q, k, v, slopes, &cu_q, &cu_k, mq, mk, SCALE, l, r, cap)
        }
    }
}

/// Computes one sequence with candle in `f64`, with gradients. `q` is `[len, heads, head_size]`.
fn expected(case: Case, [q, k, v]: [&Tensor; 3], slopes: &Tensor) -> Result<Tensor> {
    let ([q_len, heads, _], [k_len, kv_heads, _]) =
        (<[usize; 3]>::try_from(q.dims()).unwrap(), <[usize; 3]>::try_from(k.dims()).unwrap());
    let wide = |x: &Tensor| x.to_dtype(DType::F64)?.transpose(0, 1)?.contiguous();
    let shared = |x: &Tensor| {
        let index: Vec<u32> = (0..heads).map(|h| (h / (heads / kv_heads)) as u32).collect();
        wide(x)?.index_select(&Tensor::new(index, &Device::Cpu)?, 0)
    };
    let (q, k, v) = (wide(q)?, shared(k)?, shared(v)?);
    let mut scores = (q.matmul(&k.transpose(1, 2)?.contiguous()?)? * f64::from(SCALE))?;
    if let Some(cap) = case.softcap.map(f64::from) {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    let slopes: Vec<f32> = slopes.to_vec1()?;
    let [left, right] = case.window.unwrap_or([None, case.causal.then_some(0)]);
    let (mut keep, mut add) = (Vec::new(), Vec::new());
    for (h, i, j) in (0..heads).flat_map(|h| (0..q_len).flat_map(move |i| (0..k_len).map(move |j| (h, i, j)))) {
        let distance = (i + k_len) as i64 - q_len as i64 - j as i64;
        let allowed = left.is_none_or(|l| distance <= l as i64) && right.is_none_or(|r| -distance <= r as i64);
        keep.push(f64::from(u8::from(allowed)));
        let bias = if case.alibi { -f64::from(slopes[h]) * distance.abs() as f64 } else { 0.0 };
        add.push(if allowed { bias } else { -1e30 });
    }
    let shape = (heads, q_len, k_len);
    let (keep, add) = (Tensor::from_vec(keep, shape, &Device::Cpu)?, Tensor::from_vec(add, shape, &Device::Cpu)?);
    let weights = (softmax(&(scores + add)?, D::Minus1)? * keep)?;
    weights.matmul(&v)?.transpose(0, 1)
}

fn random(shape: &[usize], seed: usize) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    assert_eq!(a.dims(), b.dims());
    let difference = (a.to_dtype(DType::F64)? - b.to_dtype(DType::F64)?)?.abs()?;
    assert_eq!(difference.dims().iter().product::<usize>(), a.elem_count());
    difference.flatten_all()?.max(0)?.to_scalar::<f64>()
}

#[test]
fn every_combination_of_arguments_equals_candle_in_f64_with_gradients() -> Result<()> {
    let (heads, kv_heads, width) = (4, 2, 16);
    let slopes = Tensor::new(&[0.5f32, 0.25, 0.125, 0.0625], &Device::Cpu)?;
    for case in cases() {
        for (equal, dtype) in [(true, DType::F32), (false, DType::F32), (true, DType::F16), (false, DType::BF16)] {
            let lens = lens(case.varlen, equal);
            let shape = |lens: &[usize], heads: usize| match case.varlen {
                true => vec![lens.iter().sum(), heads, width],
                false => vec![lens.len(), lens[0], heads, width],
            };
            let var =
                |lens: &[usize], heads, seed| Var::from_tensor(&random(&shape(lens, heads), seed)?.to_dtype(dtype)?);
            let (q, k, v) = (var(&lens.0, heads, 1)?, var(&lens.1, kv_heads, 2)?, var(&lens.1, kv_heads, 3)?);
            let out = call(case, [&q, &k, &v], &slopes, &lens)?;
            assert_eq!((out.dims(), out.dtype()), (q.dims(), dtype));

            // each sequence with candle
            let (mut parts, mut starts) = (Vec::new(), [0, 0]);
            for (i, (q_len, k_len)) in lens.0.iter().zip(&lens.1).enumerate() {
                let part = |x: &Tensor, start: usize, len: usize| match case.varlen {
                    true => x.narrow(0, start, len),
                    false => x.get(i),
                };
                let (qs, [ks, vs]) =
                    (part(&q, starts[0], *q_len)?, [part(&k, starts[1], *k_len)?, part(&v, starts[1], *k_len)?]);
                starts = [starts[0] + q_len, starts[1] + k_len];
                match (*q_len, *k_len) {
                    (0, _) => {}
                    (_, 0) => parts.push(Tensor::zeros((*q_len, heads, width), DType::F64, &Device::Cpu)?),
                    _ => parts.push(expected(case, [&qs, &ks, &vs], &slopes)?),
                }
            }
            let whole = if case.varlen { Tensor::cat(&parts, 0)? } else { Tensor::stack(&parts, 0)? };
            let tolerance = match dtype {
                DType::F32 => 1e-5,
                DType::F16 => 3e-3,
                _ => 2e-2,
            };
            let off = distance(&out, &whole)?;
            assert!(off <= tolerance, "{case:?} {dtype:?}: outputs differ by {off}");

            let weights = random(out.dims(), 4)?.to_dtype(dtype)?;
            let got = (&out * &weights)?.sum_all()?.backward()?;
            let wanted = (whole * weights.to_dtype(DType::F64)?)?.sum_all()?.backward()?;
            for (name, var) in [("q", &q), ("k", &k), ("v", &v)] {
                let off = distance(got.get(var).unwrap(), wanted.get(var).unwrap())?;
                assert!(off <= 4.0 * tolerance, "{case:?} {dtype:?}: gradients of {name} differ by {off}");
            }
        }
    }
    Ok(())
}

#[test]
fn strided_tensors_are_read_in_place() -> Result<()> {
    let qkv = random(&[8, 3, 4, 16], 5)?;
    let part = |n| qkv.narrow(1, n, 1)?.squeeze(1);
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let lens = Tensor::new(&[0u32, 5, 8], &Device::Cpu)?;
    let out = flash_attn_varlen(&q, &k, &v, &lens, &lens, 5, 5, SCALE, true)?;
    let dense = [q.contiguous()?, k.contiguous()?, v.contiguous()?];
    let wide = lens.to_dtype(DType::I64)?;
    let same = flash_attn_varlen(&dense[0], &dense[1], &dense[2], &wide, &wide, 99, 99, SCALE, true)?;
    assert_eq!(out.to_vec3::<f32>()?, same.to_vec3::<f32>()?);
    // a batch of one equals one packed sequence
    let one = Tensor::new(&[0u32, 8], &Device::Cpu)?;
    let packed = flash_attn_varlen(&q, &k, &v, &one, &one, 8, 8, SCALE, false)?;
    let [q, k, v] = [q, k, v].map(|x| x.unsqueeze(0));
    let batch = flash_attn(&q?, &k?, &v?, SCALE, false)?;
    assert_eq!(batch.squeeze(0)?.to_vec3::<f32>()?, packed.to_vec3::<f32>()?);
    Ok(())
}

#[test]
fn wrong_arguments_are_refused_by_name() -> Result<()> {
    let of = |shape: &[usize]| random(shape, 1);
    let (q, kv) = (of(&[8, 4, 16])?, of(&[8, 2, 16])?);
    let slopes = Tensor::new(&[0.5f32; 4], &Device::Cpu)?;
    let lens = Tensor::new(&[0u32, 5, 8], &Device::Cpu)?;
    let list = |values: &[u32]| Tensor::new(values, &Device::Cpu);
    let varlen = |q: &Tensor, k: &Tensor, v: &Tensor, lq: &Tensor, lk: &Tensor, most: usize| {
        flash_attn_varlen(q, k, v, lq, lk, most, most, SCALE, true)
    };
    let refused = |result: Result<Tensor>, text: &str| {
        let error = result.expect_err(text).to_string();
        assert!(error.contains(text), "`{error}` has no `{text}`");
    };
    refused(flash_attn(&q, &kv, &kv, SCALE, true), "q has shape [8, 4, 16]: give a tensor of rank 4");
    refused(varlen(&of(&[1, 8, 4, 16])?, &kv, &kv, &lens, &lens, 5), "give a tensor of rank 3");
    refused(varlen(&q, &of(&[8, 3, 16])?, &of(&[8, 3, 16])?, &lens, &lens, 5), "q has 4 heads and k has 3");
    refused(varlen(&q, &kv, &of(&[7, 2, 16])?, &lens, &lens, 5), "shape mismatch");
    refused(varlen(&q, &of(&[8, 2, 8])?, &of(&[8, 2, 8])?, &lens, &lens, 5), "shape mismatch");
    refused(varlen(&of(&[8, 4, 12])?, &of(&[8, 2, 12])?, &of(&[8, 2, 12])?, &lens, &lens, 5), "the head size is 12");
    refused(
        varlen(&of(&[8, 2, 520])?, &of(&[8, 2, 520])?, &of(&[8, 2, 520])?, &lens, &lens, 5),
        "the head size is 520",
    );
    refused(varlen(&q.to_dtype(DType::F64)?, &kv, &kv, &lens, &lens, 5), "q is F64");
    refused(varlen(&q, &kv.to_dtype(DType::F16)?, &kv, &lens, &lens, 5), "k is F16");
    let turned = of(&[8, 16, 4])?.transpose(1, 2)?;
    refused(varlen(&turned, &kv, &kv, &lens, &lens, 5), "the last dimension of q has strides");
    refused(varlen(&q, &kv, &kv, &list(&[0, 5])?, &lens, 8), "cu_seqlens_k is a list of 3 values");
    refused(varlen(&q, &kv, &kv, &list(&[0])?, &list(&[0])?, 8), "at least 2 values");
    refused(varlen(&q, &kv, &kv, &list(&[0, 9])?, &list(&[0, 8])?, 9), "cu_seqlens_q is up to 9: q has only 8 tokens");
    refused(varlen(&q, &kv, &kv, &list(&[0, 6, 5])?, &lens, 8), "no value may be smaller");
    refused(varlen(&q, &kv, &kv, &list(&[0, u32::MAX])?, &list(&[0, 8])?, 8), "cu_seqlens_q is 4294967295");
    refused(varlen(&q, &kv, &kv, &slopes, &lens, 8), "seqlens_q is of F32");
    refused(varlen(&q, &kv, &kv, &lens, &lens, 4), "max_seqlen_q is 4: the longest sequence has 5 tokens");
    let alibi = |slopes: &Tensor| flash_attn_varlen_alibi(&q, &kv, &kv, slopes, &lens, &lens, 5, 5, SCALE, true);
    alibi(&slopes)?;
    refused(alibi(&slopes.narrow(0, 0, 2)?), "alibi_slopes is [2] of F32: give [4] of f32");
    refused(alibi(&slopes.to_dtype(DType::F16)?), "alibi_slopes is [4] of F16");
    let capped =
        |cap| flash_attn_varlen_alibi_windowed_softcap(&q, &kv, &kv, None, &lens, &lens, 5, 5, SCALE, None, None, cap);
    refused(capped(f32::NAN), "softcap is NaN");
    refused(flash_attn_varlen(&q, &kv, &kv, &lens, &lens, 5, 5, f32::NAN, true), "scale is NaN");
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu);
    for (heads, kv_heads, head_size, text) in [
        (4, 0, 16, "k has 0"),
        (0, 2, 16, "q has 0 heads"),
        (0, 0, 16, "q has 0 heads"),
        (4, 2, 0, "the head size is 0"),
    ] {
        let (q, kv) = (zeros(&[8, heads, head_size])?, zeros(&[8, kv_heads, head_size])?);
        refused(varlen(&q, &kv, &kv, &lens, &lens, 5), text);
    }
    let none = zeros(&[0, 8, 2, 16])?;
    refused(flash_attn(&none, &none, &none, SCALE, true), "the batch is empty");
    let vast = zeros(&[1, 8, 2, 16])?.expand((1 << 55, 8, 2, 16))?;
    refused(flash_attn(&vast, &vast, &vast, SCALE, true), "would not fit into memory");
    for limit in [0, 7, usize::MAX / 2, usize::MAX] {
        let windowed = flash_attn_varlen_windowed(&q, &kv, &kv, &lens, &lens, 5, 5, SCALE, Some(limit), Some(limit))?;
        if limit > 0 {
            assert_eq!(windowed.to_vec3::<f32>()?, varlen_full(&q, &kv, &lens)?.to_vec3::<f32>()?, "{limit}");
        }
    }
    assert_eq!(capped(0.0)?.to_vec3::<f32>()?, varlen_full(&q, &kv, &lens)?.to_vec3::<f32>()?);
    refused(
        flash_attn(&of(&[2, 8, 4, 16])?, &of(&[1, 8, 2, 16])?, &of(&[1, 8, 2, 16])?, SCALE, true),
        "shape mismatch",
    );
    Ok(())
}

fn varlen_full(q: &Tensor, kv: &Tensor, lens: &Tensor) -> Result<Tensor> {
    flash_attn_varlen(q, kv, kv, lens, lens, 5, 5, SCALE, false)
}
