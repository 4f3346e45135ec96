//! Masks of long contexts with 131,072 tokens and more: limits are kept, and traffic is at most half of the other
//! systems'.

use noren_dist::masks::cases;
use noren_dist::{Machine, Objective, Options, Travel, Wire, compare, partition, search, simulate};
use noren_mask::{Facts, Shape, atoms::*};

#[test]
fn limits_are_kept_and_others_need_twice_the_traffic() {
    let [area, tokens] = Objective::Balanced.limits();
    for ranks in [8, 64] {
        for case in cases(131_072).expect("a length that shapes have") {
            let plan = case.bound.plan();
            let options = Options { ranks, ..Options::default() };
            let found = search(&plan, &options).expect("ranks make sense");
            let row = &found.rows[0];
            let m = row.candidates[row.chosen].measures;
            let name = format!("{} over {ranks}: {m:?}", case.name);
            assert!(row.exact && m.area <= area && m.tokens <= tokens, "{name}");
            let others = compare(&plan, &options).expect("as above");
            let fair = others.iter().filter(|b| b.measures.area <= area && b.measures.tokens <= tokens);
            let best = fair.map(|b| b.measures.received).min().expect("striping keeps the limits");
            let bound = row.bound.as_ref().map_or(0, |b| b.bytes);
            assert!(m.received >= bound, "{name}: below the bound of {bound} bytes");
            match case.name {
                // the bound excludes half of it
                "window 4096" => assert!(m.received <= best && 2 * bound > best, "{name}: {best}, at least {bound}"),
                "causal" => assert!(m.received <= best, "{name}: {best}"),
                _ => assert!(2 * m.received <= best, "{name}: {best}"),
            }
        }
    }
}

#[test]
fn with_keys_alone_causal_is_a_zigzag() {
    for ranks in [8, 64] {
        let plan = causal().bind(&Shape::square(131_072), &Facts::new()).expect("binds").plan();
        let options = Options { ranks, travel: Travel::Keys, ..Options::default() };
        assert_eq!(partition(&plan, &options).expect("ranks make sense").method, "zigzag");
    }
}

#[test]
fn decoding_sends_the_query_to_the_keys() {
    let shape = Shape::cached(4095, 1).heads(8).kv_heads(2);
    let plan = causal().bind(&shape, &Facts::new()).expect("binds").plan();
    let wire = Wire { head_dim: 64, v_dim: 64, element: 2, partial: 4 };
    let split = partition(&plan, &Options { ranks: 4, wire, ..Options::default() }).expect("four ranks");
    split.check(plan.bound()).expect("sound");
    let traffic = split.traffic(&wire);
    // three partial results of 8 heads come back; no rank receives a key
    assert_eq!(traffic.iter().map(|t| t.received).max(), Some(3 * 8 * (64 * 4 + 4)));
    assert!(split.rows[0].shares.iter().all(|s| s.receives.iter().all(|e| e.keys.is_empty())));
}

#[test]
fn nodes_keep_traffic_to_themselves() {
    let case = &cases(65_536).expect("a length that shapes have")[0];
    let plan = case.bound.plan();
    let options = Options { ranks: 32, nodes: 4, ..Options::default() };
    let found = search(&plan, &options).expect("ranks make sense");
    let row = &found.rows[0];
    let chosen = row.candidates[row.chosen].measures;
    assert!(2 * chosen.far <= chosen.received, "{chosen:?}");
    let run = simulate(&plan, &found.partition, &options.wire, &Machine::default()).expect("its own partition");
    assert_eq!(run.far, chosen.far);
}

#[test]
fn thousands_of_ranks_are_simulated() {
    let plan =
        (causal() & documents_of(vec![16_384; 16])).bind(&Shape::square(1 << 18), &Facts::new()).expect("binds").plan();
    let mut before = f64::INFINITY;
    for ranks in [2, 64, 1024] {
        let options = Options { ranks, nodes: ranks.div_ceil(8), ..Options::default() };
        let split = partition(&plan, &options).expect("ranks make sense");
        let run = simulate(&plan, &split, &Wire::default(), &Machine::default()).expect("its own partition");
        assert!(run.simulated && run.forward >= run.forward_ideal && run.forward < before, "{run:?}");
        before = run.forward;
    }
}
