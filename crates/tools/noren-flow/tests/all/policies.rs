//! Policies compared with a brute-force check of all pairs of tokens, for random stacks with random facts.
//!
//! The brute-force check reads the JSON of the facts independently, by the documentation (`docs/flow.md`), and
//! evaluates masks only with [`BoundMask::allowed`](noren_mask::BoundMask::allowed).

use crate::brute::{Brute, Expected};
use noren_flow::{Certificate, Counted, Fill, Flow, Policy, RuleVerdict, Verdict};
use noren_mask::{Mask, Positions, atoms::*};
use noren_testing::cases::{World, sequences, stack_masks};
use noren_testing::check;
use proptest::prelude::*;

/// Returns stacks over the tokens of one sequence per batch row, without closures.
fn stacks(longest: usize) -> impl Strategy<Value = (World, Vec<Mask>, Fill)> {
    sequences(longest).prop_flat_map(|world| {
        // Masks that separate documents or padding make some policies hold.
        let masks = (stack_masks(&world), 0..4u8).prop_map(|(mask, kind)| match kind {
            0 => mask,
            1 => mask & padding() & causal(),
            _ => mask & documents() & causal(),
        });
        let fill = prop_oneof![3 => Just(Fill::Nothing), 1 => Just(Fill::Finite)];
        (Just(world), proptest::collection::vec(masks, 1..4), fill)
    })
}

/// Returns lines over all groups. Some groups have no tokens.
fn policies() -> impl Strategy<Value = String> {
    let group = |target: bool| {
        prop_oneof![
            1 => Just("all".to_string()),
            2 => prop_oneof![Just("label(a)"), Just("label(b)")].prop_map(String::from),
            1 => (-2..3i64).prop_map(|level| format!("level({level})")),
            1 => (0..4usize).prop_map(|d| format!("document({d})")),
            2 => prop_oneof![Just("document(i)"), Just("document(j)")].prop_map(String::from),
            1 => (0..4u32, 2..5u32).prop_map(|(a, n)| format!("tokens({a}..{})", a + n)),
            1 => (0..5u32).prop_map(|t| format!("token({t})")),
            2 => Just(if target { "output" } else { "label(b)" }.to_string()),
        ]
    };
    let word = prop_oneof![9 => Just("deny maybe"), 1 => Just("deny"), 2 => Just("allow maybe"), 1 => Just("allow")];
    let line = (word, group(false), group(true)).prop_map(|(word, from, to)| format!("{word}: {from} -> {to}"));
    proptest::collection::vec(line, 1..5).prop_map(|lines| lines.join("\n"))
}

#[test]
fn policies_are_brute_force_over_pairs() {
    let mut seen = [0usize; 4];
    let counts = std::cell::RefCell::new(&mut seen);
    check(400, (stacks(14), policies()), |((world, stack, fill), text)| {
        let policy: Policy = text.parse().expect("it reads");
        let flow = Flow::of_stack(&stack, &world.shape, &world.facts, fill).expect("it binds");
        let brute = Brute::new(&world.shape, &world.facts, &stack, fill == Fill::Finite);
        let expected = brute.check(&text);
        let (ruling, expected) = match (policy.check(&flow), expected) {
            (Ok(ruling), Ok(expected)) => (ruling, expected),
            (Err(error), Err(group)) => {
                assert!(error.to_string().contains(&group), "{error} does not name {group}\n{text}");
                counts.borrow_mut()[3] += 1;
                return;
            }
            (Ok(ruling), Err(group)) => panic!("{group} has no tokens, yet: {}\n{text}", ruling.summary()),
            (Err(error), Ok(_)) => panic!("refused: {error}\n{text}"),
        };
        assert_eq!(ruling.rules.len(), expected.len(), "{text}");
        for (found, wanted) in ruling.rules.iter().zip(&expected) {
            compare(&brute, found, wanted, world.shape.head_count());
        }
        let pairs: u64 = expected.iter().map(|e| e.pairs.len() as u64).sum();
        let broken = expected.iter().any(|e| !e.reached.is_empty());
        assert_eq!(ruling.pairs, pairs, "{text}");
        assert_eq!(ruling.holds(), pairs > 0 && !broken, "{text}");
        let verdict = ruling.verdict();
        assert_eq!(verdict == Verdict::NothingEstablished, pairs == 0 && !broken);
        counts.borrow_mut()[[Verdict::Holds, Verdict::Broken, Verdict::NothingEstablished]
            .iter()
            .position(|v| *v == verdict)
            .expect("one of three")] += 1;
        certified(&flow, &policy, &brute, &expected);
    });
    let [holds, broken, nothing, refused] = seen;
    println!(
        "{holds} hold, {broken} are broken, {nothing} establish nothing, {refused} are refused for a group without tokens"
    );
    assert!(holds > 0 && broken > 0 && nothing > 0 && refused > 0);
}

