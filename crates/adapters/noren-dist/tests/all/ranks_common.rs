//! Comparisons of one process, of the definition and of ranks, with the same checks over any link.

use noren::reference;
use noren::{Bias, Element, Inputs, Saved, View, bf16};
use noren_dist::ranks::{Attended, Error, Gradients, Link, Local, Options, Shards, Split, Traffic, decode};
use noren_dist::ranks::{attention, attention_backward, gather};
use noren_dist::{Partition, Travel, partition};
use noren_mask::{BoundMask, Facts, Mask, Plan, Shape};
use std::sync::LazyLock;

/// A mask with whole arrays, the results of the definition, and the difference of one process from these.
pub(crate) struct World {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    options: Options,
    head_dim: usize,
    v_dim: usize,
    arrays: [Vec<f32>; 4],
    exact: [Vec<f64>; 5],
    rooms: [f64; 5],
}

/// Returns numbers between -1 and 1 that `seed` determines.
pub(crate) fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(next).collect()
}

fn worst(found: &[f32], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    let off = |(a, b): (&f32, &f64)| if f64::from(*a) == *b { 0.0 } else { (f64::from(*a) - b).abs() };
    // a maximum that does not ignore NaN
    found.iter().zip(exact).map(off).fold(0.0, |most: f64, x| if most.is_nan() || x <= most { most } else { x })
}

impl World {
    pub(crate) fn new(bound: &BoundMask, [head_dim, v_dim]: [usize; 2], options: Options) -> Self {
        let (plan, shape) = (bound.plan(), bound.shape());
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let shapes = [
            [batch, heads, shape.q_len(), head_dim],
            [batch, kv_heads, shape.kv_len(), head_dim],
            [batch, kv_heads, shape.kv_len(), v_dim],
            [batch, heads, shape.q_len(), v_dim],
        ];
        let arrays: [Vec<f32>; 4] = std::array::from_fn(|i| random(shapes[i].iter().product(), i as u64 + 1));
        let view = |i: usize| View::new(&arrays[i], shapes[i]).unwrap();
        let inputs = Inputs { q: view(0), k: view(1), v: view(2) };
        let whole = noren::Options::new().scale(options.scale).softcap(options.softcap);
        let whole = options.alibi.iter().fold(whole, |whole, slopes| whole.bias(Bias::Alibi(slopes.clone())));
        let forward = reference::forward(&inputs, &plan, &whole).unwrap();
        let backward = reference::backward(&inputs, &view(3), &plan, &whole).unwrap();
        let exact = [forward.out, forward.lse, backward.dq, backward.dk, backward.dv];
        let alone = noren::attention(&inputs, &plan, &whole).unwrap();
        let saved = Saved { out: View::new(&alone.out, alone.shape).unwrap(), lse: &alone.lse, dout: view(3) };
        let grads = noren::attention_backward(&inputs, &saved, &plan, &whole).unwrap();
        let found = [&alone.out, &alone.lse, &grads.dq, &grads.dk, &grads.dv];
        let rooms = std::array::from_fn(|i| worst(found[i], &exact[i]));
        World { name: format!("{}", bound.mask()), plan, options, head_dim, v_dim, arrays, exact, rooms }
    }

    pub(crate) fn of(mask: &str, shape: Shape, facts: &str, dims: [usize; 2], options: Options) -> Self {
        let mask: Mask = mask.parse().unwrap();
        World::new(&mask.bind(&shape, &Facts::from_json(facts).unwrap()).unwrap(), dims, options)
    }

    /// Returns a partition over `ranks` ranks in which queries travel or stay.
    pub(crate) fn partition(&self, ranks: usize, travel: Travel) -> Partition {
        partition(&self.plan, &noren_dist::Options { ranks, travel, ..Default::default() }).unwrap()
    }

    /// Returns this rank's results.
    pub(crate) fn compute(&self, split: &Split, link: &dyn Link) -> Result<(Attended, Gradients), Error> {
        self.compute_as::<f32>(split, link)
    }

