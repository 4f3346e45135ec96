//! Masks as web pages: size, limits, and text that stays text. `crates/apps/noren-cli/tests/page/pages.test.mjs` compares their
//! reasons in a browser with `BoundMask::explain`.

use noren_mask::atom::{Atom, Pair};
use noren_mask::{Array, Error, Facts, Mask, PlanOptions, Shape, atoms};
use noren_picture::Draw;
use std::fmt;

const LIMIT: usize = 300_000;

fn bind(mask: &str, shape: &Shape, facts: &Facts) -> noren_mask::BoundMask {
    mask.parse::<Mask>().unwrap().bind(shape, facts).unwrap()
}

fn refused(picture: &noren_picture::Picture<'_>) -> String {
    match picture.to_html() {
        Err(error) => error.to_string(),
        Ok(html) => panic!("a page of {} bytes", html.len()),
    }
}

#[test]
fn every_atom_fits_at_4096_tokens() {
    let facts = Facts::new()
        .lengths([4000])
        .documents([1500, 2, 0, 2498])
        .label("pii", [3..9, 600..1200])
        .levels((0..4096).map(|i| i / 100 % 3).collect::<Vec<i64>>())
        .array("bits", Array::cells(4096, 4096, &[(3, 4), (4000, 17)]).unwrap());
    let parents: Vec<String> = (0..4096).map(|i| if i == 0 { -1 } else { i / 2 }.to_string()).collect();
    let tree = format!("tree(parents=[{}], window=5)", parents.join(", "));
    let masks = [
        "causal",
        "window(left=70)",
        "sliding(1000)",
        "chunk(300)",
        "stride(7)",
        "stride(2)",
        "distances([0, 1, 8, 64])",
        "prefix(50)",
        "keys(label=\"pii\")",
        "queries(5..90)",
        "global(label=\"pii\")",
        "padding",
        "documents",
        "spans([0..500, 400..900])",
        &tree,
        "clearance",
        "neighborhood(grid=[64, 64], size=[9, 9])",
        "neighborhood(grid=[16, 16, 16], size=[5, 3, 3], dilation=[2, 1, 1])",
        "random_blocks(64, 3, 1)",
        "random(0.002, 1)",
        "random(0.3, 18446744073709551615)",
        "causal & (sliding(256) | random(0.05, 7)) - !random(0.9, 2)",
        "batch(0: random(0.2, 3), else: full)",
        "dense(bits)",
        "causal & documents - keys(label=\"pii\") | !clearance & stride(128)",
    ];
    for mask in masks {
        let html =
            bind(mask, &Shape::square(4096), &facts).picture().to_html().unwrap_or_else(|e| panic!("{mask}: {e}"));
        assert!(html.len() < LIMIT, "{mask}: {} bytes", html.len());
    }
}

#[test]
fn masks_that_are_too_large_are_refused_with_the_limit_and_the_fix() {
    let facts = Facts::new();
    let fix = "show fewer queries, keys, batch rows or heads, or save the picture as SVG or PNG";
    let long = bind("causal", &Shape::square(70_000), &facts);
    let error = refused(&long.picture());
    assert_eq!(
        error,
        format!("picture: the mask is too large for a web page: it has 70000 queries, and 65536 are the limit; {fix}")
    );
    assert!(long.picture().queries(60_000..60_100).keys(59_000..61_000).to_html().is_ok(), "a part of it");
    // no cell of the array follows from other cells
    let bits: Vec<bool> = (0..4096 * 4096).map(|i| noren_mask::philox([i, 0, 0, 0], 1)[0].is_multiple_of(2)).collect();
    let facts_of_array = Facts::new().array("bits", Array::keep(&[1, 1, 4096, 4096], &bits).unwrap());
    let random = bind("dense(bits)", &Shape::square(4096), &facts_of_array);
    let error = refused(&random.picture());
    assert!(error.contains("300000 bytes are the limit") && error.ends_with(fix), "{error}");
    let many = bind("causal", &Shape::square(8).batch(128).heads(64), &facts);
    assert!(refused(&many.picture()).contains("it has 8192 pairs of batch row and head, and 4096 are the limit"));
    assert!(many.picture().batch(3).to_html().is_ok());
    let cells = bind("causal & !chunk(7)", &Shape::square(65_000), &facts);
    assert!(refused(&cells.picture()).contains("have more than 4294967296 cells in all"));
    let parts = Mask::any((0..2_000).map(|i| atoms::keys(i..i + 1)));
    assert!(
        refused(&parts.bind(&Shape::square(16), &facts).unwrap().picture()).contains("more than 1024 different parts")
    );
}