/// Compares the results of one line in one batch row.
fn compare(brute: &Brute, found: &RuleVerdict, wanted: &Expected, heads: usize) {
    let place = format!("{} in batch row {}", found.rule, found.batch);
    assert_eq!((found.batch, found.sources, found.targets), (wanted.batch, wanted.sources, wanted.targets), "{place}");
    assert_eq!((found.pairs, found.reached_pairs), (wanted.pairs.len() as u64, wanted.reached.len() as u64), "{place}");
    assert_eq!(found.counted, Counted::Exact, "{place}");
    assert_eq!(found.witness.is_some(), found.violated(), "{place}");
    let Some(path) = &found.witness else { return };
    let mut at = path.source;
    let mut after = None;
    for &(layer, token) in &path.steps {
        assert!(after.is_none_or(|before| layer > before), "{place}: {path}");
        assert!(brute.reads(found.batch, layer, token as usize, at as usize), "{place}: {path}");
        (at, after) = (token, Some(layer));
    }
    assert!(wanted.pairs.contains(&(path.source as usize, at as usize)), "{place}: {path} is not denied");
    // Cells are counted in every pattern of heads; a single head has one pattern.
    if heads == 1 {
        assert!(found.cut_computed);
        assert_eq!(found.cut.map(|cut| cut.1), brute.cheapest_cut(found.batch, &wanted.reached), "{place}");
    }
}

/// Checks the reaches of a certificate: they are exact, cover every pair that is not reached, and contain nothing else.
fn certified(flow: &Flow, policy: &Policy, brute: &Brute, expected: &[Expected]) {
    let certificate = Certificate::issue(flow, policy).expect("it is issued");
    let again = Certificate::from_json(&certificate.to_json().expect("JSON")).expect("it reads");
    assert_eq!(again, certificate);
    let holds = |(ranges, token): (&[(u32, u32)], usize)| ranges.iter().any(|r| (r.0..r.1).contains(&(token as u32)));
    for entry in &certificate.reach {
        let sets: Vec<_> = entry.after.iter().flat_map(|(count, set)| std::iter::repeat_n(set, *count)).collect();
        assert_eq!(sets.len(), brute.depth() + 1);
        assert_eq!(*sets[0], entry.sources);
        for (layer, set) in sets.iter().enumerate() {
            let sources = (0..brute.tokens()).filter(|s| holds((&entry.sources, *s)));
            let mut wanted = vec![false; brute.tokens()];
            sources.for_each(|s| (0..brute.tokens()).for_each(|t| wanted[t] |= brute.knows(entry.batch, layer, t, s)));
            assert!((0..brute.tokens()).all(|t| holds((set, t)) == wanted[t]), "layer {layer} of {entry:?}");
        }
    }
    let entries = |batch: usize| certificate.reach.iter().filter(move |e| e.batch == batch);
    for rule in expected {
        for &(s, t) in &rule.pairs {
            let last = |e: &noren_flow::ReachEntry| holds((&e.after.last().expect("a last set").1, t));
            let apart = entries(rule.batch).any(|e| holds((&e.sources, s)) && !last(e));
            let single = entries(rule.batch).any(|e| e.sources == [(s as u32, s as u32 + 1)]);
            assert!(if rule.reached.is_empty() { apart } else { single }, "({s}, {t}) is in no reach");
        }
    }
    let mut keys: Vec<_> = certificate.reach.iter().map(|e| (e.batch, &e.sources)).collect();
    keys.sort();
    assert!(keys.windows(2).all(|w| w[0] != w[1]), "an entry is there twice");
}

#[test]
fn groups_are_what_atoms_mean() {
    check(300, sequences(14), |world| {
        let bind = |mask: Mask| world.bind(&mask);
        let labelled = bind(keys(Positions::label("a")));
        let (documents, clearance) = (bind(documents()), bind(clearance()));
        let real = bind(padding());
        let brute = Brute::new(&world.shape, &world.facts, &[], false);
        for batch in 0..world.shape.batch_len() {
            for row in 0..world.shape.q_len() {
                let query = brute.token_of_row(batch, row);
                for key in 0..world.shape.kv_len() {
                    let allowed = |bound: &noren_mask::BoundMask| bound.allowed(batch, 0, row, key);
                    assert_eq!(allowed(&labelled), brute.in_label(batch, "a", key));
                    if !brute.is_slot_empty(batch, key) {
                        assert_eq!(allowed(&real), brute.is_real(batch, key));
                        let levels = brute.level(batch, query).zip(brute.level(batch, key));
                        assert_eq!(allowed(&clearance), levels.is_some_and(|(q, k)| q >= k));
                    }
                    if brute.is_real(batch, query) && brute.is_real(batch, key) {
                        let both = brute.document(batch, query).zip(brute.document(batch, key));
                        assert_eq!(allowed(&documents), both.is_some_and(|(q, k)| q == k), "{query}, {key}");
                    }
                }
            }
        }
    });
}
