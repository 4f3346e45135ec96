//! Compares outputs and gradients of attention with those of the textbook formula in candle's own operations.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use noren::{Facts, Shape, Spec};
use noren_candle::{Bias, Options, attend, attention, attention_weights, plan, to_keep};

const CPU: Device = Device::Cpu;

/// Values from a normal distribution that are the same in every run; candle's own cannot be seeded on a CPU.
struct Draw(u64);

impl Draw {
    /// Returns a number from 0 to 1, without 0.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    /// Returns a tensor of normal values with the standard deviation `spread`.
    fn normal(&mut self, spread: f64, shape: &[usize]) -> Tensor {
        let mut value =
            || spread * (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| value() as f32).collect();
        Tensor::from_vec(values, shape, &CPU).unwrap()
    }

    /// Returns a variable of normal values with the standard deviation `spread`.
    fn var(&mut self, spread: f64, shape: &[usize]) -> Var {
        Var::from_tensor(&self.normal(spread, shape)).unwrap()
    }
}

/// Returns the softmax of masked scores times values, computed with candle's operations only. Rows without an allowed key are 0.
fn textbook(q: &Tensor, k: &Tensor, v: &Tensor, keep: &Tensor, options: &Options) -> Result<Tensor> {
    let group = q.dim(1)? / k.dim(1)?;
    let spread = |x: &Tensor| -> Result<Tensor> {
        let (b, h, n, d) = x.dims4()?;
        x.unsqueeze(2)?.expand((b, h, group, n, d))?.reshape((b, h * group, n, d))
    };
    let (k, v) = (spread(k)?, spread(v)?);
    let scale = options.scale.map_or(1.0 / (q.dim(3)? as f64).sqrt(), f64::from);
    let mut scores = (q.contiguous()?.matmul(&k.t()?.contiguous()?)? * scale)?;
    if let Some(cap) = options.softcap {
        scores = ((scores / f64::from(cap))?.tanh()? * f64::from(cap))?;
    }
    for bias in &options.bias {
        let Bias::Dense(bias) = bias else { panic!("only dense ones here") };
        scores = scores.broadcast_add(bias)?;
    }
    let lowest = scores.zeros_like()?.affine(0.0, -1e30)?;
    let masked = keep.where_cond(&scores, &lowest)?;
    let most = masked.max_keepdim(D::Minus1)?.detach();
    let allowed = keep.to_dtype(DType::F32)?;
    let mut exp = (masked.broadcast_sub(&most)?.exp()? * allowed)?;
    if let Some(soft) = &options.soft {
        exp = exp.broadcast_mul(soft)?;
    }
    let mut sum = exp.sum_keepdim(D::Minus1)?;
    if let Some(sinks) = &options.sinks {
        let heads = sinks.dim(0)?;
        sum = (sum + sinks.reshape((1, heads, 1, 1))?.broadcast_sub(&most)?.exp()?)?;
    }
    let empty = keep.max_keepdim(D::Minus1)?.eq(0u8)?.to_dtype(DType::F32)?;
    exp.broadcast_div(&(sum + empty)?)?.matmul(&v.contiguous()?)
}

struct Case {
    mask: &'static str,
    shape: Shape,
    facts: Facts,
    options: Options,
}

fn case(mask: &'static str, shape: Shape) -> Case {
    Case { mask, shape, facts: Facts::new(), options: Options::default() }
}

fn cases() -> Vec<Case> {
    let square = Shape::square(37).batch(2).heads(4).kv_heads(2);
    let mut draw = Draw(1);
    let mut random = |shape: &[usize]| draw.var(1.0, shape).as_tensor().clone();
    let weights = random(&[1, 1, 37, 37]).affine(0.1, 0.5).unwrap().clamp(0.1f32, 0.9).unwrap();
    vec![
        case("full", Shape::square(5).heads(2)),
        case("causal", square.clone()),
        Case { facts: Facts::new().lengths([37, 11]), ..case("causal & padding", square.clone()) },
        case("sliding(7) | keys(0)", Shape::square(130).heads(3).kv_heads(1)),
        case("heads(0..2: causal, 2: window(left=3, right=3))", Shape::square(33).heads(3)),
        case("none", Shape::square(4).heads(2)),
        case("full", Shape::cross(9, 41).batch(2).heads(4)),
        Case {
            options: Options { softcap: Some(2.0), scale: Some(0.9), ..Options::default() },
            ..case("causal", square.clone())
        },
        Case {
            options: Options { bias: vec![Bias::Dense(random(&[1, 4, 37, 37]))], ..Options::default() },
            ..case("causal", square.clone())
        },
        Case {
            options: Options {
                bias: vec![Bias::Dense(random(&[2, 1, 1, 37])), Bias::Dense(random(&[1, 4, 37, 1]))],
                soft: Some(Var::from_tensor(&weights).unwrap().as_tensor().clone()),
                sinks: Some(random(&[4])),
                ..Options::default()
            },
            ..case("causal", square)
        },
    ]
}

