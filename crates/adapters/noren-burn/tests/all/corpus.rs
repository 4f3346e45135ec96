//! Every drawn mask of the corpus `testdata/*.toml`: outputs and gradients are those of burn's decomposed attention.

use crate::textbook::{Draw, burns, close, difference, gradients, textbook, values};
use burn::tensor::Device;
use noren_burn::{Bias, Options, attention, to_drop};
use noren_testing::drawn;
use std::sync::Arc;

const TOLERANCE: f32 = 1e-5;

#[test]
fn outputs_and_gradients_are_those_of_burn() {
    let cases = drawn::cases();
    assert!(cases.len() > 200, "{} cases", cases.len());
    let device = Device::flex().autodiff();
    let (mut compared, mut with_burns, mut empty, mut worst) = (0, 0, 0, 0f32);
    for (n, (file, case)) in cases.iter().enumerate() {
        let what = format!("{file}: {}: {}", case.name, case.mask);
        let bound = case.bind().unwrap_or_else(|error| panic!("{what}: {error}"));
        let plan = Arc::new(bound.plan());
        let shape = bound.shape().clone();
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let (q_len, kv_len) = (shape.q_len(), shape.kv_len());
        let drop = to_drop(&bound, &device).unwrap();
        let empty_rows =
            drop.clone().int().sum_dim(3).into_data().iter::<i64>().filter(|n| *n == kv_len as i64).count();
        for with_bias in [false, true] {
            let mut draw = Draw(n as u64);
            let leaves = [[batch, heads, q_len, 8], [batch, kv_heads, kv_len, 8], [batch, kv_heads, kv_len, 5]]
                .map(|shape| draw.leaf(1.0, shape));
            let bias = draw.leaf(1.0, [1, heads, q_len, kv_len]);
            let dout = draw.tensor(1.0, [batch, heads, q_len, 5], &Device::flex());
            let options = match with_bias {
                false => Options::default(),
                true => Options { bias: vec![Bias::Dense(bias.clone())], ..Options::default() },
            };
            let [q, k, v] = leaves.clone();
            let out = attention(q, k, v, &plan, &options).unwrap();
            let got = gradients(out.clone(), &dout);
            let mut compare = |name: &str, wanted: burn::tensor::Tensor<4>| {
                let expected = gradients(wanted.clone(), &dout);
                let mut pairs = vec![("out", out.clone().without_autodiff(), wanted.without_autodiff())];
                for (name, leaf) in ["dq", "dk", "dv"].into_iter().zip(&leaves) {
                    pairs.push((name, leaf.grad(&got).unwrap(), leaf.grad(&expected).unwrap()));
                }
                if with_bias {
                    pairs.push(("dbias", bias.grad(&got).unwrap(), bias.grad(&expected).unwrap()));
                }
                for (part, got, expected) in pairs {
                    close(&format!("{what}: {part} of {name}, bias {with_bias}"), &got, &expected, TOLERANCE);
                    worst = worst.max(difference(&got, &expected, 1e-2));
                    compared += 1;
                }
            };
            compare("matmul, mask_fill, softmax", textbook(leaves.clone(), drop.clone(), &plan, &options));
            compare("burn's attention", burns(leaves.clone(), drop.clone(), &plan, &options));
            with_burns += 1;
            empty += empty_rows;
            let dropped = drop.clone().into_data().iter::<bool>().collect::<Vec<_>>();
            let rows = dropped.chunks(kv_len).zip(values(&out).chunks(5).map(<[f32]>::to_vec)).collect::<Vec<_>>();
            for (_, row) in rows.iter().filter(|(dropped, _)| dropped.iter().all(|drop| *drop)) {
                assert!(row.iter().all(|x| x.to_bits() == 0), "{what}: a row without an allowed key is {row:?}");
            }
        }
    }
    assert!(empty > 100, "only {empty} rows without an allowed key");
    assert!(with_burns > 200, "only {with_burns} comparisons with burn's own function");
    println!(
        "{} masks, {compared} tensors compared, {with_burns} calls of burn's own function, {empty} rows without an \
         allowed key: off by at most {worst:.1e} of the largest value",
        cases.len()
    );
}