    pub(crate) fn compute_as<T: Element>(
        &self,
        split: &Split,
        link: &dyn Link,
    ) -> Result<(Attended, Gradients), Error> {
        let (head_dim, v_dim) = (self.head_dim, self.v_dim);
        let typed = |i: usize| self.arrays[i].iter().map(|x| T::from_f32(*x)).collect::<Vec<T>>();
        // the rows beyond a batch row's own rows are not used
        let nan = T::from_f32(f32::NAN);
        let (q, dout) = (split.take_rows(&typed(0), head_dim, nan), split.take_rows(&typed(3), v_dim, nan));
        let (k, v) = (split.take_keys(&typed(1), head_dim, nan), split.take_keys(&typed(2), v_dim, nan));
        let local = Local { q: &q, k: &k, v: &v, head_dim, v_dim };
        let start = link.job().traffic();
        let attended = attention(split, link, &local, &self.options)?;
        let middle = link.job().traffic();
        let gradients = attention_backward(split, link, &local, (&attended, &dout), &self.options)?;
        let predicted = split.predicted([head_dim, v_dim], T::DTYPE.size());
        for (predicted, (from, to)) in predicted.into_iter().zip([(start, middle), (middle, link.job().traffic())]) {
            let moved = Traffic { sent: to.sent - from.sent, received: to.received - from.received, agreements: 0 };
            assert_eq!(moved, predicted, "{}: bytes on the wire", self.name);
        }
        Ok((attended, gradients))
    }

    /// Checks that this rank's results differ from the definition by at most 1e-6 of the largest value (or of 1) more
    /// than one process does.
    pub(crate) fn check(&self, split: &Split, (attended, gradients): &(Attended, Gradients), least: f64) {
        let found = [&attended.out, &attended.lse, &gradients.dq, &gradients.dk, &gradients.dv];
        let widths = [self.v_dim, 1, self.head_dim, self.head_dim, self.v_dim];
        for (i, name) in ["out", "lse", "dq", "dk", "dv"].into_iter().enumerate() {
            let fill = if i == 1 { f64::NEG_INFINITY } else { 0.0 };
            let take = if i < 3 { Split::take_rows } else { Split::take_keys };
            let exact = take(split, &self.exact[i], widths[i], fill);
            let finite = self.exact[i].iter().filter(|x| x.is_finite());
            let scale = finite.fold(1.0f64, |most, x| most.max(x.abs()));
            let (off, most) = (worst(found[i], &exact), least * scale + self.rooms[i]);
            assert!(
                off <= most,
                "{} over {:?}: {name} is off by {off:e}, {most:e}",
                self.name,
                split.partition().method
            );
        }
    }
}

/// The result of [`worlds`], computed once for all ranks that are threads.
static WORLDS: LazyLock<Vec<World>> = LazyLock::new(worlds);

/// Returns masks with lengths that no number of ranks divides, fewer tokens than ranks, batch rows split differently,
/// options and types.
fn worlds() -> Vec<World> {
    let shape = |len: usize| Shape::square(len).batch(2).heads(4).kv_heads(2);
    let packed = r#"{"documents": [[300, 57, 400], [757]]}"#;
    let plain = Options::default;
    let mut worlds: Vec<World> =
        [1, 2, 3, 5, 97].map(|len| World::of("causal", shape(len), "{}", [16, 16], plain())).into();
    let softcap = Options { softcap: Some(5.0), ..plain() };
    let alibi = Options { alibi: Some(vec![0.5, 0.25, 0.125, 0.06]), scale: Some(0.3), ..plain() };
    let padded = r#"{"lengths": [400, 131]}"#;
    worlds.extend([
        World::of("causal & documents", shape(757).kv_heads(1), packed, [16, 12], plain()),
        World::of("causal & documents | global([3, 500])", shape(757), packed, [16, 16], softcap),
        World::of("causal", shape(500).batch(1), "{}", [16, 12], alibi),
        World::of("causal & padding(side=left)", shape(400), padded, [8, 8], plain()),
        World::of("causal & stride(3) | sliding(20)", shape(300), "{}", [16, 16], plain()),
        World::of("causal", Shape::cached(300, 40).heads(4).kv_heads(2), "{}", [16, 16], plain()),
        World::of("full", Shape::cross(70, 333).heads(2), "{}", [16, 16], plain()),
        World::of("none", Shape::square(20).heads(2), "{}", [4, 4], plain()),
    ]);
    worlds
}

/// Computes each of [`WORLDS`] twice over a link. Checks that the results agree with the definition, that the bytes sent
/// are the predicted ones, and that both runs give equal bits.
pub(crate) fn everything_agrees(link: &dyn Link) {
    for world in WORLDS.iter() {
        for travel in [Travel::Keys, Travel::Both] {
            let split = Split::with(&world.plan, world.partition(link.ranks(), travel), link).unwrap();
            let found = world.compute(&split, link).unwrap();
            world.check(&split, &found, 1e-6);
            assert!(same_bits(&found, &world.compute(&split, link).unwrap()), "{}: other bits", world.name);
        }
    }
    let shape = Shape::square(200).heads(4).kv_heads(2);
    let world = World::of("sliding(50) | global([7])", shape, "{}", [16, 16], Options::default());
    let split = Split::new(&world.plan, link).unwrap();
    world.check(&split, &world.compute_as::<bf16>(&split, link).unwrap(), 1e-2);
    steps_of_decoding(link);
}

