//! Masks whose plans are reordered: strides, dilated grids and gathered tokens together, with complements and with all
//! other masks of [`masks`].

use crate::cases::{World, masks};
use noren_mask::{Mask, Positions, atoms};
use proptest::prelude::*;

/// Returns a set of single positions, most of them far apart.
fn tokens(extent: usize) -> impl Strategy<Value = Vec<usize>> + Clone {
    proptest::collection::vec(0..extent.max(1), 1..6)
}

/// Returns a grid of one or two dimensions, dilated by `step` along a line.
fn grid(extent: usize, step: usize) -> impl Strategy<Value = Mask> + Clone {
    (1..10usize, 1..4usize, 1..4usize, any::<bool>()).prop_map(move |(size, rows, window, plane)| {
        let extent = extent.max(1);
        if !plane {
            let most = extent.div_ceil(step);
            return atoms::neighborhood_dilated(vec![extent], vec![size.min(most)], vec![step]);
        }
        let width = extent.div_ceil(rows);
        let most = width.div_ceil(step);
        let down = if rows > step { step } else { 1 };
        let window = window.min(rows.div_ceil(down));
        atoms::neighborhood_dilated(vec![rows, width], vec![window, size.min(most)], vec![down, step])
    })
}

/// Returns masks that combine residue classes, gathered queries and gathered keys.
pub fn structured(world: &World) -> BoxedStrategy<Mask> {
    let (extent, any_mask) = (world.extent, masks(world));
    (2..9usize)
        .prop_flat_map(move |step| {
            let part = prop_oneof![
                4 => grid(extent, step),
                2 => (1..4usize).prop_map(move |times| atoms::stride(step * times)),
                2 => tokens(extent).prop_map(|at| atoms::global(Positions::from(at))),
                2 => tokens(extent).prop_map(|at| atoms::keys(Positions::from(at))),
                1 => tokens(extent).prop_map(|at| atoms::queries(Positions::from(at))),
                1 => Just(atoms::causal()),
                1 => (0..20i64, 0..20i64).prop_map(|(left, right)| atoms::window(left, right)),
                1 => any_mask.clone(),
            ];
            part.prop_recursive(3, 8, 3, |part| {
                prop_oneof![
                    3 => proptest::collection::vec(part.clone(), 2..4).prop_map(Mask::any),
                    2 => proptest::collection::vec(part.clone(), 2..4).prop_map(Mask::all),
                    3 => (part.clone(), part.clone()).prop_map(|(a, b)| a - b),
                    1 => part.prop_map(|a| !a),
                ]
            })
        })
        .boxed()
}
