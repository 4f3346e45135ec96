//! Products with packed weights, against sums in `f64`, on every processor path: shapes, biases, operations on the result,
//! and the bits of rows among other rows and on any number of threads.

use noren::linear::{Epilogue, Linear, Weight, feed_forward, forward_all};
use noren::{Dtype, Error, Isa, bf16};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns `len` numbers from -1 to 1 that look random.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Runs `work` on `threads` threads.
fn on<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// Multiplies each number by 2 and adds a number that identifies its place, and then negates each row.
struct Places {
    outputs: usize,
}

impl Epilogue for Places {
    fn part(&self, row: usize, output: usize, part: &mut [f32]) {
        assert!(!part.is_empty() && part.len() <= 64);
        part.iter_mut().enumerate().for_each(|(i, x)| *x = 2.0 * *x + (row * self.outputs + output + i) as f32);
    }

    fn rows(&self, rows: &mut [f32]) {
        assert!(!rows.is_empty() && rows.len().is_multiple_of(self.outputs));
        rows.iter_mut().for_each(|x| *x = -*x);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn layers_together_have_the_bits_of_each_alone(
        (rows, inputs, threads) in (0usize..130, 1usize..200, 1usize..5),
        outputs in prop::collection::vec(0usize..300, 1..5),
        (seed, index) in (0usize..1000, any::<prop::sample::Index>()),
    ) {
        let isa = *index.get(Isa::available());
        let x = numbers(rows * inputs, seed);
        let weights: Vec<Weight> = (outputs.iter().enumerate())
            .map(|(i, outputs)| {
                let dtype = if (seed + i).is_multiple_of(2) { Dtype::Bf16 } else { Dtype::F32 };
                Weight::on(isa, &numbers(outputs * inputs, seed + i), inputs, dtype).unwrap()
            })
            .collect();
        let biases: Vec<Vec<f32>> = outputs.iter().map(|outputs| numbers(*outputs, seed + 9)).collect();
        let places: Vec<Places> = outputs.iter().map(|outputs| Places { outputs: *outputs }).collect();
        let layers: Vec<Linear<'_>> = (weights.iter().zip(&biases).zip(&places))
            .map(|((weight, bias), places)| Linear::new(weight).bias(&bias[..]).epilogue(places))
            .collect();
        let together = on(threads, || forward_all(&x, &layers)).unwrap();
        prop_assert_eq!(together.len(), layers.len());
        for (layer, together) in layers.iter().zip(&together) {
            prop_assert_eq!(bits(&on(1, || layer.forward(&x)).unwrap()), bits(together));
        }
    }

    #[test]
    fn products_are_sums(
        (rows, inputs, outputs) in (0usize..230, 1usize..500, 0usize..200),
        (threads, seed) in (1usize..5, 0usize..1000),
        (biased, round) in (any::<bool>(), any::<bool>()),
        index in any::<prop::sample::Index>(),
    ) {
        let isa = *index.get(Isa::available());
        let dtype = if round { Dtype::Bf16 } else { Dtype::F32 };
        let (x, weight) = (numbers(rows * inputs, seed), numbers(outputs * inputs, seed + 1));
        let bias = biased.then(|| numbers(outputs, seed + 2));
        let packed = Weight::on(isa, &weight, inputs, dtype).unwrap();
        prop_assert_eq!((packed.inputs(), packed.outputs(), packed.dtype()), (inputs, outputs, dtype));
        let places = Places { outputs };
        let layer = Linear::new(&packed).bias(bias.as_deref()).epilogue(&places);
        let got = on(threads, || layer.forward(&x)).unwrap();
        prop_assert_eq!(got.len(), rows * outputs);
        let rounded = |x: f32, round: bool| f64::from(if round { bf16::from_f32(x).to_f32() } else { x });
        for row in 0..rows {
            for output in 0..outputs {
                let mut sum = bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]));
                let mut size = sum.abs();
                for i in 0..inputs {
                    let x = rounded(x[row * inputs + i], round && matches!(isa, Isa::Avx512Bf16 | Isa::Amx));
                    let product = x * rounded(weight[output * inputs + i], round);
                    sum += product;
                    size += product.abs();
                }
                let place = (row * outputs + output) as f64;
                let expected = -(2.0 * sum + place);
                let error = (f64::from(got[row * outputs + output]) - expected).abs();
                prop_assert!(
                    error <= 4e-6 * size + 2e-7 * place + 1e-7,
                    "{isa}, {dtype}, row {row}, output {output}: off by {error:e}"
                );
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_among_any_rows_and_on_any_threads(
        (rows, inputs, outputs) in (1usize..230, 1usize..500, 1usize..200),
        (threads, seed) in (1usize..5, 0usize..1000),
        round in any::<bool>(),
        (index, first) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        some in any::<prop::sample::Index>(),
    ) {
        let isa = *index.get(Isa::available());
        let dtype = if round { Dtype::Bf16 } else { Dtype::F32 };
        let bias = numbers(outputs, seed + 2);
        let packed = Weight::on(isa, &numbers(outputs * inputs, seed + 1), inputs, dtype).unwrap();
        let layer = Linear::new(&packed).bias(&bias[..]);
        let x = numbers(rows * inputs, seed);
        let whole = on(1, || layer.forward(&x)).unwrap();
        let first = first.index(rows);
        let some = 1 + some.index(rows - first);
        // The other rows are not numbers.
        let mut others = vec![f32::NAN; x.len()];
        let own = first * inputs..(first + some) * inputs;
        others[own.clone()].copy_from_slice(&x[own.clone()]);
        let expected = bits(&whole[first * outputs..(first + some) * outputs]);
        let among = on(threads, || layer.forward(&others)).unwrap();
        prop_assert_eq!(bits(&among[first * outputs..(first + some) * outputs]), &expected[..]);
        let alone = on(threads, || layer.forward(&x[own])).unwrap();
        prop_assert_eq!(bits(&alone), expected);
    }

    #[test]
    fn two_layers_at_once_have_the_bits_of_two_calls(
        (rows, inputs, between, outputs) in (0usize..230, 1usize..200, 1usize..300, 0usize..200),
        (threads, seed) in (1usize..5, 0usize..1000),
        (round, index) in (any::<bool>(), any::<prop::sample::Index>()),
    ) {
        let isa = *index.get(Isa::available());
        let dtype = if round { Dtype::Bf16 } else { Dtype::F32 };
        let up = Weight::on(isa, &numbers(between * inputs, seed), inputs, dtype).unwrap();
        let down = Weight::on(isa, &numbers(outputs * between, seed + 1), between, dtype).unwrap();
        let (bias, first, second) = (numbers(between, seed + 2), Places { outputs: between }, Places { outputs });
        let up = Linear::new(&up).bias(&bias[..]).epilogue(&first);
        let down = Linear::new(&down).epilogue(&second);
        let x = numbers(rows * inputs, seed + 3);
        let at_once = on(threads, || feed_forward(&x, up, down)).unwrap();
        let one_by_one = on(1, || down.forward(&up.forward(&x)?)).unwrap();
        prop_assert_eq!(bits(&at_once), bits(&one_by_one));
    }
}

#[test]
fn wrong_shapes_and_types_are_errors() {
    let weight = Weight::new(&[1.0; 6], 3, Dtype::F32).unwrap();
    let layer = Linear::new(&weight);
    assert!(matches!(Weight::new(&[1.0; 7], 3, Dtype::F32), Err(Error::Shape { name: "weight", .. })));
    assert!(matches!(Weight::new(&[], 0, Dtype::F32), Err(Error::Shape { name: "weight", .. })));
    assert!(matches!(Weight::new(&[1.0], 1, Dtype::F16), Err(Error::Option { name: "dtype", .. })));
    assert!(matches!(layer.forward(&[1.0; 4]), Err(Error::Shape { name: "x", .. })));
    let biased = layer.bias(&[1.0; 3][..]);
    assert!(matches!(biased.forward(&[1.0; 3]), Err(Error::Shape { name: "bias", .. })));
    assert!(matches!(feed_forward(&[1.0; 3], layer, biased), Err(Error::Shape { name: "bias", .. })));
    assert!(matches!(feed_forward(&[1.0; 3], layer, layer), Err(Error::Shape { name: "weight", .. })));
    assert!(layer.forward(&[]).unwrap().is_empty());
    assert_eq!(Weight::new(&[], 3, Dtype::Bf16).unwrap().outputs(), 0);
    assert!(weight.bytes() >= 24);
    for (isa, dtype) in Isa::available().iter().flat_map(|isa| [(isa, Dtype::F32), (isa, Dtype::Bf16)]) {
        assert_eq!(Weight::on(*isa, &[], usize::MAX, dtype).unwrap().outputs(), 0);
    }
}

#[test]
fn infinite_and_large_numbers_stay_in_their_rows() {
    for isa in Isa::available() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let weight = Weight::on(*isa, &numbers(70 * 5, 3), 5, dtype).unwrap();
            let layer = Linear::new(&weight);
            let mut x = vec![1.0; 3 * 5];
            x[5] = f32::INFINITY;
            x[10] = f32::NAN;
            let out = layer.forward(&x).unwrap();
            assert!(out[..70].iter().all(|x| x.is_finite()), "{isa}, {dtype}");
            assert!(out[70..140].iter().all(|x| x.is_infinite()), "{isa}, {dtype}");
            assert!(out[140..].iter().all(|x| x.is_nan()), "{isa}, {dtype}");
        }
    }
}

