//! Pictures as users see them: literal text, well-formed SVG, and the errors of pictures that cannot be drawn.

use noren_mask::{BoundMask, Facts, Mask, PlanOptions, Shape, SpanKind};
use noren_picture::{Draw, Picture, TerminalOptions};

fn bind(mask: &str, shape: &Shape, facts: &Facts) -> BoundMask {
    mask.parse::<Mask>().expect("a mask").bind(shape, facts).expect("facts that fit")
}

fn square(mask: &str, len: usize) -> BoundMask {
    bind(mask, &Shape::square(len), &Facts::new())
}

fn text(picture: &Picture<'_>) -> String {
    picture.to_terminal(&TerminalOptions::default()).expect("a picture")
}

fn ascii(picture: &Picture<'_>) -> String {
    picture.to_terminal(&TerminalOptions { unicode: false, ..TerminalOptions::default() }).expect("a picture")
}

#[test]
fn causal() {
    let expected = "\
causal
8 queries × 8 keys

query ↓  key →
         0 1 2 3 4 5 6 7
     0   ■ · · · · · · ·
     1   ■ ■ · · · · · ·
     2   ■ ■ ■ · · · · ·
     3   ■ ■ ■ ■ · · · ·
     4   ■ ■ ■ ■ ■ · · ·
     5   ■ ■ ■ ■ ■ ■ · ·
     6   ■ ■ ■ ■ ■ ■ ■ ·
     7   ■ ■ ■ ■ ■ ■ ■ ■

■ allowed   · denied
";
    assert_eq!(text(&square("causal", 8).picture()), expected);
}

#[test]
fn sliding_in_ascii() {
    let expected = "\
sliding(3)
6 queries x 6 keys

query v  key >
         0 1 2 3 4 5
     0   # . . . . .
     1   # # . . . .
     2   # # # . . .
     3   . # # # . .
     4   . . # # # .
     5   . . . # # #

# allowed   . denied
";
    assert_eq!(ascii(&square("sliding(3)", 6).picture()), expected);
}

#[test]
fn documents_with_tokens_of_every_width() {
    let bound = square("causal & documents([2, 3])", 5);
    let expected = "\
causal & documents([2, 3])
5 queries × 5 keys

query ↓              key →
                     0 1 2 3 4
            暖簾 0   ■ · · · ·
               a 1   ■ ■ · · ·
internationaliz… 2   · · ■ · ·
             x⏎y 3   · · ■ ■ ·
                 4   · · ■ ■ ■

■ allowed   · denied
";
    let picture = bound.picture().labels(["暖簾", "a", "internationalization", "x\ny", ""]);
    assert_eq!(text(&picture), expected);
}

#[test]
fn equal_patterns_are_one_panel() {
    let shape = Shape::square(4).batch(2).heads(3);
    let bound = bind("heads(1: full, else: causal) & padding", &shape, &Facts::new().lengths([4, 2]));
    let expected = "\
heads(1: full, else: causal) & padding
4 queries × 4 keys, 2 batch rows, 3 heads

batch 0, heads 0, 2    batch 0, head 1      batch 1, heads 0, 2    batch 1, head 1
query ↓  key →         query ↓  key →       query ↓  key →         query ↓  key →
         0 1 2 3                0 1 2 3              0 1 2 3                0 1 2 3
     0   ■ · · ·            0   ■ ■ ■ ■          0   ■ · · ·            0   ■ ■ · ·
     1   ■ ■ · ·            1   ■ ■ ■ ■          1   ■ ■ · ·            1   ■ ■ · ·
     2   ■ ■ ■ ·            2   ■ ■ ■ ■          2   ■ ■ · ·            2   ■ ■ · ·
     3   ■ ■ ■ ■            3   ■ ■ ■ ■          3   ■ ■ · ·            3   ■ ■ · ·

■ allowed   · denied
";
    assert_eq!(text(&bound.picture()), expected);
    let one = text(&bound.picture().batch(1).head(2));
    assert!(one.contains("batch 1, head 2\n") && !one.contains("batch 0"), "{one}");
    assert!(text(&bound.picture().max_panels(2)).contains("the first 2 of 4 different patterns"));
    let uniform = bind("causal & padding", &shape, &Facts::new().lengths([4, 4]));
    assert!(text(&uniform.picture()).contains("\nbatch 0-1, heads 0-2\n"));
}

