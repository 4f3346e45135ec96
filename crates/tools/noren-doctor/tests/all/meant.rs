//! Masks compared with a full expression: the doctor finds every named mistake in every expression to which it can apply.

use noren_doctor::{Certainty, Context, Input, Report, Values, Verdict};
use noren_mask::{BoundMask, Facts, Keep, Mask, Shape};

fn bound(mask: &str, shape: &Shape, facts: &Facts) -> BoundMask {
    let parsed: Mask = mask.parse().expect("a mask");
    parsed.bind(shape, facts).unwrap_or_else(|error| panic!("{mask}: {error}"))
}

fn against(given: &Keep, meant: &BoundMask) -> Report {
    let context = Context::from_json(r#"{"convention": "keep_bool"}"#).expect("a context");
    let values = Values::bools(&given.dims(), given.cells().collect()).expect("all cells");
    Input::new(values).context(context).meant(meant).diagnose().expect("a usable mask")
}

/// Returns the problems in the report on the array `given` against `meant`. The only class should be `class`.
fn misses(meant: &BoundMask, given: &Keep, class: &str) -> Option<String> {
    let report = against(given, meant);
    let repaired = report.fixed.is_some() && report.fixed == report.expected;
    let found = report.verdict == Verdict::Faulty && report.classes() == [class] && repaired;
    (!found).then(|| format!("{} {class}: {report}", meant.mask()))
}

/// Checks that the array `given` against `meant` has the class `class`, and that the repair is `meant`.
fn finds(meant: &BoundMask, given: &Keep, class: &str) {
    assert_eq!(misses(meant, given, class), None);
}

#[test]
fn one_mistake_in_any_expression() {
    let square = Shape::square(12);
    let facts = Facts::new().levels(vec![2, 2, 1, 1, 1, 3, 3, 2, 2, 1, 3, 3]);
    let mut missed = Vec::new();
    for (meant, given, class) in [
        ("causal", "causal(offset=1)", "causal_leak"),
        ("causal & stride(2)", "causal(offset=2) & stride(2)", "causal_leak"),
        ("clearance & causal", "clearance & causal(offset=-1)", "causal_self_excluded"),
        ("clearance & causal", "clearance", "causal_dropped"),
        ("clearance & documents([5, 7])", "clearance & documents([5, 7]) & causal", "implicit_causal"),
        ("sliding(4) | causal & keys(..2)", "sliding(5) | causal & keys(..2)", "sliding_window_off_by_one"),
        ("sliding(4) & clearance", "sliding(3) & clearance", "sliding_window_off_by_one"),
        ("sliding(4) & !keys(5)", "sliding(7) & !keys(5)", "window_missing_or_wrong_layer"),
        ("window(left=3, right=1)", "window(left=1, right=3)", "window_missing_or_wrong_layer"),
        ("sliding(4) | causal & keys(..2)", "sliding(4)", "window_missing_or_wrong_layer"),
        ("causal & chunk(4)", "causal & chunk(5)", "chunk_boundary"),
        ("causal & chunk(4) & !keys(9)", "causal & spans([0..3, 3..7, 7..11, 11..15]) & !keys(9)", "chunk_boundary"),
        ("causal & documents([5, 7])", "causal", "cross_document"),
        ("documents([5, 4, 3]) & clearance", "documents([4, 4, 4]) & clearance", "document_boundary_off_by_one"),
        ("(causal | prefix(5)) & clearance", "causal & clearance", "prefix_lm_or_block_wrong"),
        ("(causal | prefix(5)) & !keys(0)", "(causal | prefix(6)) & !keys(0)", "prefix_lm_or_block_wrong"),
        ("causal | spans([3..6])", "causal", "prefix_lm_or_block_wrong"),
        (
            "causal | spans([3..6, 9..12])",
            "causal | queries([3..6, 9..12]) & keys([3..6, 9..12])",
            "prefix_lm_or_block_wrong",
        ),
        ("(causal | chunk(4)) & !keys(0)", "!keys(0)", "causal_dropped"),
        ("(sliding(3) & stride(1)) | spans([3..9])", "sliding(3)", "prefix_lm_or_block_wrong"),
        ("tree([-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5])", "causal", "tree_mask"),
        ("causal - keys(2)", "causal", "multi_hop_leak"),
        ("causal & stride(2)", "causal", "term_missing"),
        ("clearance & stride(2) & causal", "stride(2) & causal", "term_missing"),
        ("causal & stride(2)", "causal & !stride(2)", "inverted_polarity"),
        (
            "neighborhood(grid=[3, 4], size=[3, 3]) & clearance",
            "!(neighborhood(grid=[3, 4], size=[3, 3]) & clearance)",
            "inverted_polarity",
        ),
    ] {
        missed.extend(misses(&bound(meant, &square, &facts), &Keep::of(&bound(given, &square, &facts)), class));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    let meant = bound("sliding(3) & clearance", &square, &facts);
    finds(&meant, &Keep::of(&meant).transposed(), "broadcast_wrong_axis");
}

#[test]
fn mistakes_in_padding_and_batch_rows() {
    let shape = Shape::square(9).batch(3);
    let facts = Facts::new().lengths([9, 6, 4]);
    for (meant, given, class) in [
        ("stride(2) & padding", "stride(2)", "padding_keys_visible"),
        ("stride(2) & padding", "stride(2) & padding(lengths=[9, 7, 5])", "stale_or_bucketed_mask"),
        ("stride(2) & padding", "stride(2) & padding(side=left)", "padding_side"),
        ("stride(2) & padding", "stride(2) & padding(lengths=[9, 9, 9])", "padding_keys_visible"),
        ("(causal | prefix(8)) & padding", "causal & padding | prefix(8)", "padding_unmasked_by_later_op"),
    ] {
        finds(&bound(meant, &shape, &facts), &Keep::of(&bound(given, &shape, &facts)), class);
    }
    let documents = Facts::new().documents(vec![vec![4, 5], vec![2, 7], vec![3, 3, 3]]);
    let meant = bound("causal & documents", &shape, &documents);
    let right = Keep::of(&meant);
    let row_0 = Keep::from_fn(right.dims(), |[_, h, q, k]| right.get([0, h, q, k]));
    finds(&meant, &row_0, "batch_row_wrong");
    let turned = Keep::from_fn(right.dims(), |[b, h, q, k]| right.get([(b + 1) % 3, h, q, k]));
    finds(&meant, &turned, "batch_row_wrong");
}

#[test]
fn mistakes_in_the_place_of_queries_and_in_caches() {
    let cached = Shape::new(3, 9, 4);
    let facts = Facts::new();
    let meant = bound("causal & !keys(1)", &cached, &facts);
    finds(&meant, &Keep::of(&bound("causal & !keys(1)", &Shape::new(3, 9, 0), &facts)), "causal_alignment");
    finds(&meant, &Keep::of(&bound("causal & !keys(1) | keys(7..)", &cached, &facts)), "unwritten_cache_visible");
    finds(&meant, &Keep::of(&bound("causal & !keys(1) & keys(..4)", &cached, &facts)), "stale_decode_mask");
    let ring = Facts::new().positions(vec![8, 9, 10, 3, 4, 5, 6, 7]);
    let shape = Shape::new(2, 8, 9);
    let meant = bound("sliding(6)", &shape, &ring);
    finds(&meant, &Keep::of(&bound("sliding(6)", &shape, &facts)), "ring_buffer_misaligned");
}

#[test]
fn mistakes_of_some_heads_and_two_mistakes_at_once() {
    let shape = Shape::square(10).heads(3);
    let facts = Facts::new();
    let meant = bound("heads(0: causal, 1..: sliding(4))", &shape, &facts);
    let wrong = Keep::of(&bound("heads(0: causal, 1: sliding(4), 2: sliding(5))", &shape, &facts));
    let report = against(&wrong, &meant);
    assert_eq!(report.classes(), ["sliding_window_off_by_one"], "{report}");
    assert!(report.findings[0].says.starts_with("in head 2 only: "), "{report}");
    let square = Shape::square(10);
    let meant = bound("causal & documents([4, 6]) & stride(1)", &square, &facts);
    let report = against(&Keep::of(&bound("causal(offset=1)", &square, &facts)), &meant);
    let mut classes = report.classes();
    classes.sort_unstable();
    assert_eq!(classes, ["causal_leak", "cross_document"], "{report}");
    assert!(report.findings.iter().all(|finding| finding.certainty != Certainty::Certain), "{report}");
}

#[test]
fn cells_that_no_mistake_gives_have_no_name() {
    let meant = bound("causal & chunk(4)", &Shape::square(12), &Facts::new());
    let right = Keep::of(&meant);
    let wrong = Keep::from_fn(right.dims(), |[b, h, q, k]| right.get([b, h, q, k]) != ((q * 7 + k * 5) % 11 == 3));
    let report = against(&wrong, &meant);
    assert_eq!(report.classes(), ["unexplained_difference"], "{report}");
    assert!(report.fixed.is_some() && report.fixed == report.expected, "{report}");
}