#[test]
fn bits_do_not_depend_on_rows_at_the_edges_of_blocks() {
    for isa in Isa::available() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (inputs, outputs) in [(191, 64), (192, 65), (193, 63), (385, 17), (767, 1), (769, 130), (1537, 64)] {
                let weight = Weight::on(*isa, &numbers(inputs * outputs, 5), inputs, dtype).unwrap();
                let layer = Linear::new(&weight);
                let rows = 200;
                let x = numbers(rows * inputs, 9);
                let whole = bits(&on(1, || layer.forward(&x)).unwrap());
                for (some, threads) in [(1, 1), (1, 3), (2, 1), (6, 1), (7, 2), (96, 2), (97, 1), (97, 16), (200, 16)] {
                    let from = (rows - some) / 2;
                    let got = on(threads, || layer.forward(&x[from * inputs..(from + some) * inputs])).unwrap();
                    let expected = &whole[from * outputs..(from + some) * outputs];
                    assert_eq!(
                        bits(&got),
                        expected,
                        "{isa}, {dtype}, {some} rows, {inputs} to {outputs}, {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn large_weights_are_multiplied_in_parts() {
    for isa in Isa::available() {
        // Weights that leave the second-level cache, panels that leave the first-level cache, and both.
        for (rows, inputs, outputs) in [(133, 300, 2300), (37, 1100, 70), (133, 1100, 650)] {
            let (x, weight, bias) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2), numbers(outputs, 3));
            let packed = Weight::on(*isa, &weight, inputs, Dtype::Bf16).unwrap();
            let places = Places { outputs };
            let layer = Linear::new(&packed).bias(&bias[..]);
            let whole = on(1, || layer.forward(&x)).unwrap();
            for (i, got) in whole.iter().enumerate().step_by(97) {
                let (row, output) = (i / outputs, i % outputs);
                let mut sum = f64::from(bias[output]);
                for (x, weight) in x[row * inputs..].iter().zip(&weight[output * inputs..][..inputs]) {
                    let x = if matches!(isa, Isa::Avx512Bf16 | Isa::Amx) { bf16::from_f32(*x).to_f32() } else { *x };
                    sum += f64::from(x) * f64::from(bf16::from_f32(*weight));
                }
                assert!(
                    (f64::from(*got) - sum).abs() < 1e-4,
                    "{isa}, {rows} rows, {inputs} to {outputs}: {got}, {sum}"
                );
            }
            let placed = on(2, || layer.epilogue(&places).forward(&x)).unwrap();
            for (i, (placed, x)) in placed.iter().zip(&whole).enumerate() {
                assert_eq!(*placed, -(2.0 * x + i as f32), "{isa}, {rows} rows, {inputs} to {outputs}");
            }
            for (from, some, threads) in [(0, 1, 1), (1, 33, 1), (rows / 4, rows - rows / 4, 2), (1, rows - 1, 3)] {
                let got = on(threads, || layer.forward(&x[from * inputs..(from + some) * inputs])).unwrap();
                let expected = &whole[from * outputs..(from + some) * outputs];
                assert_eq!(bits(&got), bits(expected), "{isa}, {some} rows, {inputs} to {outputs}, {threads} threads");
            }
        }
    }
}

/// Counts the numbers that were given to it.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Epilogue for Counted {
    fn part(&self, _: usize, _: usize, part: &mut [f32]) {
        self.0.fetch_add(part.len(), Ordering::Relaxed);
    }
}