#[test]
fn cached_queries_show_their_positions() {
    let bound = bind("causal", &Shape::cached(4, 2), &Facts::new());
    let picture = text(&bound.picture().labels(["a", "b", "c", "d", "e", "f"]));
    assert!(picture.contains("   e 4   ■ ■ ■ ■ ■ ·\n   f 5   ■ ■ ■ ■ ■ ■\n"), "{picture}");
}

#[test]
fn long_masks_are_sampled_and_say_so() {
    let bound = square("causal", 1 << 20);
    let options = TerminalOptions { max_width: 24, max_height: 11, ..TerminalOptions::default() };
    let expected = "\
causal
1,048,576 queries ×
1,048,576 keys

query ↓  key →
        0
       ┌┬───────────┐
     0 ┤▒▒          │
       │██▒▒        │
       │████▒▒      │
524288 ┤██████▒▒    │
       │████████▒▒  │
       │██████████▒▒│
       └────────────┘

█ all allowed
▒ some allowed
␣ none allowed
one cell of the picture
shows up to 174,763
queries × 87,382 keys
";
    let picture = bound.picture().to_terminal(&options).unwrap();
    assert_eq!(picture, expected);
    let wide = text(&bound.picture());
    assert!(wide.lines().all(|l| l.chars().count() <= 100), "{wide}");
}

#[test]
fn half_blocks_show_every_cell() {
    let picture = text(&square("causal", 44).picture());
    let lines: Vec<&str> = picture.lines().filter(|l| l.ends_with('│')).collect();
    assert_eq!(lines.len(), 22);
    for (i, line) in lines.iter().enumerate() {
        let body: String = line.chars().skip_while(|c| !"┤│".contains(*c)).skip(1).collect();
        assert_eq!(body, format!("{}█▄{}│", "█".repeat(2 * i), " ".repeat(42 - 2 * i)));
    }
}

#[test]
fn differences_show_which_way() {
    let (a, b) = (square("causal", 4), square("window(1, 1)", 4));
    let picture = ascii(&a.picture_of_difference(&b));
    let expected = "\
- causal
+ window(left=1, right=1)
4 queries x 4 keys

query v  key >
         0 1 2 3
     0   # + . .
     1   # # + .
     2   - # # +
     3   - - # #

- only in the first mask   + only in the second mask   # allowed by both   . denied by both
";
    assert_eq!(picture, expected);
    let same = a.picture_of_difference(&a);
    assert!(text(&same).contains("both masks allow the same cells\n"));
    // one cell of 2^40
    let n = 1 << 20;
    let (a, b) = (square("causal", n), square("causal - (queries(700000) & keys(5))", n));
    let long = text(&a.picture_of_difference(&b));
    let marked: Vec<&str> = long.lines().filter(|l| l.ends_with('│') && l.contains('-')).collect();
    assert_eq!(marked.len(), 1, "{long}");
    assert_eq!(marked[0].matches('-').count(), 1, "{long}");
}

#[test]
fn tiles_are_the_plans() {
    let bound = square("sliding(70) | keys(0)", 160);
    let options = PlanOptions { block_q: 32, block_kv: 32, ..PlanOptions::default() };
    let picture = bound.picture().tiles(options).max_cells(160);
    let wide = TerminalOptions { unicode: false, max_width: 200, max_height: 200, ..TerminalOptions::default() };
    let text = picture.to_terminal(&wide).unwrap();
    let rows: Vec<Vec<char>> = text
        .lines()
        .filter(|l| l.ends_with('|'))
        .map(|l| l.chars().rev().skip(1).take(160).collect::<Vec<_>>().into_iter().rev().collect())
        .collect();
    assert_eq!(rows.len(), 160, "{text}");
    let plan = bound.plan_with(&options);
    for tile in plan.patterns()[0].tiles() {
        for q in tile.start..tile.end {
            for k in 0..160 {
                let kind = tile.spans.iter().find(|s| (s.start..s.end).contains(&k)).map(|s| s.kind);
                let expected = match (kind, bound.allowed(0, 0, q as usize, k as usize)) {
                    (Some(SpanKind::Full), _) => '#',
                    (Some(SpanKind::Mixed), true) => '*',
                    (Some(SpanKind::Mixed), false) => 'o',
                    (None, _) => '.',
                };
                assert_eq!(rows[q as usize][k as usize], expected, "[{q}, {k}]");
            }
        }
    }
    assert!(
        text.contains("# allowed, in a full tile   * allowed, in a mixed tile   o denied, in a mixed tile   . empty")
    );
}

