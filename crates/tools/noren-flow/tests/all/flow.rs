//! Flow compared with Boolean products of matrices and with the support of products of positive matrices, for random
//! stacks.

use noren_flow::{Certificate, Fill, Flow, Policy};
use noren_mask::interval::IntervalSet;
use noren_mask::{BoundMask, Facts, Keep, Mask, Shape, atoms::*};
use noren_testing::cases::{World, sequences, stack_masks, worlds};
use noren_testing::check;
use proptest::prelude::*;
use std::time::Instant;

/// Returns stacks of masks over the tokens of one sequence.
fn stacks(longest: usize) -> impl Strategy<Value = (World, Vec<Mask>, bool)> {
    let placed = worlds(longest, 4 * longest * longest).prop_filter("queries among the keys", |world| {
        let (rows, bound) = (0..world.shape.q_len(), world.bind(&full()));
        (0..world.shape.batch_len()).all(|b| rows.clone().all(|q| token_of(&bound, b, q).is_some()))
    });
    prop_oneof![placed, sequences(longest)].prop_flat_map(|world| {
        let masks = proptest::collection::vec(stack_masks(&world), 1..5);
        (Just(world), masks, any::<bool>())
    })
}

/// Returns the key at the position of a query row.
fn token_of(bound: &BoundMask, batch: usize, row: usize) -> Option<usize> {
    let position = bound.query_position(batch, row);
    (0..bound.shape().kv_len()).find(|k| position >= 0 && bound.key_position(batch, *k) == position)
}

/// Returns for row `q` and key `k` whether query token `q` reads `k` in some head, cell by cell.
fn layer(world: &World, mask: &Mask, batch: usize, finite: bool) -> Vec<Vec<bool>> {
    let bound = world.bind(mask);
    let shape = &world.shape;
    let n = shape.kv_len();
    let mut rows = vec![vec![false; n]; n];
    for q in 0..shape.q_len() {
        let row = &mut rows[token_of(&bound, batch, q).expect("queries among the keys")];
        for h in 0..shape.head_count() {
            let keys: Vec<bool> = (0..n).map(|k| bound.allowed(batch, h, q, k)).collect();
            let empty = !keys.contains(&true);
            row.iter_mut().zip(keys).for_each(|(r, k)| *r |= k || empty && finite);
        }
    }
    rows
}

