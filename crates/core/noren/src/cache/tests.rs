//! Tests that fill the memory of a cache.

use crate::{Element, Isa, KvCache, KvShape, Options, Rotating, View, bf16, f16};
use noren_mask::Mask;

/// Numbers between -1 and 1, without a pattern.
fn numbers<T: Element>(len: usize, seed: usize) -> Vec<T> {
    (0..len).map(|i| T::from_f32(((i * 7919 + seed * 104_729) % 1999) as f32 / 1000.0 - 1.0)).collect()
}

/// NaN in all slots, also in those that no token can ever reach, changes no bit and reaches no output.
fn poisoned_memory_changes_no_bit<T: Element>() {
    let (d, v_dim, ahead) = (19, 35, 5);
    let mask: Mask = "sliding(20) | causal & keys(..3)".parse().unwrap();
    for isa in Isa::available() {
        let shape = KvShape::new(2, d).v_dim(v_dim).sequences(2).isa(*isa);
        let forms: [&dyn Fn() -> KvCache<T>; 4] = [
            &|| KvCache::contiguous(&shape, 77).unwrap(),
            &|| KvCache::rotating(&shape, Rotating { window: 20, sink_tokens: 3, ahead }).unwrap(),
            &|| KvCache::paged(&shape, 16, 12).unwrap(),
            &|| KvCache::paged(&shape, 80, 2).unwrap(),
        ];
        for form in forms {
            let (mut clean, mut dirty) = (form(), form());
            dirty.store.poison();
            for step in 0..60 {
                let new = if step == 7 { ahead } else { 1 };
                let [q, k, v] = [(4, d), (2, d), (2, v_dim)].map(|(heads, width)| {
                    (numbers::<T>(2 * heads * new * width, 3 * step + width + heads), [2, heads, new, width])
                });
                let [q, k, v] = [&q, &k, &v].map(|(data, shape)| View::new(data, *shape).unwrap());
                let [expected, got] = [&mut clean, &mut dirty].map(|cache| {
                    cache.append(k, v).unwrap();
                    cache.attend(q, &mask, &Options::default()).unwrap()
                });
                let wide = |x: &[T]| x.iter().map(|x| x.to_f32().to_bits()).collect::<Vec<_>>();
                assert_eq!(wide(&got.out), wide(&expected.out), "{:?} in {} on {isa}, step {step}", dirty, T::DTYPE);
                assert_eq!(got.lse, expected.lse);
                assert!(got.out.iter().all(|x| x.to_f32().is_finite()));
            }
        }
    }
}

#[test]
fn poisoned_memory_changes_no_bit_in_any_type() {
    poisoned_memory_changes_no_bit::<f32>();
    poisoned_memory_changes_no_bit::<bf16>();
    poisoned_memory_changes_no_bit::<f16>();
}
