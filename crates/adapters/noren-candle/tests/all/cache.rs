//! Decoding with [`KvCache`] gives the bits of attention over the whole sequence, in every number type.

use noren::{Facts, KvShape, Mask, Queries, Shape};
use noren_candle::candle_core::{DType, Device, Tensor};
use noren_candle::{Error, KvCache, Options, attention, plan};

const LEN: usize = 9;

/// Returns numbers that are the same in every run, `[1, heads, LEN, 8]`.
fn numbers(heads: usize, seed: usize, dtype: DType) -> Tensor {
    let values: Vec<f32> =
        (0..heads * LEN * 8).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Tensor::from_vec(values, (1, heads, LEN, 8), &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

/// Compares a prompt of 6 tokens and 3 tokens one by one with one pass over all 9 tokens.
fn compare(mut cache: KvCache, dtype: DType) -> Result<(), Error> {
    let (q, k, v) = (numbers(4, 1, dtype), numbers(2, 2, dtype), numbers(2, 3, dtype));
    let mask: Mask = "sliding(5)".parse()?;
    let whole = plan(&mask, &Shape::square(LEN).heads(4).kv_heads(2), &Facts::new())?;
    let options = Options { softcap: Some(3.0), ..Options::default() };
    let expected = attention(&q, &k, &v, &whole, &options)?;
    let mut parts = Vec::new();
    for (from, new) in
        [(0, Queries::Each(6)), (6, Queries::Each(1)), (7, Queries::Ragged(vec![0, 1])), (8, Queries::Each(1))]
    {
        let len = if from == 0 { 6 } else { 1 };
        let part = |tensor: &Tensor| tensor.narrow(2, from, len);
        cache.append(&part(&k)?, &part(&v)?, &new)?;
        let step = cache.plan(&mask, &Facts::new(), 4, &new)?;
        parts.push(cache.attention(&part(&q)?, &step, &options)?);
    }
    let given = Tensor::cat(&parts, 2)?;
    let bits = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
    assert_eq!(bits(&given)?, bits(&expected)?, "{dtype:?}");
    Ok(())
}

#[test]
fn steps_have_the_bits_of_one_pass() -> Result<(), Error> {
    let shape = KvShape::new(2, 8);
    compare(KvCache::F32(noren::KvCache::contiguous(&shape, 16)?), DType::F32)?;
    compare(KvCache::Bf16(noren::KvCache::contiguous(&shape, 16)?), DType::BF16)?;
    compare(KvCache::F16(noren::KvCache::contiguous(&shape, 16)?), DType::F16)
}

#[test]
fn values_may_be_wider_than_keys() -> Result<(), Error> {
    let mut cache = KvCache::F32(noren::KvCache::contiguous(&KvShape::new(2, 8).v_dim(16), 16)?);
    let (q, k) = (numbers(4, 1, DType::F32), numbers(2, 2, DType::F32));
    let all = Queries::Each(LEN);
    cache.append(&k, &Tensor::cat(&[&k, &k], 3)?, &all)?;
    let step = cache.plan(&"causal".parse()?, &Facts::new(), 4, &all)?;
    let out = cache.attention(&q, &step, &Options::default())?;
    assert_eq!(out.dims(), [1, 4, LEN, 16]);
    assert_eq!(
        out.narrow(3, 0, 8)?.flatten_all()?.to_vec1::<f32>()?,
        out.narrow(3, 8, 8)?.flatten_all()?.to_vec1::<f32>()?
    );
    Ok(())
}

#[test]
fn tensors_of_another_type_are_refused() -> Result<(), Error> {
    let mut cache = KvCache::F32(noren::KvCache::contiguous(&KvShape::new(2, 8), 16)?);
    let k = numbers(2, 2, DType::BF16);
    let error = cache.append(&k, &k, &Queries::Each(LEN)).unwrap_err();
    assert_eq!(error.to_string(), "a tensor's type is BF16: all tensors of a call must be f32: convert with to_dtype");
    Ok(())
}