#[test]
fn the_first_of_two_layers_is_computed_if_the_second_has_no_outputs() {
    for rows in [1, 97, 203] {
        let (up, down) = (Weight::new(&[1.0; 15], 3, Dtype::F32).unwrap(), Weight::new(&[], 5, Dtype::F32).unwrap());
        let counted = Counted::default();
        let (up, down) = (Linear::new(&up).epilogue(&counted), Linear::new(&down));
        assert!(feed_forward(&vec![1.0; 3 * rows], up, down).unwrap().is_empty());
        assert_eq!(counted.0.into_inner(), 5 * rows);
    }
}

#[test]
fn layers_together_at_the_edge_of_few_rows() {
    for (isa, rows) in Isa::available().iter().flat_map(|isa| [95, 96, 97].map(|rows| (*isa, rows))) {
        let weights = [5, 64, 130].map(|outputs| Weight::on(isa, &numbers(outputs * 40, 7), 40, Dtype::F32).unwrap());
        let (layers, x) = (weights.each_ref().map(Linear::new), numbers(rows * 40, 8));
        for threads in [1, 2, 5] {
            for (layer, together) in layers.iter().zip(on(threads, || forward_all(&x, &layers)).unwrap()) {
                assert_eq!(bits(&layer.forward(&x).unwrap()), bits(&together), "{rows} rows on {isa}");
            }
        }
    }
}

#[test]
fn layers_together_need_the_same_inputs() {
    let [first, second] = [3, 4].map(|inputs| Weight::new(&numbers(12, 1), inputs, Dtype::F32).unwrap());
    let error = forward_all(&numbers(12, 2), [&Linear::new(&first), &Linear::new(&second)]).unwrap_err().to_string();
    assert!(error.contains("[3, 4]") && error.contains("the first layer has 3 inputs"), "{error}");
    assert!(forward_all(&numbers(12, 2), []).unwrap().is_empty());
    let short = numbers(5, 3);
    let wrong = [&Linear::new(&first), &Linear::new(&first).bias(&short[..])];
    assert!(forward_all(&numbers(3, 2), wrong).unwrap_err().to_string().contains("bias"));
}
