//! Masks to and from tensors, in each convention.

use crate::textbook::Draw;
use burn::nn::attention::{SeqLengthOption, generate_autoregressive_mask, generate_padding_mask};
use burn::tensor::{Bool, Device, Tensor, TensorData};
use noren::{Facts, Mask, Shape, Side, atoms};
use noren_burn::{array_from_drop, array_from_keep, facts_from_drop, to_drop, to_keep};
use noren_testing::drawn;

fn flags<const D: usize>(x: Tensor<D, Bool>) -> Vec<bool> {
    x.into_data().iter::<bool>().collect()
}

#[test]
fn every_mask_of_the_corpus_returns_from_its_tensors() {
    let device = Device::flex();
    for (file, case) in drawn::cases() {
        let bound = case.bind().unwrap();
        let (keep, drop) = (to_keep(&bound, &device).unwrap(), to_drop(&bound, &device).unwrap());
        assert_eq!(flags(keep.clone().bool_not()), flags(drop.clone()));
        for array in [array_from_keep(keep.clone()).unwrap(), array_from_drop(drop).unwrap()] {
            let facts = Facts::new().array("mine", array);
            let again = atoms::dense("mine").bind(bound.shape(), &facts).unwrap();
            assert_eq!(flags(to_keep(&again, &device).unwrap()), flags(keep.clone()), "{file}: {}", case.name);
        }
    }
}

#[test]
fn the_masks_that_burn_makes_are_read() {
    let device = Device::flex();
    let shape = Shape::square(5).batch(2);
    let facts = Facts::new().array("burn", array_from_drop(generate_autoregressive_mask(2, 5, &device)).unwrap());
    let read = atoms::dense("burn").bind(&shape, &facts).unwrap();
    let causal = atoms::causal().bind(&shape, &Facts::new()).unwrap();
    assert_eq!(flags(to_keep(&read, &device).unwrap()), flags(to_keep(&causal, &device).unwrap()));

    let padded = generate_padding_mask(0, vec![vec![3, 4, 5], vec![6]], SeqLengthOption::Fixed(5), &device);
    let facts = facts_from_drop(padded.mask).unwrap();
    let read = atoms::padding().bind(&shape, &facts).unwrap();
    let lengths = Facts::new().lengths([3, 1]).side(Side::Right);
    let expected = atoms::padding().bind(&shape, &lengths).unwrap();
    assert_eq!(flags(to_keep(&read, &device).unwrap()), flags(to_keep(&expected, &device).unwrap()));
}

#[test]
fn padding_on_both_sides_of_a_batch_is_read() {
    let mut draw = Draw(1);
    for _ in 0..50 {
        let (batch, len) = (1 + draw.below(4), 1 + draw.below(12));
        let left = draw.chance(50);
        let lengths: Vec<usize> = (0..batch).map(|_| draw.below(len + 1)).collect();
        let pad = |length: usize, k: usize| if left { k < len - length } else { k >= length };
        let cells: Vec<bool> = lengths.iter().flat_map(|n| (0..len).map(move |k| pad(*n, k))).collect();
        let mask = Tensor::<2, Bool>::from_data(TensorData::new(cells.clone(), [batch, len]), &Device::flex());
        let facts = facts_from_drop(mask).unwrap();
        let mask: Mask = "padding".parse().unwrap();
        let bound = mask.bind(&Shape::square(len).batch(batch), &facts).unwrap();
        for (b, row) in cells.chunks(len).enumerate() {
            for (k, drop) in row.iter().enumerate() {
                assert_eq!(bound.allowed(b, 0, 0, k), !drop, "{lengths:?}, left {left}");
            }
        }
    }
}

#[test]
fn wrong_masks_are_refused() {
    let device = Device::flex();
    let message = |error: noren_burn::Error| error.to_string();
    let five = Tensor::<5, Bool>::empty([1, 1, 1, 2, 2], &device);
    assert!(message(array_from_keep(five).unwrap_err()).contains("[1, 1, 1, 2, 2]: give [q_len, kv_len]"));
    let none = Tensor::<2, Bool>::empty([0, 4], &device);
    assert!(message(array_from_drop(none.clone()).unwrap_err()).contains("every dimension must be at least 1"));
    assert!(facts_from_drop(none).is_err());
    let huge = atoms::causal().bind(&Shape::square(10_000_000).heads(64), &Facts::new()).unwrap();
    assert!(message(to_drop(&huge, &device).unwrap_err()).contains("a dense tensor cannot hold so many cells"));
}
