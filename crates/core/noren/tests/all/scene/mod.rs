//! A random mask with random arrays and options, and parts of the same content at other places.

pub(crate) mod case;

use crate::common::{Array, inputs};
use noren::{
    Attention, Bias, Dropout, Gradients, GradientsMut, Inputs, Isa, Options, Outputs, Saved, View, ViewMut,
    attention_backward, attention_backward_into, attention_into,
};
use noren_mask::{BoundMask, Facts, Plan, Shape, atoms};
use std::ops::Range;

/// A generator of random numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random number from -1 to 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Arrays and options for a mask's shape.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) q: Array,
    pub(crate) k: Array,
    pub(crate) v: Array,
    pub(crate) scale: Option<f32>,
    pub(crate) softcap: Option<f32>,
    pub(crate) bias: Option<Array>,
    pub(crate) relative: Option<Array>,
    pub(crate) alibi: Option<Vec<f32>>,
    pub(crate) soft: Option<Array>,
    pub(crate) sinks: Option<Vec<f32>>,
    /// The dropout, `None` unless a test sets it. Dropout depends on the indices of a cell, not on its content.
    pub(crate) dropout: Option<Dropout>,
}

impl Scene {
    pub(crate) fn random(shape: &Shape, dice: &mut Dice) -> Scene {
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let (head_dim, v_dim) = (1 + dice.below(40), 1 + dice.below(40));
        let broadcast = |dice: &mut Dice, value: fn(&mut Dice) -> f32| {
            let full = [batch, heads, shape.q_len(), shape.kv_len()];
            let dims = full.map(|n| if dice.chance(30) { 1 } else { n });
            Array::new(dims, |_| value(dice))
        };
        let bias = |dice: &mut Dice| match dice.below(50) {
            0 => f32::NEG_INFINITY,
            1 => f32::MIN,
            _ => 4.0 * dice.number(),
        };
        let soft = |dice: &mut Dice| match dice.below(8) {
            0 => 0.0,
            1 => 1.0,
            2 => 1e-31, // below 2^-100
            _ => dice.number().abs(),
        };
        Scene {
            bias: dice.chance(50).then(|| broadcast(dice, bias)),
            soft: dice.chance(40).then(|| broadcast(dice, soft)),
            relative: dice.chance(35).then(|| {
                let table_heads = if dice.chance(50) { 1 } else { heads };
                Array::random([1, table_heads, 1, 2 * dice.below(40) + 1], dice.next())
            }),
            alibi: dice.chance(35).then(|| {
                let steepest = if dice.chance(30) { 1.0 } else { 0.1 };
                (0..heads).map(|_| steepest * dice.number()).collect()
            }),
            sinks: dice.chance(40).then(|| (0..heads).map(|_| 3.0 * dice.number()).collect()),
            softcap: dice.chance(40).then(|| 2.0 + dice.number()),
            dropout: None,
            scale: dice.chance(30).then(|| 0.3 * dice.number()),
            q: Array::random([batch, heads, shape.q_len(), head_dim], dice.next()),
            k: Array::random([batch, kv_heads, shape.kv_len(), head_dim], dice.next()),
            v: Array::random([batch, kv_heads, shape.kv_len(), v_dim], dice.next()),
        }
    }

