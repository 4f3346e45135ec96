//! Bound masks and plans as JSON: round trips, and edited tiles that the reader refuses.

use noren_mask::{Array, BoundMask, Facts, Mask, Plan, PlanOptions, Shape, Side, SpanKind};
use proptest::prelude::*;

fn plan(mask: &str, shape: &Shape, facts: &Facts) -> Plan {
    let mask: Mask = mask.parse().unwrap_or_else(|e| panic!("{mask}: {e}"));
    mask.bind(shape, facts).unwrap_or_else(|e| panic!("{mask}: {e}")).plan_with(&PlanOptions {
        block_q: 64,
        block_kv: 64,
        ..PlanOptions::default()
    })
}

fn assert_same(a: &Plan, b: &Plan) {
    assert_eq!(a.bound().mask(), b.bound().mask());
    assert_eq!((a.shape(), a.options(), a.bound().facts()), (b.shape(), b.options(), b.bound().facts()));
    assert_eq!(a.patterns().len(), b.patterns().len());
    for (a, b) in a.patterns().iter().zip(b.patterns()) {
        assert!(a.tiles().eq(b.tiles()));
    }
}

#[test]
fn the_form_is_as_described() {
    let facts = Facts::new().lengths([70, 3]).side(Side::Left);
    let plan = plan("causal & padding", &Shape::square(70).batch(2).heads(2), &facts);
    assert_eq!(
        plan.to_json().unwrap(),
        concat!(
            r#"{"version":1,"mask":"causal & padding","#,
            r#""shape":{"batch":2,"heads":2,"kv_heads":2,"q_len":70,"kv_len":70,"query_offset":0},"#,
            r#""facts":{"lengths":[70,3],"side":"left"},"options":{"block_q":64,"block_kv":64,"reorder":"auto"},"pattern_of":[0,0,1,1],"#,
            r#""patterns":[{"rows":[0,64,70],"spans":[[[0,64,"mixed"]],[[0,65,"full"],[65,70,"mixed"]]]},"#,
            r#"{"rows":[0,64,70],"spans":[[],[[67,70,"mixed"]]]}]}"#
        )
    );
    assert_eq!(
        plan.bound().to_json().unwrap(),
        concat!(
            r#"{"mask":"causal & padding","#,
            r#""shape":{"batch":2,"heads":2,"kv_heads":2,"q_len":70,"kv_len":70,"query_offset":0},"#,
            r#""facts":{"lengths":[70,3],"side":"left"}}"#
        )
    );
    assert_same(&serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap(), &plan);
    let bound: BoundMask = serde_json::from_str(&serde_json::to_string(plan.bound()).unwrap()).unwrap();
    assert_same(&bound.plan_with(plan.options()), &plan);
}

