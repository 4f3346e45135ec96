//! Caches: every form gives the bits of one pass over the whole sequence. Old content does not leak, and wrong use returns
//! errors.

use crate::common::{Array, assert_same_bits, bits, difference, inputs, plan, textbook};
use noren::{Attention, Element, Isa, KvCache, KvShape, Options, Rotating, View, atoms, bf16, f16, reference};
use noren_mask::{Facts, Mask, PlanOptions, Reorder, Shape, Side};

/// A generator of random numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Returns a cache of each form, with space for `len` tokens in each of `sequences` sequences.
fn forms<T: Element>(shape: &KvShape, sequences: usize, len: usize, window: Window) -> Vec<(String, KvCache<T>)> {
    let mut forms = vec![("contiguous".to_owned(), KvCache::contiguous(shape, len).unwrap())];
    for block in [16, 48, 64, 80, 256] {
        let cache = KvCache::paged(shape, block, sequences * len.div_ceil(block)).unwrap();
        forms.push((format!("blocks of {block}"), cache));
    }
    if let Some((window, sinks, ahead)) = window {
        let cache = KvCache::rotating(shape, Rotating { window, sink_tokens: sinks, ahead }).unwrap();
        forms.push((format!("window {window}, {sinks} sinks, {ahead} ahead"), cache));
    }
    forms
}

/// The window, the number of sink tokens and `ahead` of a rotating cache, in this order.
type Window = Option<(usize, usize, usize)>;

/// Returns the attention of one pass over all tokens, with keys in the order of positions, as a step reads them.
fn one_pass<T: Element>(
    [q, k, v]: [&Array<T>; 3],
    mask: &str,
    facts: &Facts,
    isa: Isa,
    options: &Options<'_>,
) -> Attention<T> {
    let [batch, heads, len, _] = q.shape;
    let shape = Shape::square(len).batch(batch).heads(heads).kv_heads(k.shape[1]);
    let bound = mask.parse::<Mask>().unwrap().bind(&shape, facts).unwrap();
    let plan = bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() });
    noren::attention(&inputs(q, k, v), &plan, &options.clone().isa(isa)).unwrap()
}

/// Returns the tokens `rows` of all heads and sequences.
fn part<T: Element>(x: &Array<T>, rows: std::ops::Range<usize>) -> Array<T> {
    let [b, h, _, d] = x.shape;
    let shape = [b, h, rows.len(), d];
    Array::new(shape, |[b, h, i, d]| x.view().get([b, h, rows.start + i, d]).to_f32()).cast()
}

/// Returns row `i` of sequence `b` and head `h`, followed by its log-sum-exp.
fn row<T: Element>(x: &Attention<T>, [b, h, i]: [usize; 3]) -> Vec<f32> {
    let [_, heads, rows, width] = x.shape;
    let at = (b * heads + h) * rows + i;
    let mut row: Vec<f32> = x.out[at * width..][..width].iter().map(|x| x.to_f32()).collect();
    row.push(x.lse[at]);
    row
}

/// A mask as text, with its facts as a function of the length.
struct Rule {
    mask: String,
    facts: Box<dyn Fn(usize) -> Facts>,
    window: Window,
}

fn rule(mask: impl Into<String>) -> Rule {
    Rule { mask: mask.into(), facts: Box::new(|_| Facts::new()), window: None }
}

fn rules(sequences: usize, len: usize, dice: &mut Dice) -> Vec<Rule> {
    let window = 1 + dice.below(60);
    let sinks = dice.below(9);
    let ahead = 1 + dice.below(40);
    let borders: Vec<usize> = (0..sequences).map(|_| dice.below(len)).collect();
    let documents = move |len: usize| {
        let lengths = |border: usize| vec![border.min(len), len.saturating_sub(border)];
        Facts::new().documents(borders.iter().map(|border| lengths(*border)).collect::<Vec<_>>())
    };
    let real: Vec<usize> = (0..sequences).map(|_| 1 + dice.below(len)).collect();
    let padded: Vec<usize> = (0..sequences).map(|_| dice.below(len)).collect();
    let right = move |len: usize| Facts::new().lengths(real.iter().map(|n| (*n).min(len)).collect::<Vec<_>>());
    let left = move |len: usize| {
        let lengths: Vec<_> = padded.iter().map(|n| len.saturating_sub(*n)).collect();
        Facts::new().lengths(lengths).side(Side::Left)
    };
    vec![
        rule("causal"),
        rule("causal & stride(3) | causal & keys(2..9)"),
        rule("heads(every 3: causal, else: sliding(100))"),
        Rule { window: Some((window, 0, ahead)), ..rule(format!("sliding({window})")) },
        Rule { window: Some((window, sinks, ahead)), ..rule(format!("sliding({window}) | causal & keys(..{sinks})")) },
        Rule { facts: Box::new(documents), ..rule("causal & documents") },
        Rule { facts: Box::new(right), ..rule("causal & padding") },
        Rule { facts: Box::new(left), ..rule("causal & padding") },
    ]
}

