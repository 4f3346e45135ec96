//! `simplify` never changes a cell, and gives equal masks one form.

use crate::common::{Universe, expressions, masks, position_atoms, settings};
use noren_mask::atom::AtomRef;
use noren_mask::atoms::{Causal, Chunk, Distances, Global, Keys, Prefix, Queries, Sliding, Spans, Stride, Window};
use noren_mask::{BoundMask, Facts, Mask, Node, Positions, Rows, Shape, Span};
use proptest::prelude::*;

const UNIVERSE: Universe = Universe { batch: 2, heads: 3, len: 8 };

fn simplified(text: &str) -> String {
    text.parse::<Mask>().unwrap_or_else(|error| panic!("{error}")).simplify().to_string()
}

#[test]
fn laws() {
    for (text, simple) in [
        // Complements.
        ("!!padding", "padding"),
        ("!(padding & documents)", "!documents | !padding"),
        ("!(padding | documents)", "!documents & !padding"),
        ("padding - documents", "padding & !documents"),
        ("!full", "none"),
        ("!(padding - !documents)", "!documents | !padding"),
        // Repetition, absorption, contradiction.
        ("padding & padding", "padding"),
        ("chunk(4) | chunk(4)", "chunk(4)"),
        ("padding & (padding | documents)", "padding"),
        ("padding | padding & documents", "padding"),
        ("padding & !padding", "none"),
        ("padding | !padding", "full"),
        ("padding & (!padding | documents)", "documents & padding"),
        ("padding | !padding & documents", "documents | padding"),
        ("(padding | documents) & !(padding | documents)", "none"),
        ("(padding | documents) & (padding | documents | clearance)", "documents | padding"),
        // One part together with its complement.
        ("causal & chunk(4) | causal & !chunk(4)", "causal"),
        ("(padding | documents) & (padding | !documents)", "padding"),
        ("causal & padding & keys(3) | (causal & padding) - keys(3)", "causal & padding"),
        ("causal & chunk(4) | causal - chunk(4) | clearance", "causal | clearance"),
        ("padding & full", "padding"),
        ("padding & none", "none"),
        ("padding | full", "full"),
        ("documents & padding & causal", "causal & documents & padding"),
        // Bands.
        ("causal & window(left=7, right=7)", "sliding(8)"),
        ("causal(offset=3) & causal", "causal"),
        ("sliding(8) | causal", "causal"),
        ("sliding(8) & sliding(4)", "sliding(4)"),
        ("sliding(4) & window(left=-1)", "none"),
        ("window(left=3, right=-1) | window(left=0, right=2)", "window(left=3, right=2)"),
        ("window(left=3, right=-2) | window(left=0, right=2)", "window(left=0, right=2) | window(left=3, right=-2)"),
        ("!causal", "window(left=-1)"),
        ("!sliding(4)", "!sliding(4)"),
        ("!sliding(4) & causal", "causal(offset=-4)"),
        ("causal(offset=-4) | !causal", "!sliding(4)"),
        ("causal | !causal(offset=-1)", "full"),
        ("chunk(1) | window(1, -1)", "sliding(2)"),
        ("stride(1) & padding", "padding"),
        ("sliding(4) & (causal | padding)", "sliding(4)"),
        ("causal | sliding(4) & padding", "causal"),
        ("causal & (window(left=-1) | padding)", "causal & padding"),
        ("(causal | chunk(2)) & window(left=0) | causal", "causal | chunk(2)"),
        // Sets.
        ("keys(0..4) & keys(2..9)", "keys(2..4)"),
        ("keys(0..4) | prefix(9)", "keys(0..9)"),
        ("!keys(0..4)", "keys(4..)"),
        ("keys(0..4) | !keys(0..4)", "full"),
        ("keys([5, 3, 4])", "keys(3..6)"),
        ("keys([])", "none"),
        ("keys(3..3) | keys(0..)", "full"),
        ("prefix(0)", "none"),
        ("prefix([4, 4])", "prefix([4, 4])"),
        ("!queries(0..4)", "!queries(0..4)"),
        ("!queries(0..4) & queries(2..6)", "queries(4..6)"),
        ("queries(0..)", "queries(0..)"),
        ("queries(0..) | !queries(2)", "full"),
        ("!queries(0..4) & !queries(4..6)", "!queries(0..6)"),
        ("global([])", "none"),
        ("global([2, 0..2])", "global(0..3)"),
        ("spans([4..8, 0..2, 5..6, 7..9, 3..3])", "spans([0..2, 4..8, 7..9])"),
        ("!spans([3..3])", "full"),
        // Arms.
        ("heads(0..: causal)", "causal"),
        ("heads(0: causal, else: causal)", "causal"),
        ("heads(0: causal, 1: causal, 5: full)", "heads(0..2: causal, 5: full)"),
        ("heads(0: causal, 1: none, 2: full, else: full)", "heads(0: causal, 1: none, else: full)"),
        ("heads(0..4: causal, 4..: none)", "heads(0..4: causal)"),
        ("heads(0..4: causal, 4..: full, else: padding)", "heads(0..4: causal, 4..: full)"),
        ("!heads(0..4: causal)", "heads(0..4: window(left=-1), else: full)"),
        ("layers(every 2: !!causal, every 2 from 1: none)", "layers(every 2: causal)"),
        ("layers(every 1: causal)", "causal"),
        ("batch(0: none)", "none"),
        ("heads(every 1 from 3: causal)", "heads(every 1 from 3: causal)"),
        ("heads(every 1: causal)", "causal"),
        ("heads(0..3: causal, every 1 from 3: causal)", "causal"),
        ("heads(0..3: causal, every 1 from 3: full, else: chunk(2))", "heads(0..3: causal, every 1 from 3: full)"),
        ("!heads(every 1 from 3: causal)", "heads(every 1 from 3: window(left=-1), else: full)"),
    ] {
        assert_eq!(simplified(text), simple, "{text}");
        assert_eq!(simplified(simple), simple, "{simple} is not stable");
    }
}