fn largest(x: &Tensor) -> f32 {
    x.to_dtype(DType::F32).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

fn close(name: &str, got: &Tensor, expected: &Tensor, tolerance: f32) {
    let [got, expected] = [got, expected].map(|x| x.to_dtype(DType::F32).unwrap());
    assert_eq!(got.dims(), expected.dims(), "{name}");
    let (distance, size) = (largest(&(got - &expected).unwrap()), largest(&expected));
    assert!(distance <= tolerance * size.max(1e-2), "{name}: off by {distance:e} where the largest is {size:e}");
}

#[test]
fn outputs_and_gradients_are_those_of_the_textbook_formula() {
    let mut draw = Draw(2);
    for Case { mask, shape, facts, options } in cases() {
        let spec: Spec = mask.parse().unwrap();
        let plan = plan(&spec.mask, &shape, &facts).unwrap();
        let keep = to_keep(plan.bound(), &CPU).unwrap();
        let (b, h, g, d) = (shape.batch_len(), shape.head_count(), shape.kv_head_count(), 16);
        for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::BF16, 2e-2), (DType::F16, 4e-3)] {
            let mut values = |shape: [usize; 4]| draw.normal(1.0, &shape).to_dtype(dtype).unwrap();
            let vars = [[b, h, shape.q_len(), d], [b, g, shape.kv_len(), d], [b, g, shape.kv_len(), d + 3]]
                .map(|shape| Var::from_tensor(&values(shape)).unwrap());
            let dout = values([b, h, shape.q_len(), d + 3]);
            let [q, k, v] = vars.each_ref().map(Var::as_tensor);
            let out = attention(q, k, v, &plan, &options).unwrap();
            let got = (&out * &dout).unwrap().to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();

            let [q, k, v] = [q, k, v].map(|x| x.to_dtype(DType::F32).unwrap());
            let wanted = textbook(&q, &k, &v, &keep, &options).unwrap();
            let dout = dout.to_dtype(DType::F32).unwrap();
            let expected = (&wanted * dout).unwrap().sum_all().unwrap().backward().unwrap();
            let name = format!("{mask} in {dtype:?}");
            close(&name, &out, &wanted, tolerance);
            for (i, var) in vars.iter().enumerate() {
                close(&format!("{name}: gradient {i}"), got.get(var).unwrap(), expected.get(var).unwrap(), tolerance);
            }
            let dense =
                options.bias.iter().map(|bias| if let Bias::Dense(bias) = bias { bias } else { unreachable!() });
            for modifier in dense.chain(&options.soft).chain(&options.sinks) {
                let (got, expected) = (got.get(modifier).unwrap(), expected.get(modifier).unwrap());
                close(&format!("{name}: gradient of a modifier {:?}", modifier.dims()), got, expected, tolerance);
            }
        }
    }
}

#[test]
fn strided_broadcast_and_shared_inputs_have_their_gradients() {
    let shape = Shape::square(19).batch(3).heads(4);
    let plan = plan(&"causal".parse().unwrap(), &shape, &Facts::new()).unwrap();
    let keep = to_keep(plan.bound(), &CPU).unwrap();
    // Queries and keys are two parts of one tensor in the order of tokens; values are one batch row, repeated.
    let mut draw = Draw(3);
    let joined = draw.var(1.0, &[3, 19, 2 * 4 * 8]);
    let values = draw.var(1.0, &[1, 4, 19, 8]);
    let dout = draw.normal(1.0, &[3, 4, 19, 8]);
    let parts = || -> Result<[Tensor; 3]> {
        let part = |from| joined.narrow(2, from, 32)?.reshape((3, 19, 4, 8))?.transpose(1, 2);
        Ok([part(0)?, part(32)?, values.broadcast_as((3, 4, 19, 8))?])
    };
    let [q, k, v] = parts().unwrap();
    let out = attention(&q, &k, &v, &plan, &Options::default()).unwrap();
    let got = (&out * &dout).unwrap().sum_all().unwrap().backward().unwrap();
    let wanted = textbook(&q, &k, &v, &keep, &Options::default()).unwrap();
    let expected = (&wanted * &dout).unwrap().sum_all().unwrap().backward().unwrap();
    close("out", &out, &wanted, 1e-5);
    for var in [&joined, &values] {
        close("gradient", got.get(var).unwrap(), expected.get(var).unwrap(), 1e-5);
    }
    // The heads of attention's result can be joined without a copy.
    assert!(out.transpose(1, 2).unwrap().is_contiguous());
}

#[test]
fn dropout_is_the_same_forward_and_backward() {
    let plan = plan(&"causal".parse().unwrap(), &Shape::square(24).heads(2), &Facts::new()).unwrap();
    let options = Options { dropout: Some(noren::Dropout { probability: 0.4, seed: 5 }), ..Options::default() };
    let mut draw = Draw(4);
    let [q, k] = [(); 2].map(|()| draw.normal(1.0, &[1, 2, 24, 8]));
    let v = draw.var(1.0, &[1, 2, 24, 8]);
    let out = attention(&q, &k, &v, &plan, &options).unwrap();
    let weights = attention_weights(&q, &k, &plan, &options).unwrap();
    close("out", &out, &weights.matmul(&v).unwrap(), 1e-5);
    let gradients = out.sum_all().unwrap().backward().unwrap();
    let expected = weights.t().unwrap().matmul(&out.ones_like().unwrap().contiguous().unwrap()).unwrap();
    close("gradient", gradients.get(&v).unwrap(), &expected, 1e-5);
}

