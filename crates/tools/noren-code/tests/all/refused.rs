//! Masks that a target cannot express, and masks without readable code: the errors name the part and the fix.

use noren_code::{Error, Target, code};
use noren_mask::{Facts, Shape, Spec};

fn refused(mask: &str, shape: &Shape, facts: &Facts, target: Target) -> Error {
    let spec: Spec = mask.parse().expect("a mask");
    code(&spec, shape, facts, target).expect_err(mask)
}

#[test]
fn a_row_without_keys_is_refused_where_it_would_be_the_mean_of_all_values() {
    let spec = "causal - keys(0)";
    for target in Target::ALL {
        let found = code(&spec.parse().expect("a mask"), &Shape::square(4), &Facts::new(), target);
        let refuses = matches!(target, Target::Jax | Target::Keras);
        assert_eq!(found.is_err(), refuses, "{target}");
        if let Err(error) = found {
            assert!(error.to_string().contains("query 0 (batch row 0, head 0) reads nothing"), "{error}");
        }
    }
}

#[test]
fn errors_name_the_part_and_the_fix() {
    let square = Shape::square(4);
    let heads = Shape::square(4).heads(2);
    for (mask, shape, target, message) in [
        (
            "causal + sinks",
            &square,
            Target::Flex,
            "FlexAttention's score_mod cannot express the score modifier `sinks`: apply the sinks after attention",
        ),
        (
            "causal + alibi",
            &square,
            Target::Keras,
            "keras.layers.MultiHeadAttention cannot express the score modifier `alibi`",
        ),
        (
            "heads(0: causal, else: full)",
            &heads,
            Target::Hf,
            "transformers' mask function cannot express a mask that differs between heads",
        ),
        (
            "causal",
            &Shape::cached(4, 2),
            Target::Encoder,
            "nn.TransformerEncoder cannot express a mask of 2 queries and 6 keys",
        ),
        (
            "causal + softcap(1) + softcap(2)",
            &square,
            Target::Numpy,
            "a mask with the score modifier `softcap` more than once has no readable code",
        ),
        (
            "causal + alibi([1])",
            &heads,
            Target::Rust,
            "`alibi` with 1 slopes for 2 query heads has no readable code: give one slope for each head",
        ),
        ("documents", &square, Target::Python, "documents"),
    ] {
        let error = refused(mask, shape, &Facts::new(), target).to_string();
        assert!(error.contains(message), "{mask}: {error}");
    }
}

#[test]
fn facts_and_expressions_that_are_too_long_to_be_read_are_refused() {
    let facts = Facts::new().documents(vec![1; 5000]);
    let long = (3..303).map(|step| format!("stride({step})")).collect::<Vec<_>>().join(" | ");
    let deep = format!("{}causal{}", "(stride(2) | (causal & ".repeat(40), "))".repeat(40));
    for (mask, facts, message) in [
        ("causal & documents", &facts, "5000 numbers"),
        (long.as_str(), &Facts::new(), "elementary masks"),
        (deep.as_str(), &Facts::new(), "nested operators"),
    ] {
        for target in Target::ALL {
            let error = refused(mask, &Shape::square(5000), facts, target).to_string();
            assert!(error.contains(message), "{target}: {error}");
        }
    }
}

#[test]
fn targets_have_names_that_parse() {
    for target in Target::ALL {
        assert_eq!(target.name().parse(), Ok(target));
    }
    let error = "tensorflow".parse::<Target>().expect_err("no target");
    assert!(error.starts_with("\"tensorflow\" is not a target of code: give one of python, rust, sdpa"), "{error}");
}

#[test]
fn parts_that_no_cell_depends_on_are_left_out() {
    let facts = Facts::new().lengths([4, 2]).documents(vec![vec![1, 3], vec![1, 3]]);
    let rows = Shape::square(4).batch(2);
    for (mask, unused) in [
        ("full | padding", "lengths"),
        ("causal | none & padding", "lengths"),
        ("causal - (none & documents)", "document"),
    ] {
        for target in Target::ALL.into_iter().filter(|target| !matches!(target, Target::Rust | Target::Python)) {
            let text = code(&mask.parse().expect("a mask"), &rows, &facts, target).expect(mask).text;
            assert!(!text.contains(unused), "{mask}: {text}");
        }
    }
}

#[test]
fn a_search_for_empty_rows_that_takes_too_long_is_refused() {
    for (mask, len) in [("random(0.5, 1)", 1 << 20), ("random(0.0001, 1) & causal", 1 << 16)] {
        for target in [Target::Jax, Target::Keras] {
            let error = refused(mask, &Shape::square(len), &Facts::new(), target).to_string();
            assert!(error.contains("would take too long") && error.contains("give fewer tokens"), "{error}");
        }
    }
    for mask in ["causal", "causal & sliding(4096)", "causal & chunk(8192)"] {
        let found = code(&mask.parse().expect("a mask"), &Shape::square(1 << 20), &Facts::new(), Target::Jax);
        assert!(found.is_ok(), "{mask}: {found:?}");
    }
}