#[test]
fn zoom_shows_a_part() {
    let bound = square("causal", 1 << 20);
    let picture = text(&bound.picture().queries(1000..1003).keys(998..1002));
    assert!(picture.contains("showing query rows 1000..1003 and keys 998..1002"), "{picture}");
    assert!(picture.contains("         998\n  1000   ■ ■ ■ ·\n"), "{picture}");
}

#[test]
fn color_changes_no_character() {
    let bound = square("causal | keys(9)", 12);
    let colored = bound.picture().to_terminal(&TerminalOptions { color: true, ..TerminalOptions::default() }).unwrap();
    assert!(colored.contains("\u{1b}[38;5;69m■"));
    let mut plain = String::new();
    let mut rest = colored.as_str();
    while let Some(at) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..at]);
        rest = &rest[at + rest[at..].find('m').expect("a colour ends") + 1..];
    }
    plain.push_str(rest);
    let trimmed: String = plain.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    assert_eq!(trimmed, text(&bound.picture()));
}

/// Checks the tags: each open tag is closed, attributes are quoted, and no `&` or `<` is unescaped.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let (between, tail) = rest.split_at(at);
        for part in between.split('&').skip(1) {
            let entity = part.split(';').next().expect("split gives one");
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&entity), "&{entity}");
        }
        let end = tail.find('>').expect("a tag ends");
        let tag = &tail[1..end];
        assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('<'), "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split([' ', '\n']).next().expect("a name"));
        }
        rest = &tail[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
}

#[test]
fn svg_is_well_formed_and_small() {
    let small = square("causal", 64).picture().to_svg().unwrap();
    assert_well_formed(&small);
    assert!(small.len() < 10_000, "{} bytes", small.len());
    assert!(small.contains("<title>Attention mask: causal</title>"));
    let shape = Shape::square(1 << 20).heads(4);
    let bound = bind("heads(0: causal, 1: sliding(5000), else: chunk(7777))", &shape, &Facts::new());
    let long = bound.picture().tiles(PlanOptions::default()).to_svg().unwrap();
    assert_well_formed(&long);
    assert!(long.contains("heads 2-3") && long.contains("some allowed") && long.len() < 200_000);
    assert_well_formed(&square("full", 3).picture_of_difference(&square("none", 3)).to_svg().unwrap());
}

#[test]
fn svg_escapes_what_people_write() {
    let bound = square("causal", 3);
    let hostile = ["<script>", "a & b\u{0}\u{ffff}", "\"'"];
    let svg = bound.picture().labels(hostile).title("<&>").to_svg().unwrap();
    assert_well_formed(&svg);
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;") && !svg.contains('\u{0}'));
}

#[test]
fn refused_by_name() {
    let bound = bind("causal", &Shape::square(8).heads(2), &Facts::new());
    let refused = |picture: Picture<'_>| picture.to_svg().unwrap_err().to_string();
    assert_eq!(refused(bound.picture().head(2)), "picture: head 2 does not exist: give a number from 0 to 1");
    assert_eq!(
        refused(bound.picture().queries(0..9)),
        "picture: the range 0..9 of query rows extends beyond the end: give a range within 0..8"
    );
    assert_eq!(
        refused(bound.picture().labels(["a"])),
        "picture: `labels` has 1 entries but there are 8 positions: give one entry per position"
    );
    assert_eq!(
        refused(bound.picture().query_labels(["a"])),
        "picture: `query_labels` has 1 entries but there are 8 query rows: give one entry per query row"
    );
    assert!(refused(bound.picture_of_difference(&square("causal", 9))).starts_with("cannot compare"));
}

#[test]
fn no_option_makes_it_panic() {
    let shapes = [Shape::square(1), Shape::cross(1, 300), Shape::cross(300, 1), Shape::cached(5000, 3)];
    for shape in &shapes {
        let bound = bind("causal | stride(3)", shape, &Facts::new());
        for (max_width, max_height) in [(0, 0), (1, 1), (20, 3), (500, 500)] {
            for (color, unicode) in [(true, true), (true, false), (false, true)] {
                let options = TerminalOptions { color, unicode, max_width, max_height };
                bound.picture().to_terminal(&options).unwrap();
            }
        }
        for cells in [0, 1, 2, 1000] {
            assert_well_formed(&bound.picture().max_cells(cells).to_svg().unwrap());
            bound.picture().max_cells(cells).to_png().unwrap();
            text(&bound.picture().max_cells(cells));
        }
    }
}

#[test]
fn a_selection_is_drawn() {
    let part = square("causal", 20).select([10..15, 16..20], [0..5, 12..20]).expect("a selection");
    assert!(part.picture().to_svg().expect("a picture").contains("<svg"));
}