#[test]
fn pictures_of_tiles_and_differences_are_no_pages() {
    let bound = bind("causal", &Shape::square(8), &Facts::new());
    let other = bind("sliding(3)", &Shape::square(8), &Facts::new());
    assert!(
        refused(&bound.picture().tiles(PlanOptions::default()))
            .contains("without the tiles of a plan: save the picture as SVG")
    );
    assert!(refused(&bound.picture_of_difference(&other)).contains("without the differences from a second mask"));
    let part = bound.select([2..3, 4..5], [0..2, 3..4]).unwrap();
    assert!(matches!(part.picture().to_html(), Err(Error::Shape(_))), "a selection");
}

#[test]
fn no_text_of_the_user_is_markup() {
    let evil = "</script><img src=x onerror=alert(1)>\"'&`<!--";
    let facts = Facts::new().label(evil, [1, 2]).array(evil, Array::keep(&[1, 1, 4, 4], &[true; 16]).unwrap());
    let mask = atoms::causal() & !atoms::keys(noren_mask::Positions::Label(evil.into())) & atoms::dense(evil);
    let bound = mask.bind(&Shape::square(4), &facts).unwrap();
    let html = bound.picture().title(evil).expression(evil).labels([evil; 4]).code(evil, evil).to_html().unwrap();
    assert!(!html.contains("<img") && !html.contains("<!--"), "{html}");
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script").count(), 2);
    for outside in ["http:", "https:", "<link", "href=", "url(", "@import", "fetch(", "eval("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn code_is_shown_with_its_lines_and_long_code_is_left_out() {
    let bound = bind("causal", &Shape::square(4), &Facts::new());
    let page = |picture: noren_picture::Picture<'_>| picture.to_html().unwrap();
    assert!(!page(bound.picture()).contains("<h2>Code</h2>"));
    let html = page(bound.picture().code("NumPy", "a < b\nif c:\n    d\n").code("JAX", "e".repeat(8193)));
    assert!(html.contains("<summary>NumPy</summary><pre tabindex=\"0\"><code>a &lt; b\nif c:\n    d</code></pre>"));
    assert!(html.contains("The code has 8193 bytes, and this page shows at most 8192."));
}

#[test]
fn equal_masks_give_equal_files() {
    let page = || bind("causal & chunk(4)", &Shape::square(32), &Facts::new()).picture().to_html().unwrap();
    assert_eq!(page(), page());
}

/// An atom with a reason that only its own program computes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Own;

impl Atom for Own {
    fn name(&self) -> &'static str {
        "own"
    }
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("own")
    }
    fn allows(&self, pair: &Pair<'_>) -> bool {
        (pair.q * pair.k) % 3 == 0
    }
    fn why(&self, _: &Pair<'_>, _: bool) -> String {
        "its own reason".into()
    }
}

#[test]
fn atoms_of_the_user_are_drawn_without_their_reasons() {
    let bound = (atoms::causal() & Mask::of(Own)).bind(&Shape::square(9), &Facts::new()).unwrap();
    assert!(bound.picture().to_html().is_ok());
    let reasons = bound.reasons(0, 0).unwrap();
    assert_eq!(format!("{:?}", reasons.parts[1].sentence), "Sentence([Atom(own)])");
    assert!(bound.explain(0, 0, 4, 2).unwrap().root.why.ends_with("`own`: its own reason"));
}