#[test]
fn closure_is_the_product_of_matrices() {
    check(5000, stacks(40), |(world, stack, finite)| {
        let fill = if finite { Fill::Finite } else { Fill::Nothing };
        let flow = Flow::of_stack(&stack, &world.shape, &world.facts, fill).expect("it binds");
        let n = world.shape.kv_len();
        for batch in 0..world.shape.batch_len() {
            let mut product: Vec<Vec<f64>> =
                (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
            for mask in &stack {
                let rows = layer(&world, mask, batch, finite);
                // Positive weights cannot cancel: an entry of the product is not 0 exactly if the output depends on the
                // source.
                let next = (0..n).map(|i| {
                    (0..n)
                        .map(|j| {
                            product[i][j] + (0..n).filter(|&k| rows[i][k]).map(|k| 0.5 * product[k][j]).sum::<f64>()
                        })
                        .collect()
                });
                product = next.collect();
            }
            let closure = flow.closure(batch);
            let wanted = Keep::from_fn([1, 1, n, n], |[_, _, i, j]| product[i][j] != 0.0);
            assert_eq!(closure, wanted, "{stack:?}");
            for source in [0, n / 2, n - 1] {
                let reached =
                    flow.reach(batch, &IntervalSet::from(source as u32..source as u32 + 1)).pop().expect("a last set");
                assert!((0..n).all(|i| reached.contains(i as u32) == wanted.get([0, 0, i, source])));
                let field = flow.receptive_field(batch, source as u32).pop().expect("a last set");
                assert!((0..n).all(|j| field.contains(j as u32) == wanted.get([0, 0, source, j])));
            }
        }
    });
}

#[test]
fn large_random_layers() {
    check(6, stacks(300), |(world, stack, finite)| {
        let fill = if finite { Fill::Finite } else { Fill::Nothing };
        let flow = Flow::of_stack(&stack, &world.shape, &world.facts, fill).expect("it binds");
        let n = world.shape.kv_len();
        let mut wanted = vec![vec![false; n]; n];
        (0..n).for_each(|i| wanted[i][i] = true);
        for mask in &stack {
            let rows = layer(&world, mask, 0, finite);
            let before = wanted.clone();
            for (i, row) in rows.iter().enumerate() {
                for k in (0..n).filter(|&k| row[k]) {
                    wanted[i].iter_mut().zip(&before[k]).for_each(|(w, b)| *w |= b);
                }
            }
        }
        assert_eq!(flow.closure(0), Keep::from_fn([1, 1, n, n], |[_, _, i, j]| wanted[i][j]));
    });
}

#[test]
fn witnesses_are_ways() {
    check(300, stacks(24), |(world, stack, _)| {
        let flow = Flow::of_stack(&stack, &world.shape, &world.facts, Fill::Nothing).expect("it binds");
        let n = world.shape.kv_len() as u32;
        let (source, target) = (IntervalSet::from(0..1), IntervalSet::from(n - 1..n));
        let reached = flow.closure(0).get([0, 0, n as usize - 1, 0]);
        let path = flow.witness(0, &source, &target);
        assert_eq!(path.is_some(), reached);
        if let Some(path) = path {
            let mut at = path.source;
            let mut after = None;
            for &(l, token) in &path.steps {
                assert!(after.is_none_or(|before| l > before));
                assert!(layer(&world, &stack[l], 0, false)[token as usize][at as usize], "{path}");
                (at, after) = (token, Some(l));
            }
            assert_eq!((path.source, at), (0, n - 1));
        }
    });
}

#[test]
fn a_finite_fill_reads_everything() {
    let facts = Facts::new().lengths([3]).side(noren_mask::Side::Left);
    let shape = Shape::square(5);
    let of = |fill| Flow::of_stack(&[causal() & padding()], &shape, &facts, fill).expect("it binds");
    assert!(of(Fill::Nothing).witness(0, &IntervalSet::from(4..5), &IntervalSet::from(0..1)).is_none());
    let path = of(Fill::Finite).witness(0, &IntervalSet::from(4..5), &IntervalSet::from(0..1)).expect("row 0 is empty");
    assert_eq!(path.to_string(), "token 4 -> token 0 in layer 0");
}

#[test]
fn policies() {
    let facts =
        Facts::new().documents([4, 4]).label("pii", [1]).label("summary", [3]).levels(vec![0, 0, 0, 0, 1, 1, 1, 1]);
    let check = |mask: &str, policy: &str| {
        let masks = vec![mask.parse::<Mask>().expect("a mask"); 3];
        let flow = Flow::of_stack(&masks, &Shape::square(8), &facts, Fill::Nothing).expect("it binds");
        policy.parse::<Policy>().expect("a policy").check(&flow).expect("it checks")
    };
    let apart = check("causal & documents", "deny: document(i) -> document(j)");
    assert_eq!((apart.holds(), apart.pairs, apart.layers, apart.heads, apart.batch_rows), (true, 32, 3, 1, 1));
    let broken = check("causal", "deny: document(i) -> document(j)  # both ways");
    assert_eq!((broken.rules[0].reached_pairs, broken.rules[0].pairs), (16, 32));
    assert_eq!(broken.rules[0].witness.as_ref().expect("a path").to_string(), "token 0 -> token 4 in layer 0");
    assert!(check("causal - keys(1) & !queries(1)", "deny: label(pii) -> output").holds());
    assert!(!check("causal - keys(1) & queries(2..)  | keys(0)", "deny: level(0) -> level(1)").holds());
    let some = "deny: label(pii) -> output\nallow: label(pii) -> label(summary)";
    assert!(check("(causal - keys(1)) | tree([-1, -1, -1, 1]) & queries(3)", some).pairs == 6);
    assert!(!check("causal", some).holds());
    let error = "deny: label(x) => y".parse::<Policy>().unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("deny: SOURCE -> TARGET"), "{error}");
}

#[test]
fn certificates_hold_the_verdict_and_name_their_format() {
    let facts = Facts::new().documents([4, 4]);
    let flow = Flow::of_stack(&[causal(), causal()], &Shape::square(8), &facts, Fill::Nothing).expect("it binds");
    let policy: Policy = "deny: document(i) -> document(j)".parse().expect("a policy");
    let certificate = Certificate::issue(&flow, &policy).expect("issued");
    assert!(!certificate.holds() && certificate.ruling().rules[0].reached_pairs == 16);
    let json = certificate.to_json().expect("JSON");
    assert_eq!(Certificate::from_json(&json).as_ref(), Ok(&certificate));
    let other = Flow::of_stack(&[causal(), sliding(3)], &Shape::square(8), &facts, Fill::Nothing).expect("it binds");
    assert!(certificate.matches(&flow).is_ok() && certificate.matches(&other).is_err());
    let old = json.replacen("certificate 2", "certificate 1", 1);
    assert!(Certificate::from_json(&old).unwrap_err().to_string().contains("noren certificate 2"));
}