    /// Calls `f` with the options of this scene.
    pub(crate) fn with_options<T>(&self, isa: Isa, f: impl FnOnce(&Options<'_>) -> T) -> T {
        let mut bias = Vec::new();
        bias.extend(self.bias.as_ref().map(|bias| Bias::Dense(bias.view())));
        bias.extend(self.relative.as_ref().map(|table| Bias::Relative { table: table.view() }));
        bias.extend(self.alibi.clone().map(Bias::Alibi));
        let soft = self.soft.as_ref().map(Array::view);
        let (scale, softcap, sinks) = (self.scale, self.softcap, self.sinks.as_deref());
        let mut options = Options::default().scale(scale).softcap(softcap).soft(soft).dropout(self.dropout).isa(isa);
        (options.bias, options.sinks) = (bias, sinks);
        f(&options)
    }

    /// Returns the gradients of `sum(out * dout)`, from the forward pass on the same ISA.
    pub(crate) fn backward(&self, dout: &Array, plan: &Plan, isa: Isa, threads: usize) -> Gradients {
        let forward = self.run(plan, isa, threads);
        let out = View::new(&forward.out, forward.shape).unwrap();
        let saved = Saved { out, lse: &forward.lse, dout: dout.view() };
        self.with_options(isa, |options| {
            let options = options.clone().threads(threads);
            attention_backward(&inputs(&self.q, &self.k, &self.v), &saved, plan, &options).unwrap()
        })
    }

    pub(crate) fn run(&self, plan: &Plan, isa: Isa, threads: usize) -> Attention {
        self.with_options(isa, |options| {
            let options = options.clone().threads(threads);
            noren::attention(&inputs(&self.q, &self.k, &self.v), plan, &options).unwrap()
        })
    }

    /// Returns the attention with a random memory layout for every array and for the output, and NaN in the gaps.
    pub(crate) fn run_strided(&self, plan: &Plan, isa: Isa, dice: &mut Dice) -> Attention {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| Strided::new(x, dice));
        let [bias, soft, table] =
            [&self.bias, &self.soft, &self.relative].map(|x| x.as_ref().map(|x| Strided::new(x, dice)));
        let shape = [q.shape[0], q.shape[1], q.shape[2], v.shape[3]];
        let mut out = Strided::new(&Array::new(shape, |_| f32::NAN), dice);
        let mut lse = vec![f32::NAN; shape[0] * shape[1] * shape[2]];
        self.with_options(isa, |options| {
            let mut options = options.clone();
            for term in &mut options.bias {
                match term {
                    Bias::Dense(view) => *view = bias.as_ref().expect("a bias").view(),
                    Bias::Relative { table: view } => *view = table.as_ref().expect("a table").view(),
                    Bias::Alibi(_) => {}
                }
            }
            options.soft = soft.as_ref().map(Strided::view);
            let inputs = Inputs { q: q.view(), k: k.view(), v: v.view() };
            let out = ViewMut::strided(&mut out.data, shape, out.strides, out.offset).unwrap();
            attention_into(&inputs, plan, &options, Outputs { out, lse: Some(&mut lse) }).unwrap();
        });
        let view = out.view();
        Attention { out: Array::new(shape, |at| view.get(at)).data, shape, lse }
    }

    /// Returns the result of [`backward`](Self::backward) with a random memory layout for every array.
    pub(crate) fn backward_strided(&self, dout: &Array, plan: &Plan, isa: Isa, dice: &mut Dice) -> Gradients {
        let forward = self.run(plan, isa, 1);
        let out = Array { data: forward.out, shape: forward.shape };
        let [q, k, v, out, dout] = [&self.q, &self.k, &self.v, &out, dout].map(|x| Strided::new(x, dice));
        let mut results = [&q, &k, &v].map(|x| Strided::new(&Array::new(x.shape, |_| f32::NAN), dice));
        let inputs = Inputs { q: q.view(), k: k.view(), v: v.view() };
        let saved = Saved { out: out.view(), lse: &forward.lse, dout: dout.view() };
        let [dq, dk, dv] =
            results.each_mut().map(|x| ViewMut::strided(&mut x.data, x.shape, x.strides, x.offset).unwrap());
        self.with_options(isa, |options| {
            attention_backward_into(&inputs, &saved, plan, options, GradientsMut::new(dq, dk, dv)).unwrap();
        });
        let [dq, dk, dv] = results.map(|x| Array::new(x.shape, |at| x.view().get(at)).data);
        Gradients { dq, dk, dv }
    }

    pub(crate) fn soft_at(&self, [b, h, i, j]: [usize; 4]) -> f32 {
        let at = |soft: &Array| {
            let at: [usize; 4] = std::array::from_fn(|n| if soft.shape[n] == 1 { 0 } else { [b, h, i, j][n] });
            soft.view().get(at)
        };
        self.soft.as_ref().map_or(1.0, at)
    }
}

/// Values in a random memory layout: dimensions in any order, some reversed, with gaps.
pub(crate) struct Strided {
    data: Vec<f32>,
    shape: [usize; 4],
    strides: [isize; 4],
    offset: usize,
}

