//! Properties that hold for every text: nothing panics, a parsed mask prints and parses again, and plans are exact.

use noren_mask::{BoundMask, Facts, Mask, Plan, PlanOptions, Shape, SpanKind, Spec};

/// Cells of the largest mask that is compared with its definition.
const MOST_CELLS: u128 = 1 << 14;

/// Any text as a mask.
pub fn parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Spec>() {
        Ok(spec) => assert_eq!(spec.to_string().parse::<Spec>().as_ref(), Ok(&spec), "{text:?} printed and parsed"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let Ok(mask) = text.parse::<Mask>() else { return };
    let simple = mask.simplify();
    assert_eq!(simple.simplify(), simple, "{text:?} simplified twice");
    let facts = Facts::new().lengths([9, 4]).documents([5, 4]).levels([0, 2, 1, 1, 0, 0, 3, 2, 1]);
    for shape in [Shape::square(9), Shape::cached(6, 3)] {
        let shape = shape.batch(2).heads(2);
        let (Ok(bound), Ok(simple)) = (mask.bind(&shape, &facts), simple.bind(&shape, &facts)) else { continue };
        plan_is_exact(&bound);
        assert_eq!(bound.first_difference(&simple), Ok(None), "{text:?} simplified");
    }
}

/// Any text as facts for masks that need every kind of them.
pub fn facts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let facts = match Facts::from_json(text) {
        Ok(facts) => facts,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let masks = [
        "causal & padding",
        "padding(on=both)",
        "documents",
        "clearance",
        "sliding(3)",
        "global(label=\"a\") | keys(label=\"b\")",
        "dense(a)",
    ];
    for shape in [Shape::square(6).batch(2), Shape::cached(4, 2), Shape::cross(3, 6)] {
        for mask in masks {
            let mask: Mask = mask.parse().expect("a mask");
            match mask.bind(&shape, &facts) {
                Ok(bound) => plan_is_exact(&bound),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// Any text as a plan, or as a mask with its shape and facts.
pub fn plans(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Plan::from_json(text) {
        Ok(plan) => {
            let written = plan.to_json().expect("a plan is written");
            let again = Plan::from_json(&written).expect("what is written is read");
            assert_eq!(again.to_json().as_deref(), Ok(written.as_str()));
            if plan.shape().cells() <= MOST_CELLS {
                is_exact(plan.bound(), &plan);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match BoundMask::from_json(text) {
        Ok(bound) => {
            let written = bound.to_json().expect("a bound mask is written");
            let again = BoundMask::from_json(&written).expect("what is written is read");
            assert_eq!((again.mask(), again.shape(), again.facts()), (bound.mask(), bound.shape(), bound.facts()));
            if bound.shape().cells() <= MOST_CELLS {
                plan_is_exact(&bound);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The plan allows the cells that the definition allows.
fn plan_is_exact(bound: &BoundMask) {
    is_exact(bound, &bound.plan_with(&PlanOptions { block_q: 4, block_kv: 4, ..PlanOptions::default() }));
}

/// Compares every cell of `plan`, reordered or not, with the definition.
fn is_exact(bound: &BoundMask, plan: &Plan) {
    let shape = bound.shape();
    for batch in 0..shape.batch_len() {
        for head in 0..shape.head_count() {
            let pattern = &plan.patterns()[plan.pattern_of(batch, head)];
            let width = pattern.kv_len().div_ceil(64) as usize;
            for tile in pattern.tiles() {
                let mut words = vec![0; tile.rows() as usize * width];
                pattern.fill_bits(tile.start..tile.end, 0..pattern.kv_len(), &mut words);
                for (row, words) in (tile.start..tile.end).zip(words.chunks(width)) {
                    for place in 0..pattern.kv_len() {
                        let span = tile.spans.iter().find(|s| s.start <= place && place < s.end);
                        let bit = words[place as usize / 64] >> (place % 64) & 1 == 1;
                        let planned = span.is_some_and(|s| s.kind == SpanKind::Full || bit);
                        let (q, k) = (pattern.query_at(row) as usize, pattern.key_at(place) as usize);
                        let allowed = bound.allowed(batch, head, q, k);
                        assert_eq!(planned, allowed, "[{batch}, {head}, {q}, {k}] of {}", bound.mask());
                    }
                }
            }
        }
    }
}
