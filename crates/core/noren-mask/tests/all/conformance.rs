//! The masks of `testdata/conformance/attention`: definition and plan allow the same cells as the dense form from
//! PyTorch.

use noren_mask::{Facts, Shape, Spec};
use noren_testing::cells::Cells;
use noren_testing::drawn;
use safetensors::SafeTensors;
use serde::Deserialize;

/// The mask of a conformance case.
#[derive(Deserialize)]
struct Case {
    name: String,
    mask: String,
    batch: usize,
    heads: usize,
    kv_heads: usize,
    q_len: usize,
    kv_len: usize,
    query_offset: i64,
    facts: serde_json::Value,
}

#[test]
fn all_dense_masks_of_the_conformance_cases_are_met() {
    let folder = drawn::testdata().join("conformance/attention");
    let text = std::fs::read_to_string(folder.join("cases.json")).expect("the list of cases");
    let cases: Vec<Case> = serde_json::from_str(&text).expect("cases");
    assert_eq!(cases.len(), 57);
    for case in cases {
        let bytes = std::fs::read(folder.join(&case.name).with_extension("safetensors")).expect("the case's file");
        let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
        let keep = tensors.tensor("keep").expect("keep");
        let dims = [case.batch, case.heads, case.q_len, case.kv_len];
        assert!(keep.shape().iter().zip(dims).all(|(&n, dim)| n == 1 || n == dim), "{}: {:?}", case.name, keep.shape());
        let expected = Cells::from_fn(dims, |cell| {
            let at = |at: usize, (&n, i): (&usize, usize)| at * n + if n == 1 { 0 } else { i };
            keep.data()[keep.shape().iter().zip(cell).fold(0, at)] != 0
        });

        let spec: Spec = case.mask.parse().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let shape = Shape::new(case.q_len, case.kv_len, case.query_offset);
        let shape = shape.batch(case.batch).heads(case.heads).kv_heads(case.kv_heads);
        let facts = Facts::from_json(&case.facts.to_string()).expect("facts");
        let bound = spec.mask.bind(&shape, &facts).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert_eq!(Cells::of(&bound), expected, "{} by definition", case.name);
        assert_eq!(Cells::of_plan(&bound.plan()), expected, "{} by plan", case.name);
    }
}
