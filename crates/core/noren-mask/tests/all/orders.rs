//! Reordered plans: the masks that get them, the gain, and the way back to the original order.

use noren_mask::{Facts, Mask, Plan, PlanOptions, Reorder, Shape, SpanKind};

fn bound(mask: &str, shape: &Shape) -> noren_mask::BoundMask {
    mask.parse::<Mask>().unwrap().bind(shape, &Facts::new()).unwrap()
}

fn plan(mask: &str, len: usize) -> Plan {
    bound(mask, &Shape::square(len)).plan()
}

fn is_ordered(plan: &Plan) -> bool {
    plan.patterns().iter().any(|p| p.query_order().is_some() || p.key_order().is_some())
}

#[test]
fn tiles_of_ordered_plans_are_nearly_full() {
    for (mask, how, most, least_before) in [
        ("causal & stride(8)", "8 residue classes", 1.1, 8.0),
        ("causal & stride(96)", "96 residue classes", 2.1, 80.0),
        ("window(left=4096) & stride(16)", "16 residue classes", 1.4, 15.0),
        ("window(left=256, right=256) | global(0..8)", "8 queries gathered", 1.2, 1.3),
        (
            "window(left=256, right=256) | global([5, 900, 1700, 2500, 3300, 4100, 4900, 8100])",
            "8 queries gathered, 8 keys gathered",
            1.2,
            2.0,
        ),
        (
            "window(left=512, right=512) & stride(4) | global([7, 99, 3000])",
            "3 queries gathered, 3 keys gathered, 4 residue classes",
            2.0,
            4.0,
        ),
        ("neighborhood(grid=[8192], size=[129], dilation=[4])", "4 residue classes", 1.8, 4.0),
        ("neighborhood(grid=[64, 128], size=[13, 13], dilation=[2, 2])", "2 residue classes", 8.0, 8.5),
    ] {
        let stats = plan(mask, 8192).stats();
        let reordered = stats.reordered.unwrap_or_else(|| panic!("{mask} is reordered"));
        assert_eq!((reordered.how.as_slice(), reordered.patterns), ([how.to_owned()].as_slice(), 1), "{mask}");
        let before = reordered.computed_in_place as f64 / stats.allowed as f64;
        assert!(stats.computed_per_allowed < most, "{mask}: {}", stats.computed_per_allowed);
        assert!(before > least_before, "{mask}: {before} before");
        assert_eq!(before, plan_never(mask, 8192).stats().computed_per_allowed);
    }
}

fn plan_never(mask: &str, len: usize) -> Plan {
    let options = PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() };
    bound(mask, &Shape::square(len)).plan_with(&options)
}

#[test]
fn masks_that_no_order_helps_are_left_as_they_are() {
    for mask in [
        "causal",
        "sliding(100)",
        "random(0.1, seed=3)",
        "prefix(100) | causal",
        "!stride(8)",
        "queries(0..5000) | causal",
    ] {
        let plan = plan(mask, 8192);
        assert!(!is_ordered(&plan), "{mask}");
        assert_eq!(plan.stats().reordered, None, "{mask}");
    }
}

/// A stride in a union with a band has its keys in two orders.
#[test]
fn a_stride_beside_a_band_is_read_by_classes() {
    let stats = plan("causal & (stride(128) | sliding(128))", 8192).stats();
    assert_eq!(
        stats.reordered.map(|r| r.how),
        Some(vec!["keys in original order and in 128 residue classes".to_owned()])
    );
    assert!(stats.computed_per_allowed <= 2.0, "{}", stats.computed_per_allowed);
}

/// Only the mask decides whether keys are put in residue classes, so that the bits of a row do not depend on its
/// neighbors.
#[test]
fn strides_are_reordered_at_every_length() {
    for len in 2..200 {
        for shape in [Shape::square(len), Shape::cached(len, 1), Shape::cached(3, len)] {
            let plan = bound("causal & stride(3) | stride(9) & full", &shape).plan();
            assert_eq!(plan.patterns()[0].reordered().as_deref(), Some("3 residue classes"), "{len}");
        }
    }
}

