//! A random mask over a random shape with a random scene.

use super::{Dice, Scene};
use crate::common::Array;
use noren_mask::{BoundMask, Mask, Plan, PlanOptions, Reorder, Shape, atoms};
use noren_testing::{
    self,
    cases::{self, World},
};
use proptest::prelude::*;

pub(crate) const POISON: [f32; 4] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];

/// A bound mask, its plan with random tile sizes and a random order, random content, and a generator for further choices.
pub(crate) struct Case {
    pub(crate) bound: BoundMask,
    pub(crate) plan: Plan,
    pub(crate) reorder: Reorder,
    pub(crate) scene: Scene,
    pub(crate) dice: Dice,
    pub(crate) name: String,
}

impl Case {
    pub(crate) fn new(world: &World, mask: &Mask, options: &PlanOptions, seed: u64) -> Case {
        let mut dice = Dice(seed);
        let bound = world.bind(mask);
        let plan = bound.plan_with(options);
        let scene = Scene::random(bound.shape(), &mut dice);
        let name = format!("{mask} in tiles of {}, reordered {:?}", options.block_q, options.reorder);
        Case { bound, plan, reorder: options.reorder, scene, dice, name }
    }

    /// Returns the case with a plan whose order is the same for all masks with the same cells: no reordering, or residue classes
    /// if all distances are multiples of one number.
    pub(crate) fn in_an_order(mut self) -> Case {
        self.reorder = Reorder::Never;
        if self.dice.chance(40) {
            let step = 2 + self.dice.below(5);
            let mask = self.bound.mask().clone() & atoms::stride(step);
            self.bound = mask.bind(self.bound.shape(), self.bound.facts()).unwrap();
            self.reorder = Reorder::Residues(step as u32);
        }
        self.plan = self.bound.plan_with(&PlanOptions { reorder: self.reorder, ..*self.plan.options() });
        self.name = format!("{} by {:?}", self.bound.mask(), self.plan.options());
        self
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.bound.shape()
    }

    /// Returns a random row, `[batch, head, query]`.
    pub(crate) fn some_row(&mut self) -> [usize; 3] {
        let [batch, heads, q_len] = [self.shape().batch_len(), self.shape().head_count(), self.shape().q_len()];
        [self.dice.below(batch), self.dice.below(heads), self.dice.below(q_len)]
    }

    /// Returns for each key whether a row may read it.
    pub(crate) fn visible(&self, [b, h, i]: [usize; 3]) -> Vec<bool> {
        let read = |j| self.bound.allowed(b, h, i, j) && self.scene.soft_at([b, h, i, j]) >= (-100f32).exp2();
        (0..self.shape().kv_len()).map(read).collect()
    }
}

/// Checks `law` on random cases.
pub(crate) fn check(count: u32, law: impl Fn(Case)) {
    let strategy = cases::worlds(200, 5000).prop_flat_map(|world| {
        let masks = cases::masks(&world);
        (Just(world), masks, cases::options(), any::<u64>())
    });
    noren_testing::check(count, strategy, |(world, mask, options, seed)| law(Case::new(&world, &mask, &options, seed)));
}

/// Returns the scene with `poison` in all content that row `[b, h, i]` may not read. Other queries and table entries are NaN,
/// and sinks of other heads are 1e30.
pub(crate) fn poisoned(case: &Case, [b, h, i]: [usize; 3], poison: f32) -> Scene {
    let visible = case.visible([b, h, i]);
    let (shape, scene) = (case.shape(), &case.scene);
    let overwrite = |x: &Array, keep: &dyn Fn([usize; 4]) -> bool, with: f32| {
        Array::new(x.shape, |at| if keep(at) { x.view().get(at) } else { with })
    };
    let is_row = |x: &Array, at: [usize; 4]| (0..3).all(|n| x.shape[n] == 1 || at[n] == [b, h, i][n]);
    let key = |[batch, head, j, _]: [usize; 4]| batch == b && head == shape.kv_head(h) && visible[j];
    let score = |x: &Array, at: [usize; 4]| {
        is_row(x, at) && if x.shape[3] == 1 { visible.contains(&true) } else { visible[at[3]] }
    };
    let entry = |table: &Array, at: [usize; 4]| {
        let reach = table.shape[3] as i64 / 2;
        let distance = |j| case.plan.key_position(b, j) - case.plan.query_position(b, i);
        let used = |j: usize| visible[j] && distance(j).clamp(-reach, reach) + reach == at[3] as i64;
        (table.shape[1] == 1 || at[1] == h) && (0..visible.len()).any(used)
    };
    let of_head = |values: &Vec<f32>, other: f32| -> Vec<f32> {
        values.iter().enumerate().map(|(n, x)| if n == h { *x } else { other }).collect()
    };
    Scene {
        q: overwrite(&scene.q, &|[b2, h2, i2, _]| [b2, h2, i2] == [b, h, i], f32::NAN),
        k: overwrite(&scene.k, &key, poison),
        v: overwrite(&scene.v, &key, poison),
        bias: scene.bias.as_ref().map(|bias| overwrite(bias, &|at| score(bias, at), poison)),
        relative: scene.relative.as_ref().map(|table| overwrite(table, &|at| entry(table, at), f32::NAN)),
        soft: scene.soft.as_ref().map(|soft| overwrite(soft, &|at| is_row(soft, at), 1.0)),
        sinks: scene.sinks.as_ref().map(|sinks| of_head(sinks, 1e30)),
        alibi: scene.alibi.as_ref().map(|slopes| of_head(slopes, 1e30)),
        ..scene.clone()
    }
}