/// `every 1 from 3` selects only existing heads, and so must its canonical form.
#[test]
fn binds_where_the_mask_binds() {
    for text in [
        "heads(every 1 from 3: causal)",
        "heads(every 1 from 3: causal, 0: none)",
        "!heads(every 1 from 3: causal)",
        "batch(every 1 from 2: causal, else: full)",
        "heads(every 2 from 2: causal, every 2 from 1: full)",
    ] {
        let mask: Mask = text.parse().unwrap_or_else(|error| panic!("{error}"));
        for heads in 1..6 {
            let shape = Shape::square(4).heads(heads);
            let facts = Facts::new();
            let bound = mask.bind(&shape, &facts).unwrap_or_else(|error| panic!("{text} with {heads} heads: {error}"));
            let simple = mask.simplify();
            let again =
                simple.bind(&shape, &facts).unwrap_or_else(|error| panic!("{simple} with {heads} heads: {error}"));
            assert_eq!(bound.first_difference(&again).unwrap(), None, "{text} is {simple} with {heads} heads");
        }
    }
}

#[test]
fn stays_small() {
    // A distributive law would produce 2^20 terms.
    let text = (0..20).map(|i| format!("(dense(a{i}) | dense(b{i}))")).collect::<Vec<_>>().join(" & ");
    assert_eq!(simplified(&text).len(), text.len());
    let many = (0..20_000).map(|i| format!("keys({}) & dense(d{i})", 2 * i)).collect::<Vec<_>>().join(" | ");
    assert!(simplified(&many).len() <= many.len() + 20_000 * 4);
    let keys = (0..50_000).map(|i| format!("keys({i})")).collect::<Vec<_>>().join(" | ");
    assert_eq!(simplified(&keys), "keys(0..50000)");
}

#[test]
fn layers_are_chosen() {
    let mask: Mask =
        "causal & layers(every 2: layers(4: padding, else: full), 3: documents) - heads(0: layers(4: chunk(2)))"
            .parse()
            .unwrap();
    assert!(mask.has_layers());
    for (layer, text) in [
        (0, "causal & full - heads(0: none)"),
        (1, "causal & none - heads(0: none)"),
        (3, "causal & documents - heads(0: none)"),
        (4, "causal & padding - heads(0: chunk(2))"),
    ] {
        let chosen = mask.at_layer(layer);
        assert_eq!(chosen.to_string(), text);
        assert!(!chosen.has_layers());
    }
}

/// Returns whether an atom that reads only positions allows a cell, from a table of atoms.
fn by_position(atom: &AtomRef, q: i64, k: i64) -> Option<bool> {
    let holds =
        |spans: &[Span], at: i64| usize::try_from(at).is_ok_and(|at| spans.iter().any(|span| span.contains(at)));
    if let Some(Causal { offset }) = atom.downcast() {
        return Some(k <= q + offset);
    }
    if let Some(Window { left, right }) = atom.downcast() {
        return Some(left.is_none_or(|l| q - l <= k) && right.is_none_or(|r| k <= q + r));
    }
    if let Some(Sliding { window }) = atom.downcast() {
        return Some(q - (*window as i64) < k && k <= q);
    }
    if let Some(Chunk { size }) = atom.downcast() {
        return Some(q.div_euclid(*size as i64) == k.div_euclid(*size as i64));
    }
    if let Some(Stride { step }) = atom.downcast() {
        return Some((q - k).rem_euclid(*step as i64) == 0);
    }
    if let Some(Distances { distances }) = atom.downcast() {
        return Some(distances.contains(&(q - k)));
    }
    if let Some(Prefix { lengths: Rows::All(n) }) = atom.downcast() {
        return Some(k < *n as i64);
    }
    if let Some(Keys(Positions::Spans(spans))) = atom.downcast() {
        return Some(holds(spans, k));
    }
    if let Some(Queries(Positions::Spans(spans))) = atom.downcast() {
        return Some(holds(spans, q));
    }
    if let Some(Global(Positions::Spans(spans))) = atom.downcast() {
        return Some(holds(spans, k) || holds(spans, q));
    }
    let Spans { spans } = atom.downcast()?;
    Some(spans.iter().any(|span| holds(&[*span], q) && holds(&[*span], k)))
}