impl Strided {
    pub(crate) fn new(array: &Array, dice: &mut Dice) -> Strided {
        let mut order = [0, 1, 2, 3];
        (1..4).for_each(|i| order.swap(i, dice.below(i + 1)));
        let (mut strides, mut len, mut offset) = ([0; 4], 1 + dice.below(2), 0);
        for dim in order {
            let n = array.shape[dim];
            strides[dim] = len as isize;
            if dice.chance(20) {
                offset += (n - 1) * len;
                strides[dim] = -strides[dim];
            }
            len = len * n + if dice.chance(30) { dice.below(4) } else { 0 };
        }
        let mut data = vec![f32::NAN; len];
        let [_, heads, rows, width] = array.shape;
        for (i, value) in array.data.iter().enumerate() {
            let at = [i / width / rows / heads, i / width / rows % heads, i / width % rows, i % width];
            let place = (0..4).map(|n| at[n] as isize * strides[n]).sum::<isize>() + offset as isize;
            data[place as usize] = *value;
        }
        Strided { data, shape: array.shape, strides, offset }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View::strided(&self.data, self.shape, self.strides, self.offset).unwrap()
    }
}

/// A part of one batch row, and the numbers of queries and keys that are inserted before it.
pub(crate) struct Part {
    pub(crate) batch: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) keys: Range<usize>,
    pub(crate) queries_before: usize,
    pub(crate) keys_before: usize,
}

impl Part {
    /// Returns the part's content with its options, and a mask with a dense array of its cells. Content before the part is NaN;
    /// the part and the content before it do not read each other.
    pub(crate) fn cut(&self, scene: &Scene, bound: &BoundMask, plan: &Plan, dice: &mut Dice) -> (Scene, BoundMask) {
        let heads = bound.shape().head_count();
        let (q_len, kv_len) = (self.queries_before + self.rows.len(), self.keys_before + self.keys.len());
        let mut keep = Vec::with_capacity(heads * q_len * kv_len);
        for (h, i, j) in (0..heads * q_len * kv_len).map(|n| (n / kv_len / q_len, n / kv_len % q_len, n % kv_len)) {
            let inside = (i.checked_sub(self.queries_before), j.checked_sub(self.keys_before));
            keep.push(match inside {
                (Some(i), Some(j)) => bound.allowed(self.batch, h, self.rows.start + i, self.keys.start + j),
                (None, None) => dice.chance(50),
                _ => false,
            });
        }
        let mut positions: Vec<i64> = (0..self.keys_before as i64).map(|p| p + 5000).collect();
        positions.extend(self.keys.clone().map(|j| plan.key_position(self.batch, j)));
        let offset = plan.query_position(self.batch, self.rows.start) - self.queries_before as i64;
        let shape = Shape::new(q_len, kv_len, offset).heads(heads).kv_heads(bound.shape().kv_head_count());
        let cells = noren_mask::Array::keep(&[1, heads, q_len, kv_len], &keep).expect("as many cells");
        let facts = Facts::new().array("cells", cells).positions(vec![positions]);
        (self.content(scene), atoms::dense("cells").bind(&shape, &facts).expect("cells bind"))
    }

    fn content(&self, scene: &Scene) -> Scene {
        let rows = (self.rows.clone(), self.queries_before);
        let keys = (self.keys.clone(), self.keys_before);
        let whole = |array: &Array, dim: usize| (0..array.shape[dim], 0);
        let vectors = |x: &Array, along: &(Range<usize>, usize)| {
            take(x, [(self.batch..self.batch + 1, 0), whole(x, 1), along.clone(), whole(x, 3)], f32::NAN)
        };
        let scores = |x: &Array, fill: f32| {
            let places = [(self.batch..self.batch + 1, 0), whole(x, 1), rows.clone(), keys.clone()];
            take(x, std::array::from_fn(|n| if x.shape[n] == 1 { (0..1, 0) } else { places[n].clone() }), fill)
        };
        Scene {
            q: vectors(&scene.q, &rows),
            k: vectors(&scene.k, &keys),
            v: vectors(&scene.v, &keys),
            bias: scene.bias.as_ref().map(|bias| scores(bias, f32::NAN)),
            soft: scene.soft.as_ref().map(|soft| scores(soft, 0.5)),
            ..scene.clone()
        }
    }
}

/// Returns the ranges of `array`, each after the given number of places with `fill`.
fn take(array: &Array, places: [(Range<usize>, usize); 4], fill: f32) -> Array {
    let shape = [0, 1, 2, 3].map(|n| places[n].1 + places[n].0.len());
    let view = array.view();
    Array::new(shape, |at| {
        if (0..4).any(|n| at[n] < places[n].1) {
            return fill;
        }
        view.get(std::array::from_fn(|n| at[n] - places[n].1 + places[n].0.start))
    })
}
