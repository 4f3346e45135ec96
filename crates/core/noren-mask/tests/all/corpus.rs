//! Every case of the corpus: the definition, the plan, the text and the simplified mask have the cells of the drawing.

use noren_mask::{BoundMask, Mask, PlanOptions};
use noren_testing::cells::Cells;
use noren_testing::drawn;

fn draw(cells: &Cells, batch: usize, head: usize) -> String {
    let [_, _, q_len, kv_len] = cells.dims;
    let cell = |q, k| if cells.get([batch, head, q, k]) { '#' } else { '.' };
    let lines: Vec<String> = (0..q_len).map(|q| (0..kv_len).map(|k| cell(q, k)).collect()).collect();
    lines.join("\n")
}

/// Adds a description to `wrong` if `found` differs from the drawing of `case`.
fn compare(wrong: &mut Vec<String>, what: &str, file: &str, case: &drawn::Case, found: &Cells) {
    for batch in 0..found.dims[0] {
        for head in 0..found.dims[1] {
            let (found, drawn) = (draw(found, batch, head), case.drawn(batch, head));
            if found != drawn {
                let name = format!("{file}: {}: {} [{batch}, {head}], {what}", case.name, case.mask);
                wrong.push(format!("{name}\n{found}\nbut drawn is\n{drawn}\n"));
            }
        }
    }
}

fn check(each: impl Fn(&mut Vec<String>, &str, &drawn::Case, BoundMask)) {
    let mut wrong = Vec::new();
    let cases = drawn::cases();
    assert!(cases.len() > 200, "{} cases", cases.len());
    for (file, case) in cases {
        match case.bind() {
            Ok(bound) => each(&mut wrong, &file, &case, bound),
            Err(error) => wrong.push(format!("{file}: {}: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_definition_draws_every_case() {
    check(|wrong, file, case, bound| compare(wrong, "by definition", file, case, &Cells::of(&bound)));
}

#[test]
fn plans_draw_every_case() {
    for (block_q, block_kv) in [(64, 64), (1, 1), (3, 2)] {
        let options = PlanOptions { block_q, block_kv, ..PlanOptions::default() };
        check(|wrong, file, case, bound| {
            compare(wrong, "by plan", file, case, &Cells::of_plan(&bound.plan_with(&options)));
        });
    }
}

#[test]
fn simplified_masks_draw_every_case() {
    check(|wrong, file, case, bound| {
        let simple = bound.mask().simplify();
        let bound = simple.bind(bound.shape(), bound.facts()).expect("a simpler mask needs no more facts");
        compare(wrong, &format!("simplified to {simple}"), file, case, &Cells::of(&bound));
    });
}

#[test]
fn every_case_prints_and_parses_to_itself() {
    for (file, case) in drawn::cases() {
        let mask: Mask = case.mask.parse().unwrap_or_else(|error| panic!("{file}: {}: {error}", case.name));
        assert_eq!(mask.to_string().parse::<Mask>().expect("what prints parses"), mask, "{file}: {}", case.name);
    }
}

#[test]
fn drawings_have_their_shape() {
    check(|wrong, file, case, bound| {
        let shape = bound.shape();
        let lines: Vec<&str> = case.drawn(shape.batch_len() - 1, shape.head_count() - 1).lines().collect();
        if lines.len() != shape.q_len() || lines.iter().any(|l| l.len() != shape.kv_len()) {
            wrong.push(format!("{file}: {}: {} lines", case.name, lines.len()));
        }
    });
}

/// Every invalid input has its own message, which names the error and how to fix it.
#[test]
fn wrong_input_is_refused_with_its_message() {
    let mut wrong = Vec::new();
    for (file, case) in drawn::refused() {
        let expected = case.message.as_deref().expect("a refused case").trim_end();
        let found = case.bind().err().unwrap_or_else(|| "no error".into());
        if found.trim_end() != expected {
            wrong.push(format!("{file}: {}:\n{found}\nbut the message is\n{expected}\n", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
