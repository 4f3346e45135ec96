//! `Facts::merge`: the union of two sets of facts, and the errors for facts with two values.

use noren_mask::{Array, Facts};

type Part = (&'static str, Facts, Facts);

/// Each kind of fact, with two different values.
fn parts() -> Vec<Part> {
    let array = |cell| Array::cells(2, 2, &[cell]).expect("a cell of the array");
    vec![
        ("lengths", Facts::new().lengths([3, 2]), Facts::new().lengths([3, 1])),
        ("query_lengths", Facts::new().query_lengths([1, 2]), Facts::new().query_lengths([2, 2])),
        ("documents", Facts::new().documents([2, 1]), Facts::new().documents([1, 2])),
        ("levels", Facts::new().levels([0, 1, 2]), Facts::new().levels([0, 1, 1])),
        ("positions", Facts::new().positions([0, 1, 2]), Facts::new().positions([0, 1, 3])),
        ("labels", Facts::new().label("a", std::iter::once(0..1)), Facts::new().label("a", std::iter::once(0..2))),
        ("arrays", Facts::new().array("m", array((0, 1))), Facts::new().array("m", array((1, 1)))),
    ]
}

#[test]
fn the_union_does_not_depend_on_the_order() {
    let parts = parts();
    for (_, a, _) in &parts {
        for (_, b, _) in &parts {
            let both = a.clone().merge(b).expect("facts of two kinds, or the same fact");
            assert_eq!(both, b.clone().merge(a).expect("the same facts in the other order"));
            assert_eq!(both.clone().merge(a).expect("facts that are in the union"), both);
        }
    }
    let all = parts.iter().fold(Facts::new(), |all, (_, a, _)| all.merge(a).expect("facts of different kinds"));
    assert_eq!(parts.iter().rev().fold(Facts::new(), |all, (_, a, _)| all.merge(a).expect("different kinds")), all);
    assert_eq!(Facts::new().merge(&all).expect("no facts"), all);
}

#[test]
fn two_values_of_one_fact_are_an_error_that_names_the_fact() {
    for (name, a, b) in parts() {
        let error = a.merge(&b).expect_err("two values of one fact").to_string();
        assert!(error.contains(name) && error.contains("give the fact in only one of the two sets"), "{error}");
    }
    let other = Facts::new()
        .label("a", std::iter::once(0..1))
        .merge(&Facts::new().label("b", std::iter::once(0..2)))
        .expect("two labels");
    assert_eq!(other, Facts::new().label("a", std::iter::once(0..1)).label("b", std::iter::once(0..2)));
}