/// Returns whether the mask allows a cell, from the table of atoms that read only positions.
fn allowed(mask: &Mask, batch: usize, head: usize, q: i64, k: i64) -> bool {
    let recurse = |mask: &Mask| allowed(mask, batch, head, q, k);
    let arm = |arms: &[noren_mask::Arm], index: usize| {
        let named = arms.iter().find(|arm| arm.selector.names(index));
        named
            .or(arms.iter().find(|arm| arm.selector == noren_mask::Selector::Else))
            .is_some_and(|arm| recurse(&arm.mask))
    };
    match mask.node() {
        Node::Full => true,
        Node::None => false,
        Node::Atom(atom) => by_position(atom, q, k).unwrap_or_else(|| panic!("{atom} looks at more than positions")),
        Node::Heads(arms) => arm(arms, head),
        Node::Batch(arms) => arm(arms, batch),
        Node::Not(a) => !recurse(a),
        Node::And(parts) => parts.iter().all(recurse),
        Node::Or(parts) => parts.iter().any(recurse),
        Node::Minus(a, b) => recurse(a) && !recurse(b),
        other => panic!("{other:?} looks at more than positions"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8000))]

    #[test]
    fn no_cell_changes(mask in expressions(UNIVERSE, position_atoms(UNIVERSE), 5, false)) {
        let simple = mask.simplify();
        prop_assert_eq!(&simple.simplify(), &simple);
        prop_assert!(mask.check().is_err() || simple.check().is_ok());
        // Queries from before the first key to after the last key; heads and batch rows beyond those of the arms.
        for (batch, head, q, k) in cells(3, 5, -12..22, 0..11) {
            prop_assert_eq!(
                allowed(&mask, batch, head, q, k),
                allowed(&simple, batch, head, q, k),
                "{} became {} and differs at batch {}, head {}, query {}, key {}", mask, simple, batch, head, q, k
            );
        }
    }

    #[test]
    fn no_cell_changes_with_facts((shape, facts) in settings(UNIVERSE), mask in masks(UNIVERSE)) {
        let bound = mask.bind(&shape, &facts).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let simple = mask.simplify();
        prop_assert_eq!(&simple.simplify(), &simple);
        let simply = simple.bind(&shape, &facts).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let (q_len, kv_len) = (shape.q_len() as i64, shape.kv_len() as i64);
        for (batch, head, q, k) in cells(shape.batch_len(), shape.head_count(), 0..q_len, 0..kv_len) {
            let at = |bound: &BoundMask| bound.allowed(batch, head, q as usize, k as usize);
            prop_assert_eq!(at(&bound), at(&simply), "{} became {} at {:?}", mask, simple, (batch, head, q, k));
        }
    }

    #[test]
    fn complement_is_exact(mask in expressions(UNIVERSE, position_atoms(UNIVERSE), 3, false)) {
        let never = (mask.clone() & !mask.clone()).simplify();
        let always = (mask.clone() | !mask.clone()).simplify();
        for (batch, head, q, k) in cells(3, 5, -12..22, 0..11) {
            prop_assert!(!allowed(&never, batch, head, q, k));
            prop_assert!(allowed(&always, batch, head, q, k));
        }
    }
}

/// Returns every cell of a box.
fn cells(
    batch: usize,
    heads: usize,
    q: std::ops::Range<i64>,
    k: std::ops::Range<i64>,
) -> impl Iterator<Item = (usize, usize, i64, i64)> {
    (0..batch).flat_map(move |b| {
        let (q, k) = (q.clone(), k.clone());
        (0..heads).flat_map(move |h| {
            let k = k.clone();
            q.clone().flat_map(move |q| k.clone().map(move |k| (b, h, q, k)))
        })
    })
}

#[test]
fn a_form_found_in_two_steps_is_final() {
    let mask: Mask = "(window(left=-1) & !chunk(2) | documents) & causal".parse().unwrap();
    let simple = mask.simplify();
    assert_eq!(simple.simplify(), simple, "{simple}");
}