/// Results do not show the tile of a query, so gathering of queries may depend on the cost. Gathering of keys needs a
/// long sequence.
#[test]
fn few_scattered_keys_stay_where_they_are() {
    for len in [20, 100, 300, 1000] {
        let plan = plan("window(left=20, right=20) | global([3, 7, 11, 90])", len);
        assert_eq!(plan.patterns()[0].key_order(), None);
    }
}

#[test]
fn patterns_choose_each_for_itself() {
    let shape = Shape::square(4096).heads(4);
    let plan =
        bound("heads(0..2: causal & stride(4), 2: causal, 3: window(left=9, right=9) | queries(77))", &shape).plan();
    let how: Vec<_> = (0..4).map(|head| plan.patterns()[plan.pattern_of(0, head)].reordered()).collect();
    let expected = [Some("4 residue classes"), Some("4 residue classes"), None, Some("1 queries gathered")];
    assert_eq!(how.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    let how = plan.stats().reordered.unwrap();
    assert_eq!((how.how.len(), how.patterns), (2, 2));
    assert!(plan.stats().to_string().contains("reordered"));
}

#[test]
fn an_order_can_be_undone_and_forced() {
    let bound = bound("causal & stride(4)", &Shape::square(1000));
    let (plan, never) = (bound.plan(), bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..Default::default() }));
    assert!(is_ordered(&plan) && !is_ordered(&never));
    let in_place = plan.in_place();
    assert!(in_place.patterns()[0].tiles().eq(never.patterns()[0].tiles()));
    assert!(std::ptr::eq(never.in_place().as_ref(), &never));

    let forced = bound.plan_with(&PlanOptions { reorder: Reorder::Residues(6), ..Default::default() });
    let order = forced.patterns()[0].key_order().unwrap();
    assert_eq!((order.len(), order.is_empty(), order.runs().len()), (1000, false, 6));
    assert_eq!((0..6).map(|place| order.origin(place)).collect::<Vec<_>>(), [0, 6, 12, 18, 24, 30]);
    let full = |plan: &Plan| plan.patterns()[0].tiles().flat_map(|t| t.spans).any(|s| s.kind == SpanKind::Full);
    assert!(full(&plan) && !full(&forced));
}