fn random<T: Element>(shape: [usize; 4], seed: u64) -> Array<T> {
    Array::random(shape, seed).cast()
}

/// Compares steps of random sizes with one pass, for all forms, masks and ISAs.
fn check_steps<T: Element>(seed: u64, same_bits: impl Fn(&str, Isa) -> bool) {
    let mut dice = Dice(seed);
    let (sequences, kv_heads, group) = (1 + dice.below(3), 1 + dice.below(2), 1 + dice.below(4));
    let (len, head_dim, v_dim) = (2 + dice.below(180), 1 + dice.below(70), 1 + dice.below(70));
    let q = random::<T>([sequences, kv_heads * group, len, head_dim], dice.next());
    let [k, v] = [head_dim, v_dim].map(|d| random::<T>([sequences, kv_heads, len, d], dice.next()));
    for rule in rules(sequences, len, &mut dice) {
        for isa in Isa::available() {
            let expected = one_pass([&q, &k, &v], &rule.mask, &(rule.facts)(len), *isa, &Options::default());
            let shape = KvShape::new(kv_heads, head_dim).v_dim(v_dim).sequences(sequences).isa(*isa);
            let mask: Mask = rule.mask.parse().unwrap();
            for (form, mut cache) in forms::<T>(&shape, sequences, len, rule.window) {
                let most = rule.window.map_or(len, |(.., ahead)| ahead);
                let mut past = 0;
                while past < len {
                    let most = most.min(if dice.chance(50) { 3 } else { 60 });
                    let new = (1 + dice.below(most)).min(len - past);
                    let [q, k, v] = [&q, &k, &v].map(|x| part(x, past..past + new));
                    cache.append(k.view(), v.view()).unwrap();
                    past += new;
                    let plan = cache.plan(&mask, &(rule.facts)(past), q.shape[1], new).unwrap();
                    let got = cache.attention(q.view(), &plan, &Options::default()).unwrap();
                    for at in (0..sequences * kv_heads * group * new)
                        .map(|n| [n / new / kv_heads / group, n / new % (kv_heads * group), n % new])
                    {
                        let what = format!("{form}, {} on {isa}, {at:?} of {new} after {}", rule.mask, past - new);
                        let expected = row(&expected, [at[0], at[1], past - new + at[2]]);
                        let got = row(&got, at);
                        match same_bits(&form, *isa) {
                            true => assert_same_bits(&got, &expected, &what),
                            false => assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 0.03), "{what}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn steps_have_the_bits_of_one_pass() {
    (0..12).for_each(|seed| check_steps::<f32>(seed, |_, _| true));
}

#[test]
fn steps_of_narrow_types_have_the_bits_of_one_pass() {
    // Keys are added in pairs or in tiles of 32 keys, which other numbers of sink tokens would divide.
    let whole = |isa: Isa, form: &str| {
        let unit = match isa {
            Isa::Avx512Bf16 => 2,
            Isa::Amx => 32,
            _ => 1,
        };
        let sinks =
            form.split_once(" sinks").and_then(|(before, _)| before.split(' ').next_back()?.parse::<usize>().ok());
        sinks.unwrap_or(0).is_multiple_of(unit)
    };
    (0..8).for_each(|seed| check_steps::<bf16>(100 + seed, |form, isa| whole(isa, form)));
    (0..4).for_each(|seed| check_steps::<f16>(200 + seed, |_, _| true));
}

#[test]
fn narrow_types_are_as_accurate_as_they_allow() {
    fn check<T: Element>() {
        let (len, d) = (150, 40);
        let q = random::<T>([1, 4, len, d], 1);
        let [k, v] = [2, 3].map(|seed| random::<T>([1, 2, len, d], seed));
        let shape = Shape::square(len).heads(4).kv_heads(2);
        let whole = plan("sliding(60) | causal & keys(..3)", &shape, &Facts::new());
        let inputs = inputs(&q, &k, &v);
        let expected = reference::forward(&inputs, &whole, &Options::default()).unwrap();
        let allowed = 1.1 * difference(&textbook(&inputs, &whole, &Options::default()), &expected.out) + 1e-5;
        for isa in Isa::available() {
            let shape = KvShape::new(2, d).isa(*isa);
            for (form, mut cache) in forms::<T>(&shape, 1, len, Some((60, 3, 1))) {
                let (mut out, mut want) = (Vec::new(), Vec::new());
                for i in 0..len {
                    let [q, k, v] = [&q, &k, &v].map(|x| part(x, i..i + 1));
                    cache.append(k.view(), v.view()).unwrap();
                    let mask = "sliding(60) | causal & keys(..3)".parse().unwrap();
                    out.extend(cache.attend(q.view(), &mask, &Options::default()).unwrap().out);
                    want.extend((0..4).flat_map(|h| expected.out[(h * len + i) * d..][..d].to_vec()));
                }
                let off = difference(&out, &want);
                assert!(off <= allowed, "{form} in {} on {isa}: off by {off:.2e}, {allowed:.2e} allowed", T::DTYPE);
            }
        }
    }
    check::<bf16>();
    check::<f16>();
}

#[test]
fn ragged_steps_have_the_bits_of_one_pass() {
    for seed in 0..6 {
        let mut dice = Dice(300 + seed);
        let lengths: Vec<usize> = (0..4).map(|_| 1 + dice.below(150)).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let (window, sinks, ahead) = (1 + dice.below(40), dice.below(5), 50);
        let text = format!("sliding({window}) | causal & keys(..{sinks})");
        let mask: Mask = text.parse().unwrap();
        let q = random::<f32>([4, 4, longest, 24], dice.next());
        let [k, v] = [0, 1].map(|_| random::<f32>([4, 2, longest, 24], dice.next()));
        for isa in Isa::available() {
            let expected = one_pass([&q, &k, &v], &text, &Facts::new(), *isa, &Options::default());
            let shape = KvShape::new(2, 24).sequences(4).isa(*isa);
            for (form, mut cache) in forms::<f32>(&shape, 4, longest, Some((window, sinks, ahead))) {
                let mut past = [0; 4];
                while (0..4).any(|b| past[b] < lengths[b]) {
                    let new: Vec<usize> = (0..4).map(|b| dice.below(ahead).min(lengths[b] - past[b])).collect();
                    let starts: Vec<usize> = (0..=4).map(|b| new[..b].iter().sum()).collect();
                    if starts[4] == 0 {
                        continue;
                    }
                    let gather = |x: &Array| {
                        let place = |i: usize| (0..4).rfind(|b| starts[*b] <= i && new[*b] > 0).unwrap();
                        Array::new([1, x.shape[1], starts[4], 24], |[_, h, i, d]| {
                            let b = place(i);
                            x.view().get([b, h, past[b] + i - starts[b], d])
                        })
                    };
                    let [q, k, v] = [&q, &k, &v].map(gather);
                    cache.append_ragged(k.view(), v.view(), &starts).unwrap();
                    let plan = cache.plan_ragged(&mask, &Facts::new(), 4, &starts).unwrap();
                    let got = cache.attention(q.view(), &plan, &Options::default()).unwrap();
                    for b in 0..4 {
                        for (i, h) in (0..new[b]).flat_map(|i| (0..4).map(move |h| (i, h))) {
                            let what = format!("{form}, {text} on {isa}: token {i} of {new:?} after {past:?}");
                            let expected = row(&expected, [b, h, past[b] + i]);
                            assert_same_bits(&row(&got, [0, h, starts[b] + i]), &expected, &what);
                        }
                        past[b] += new[b];
                    }
                }
            }
        }
    }
}

/// One head alone has few rows, and two heads together have many rows. The kernels then divide the keys into other blocks.
#[test]
fn heads_that_share_a_mask_read_it_each_in_their_own_blocks() {
    fn check<T: Element>() {
        let (len, new, d) = (204, 4, 64);
        let q = random::<T>([1, 4, len, d], 1);
        let [k, v] = [2, 3].map(|seed| random::<T>([1, 2, len, d], seed));
        for mask in ["heads(0..1: causal, 1..: sliding(100))", "heads(0..3: sliding(100), 3..: causal)"] {
            for isa in Isa::available() {
                let expected = one_pass([&q, &k, &v], mask, &Facts::new(), *isa, &Options::default());
                for (form, mut cache) in forms::<T>(&KvShape::new(2, d).isa(*isa), 1, len, None) {
                    cache.append(k.view(), v.view()).unwrap();
                    let last = part(&q, len - new..len);
                    let got = cache.attend(last.view(), &mask.parse().unwrap(), &Options::default()).unwrap();
                    for (h, i) in (0..4).flat_map(|h| (0..new).map(move |i| (h, i))) {
                        let what = format!("{form} in {} on {isa}, {mask}, head {h}", T::DTYPE);
                        assert_same_bits(&row(&got, [0, h, i]), &row(&expected, [0, h, len - new + i]), &what);
                    }
                }
            }
        }
    }
    check::<f32>();
    check::<bf16>();
    check::<f16>();
}

/// Lists of facts cover the tokens of their own sequence, whatever the length of other sequences.
#[test]
fn ragged_steps_read_documents_and_levels() {
    let x = random::<f32>([2, 1, 10, 8], 1);
    let facts = Facts::new().documents(vec![vec![6, 4], vec![5, 5]]).levels(vec![vec![0; 10], vec![1; 10]]);
    for mask in ["causal & documents", "causal & documents & clearance", "causal & padding(on=both)"] {
        let facts = if mask.contains("padding") { Facts::new().lengths([10, 10]) } else { facts.clone() };
        let expected = one_pass([&x, &x, &x], mask, &facts, Isa::Portable, &Options::default());
        let shape = KvShape::new(1, 8).sequences(2).isa(Isa::Portable);
        for (form, mut cache) in forms::<f32>(&shape, 2, 10, None) {
            cache.append(x.view(), x.view()).unwrap();
            let plan = cache.plan_ragged(&mask.parse().unwrap(), &facts, 1, &[0, 1, 6]).unwrap();
            let place = |i: usize| if i == 0 { [0, 9] } else { [1, 4 + i] };
            let q = Array::new([1, 1, 6, 8], |[.., i, d]| x.view().get([place(i)[0], 0, place(i)[1], d]));
            let got = cache.attention(q.view(), &plan, &Options::default()).unwrap();
            for i in 0..6 {
                let [b, at] = place(i);
                assert_same_bits(
                    &row(&got, [0, 0, i]),
                    &row(&expected, [b, 0, at]),
                    &format!("{form}, {mask}, token {i}"),
                );
            }
        }
    }
}

/// Each query of a rotating cache reads its own window, for any mask and any number of queries in a step.
#[test]
fn a_rotating_cache_shows_each_query_its_own_window() {
    let (len, d) = (40, 8);
    let x = random::<f32>([1, 2, len, d], 1);
    for (window, sinks) in [(4, 0), (5, 3), (1, 2)] {
        let shown = format!("sliding({window}) | causal & keys(..{sinks})");
        for isa in Isa::available() {
            let expected = one_pass([&x, &x, &x], &shown, &Facts::new(), *isa, &Options::default());
            let shape = KvShape::new(2, d).isa(*isa);
            let mut cache =
                KvCache::<f32>::rotating(&shape, Rotating { window, sink_tokens: sinks, ahead: 8 }).unwrap();
            for past in (0..len).step_by(8) {
                let new = part(&x, past..past + 8);
                cache.append(new.view(), new.view()).unwrap();
                let got = cache.attend(new.view(), &atoms::causal(), &Options::default()).unwrap();
                for (h, i) in (0..2).flat_map(|h| (0..8).map(move |i| (h, i))) {
                    let what = format!("window {window}, {sinks} sinks, token {}", past + i);
                    assert_same_bits(&row(&got, [0, h, i]), &row(&expected, [0, h, past + i]), &what);
                }
            }
        }
    }
}

/// Truncates a rotating cache to its sink tokens and appends other tokens. No overwritten token may be read then.
#[test]
fn a_rotating_cache_goes_back_to_its_sinks() {
    let (d, sinks) = (8, 4);
    let [x, y] = [1, 2].map(|seed| random::<f32>([1, 1, 100, d], seed));
    let append = |cache: &mut KvCache<f32>, x: &Array, rows: std::ops::Range<usize>| {
        for at in rows {
            let new = part(x, at..at + 1);
            cache.append(new.view(), new.view()).unwrap();
        }
    };
    let caches = || {
        [(); 2].map(|()| {
            KvCache::<f32>::rotating(&KvShape::new(1, d), Rotating { window: 8, sink_tokens: sinks, ahead: 4 }).unwrap()
        })
    };
    let [mut fresh, mut cut] = caches();
    append(&mut fresh, &x, 0..sinks);
    append(&mut cut, &x, 0..100);
    cut.truncate(0, sinks).unwrap();
    for at in sinks..60 {
        let new = part(&y, at..at + 1);
        let [expected, got] = [&mut fresh, &mut cut].map(|cache| {
            cache.append(new.view(), new.view()).unwrap();
            cache.attend(new.view(), &atoms::causal(), &Options::default()).unwrap()
        });
        assert_same_bits(&row(&got, [0; 3]), &row(&expected, [0; 3]), &format!("token {at}"));
    }
}

#[test]
fn guesses_of_a_tree_are_taken_back() {
    let (len, head_dim) = (90, 32);
    let q = random::<f32>([1, 2, len, head_dim], 1);
    let [k, v] = [2, 3].map(|seed| random::<f32>([1, 2, len, head_dim], seed));
    let parents = [-1i64, 0, 0, 1, -1, 4, 2, 3];
    for isa in Isa::available() {
        let expected = one_pass([&q, &k, &v], "causal", &Facts::new(), *isa, &Options::default());
        let shape = KvShape::new(2, head_dim).isa(*isa);
        for (form, mut cache) in forms::<f32>(&shape, 1, len + 8, Some((200, 0, 8))) {
            for past in 0..len - 1 {
                let [next_q, next_k, next_v] = [&q, &k, &v].map(|x| part(x, past..past + 1));
                if past % 5 == 0 && past > 0 {
                    // Node 0 of the tree is the correct token. The other nodes are wrong guesses, with NaN as content.
                    let guess = |x: &Array| x.pad(0, 8, f32::NAN);
                    let [gq, gk, gv] = [&next_q, &next_k, &next_v].map(guess);
                    cache.append(gk.view(), gv.view()).unwrap();
                    let mask = atoms::keys(..past) | atoms::tree(parents, past);
                    let got = cache.attend(gq.view(), &mask, &Options::default()).unwrap();
                    for h in 0..2 {
                        let what = format!("{form} on {isa}: the first guess after {past}");
                        assert_same_bits(&row(&got, [0, h, 0]), &row(&expected, [0, h, past]), &what);
                    }
                    cache.truncate(0, past + 1).unwrap();
                    continue;
                }
                cache.append(next_k.view(), next_v.view()).unwrap();
                let got = cache.attend(next_q.view(), &atoms::causal(), &Options::default()).unwrap();
                for h in 0..2 {
                    let what = format!("{form} on {isa}: token {past}");
                    assert_same_bits(&row(&got, [0, h, 0]), &row(&expected, [0, h, past]), &what);
                }
            }
        }
    }
}

/// Appends a tree of guesses, keeps a path of it, and continues. The results have the bits of a cache to which only the
/// accepted tokens were appended.
fn accepted_guesses_stay<T: Element>() {
    let (d, v_dim, steps) = (37, 21, 9);
    for (isa, seed) in Isa::available().iter().flat_map(|isa| (0..3).map(move |seed| (isa, seed))) {
        let mut dice = Dice(700 + seed);
        let shape = KvShape::new(2, d).v_dim(v_dim).sequences(2).isa(*isa);
        // The slots between the sink tokens and the ring are never written.
        let window = Some((1 + dice.below(40), 2 * dice.below(5), 12));
        let caches = || forms::<T>(&shape, 2, 150, window);
        for ((form, mut plain), (_, mut guessing)) in caches().into_iter().zip(caches()) {
            for step in 0..steps {
                let guesses = 1 + dice.below(12);
                let draw = |width, seed| random::<T>([2, 2, guesses, width], seed);
                let (k, v) = (draw(d, dice.next()), draw(v_dim, dice.next()));
                guessing.append(k.view(), v.view()).unwrap();
                let paths = [(); 2].map(|()| (0..guesses).filter(|_| dice.chance(60)).collect::<Vec<_>>());
                let starts = [0, paths[0].len(), paths[0].len() + paths[1].len()];
                if starts[2] > 0 {
                    let gather = |x: &Array<T>| {
                        Array::new([1, 2, starts[2], x.shape[3]], |[_, h, i, d]| {
                            let b = usize::from(i >= starts[1]);
                            x.view().get([b, h, paths[b][i - starts[b]], d]).to_f32()
                        })
                        .cast::<T>()
                    };
                    let (k, v) = (gather(&k), gather(&v));
                    plain.append_ragged(k.view(), v.view(), &starts).unwrap();
                }
                for (b, path) in paths.iter().enumerate() {
                    guessing.keep(b, guesses, path).unwrap();
                    assert_eq!(guessing.len(b), plain.len(b));
                }
                assert_eq!(guessing.free_blocks(), plain.free_blocks());
                let next = [(d, 1), (d, 2), (v_dim, 3)]
                    .map(|(width, heads)| random::<T>([2, [0, 4, 2, 2][heads], 1, width], dice.next()));
                let [expected, got] = [&mut plain, &mut guessing].map(|cache| {
                    cache.append(next[1].view(), next[2].view()).unwrap();
                    cache.attend(next[0].view(), &atoms::causal(), &Options::default()).unwrap()
                });
                for (b, h) in [(0, 0), (0, 3), (1, 1), (1, 2)] {
                    let what = format!("{form} in {} on {isa}, {window:?}, step {step}, {paths:?}", T::DTYPE);
                    assert_same_bits(&row(&got, [b, h, 0]), &row(&expected, [b, h, 0]), &what);
                }
            }
        }
    }
}

#[test]
fn accepted_guesses_stay_in_f32() {
    accepted_guesses_stay::<f32>();
}

#[test]
fn accepted_guesses_stay_in_bf16() {
    accepted_guesses_stay::<bf16>();
}

#[test]
fn accepted_guesses_stay_in_f16() {
    accepted_guesses_stay::<f16>();
}

#[test]
fn wrong_paths_of_guesses_are_refused() {
    let x = Array::random([1, 1, 10, 4], 1);
    let message = |result: Result<(), noren::Error>| result.unwrap_err().to_string();
    let mut cache = KvCache::<f32>::contiguous(&KvShape::new(1, 4), 16).unwrap();
    cache.append(x.view(), x.view()).unwrap();
    assert_eq!(
        message(cache.keep(0, 11, &[])),
        "cache: `guesses` is 11, but sequence 0 has only 10 tokens: give at most 10"
    );
    assert_eq!(
        message(cache.keep(0, 3, &[1, 3])),
        "cache: guess 3 is accepted, but there are 3 guesses, numbered from 0"
    );
    assert_eq!(
        message(cache.keep(0, 3, &[0, 2, 1])),
        "cache: accepted guesses 2 and 1 do not ascend: give each index once, in ascending order"
    );
    assert_eq!(message(cache.keep(1, 3, &[0])), "cache: there is no sequence 1: sequences are numbered from 0 to 0");
    assert_eq!(cache.len(0), 10, "nothing was removed");
    let mut ring =
        KvCache::<f32>::rotating(&KvShape::new(1, 4), Rotating { window: 8, sink_tokens: 2, ahead: 10 }).unwrap();
    (0..9).for_each(|_| ring.append(x.view(), x.view()).unwrap());
    assert!(message(ring.keep(0, 80, &[70, 71])).contains("is overwritten"));
    ring.keep(0, 10, &[]).unwrap();
    assert_eq!(ring.len(0), 80);
}

/// NaN in slots that no query may read (never written, returned to the pool, overwritten or hidden) changes no bit.
fn stale_content_changes_no_bit<T: Element>() {
    let (len, d) = (70, 40);
    let q = random::<T>([2, 4, len, d], 1);
    let [k, v] = [2, 3].map(|seed| random::<T>([2, 2, len, d], seed));
    let poison = Array { data: vec![T::from_f32(f32::NAN); 2 * 2 * 90 * d], shape: [2, 2, 90, d] };
    let mask: Mask = "sliding(20) | causal & keys(..3)".parse().unwrap();
    for isa in Isa::available() {
        let shape = KvShape::new(2, d).sequences(2).isa(*isa);
        let caches = || forms::<T>(&shape, 2, 96, Some((20, 3, 90)));
        for ((form, mut clean), (_, mut dirty)) in caches().into_iter().zip(caches()) {
            dirty.append(poison.view(), poison.view()).unwrap();
            dirty.clear(0).unwrap();
            dirty.clear(1).unwrap();
            for past in (0..len).step_by(7) {
                let [q, k, v] = [&q, &k, &v].map(|x| part(x, past..past + 7));
                let [expected, got] = [&mut clean, &mut dirty].map(|cache| {
                    cache.append(k.view(), v.view()).unwrap();
                    cache.attend(q.view(), &mask, &Options::default()).unwrap()
                });
                let wide = |x: &[T]| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
                let what = format!("{form} in {} on {isa} after {past}", T::DTYPE);
                assert_same_bits(&wide(&got.out), &wide(&expected.out), &what);
                assert_eq!(bits(&got.lse), bits(&expected.lse), "{what}");
                assert!(wide(&got.out).iter().all(|x| x.is_finite()), "{what}");
                let guesses = part(&poison, 0..5);
                dirty.append(guesses.view(), guesses.view()).unwrap();
                (0..2).for_each(|b| dirty.truncate(b, past + 7).unwrap());
            }
        }
    }
}

#[test]
fn stale_content_changes_no_bit_in_f32() {
    stale_content_changes_no_bit::<f32>();
}

#[test]
fn stale_content_changes_no_bit_in_bf16() {
    stale_content_changes_no_bit::<bf16>();
}

#[test]
fn stale_content_changes_no_bit_in_f16() {
    stale_content_changes_no_bit::<f16>();
}

#[test]
fn threads_and_score_modifiers_change_no_bit() {
    fn check<T: Element>(kv_heads: usize, head_dim: usize, len: usize, mask: &str) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(7).build().unwrap();
        let new = 3;
        let q = random::<T>([1, 4 * kv_heads, len, head_dim], 1);
        let [k, v] = [2, 3].map(|seed| random::<T>([1, kv_heads, len, head_dim], seed));
        let table = Array::random([1, 4 * kv_heads, 1, 401], 4);
        let sinks: Vec<f32> = (0..4 * kv_heads).map(|h| h as f32 / 3.0).collect();
        let modified =
            Options::default().softcap(4.0).bias(noren::Bias::Relative { table: table.view() }).sinks(&sinks);
        for (isa, options) in Isa::available().iter().flat_map(|l| [(l, Options::default()), (l, modified.clone())]) {
            let expected = one_pass([&q, &k, &v], mask, &Facts::new(), *isa, &options);
            let shape = KvShape::new(kv_heads, head_dim).isa(*isa);
            for (form, mut cache) in forms::<T>(&shape, 1, len, None) {
                cache.append(k.view(), v.view()).unwrap();
                let last = part(&q, len - new..len);
                for threads in [1, 2, 3, 5, 7] {
                    let options = options.clone().threads(threads);
                    let mask = mask.parse().unwrap();
                    let got = pool.install(|| cache.attend(last.view(), &mask, &options)).unwrap();
                    for (h, i) in (0..4 * kv_heads).flat_map(|h| (0..new).map(move |i| (h, i))) {
                        let what = format!("{form} in {} on {isa}, {threads} threads, {mask}, head {h}", T::DTYPE);
                        assert_same_bits(&row(&got, [0, h, i]), &row(&expected, [0, h, len - new + i]), &what);
                    }
                }
            }
        }
    }
    for mask in ["causal", "causal - keys(70..900)", "causal & stride(2)"] {
        check::<f32>(1, 96, 2000, mask);
        check::<bf16>(1, 64, 2000, mask);
        check::<f16>(1, 40, 2000, mask);
        check::<f32>(3, 64, 1500, mask);
    }
}

#[test]
fn soft_weights_and_dense_biases_index_keys_as_the_cache_shows_them() {
    let (len, d) = (100, 16);
    let q = random::<f32>([1, 2, len, d], 1);
    let [k, v] = [2, 3].map(|seed| random::<f32>([1, 2, len, d], seed));
    let bias = |q: i64, k: i64| ((7 * q + 3 * k) % 11) as f32 / 5.0;
    let soft = |q: i64, k: i64| ((5 * q + k) % 4) as f32 / 3.0;
    let table = |cell: &dyn Fn(i64, i64) -> f32| Array::new([1, 1, len, len], |[.., i, j]| cell(i as i64, j as i64));
    let (all_bias, all_soft) = (table(&bias), table(&soft));
    let options = Options::default().bias(noren::Bias::Dense(all_bias.view())).soft(all_soft.view());
    for isa in Isa::available() {
        let expected = one_pass([&q, &k, &v], "sliding(30) | causal & keys(..2)", &Facts::new(), *isa, &options);
        let shape = KvShape::new(2, d).isa(*isa);
        for (form, mut cache) in forms::<f32>(&shape, 1, len, Some((30, 2, 4))) {
            for past in (0..len).step_by(4) {
                let [q, k, v] = [&q, &k, &v].map(|x| part(x, past..past + 4));
                cache.append(k.view(), v.view()).unwrap();
                let mask: Mask = "sliding(30) | causal & keys(..2)".parse().unwrap();
                let plan = cache.plan(&mask, &Facts::new(), 2, 4).unwrap();
                let now = |cell: &dyn Fn(i64, i64) -> f32| {
                    Array::new([1, 1, 4, plan.plan().shape().kv_len()], |[.., i, j]| match plan.key_position(0, j) {
                        position if position >= 0 => cell((past + i) as i64, position),
                        _ => 0.5,
                    })
                };
                let (bias, soft) = (now(&bias), now(&soft));
                let options = Options::default().bias(noren::Bias::Dense(bias.view())).soft(soft.view());
                let got = cache.attention(q.view(), &plan, &options).unwrap();
                for (h, i) in (0..2).flat_map(|h| (0..4).map(move |i| (h, i))) {
                    let what = format!("{form} on {isa}: token {i} after {past}");
                    assert_same_bits(&row(&got, [0, h, i]), &row(&expected, [0, h, past + i]), &what);
                }
            }
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case for each error")]
fn wrong_use_is_refused_by_name() {
    let shape = KvShape::new(2, 4).sequences(2);
    let x = Array::random([2, 2, 10, 4], 1);
    let one = part(&x, 0..1);
    let message = |result: Result<(), noren::Error>| result.unwrap_err().to_string();
    let mut cache = KvCache::<f32>::contiguous(&shape, 16).unwrap();
    assert_eq!(
        message(cache.attend(one.view(), &atoms::causal(), &Options::default()).map(drop)),
        "cache: sequence 0 has 0 tokens, but the step has 1 queries: append their tokens first"
    );
    cache.append(x.view(), x.view()).unwrap();
    assert_eq!(
        message(cache.append(x.view(), x.view())),
        "cache: sequence 0 has 10 tokens and 10 more were appended, but there is room for 16: make the cache larger, or clear \
         the sequence"
    );
    assert_eq!(cache.len(0), 10, "nothing was appended");
    let narrow = Array::random([2, 2, 1, 3], 1);
    assert_eq!(
        message(cache.append(narrow.view(), one.view())),
        "k has shape [2, 2, 1, 3] but the sizes of the cache and the number of new tokens in k require the shape [sequences, kv_heads, new, head_dim] = [2, 2, 1, 4]"
    );
    assert_eq!(
        message(cache.append_ragged(
            View::new(&x.data[..80], [1, 2, 10, 4]).unwrap(),
            View::new(&x.data[..80], [1, 2, 10, 4]).unwrap(),
            &[0, 4, 9]
        )),
        "cache: cu_seqlens are [0, 4, 9]: 10 new tokens are given: the last entry of cu_seqlens must be equal to this number"
    );
    assert_eq!(message(cache.truncate(2, 0)), "cache: there is no sequence 2: sequences are numbered from 0 to 1");
    assert_eq!(
        message(cache.truncate(1, 11)),
        "cache: sequence 1 has 10 tokens and cannot be truncated to 11: give at most 10"
    );
    let plan = cache.plan(&atoms::causal(), &Facts::new(), 4, 1).unwrap();
    let q = Array::random([2, 4, 1, 4], 3);
    assert!(cache.attention(q.view(), &plan, &Options::default()).is_ok());
    assert_eq!(
        message(cache.attention(one.view(), &plan, &Options::default()).map(drop)),
        "q has shape [2, 2, 1, 4] but the queries of this plan and cache have the shape [sequences, heads, new, head_dim] = [2, 4, 1, 4]: give queries of this shape"
    );
    cache.append(one.view(), one.view()).unwrap();
    assert_eq!(
        message(cache.attention(q.view(), &plan, &Options::default()).map(drop)),
        "cache: the plan was made when sequences had [10, 10] tokens, but now they have [11, 11]: make a plan \
         after appending"
    );
    assert!(
        message(cache.plan(&atoms::causal(), &Facts::new(), 3, 1).map(drop))
            .contains("3 query heads and 2 key-value heads")
    );
    let other = if cache.isa() == Isa::Portable { return } else { Isa::Portable };
    let plan = cache.plan(&atoms::causal(), &Facts::new(), 4, 1).unwrap();
    let options = Options::default().isa(other);
    let error = message(cache.attention(q.view(), &plan, &options).map(drop));
    assert!(error.starts_with("ISA `portable`: the keys of the cache are stored for "), "{error}");

    let mut paged = KvCache::<f32>::paged(&shape, 16, 3).unwrap();
    paged.append(x.view(), x.view()).unwrap();
    assert_eq!(paged.free_blocks(), 1);
    assert_eq!(
        message(paged.append(x.view(), x.view())),
        "cache: the new tokens need 2 more blocks, but only 1 are free: clear or truncate a sequence, or create the cache \
         with more blocks"
    );
    paged.clear(1).unwrap();
    assert_eq!((paged.free_blocks(), paged.len(1)), (2, 0));

    let mut ring = KvCache::<f32>::rotating(&shape, Rotating { window: 8, sink_tokens: 0, ahead: 4 }).unwrap();
    assert_eq!(
        message(ring.append(x.view(), x.view())),
        "cache: 10 tokens were appended to sequence 0 at once, but the cache accepts at most 4: append and plan in chunks, or \
         create the cache with a larger `ahead`"
    );
    for _ in 0..40 {
        ring.append(part(&x, 0..4).view(), part(&x, 0..4).view()).unwrap();
    }
    ring.truncate(0, 156).unwrap();
    assert!(message(ring.truncate(0, 60)).contains("is overwritten; only the tokens of the last step can be removed"));
    assert!(KvCache::<f32>::paged(&shape, 24, 3).unwrap_err().to_string().starts_with("block is 24"));
    assert!(KvCache::<f32>::contiguous(&KvShape::new(0, 4), 3).unwrap_err().to_string().starts_with("kv_heads is 0"));
    assert!(KvCache::<f32>::contiguous(&shape, 0).unwrap_err().to_string().starts_with("capacity is 0"));
    let huge = KvShape::new(1 << 24, 1 << 24);
    assert!(KvCache::<f32>::contiguous(&huge, 1 << 20).unwrap_err().to_string().contains("there is not enough memory"));
}
