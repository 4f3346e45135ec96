//! What must hold whatever text is given: nothing panics, what parses prints and parses again, and plans are exact.

use noren_mask::{BoundMask, Facts, Kind, Mask, PlanOptions, Shape, Spec};

/// Any text as a mask.
pub(crate) fn parse(data: &[u8]) {
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
pub(crate) fn facts(data: &[u8]) {
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

/// The plan allows the cells that the definition allows.
fn plan_is_exact(bound: &BoundMask) {
    let plan = bound.plan_with(&PlanOptions { block_q: 4, block_kv: 4, ..PlanOptions::default() });
    let shape = bound.shape();
    for batch in 0..shape.batch_len() {
        for head in 0..shape.head_count() {
            let pattern = &plan.patterns()[plan.pattern_of(batch, head)];
            for tile in pattern.tiles() {
                let mut words = vec![0; tile.rows() as usize];
                pattern.fill_bits(tile.start..tile.end, 0..pattern.kv_len(), &mut words);
                for (q, word) in (tile.start..tile.end).zip(words) {
                    for k in 0..pattern.kv_len() {
                        let span = tile.spans.iter().find(|s| s.start <= k && k < s.end);
                        let planned = span.is_some_and(|s| s.kind == Kind::Full || word >> k & 1 == 1);
                        let allowed = bound.allowed(batch, head, q as usize, k as usize);
                        assert_eq!(planned, allowed, "[{batch}, {head}, {q}, {k}] of {}", bound.mask());
                    }
                }
            }
        }
    }
}