#[test]
fn a_long_stack_answers_quickly() {
    let n = 131_072;
    let stack: Vec<Mask> = (0..32).map(|l| if l % 2 == 0 { sliding(1024) } else { causal() }).collect();
    let facts = Facts::new().label("pii", [n / 2..n / 2 + 8, n - 20_000..n - 19_990]);
    let start = Instant::now();
    let flow = Flow::of_stack(&stack, &Shape::square(n), &facts, Fill::Nothing).expect("it binds");
    let ruling = "deny: label(pii) -> output".parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
    let took = start.elapsed();
    println!("131072 tokens, 32 layers: {:.2} s, {}", took.as_secs_f64(), ruling.rules[0]);
    let labelled = (n / 2..n / 2 + 8).chain(n - 20_000..n - 19_990);
    assert_eq!(ruling.rules[0].reached_pairs, labelled.map(|s| (n - 1 - s) as u64).sum::<u64>());
    assert!(cfg!(debug_assertions) || took.as_secs_f64() < 10.0);
}

#[test]
fn long_stacks_are_proved_quickly() {
    let n = 131_072;
    let lengths: Vec<usize> = vec![512; 256];
    let facts = Facts::new()
        .documents(lengths)
        .label("pii", std::iter::once(70_000..70_300))
        .label("far", std::iter::once(100..50_000));
    let apart = |l| if l % 2 == 0 { sliding(1024) & documents() } else { causal() & documents() };
    let stack: Vec<Mask> = (0..32).map(apart).collect();
    let flow = Flow::of_stack(&stack, &Shape::square(n as usize), &facts, Fill::Nothing).expect("it binds");
    for (policy, pairs) in [
        ("deny: document(i) -> document(j)", n * (n - 512)),
        ("deny: label(pii) -> tokens(0..70000)", 300 * 70_000),
        ("deny: all -> label(far)\nallow: document(i) -> document(i)", 49_900 * (n - 512)),
    ] {
        let start = Instant::now();
        let ruling = policy.parse::<Policy>().expect("a policy").check(&flow).expect("it checks");
        let took = start.elapsed();
        println!("{policy}: {:.2} s, {}", took.as_secs_f64(), ruling.summary());
        assert!(ruling.holds());
        assert_eq!(ruling.pairs, pairs, "{policy}");
        assert!(cfg!(debug_assertions) || took.as_secs_f64() < 10.0);
    }
}

#[test]
fn overlapping_groups_are_settled_by_the_bits_of_their_tokens() {
    let n = 131_072;
    let flow = Flow::of_stack(&vec![sliding(1); 32], &Shape::square(n as usize), &Facts::new(), Fill::Nothing);
    let (flow, policy) = (flow.expect("it binds"), "deny: all -> all".parse::<Policy>().expect("a policy"));
    let start = Instant::now();
    let ruling = policy.check(&flow).expect("it checks");
    println!("{:.2} s, {}", start.elapsed().as_secs_f64(), ruling.summary());
    assert!(ruling.holds());
    assert_eq!(ruling.pairs, n * (n - 1));
    let certificate = Certificate::issue(&flow, &policy).expect("it is issued");
    assert_eq!(certificate.reach.len(), 2 * 17);
}

#[test]
fn cuts_are_counted_cell_by_cell() {
    check(300, stacks(24), |(world, stack, finite)| {
        let fill = if finite { Fill::Finite } else { Fill::Nothing };
        let flow = Flow::of_stack(&stack, &world.shape, &world.facts, fill).expect("it binds");
        let n = world.shape.kv_len() as u32;
        let (sources, targets) = (IntervalSet::from(0..n.div_ceil(3)), IntervalSet::from(n / 2..n));
        let (reach, back) = (flow.reach(0, &sources), flow.back(0, &targets));
        let cuts = flow.cuts(0, &sources, &targets);
        for (l, mask) in stack.iter().enumerate() {
            let rows = layer(&world, mask, 0, finite);
            let (from, to) = (&reach[l], &back[stack.len() - l - 1]);
            let carries = |q: u32, k: u32| q != k && to.contains(q) && from.contains(k) && rows[q as usize][k as usize];
            let cells = (0..n).map(|q| (0..n).filter(|&k| carries(q, k)).count() as u64).sum::<u64>();
            let found = cuts.iter().find(|cut| cut.layer == l);
            assert_eq!(found.map_or(0, |cut| cut.cells), cells, "layer {l} of {stack:?}");
            assert!(found.is_none_or(|cut| cut.enough == from.intersect(to).is_empty()));
        }
    });
}
