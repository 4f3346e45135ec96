//! Rows that read more keys than fit in a cache: a call that computes many of them has the bits of calls that compute a few.

use crate::common::{Array, assert_same_bits, plan, run};
use noren::{Isa, Options, bf16};
use noren_mask::{Facts, Shape};

const KEYS: usize = 2300;
const QUERIES: usize = 1000;
/// The queries of a small call.
const FEW: usize = 90;
const HEADS: usize = 2;

/// Compares a call on all queries, by one and by two threads, with calls on a few of them. `all_keys` is true if a query may
/// read keys after it: the small calls then have all keys, too.
fn check(mask: &str, head_dim: usize, all_keys: bool) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    // Some queries have scores that rise far above those of the first keys, and one key is hidden from all.
    let large = |i: usize| if i % 37 == 5 { 300.0 } else { 1.0 };
    let q = Array::random([1, HEADS, QUERIES, head_dim], 1);
    let q = Array::new(q.shape, |[b, h, i, d]| q.view().get([b, h, i, d]) * large(i));
    let hidden =
        |x: Array, fill| Array::new(x.shape, |[b, h, j, d]| if j == 700 { fill } else { x.view().get([b, h, j, d]) });
    let [k, v] = [(2, f32::NAN), (3, f32::INFINITY)]
        .map(|(seed, fill)| hidden(Array::random([1, 1, KEYS, head_dim], seed), fill));
    let cast = |[q, k, v]: [&Array; 3]| [q, k, v].map(|x| x.cast::<bf16>());
    let all = cast([&q, &k, &v]);
    let shape = |past, new| Shape::cached(past, new).heads(HEADS).kv_heads(1);
    let mask = &format!("({mask}) - keys(700..701)");
    let whole = plan(mask, &shape(KEYS - QUERIES, QUERIES), &Facts::new());
    for isa in Isa::available() {
        let got = [1, 2].map(|threads| {
            let options = Options::default().threads(threads);
            pool.install(|| run(&all[0], &all[1], &all[2], &whole, *isa, &options))
        });
        for from in (0..QUERIES - FEW).step_by(227) {
            let keys = if all_keys { KEYS } else { KEYS - QUERIES + from + FEW };
            let some = plan(mask, &shape(keys - FEW, FEW), &Facts::new());
            let [q, k, v] = cast([&q.slice(from..from + FEW), &k.slice(0..keys), &v.slice(0..keys)]);
            let expected = run(&q, &k, &v, &some, *isa, &Options::default());
            let row = |x: &noren::Attention<bf16>, r: usize| -> Vec<f32> {
                let width = x.shape[3];
                x.out[r * width..][..width].iter().map(|x| x.to_f32()).chain([x.lse[r]]).collect()
            };
            for (head, i) in (0..HEADS).flat_map(|head| (0..FEW).map(move |i| (head, i))) {
                for got in &got {
                    let (got, expected) = (row(got, head * QUERIES + from + i), row(&expected, head * FEW + i));
                    assert_same_bits(&got, &expected, &format!("{mask} on {isa}, head {head}, row {}", from + i));
                }
            }
        }
    }
}

#[test]
fn many_rows_have_the_bits_of_few() {
    check("causal", 64, false);
    check("causal - stride(3) | keys(0..40)", 128, false);
    check("sliding(1500)", 32, false);
    check("full", 64, true);
}