#[test]
fn ordered_plans_survive_json() {
    let bound = bound("causal & stride(2)", &Shape::square(9));
    let reorders = [Reorder::Auto, Reorder::Never, Reorder::Always, Reorder::Residues(3)];
    for (reorder, name) in reorders.into_iter().zip([r#""auto""#, r#""never""#, r#""always""#, r#"{"residues":3}"#]) {
        let plan = bound.plan_with(&PlanOptions { reorder, ..Default::default() });
        let json = plan.to_json().unwrap();
        assert!(json.contains(&format!(r#""reorder":{name}"#)), "{json}");
        let again = Plan::from_json(&json).unwrap();
        assert_eq!(again.options(), plan.options());
        assert_eq!(again.patterns()[0].key_order(), plan.patterns()[0].key_order());
        assert_eq!(again.patterns()[0].query_order(), plan.patterns()[0].query_order());
        assert!(again.patterns()[0].tiles().eq(plan.patterns()[0].tiles()));
    }
    let json = bound.plan().to_json().unwrap();
    let runs = r#""key_order":[[0,2,5],[1,2,4]]"#;
    assert!(json.contains(runs), "{json}");
    for (from, to, problem) in [
        (runs, r#""key_order":[[0,2,5],[2,2,4]]"#, "patterns[0].key_order[1] differs from the plan"),
        (runs, r#""key_order":7"#, "patterns[0].key_order differs from the plan"),
        (r#","key_order":[[0,2,5],[1,2,4]]"#, "", "patterns[0] differs from the plan"),
        (
            r#""auto""#,
            r#""sometimes""#,
            r#"is "sometimes": give "auto", "never", "always", "copies" or {"residues": 8}"#,
        ),
        (r#""auto""#, r#"{"residues": -1}"#, "reorder.residues"),
    ] {
        let edited = json.replace(from, to);
        assert_ne!(edited, json);
        let error = Plan::from_json(&edited).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    // the form of versions without reordering
    let old = bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..Default::default() });
    let old = old.to_json().unwrap().replace(r#","reorder":"never""#, "");
    assert_eq!(Plan::from_json(&old).unwrap().options().reorder, Reorder::Never);
}

/// Without residues, the keys before and after the gathered keys are two groups, and a row reads keys of both groups.
#[test]
fn a_grid_beside_gathered_keys_keeps_its_cells() {
    let mask: Mask = "keys([9, 20, 21]) | neighborhood(grid=[60], size=[4])".parse().unwrap();
    let bound = mask.bind(&Shape::square(60), &Facts::new()).unwrap();
    let plan = bound.plan_with(&PlanOptions { reorder: Reorder::Always, block_q: 1, ..PlanOptions::default() });
    assert!(plan.patterns()[0].key_order().is_some());
    let expected: u128 =
        (0..60).flat_map(|q| (0..60).map(move |k| (q, k))).filter(|(q, k)| bound.allowed(0, 0, *q, *k)).count() as u128;
    assert_eq!(plan.stats().allowed, expected);
}

/// Checks that every executed cell is that of the definition, for one batch row and head.
fn assert_executes(mask: &str, len: usize, reorder: Reorder) {
    let bound = bound(mask, &Shape::square(len));
    let plan = bound.plan_with(&PlanOptions { reorder, ..PlanOptions::default() });
    assert!(is_ordered(&plan), "{mask} is reordered");
    let pattern = &plan.patterns()[0];
    let mut seen = 0u128;
    for tile in pattern.tiles() {
        for span in tile.spans {
            let width = (span.keys() as usize).div_ceil(64);
            let mut words = vec![u64::MAX; tile.rows() as usize * width];
            if span.kind == SpanKind::Mixed {
                pattern.fill_bits(tile.start..tile.end, span.start..span.end, &mut words);
            }
            for (row, line) in (tile.start..tile.end).zip(words.chunks(width)) {
                for i in (0..span.keys()).filter(|i| line[*i as usize / 64] >> (i % 64) & 1 == 1) {
                    let (q, k) = (pattern.query_at(row) as usize, pattern.key_at(span.start + i) as usize);
                    assert!(bound.allowed(0, 0, q, k), "{mask}: cell ({q}, {k}) is executed and not allowed");
                    seen += 1;
                }
            }
        }
    }
    let never = PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() };
    let allowed = bound.plan_with(&never).stats().allowed;
    assert_eq!((seen, plan.stats().allowed), (allowed, allowed), "{mask}: cells executed, allowed");
}

/// Gathered keys have their own group. A dilated neighborhood reads this group in the same manner as the others.
#[test]
fn a_dilated_grid_beside_gathered_keys_hides_them() {
    let mask = "stride(8) & causal | global([1000, 5000]) - neighborhood(grid=[8192], size=[65], dilation=[8])";
    assert!(!bound(mask, &Shape::square(8192)).allowed(0, 0, 768, 1000));
    assert_executes(mask, 8192, Reorder::Auto);
}

#[test]
fn a_dilated_grid_beside_gathered_keys_reads_them() {
    let mask = "neighborhood(grid=[8192], size=[65], dilation=[16]) | global([6471, 6994, 7284]) & causal";
    assert_executes(mask, 8192, Reorder::Auto);
    let small = "neighborhood(grid=[40], size=[7], dilation=[4]) | global([5,8,12,30,38]) & window(left=9,right=9)";
    let options = PlanOptions { reorder: Reorder::Always, ..PlanOptions::default() };
    assert_eq!(bound(small, &Shape::square(40)).plan_with(&options).stats().allowed, 396);
    assert_executes(small, 40, Reorder::Always);
}