pub(crate) fn same_bits(a: &(Attended, Gradients), b: &(Attended, Gradients)) -> bool {
    let bits = |x: &(Attended, Gradients)| {
        let all = [&x.0.out, &x.0.lse, &x.1.dq, &x.1.dk, &x.1.dv];
        all.into_iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    bits(a) == bits(b)
}

fn steps_of_decoding(link: &dyn Link) {
    for (past, new, mask) in [(99, 1, "causal"), (70, 5, "sliding(16) | keys(0..2)"), (2, 1, "causal")] {
        let shape = Shape::cached(past, new).batch(2).heads(4).kv_heads(2);
        let world = World::of(mask, shape, "{}", [16, 12], Options::default());
        let last = std::iter::once(0..past + new).collect::<Vec<_>>();
        let uneven: Vec<_> =
            (0..link.ranks()).map(|rank| if rank + 1 == link.ranks() { last.clone() } else { vec![] }).collect();
        for shards in [Shards::new(&world.plan, link), Shards::with(&world.plan, uneven, link)].map(Result::unwrap) {
            let held = shards.keys();
            let take = |whole: &[f32], width: usize| {
                let rows = whole.chunks((past + new) * width);
                rows.flat_map(|rows| held.iter().flat_map(move |key| &rows[key * width..][..width]))
                    .copied()
                    .collect::<Vec<f32>>()
            };
            let (k, v) = (take(&world.arrays[1], 16), take(&world.arrays[2], 12));
            let local = Local { q: &world.arrays[0], k: &k, v: &v, head_dim: 16, v_dim: 12 };
            let before = link.job().traffic().sent;
            let found = decode(&shards, link, &local, &Options::default()).unwrap();
            assert!(worst(&found.out, &world.exact[0]) <= 1e-6 + world.rooms[0], "{mask}");
            assert!(worst(&found.lse, &world.exact[1]) <= 1e-6 + world.rooms[1], "{mask}");
            let bytes = (found.out.len() + found.lse.len()) * 4 * (link.ranks() - 1);
            assert_eq!(link.job().traffic().sent - before, bytes as u64);
            let bits: Vec<u8> = found.out.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(gather(link, bits.clone()).unwrap().iter().all(|other| *other == bits), "{mask}: other bits");
        }
    }
}

/// Checks that each kind of difference is an error on every rank that names the difference. The link works afterwards.
pub(crate) fn disagreements_are_reported(link: &dyn Link) {
    let shape = Shape::square(64).heads(2);
    let odd = link.rank() == 1;
    let with = |mask: &str, facts: &str, options: Options| World::of(mask, shape.clone(), facts, [8, 8], options);
    let causal = with("causal", "{}", Options::default());
    let other = |world: World| if odd { world } else { with("causal", "{}", Options::default()) };
    let refused = |world: &World, says: &str| {
        let split = Split::new(&world.plan, link).unwrap();
        let error = world.compute(&split, link).unwrap_err();
        assert!(matches!(error, Error::Disagreement(_)) && error.to_string().contains(says), "{says}: {error}");
    };
    refused(&other(with("sliding(63)", "{}", Options::default())), "differ in: mask");
    let scaled = Options { scale: Some(0.5), ..Options::default() };
    refused(&other(with("causal", "{}", scaled)), "differ in: options");
    let lengths = format!(r#"{{"lengths": [{}]}}"#, if odd { 60 } else { 61 });
    refused(&with("causal & padding", &lengths, Options::default()), "differ in: facts");
    let longer = World::of("causal", Shape::square(65).heads(2), "{}", [8, 8], Options::default());
    refused(&other(longer), "differ in: shape");
    let split = Split::new(&causal.plan, link).unwrap();
    let error = if odd { causal.compute_as::<bf16>(&split, link) } else { causal.compute(&split, link) }.unwrap_err();
    assert!(error.to_string().contains("differ in: types"), "{error}");
    // the arrays of one rank do not fit
    let short = vec![0.0; 8];
    let error = if odd {
        let local = Local { q: &short, k: &short, v: &short, head_dim: 8, v_dim: 8 };
        attention(&split, link, &local, &Options::default()).unwrap_err()
    } else {
        causal.compute(&split, link).unwrap_err()
    };
    let says = if odd { "q has 8 values, but the shape [1, 2, " } else { "rank 1 refused the input" };
    assert!(error.to_string().contains(says), "{error}");
    let found = causal.compute(&split, link).unwrap();
    causal.check(&split, &found, 1e-6);
}