#[test]
fn wrong_tensors_are_refused_by_name() {
    let plan = plan(&"causal".parse().unwrap(), &Shape::square(4).heads(2), &Facts::new()).unwrap();
    let x = Tensor::zeros((1, 2, 4, 8), DType::F32, &CPU).unwrap();
    let ask = |q: &Tensor, k: &Tensor| attention(q, k, k, &plan, &Options::default()).unwrap_err().to_string();
    let double = x.to_dtype(DType::F64).unwrap();
    assert!(ask(&double, &double).contains("q is [1, 2, 4, 8] of F64: q, k and v must all be f32, bf16 or f16"));
    assert!(ask(&x, &x.to_dtype(DType::F16).unwrap()).contains("k is [1, 2, 4, 8] of F16"));
    assert!(ask(&x.squeeze(0).unwrap(), &x).contains("give a tensor of shape [batch, heads, length, head_dim]"));
    assert!(ask(&x.narrow(2, 0, 3).unwrap(), &x).contains("q has shape [1, 2, 3, 8]"));
}

#[test]
fn a_relative_bias_is_the_dense_one_by_distance() {
    let plan = plan(&"full".parse().unwrap(), &Shape::cross(29, 29).heads(4), &Facts::new()).unwrap();
    let mut draw = Draw(5);
    let [q, k, v] = [(); 3].map(|()| draw.normal(3.0, &[1, 4, 29, 16]));
    let table = draw.var(3.0, &[4, 2 * 10 + 1]);
    let index: Vec<u32> =
        (0..29i64).flat_map(|q| (0..29i64).map(move |k| ((k - q).clamp(-10, 10) + 10) as u32)).collect();
    let index = Tensor::from_vec(index, 29 * 29, &CPU).unwrap();
    let dense = table.index_select(&index, 1).unwrap().reshape((1, 4, 29, 29)).unwrap();
    let [(a, da), (b, db)] = [Bias::Relative(table.as_tensor().clone()), Bias::Dense(dense)].map(|bias| {
        let options = Options { bias: vec![bias], scale: Some(1.0), ..Options::default() };
        let out = attention(&q, &k, &v, &plan, &options).unwrap();
        let gradients = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        (out, gradients.get(&table).unwrap().clone())
    });
    close("out", &a, &b, 1e-5);
    close("gradient of the table", &da, &db, 1e-4);
}

#[test]
fn attend_is_attention_under_a_plan_of_the_tensors_own_sizes() {
    let mut draw = Draw(6);
    let [q, k, v] = [[2, 4, 9, 8], [2, 2, 9, 8], [2, 2, 9, 6]].map(|shape| draw.var(1.0, &shape));
    let plan = plan(&"sliding(4)".parse().unwrap(), &Shape::square(9).batch(2).heads(4).kv_heads(2), &Facts::new());
    let plan = plan.unwrap();
    let slopes = noren::Score::alibi_slopes(4).into_iter().map(|slope| slope as f32).collect();
    let options = Options { softcap: Some(3.0), bias: vec![Bias::Alibi(slopes)], ..Options::default() };
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let gradient = |out: &Tensor| values(out.sqr().unwrap().sum_all().unwrap().backward().unwrap().get(&q).unwrap());

    let expected = attention(&q, &k, &v, &plan, &options).unwrap();
    let got = attend(&q, &k, &v, "sliding(4) + alibi + softcap(3)").unwrap();
    assert_eq!(values(&got), values(&expected));
    assert_eq!(gradient(&got), gradient(&expected));
    let planned = attend(&q, &k, &v, &plan).unwrap();
    assert_eq!(values(&planned), values(&attention(&q, &k, &v, &plan, &Options::default()).unwrap()));
}

#[test]
fn attend_refuses_what_it_would_have_to_guess() {
    let x = Tensor::zeros((1, 2, 5, 4), DType::F32, &CPU).unwrap();
    let one = x.narrow(2, 4, 1).unwrap();
    let refused = |result: noren_candle::Result<Tensor>| match result.unwrap_err() {
        noren_candle::Error::Noren(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(refused(attend(&one, &x, &x, "causal")), noren::Error::Alignment { q_len: 1, kv_len: 5 });
    assert!(matches!(refused(attend(&x, &x, &x, "causal + sinks")), noren::Error::Missing { .. }));
    assert!(matches!(refused(attend(&x, &x, &x, "cuasal")), noren::Error::Parse(_)));
    assert!(attend(&x.squeeze(0).unwrap(), &x, &x, "causal").is_err());
}