#[test]
fn edited_plans_are_refused() {
    let facts = Facts::new().lengths([70, 3]).side(Side::Left);
    let json = plan("causal & padding", &Shape::square(70).batch(2).heads(2), &facts).to_json().unwrap();
    let again = "the plan was edited or written by another version: plan the mask again";
    let differs = |place: &str| format!("{place} differs from the plan of `causal & padding`: {again}");
    for (from, to, message) in [
        (r#"[0,65,"full"]"#, r#"[0,65,"mixed"]"#, differs("patterns[0].spans[1]")),
        (r#"[0,65,"full"]"#, r#"[0,66,"full"]"#, differs("patterns[0].spans[1]")),
        (r#"[67,70,"mixed"]"#, r#""#, differs("patterns[1].spans[1]")),
        (r#""spans":[[],"#, r#""spans":["#, differs("patterns[1].spans")),
        (r#"[0,64,70]"#, r#"[0,63,70]"#, differs("patterns[0].rows[1]")),
        (r#"[0,64,70]"#, r#"[0,64,64,70]"#, differs("patterns[0].rows")),
        (r#"[0,64,70]"#, r#"[0,70]"#, "patterns[0].rows: 1 tiles are given, but 70 query rows need at least 2".into()),
        (r#"[0,0,1,1]"#, r#"[0,1,1,1]"#, differs("pattern_of[1]")),
        (
            r#"[0,0,1,1]"#,
            r#"[0,0,1]"#,
            "pattern_of: 3 pattern numbers are given for 4 pairs of batch row and head: give one number for each pair"
                .into(),
        ),
        (r#""mask":"causal & padding""#, r#""mask":7"#, "mask: got 7, expected a mask as text".into()),
        (r#""lengths":[70,3]"#, r#""lengths":[70,4]"#, differs("patterns[1].spans[1]")),
        (
            r#""lengths":[70,3]"#,
            r#""lengths":[70,-3]"#,
            "facts.lengths[1]: -3 is too small, expected a length: a whole number from 0 to 2147483647".into(),
        ),
        (
            r#""block_q":64"#,
            r#""block_q":0"#,
            "options.block_q: 0 is too small, expected a block size: a whole number from 1 to 4294967295".into(),
        ),
        (
            r#""version":1"#,
            r#""version":2"#,
            "the version of the plan is 2, but this program reads version 1: plan the mask again".into(),
        ),
        (r#""version":1,"#, r#""#, "JSON: the key \"version\" is missing".into()),
        (r#""version":1"#, r#""version":1,"tiles":[]"#, "JSON: the key \"tiles\" is not known".into()),
        (r#""patterns":["#, r#""patterns":[{"rows":[0,1,2],"spans":[[]]},"#, differs("patterns")),
    ] {
        let edited = json.replacen(from, to, 1);
        assert_ne!(edited, json, "{from}");
        let error = Plan::from_json(&edited).unwrap_err().to_string();
        assert!(error.starts_with(&format!("plan: {message}")), "{from} -> {to}: {error}");
        assert_eq!(serde_json::from_str::<Plan>(&edited).unwrap_err().to_string(), error);
    }
    let unknown = json.replacen("causal & padding", "cuasal", 1);
    assert!(Plan::from_json(&unknown).unwrap_err().to_string().contains("causal"));
    let shape = json.replacen(r#""kv_len":70"#, r#""kv_len":0"#, 1);
    assert!(Plan::from_json(&shape).unwrap_err().to_string().starts_with("shape: kv_len: 0 is too small"));
}

#[test]
fn a_vast_shape_with_few_tiles_is_refused_before_planning() {
    let json = plan("causal", &Shape::square(4), &Facts::new()).to_json().unwrap();
    let long = json.replace(":4,", ":2147483647,").replace(r#""block_q":2147483647"#, r#""block_q":1"#);
    assert!(Plan::from_json(&long).unwrap_err().to_string().contains("query rows need"), "{long}");
    let wide = json.replace(r#""batch":1"#, r#""batch":4194304"#);
    assert!(Plan::from_json(&wide).unwrap_err().to_string().contains("1 pattern numbers are given for 4194304 pairs"));
    let wider = json.replace(r#""batch":1"#, r#""batch":2147483647"#);
    assert_eq!(
        Plan::from_json(&wider).unwrap_err().to_string(),
        "shape: batch 2147483647 times heads 1 is 2147483647: at most 4194304 is supported"
    );
}

#[test]
fn functions_are_refused_by_name() {
    let bound = Mask::from_fn(|cell| cell.key == cell.query).bind(&Shape::square(4), &Facts::new()).unwrap();
    let message = "plan: `function` is defined outside of noren and cannot be written as JSON: give its cells as an array, or store the shape and the facts and bind the mask again";
    assert_eq!(bound.to_json().unwrap_err().to_string(), message);
    assert_eq!(bound.plan().to_json().unwrap_err().to_string(), message);
    assert_eq!(serde_json::to_string(&bound.plan()).unwrap_err().to_string(), message);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_survive_json(
        which in 0usize..8,
        (batch, heads, past, new) in (1usize..3, 1usize..3, 0usize..90, 1usize..90),
        (block_q, block_kv) in (1u32..80, 1u32..80),
        seed in any::<u64>(),
    ) {
        let masks = [
            "causal", "documents & causal", "padding | keys(0)", "sliding(7)", "dense(\"a\")", "clearance",
            "heads(0: causal, else: sliding(3))", "random(0.5, 3)",
        ];
        let kv = past + new;
        let length = |row: usize| (seed >> (8 * row)) as usize % (kv + 1);
        let facts = Facts::new()
            .lengths((0..batch).map(length).collect::<Vec<_>>())
            .documents((0..batch).map(|row| vec![length(row), kv - length(row)]).collect::<Vec<_>>())
            .levels((0..kv).map(|i| (seed >> (i % 50) & 3) as i64).collect::<Vec<_>>())
            .array("a", Array::keep(&[new, kv], &(0..new * kv).map(|i| seed >> (i % 59) & 1 == 1).collect::<Vec<_>>())?);
        let shape = Shape::cached(past, new).batch(batch).heads(heads);
        let plan = masks[which].parse::<Mask>()?.bind(&shape, &facts)?.plan_with(&PlanOptions { block_q, block_kv, ..PlanOptions::default() });
        let json = plan.to_json()?;
        let again = Plan::from_json(&json)?;
        assert_same(&again, &plan);
        prop_assert_eq!(again.to_json()?, json);
        let full = |plan: &Plan| plan.patterns().iter().flat_map(|p| p.tiles()).flat_map(|t| t.spans).filter(|s| s.kind == SpanKind::Full).count();
        prop_assert_eq!(full(&again), full(&plan));
    }
}
