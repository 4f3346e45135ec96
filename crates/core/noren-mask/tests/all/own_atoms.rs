//! Atoms that are defined outside of the crate.
#![allow(clippy::single_range_in_vec_init)] // one run of keys

use noren_mask::atom::{Atom, Binding, Input, Pair, Reach, Resolution, ResolvedAtom, Site, verify};
use noren_mask::{Cell, Cells, Equivalence, Error, Facts, Mask, Shape, atoms};
use std::fmt;
use std::ops::Range;
use std::time::Instant;

/// The keys from `far` to `near` positions before the query: a window without the nearest keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Echo {
    near: i64,
    far: i64,
    /// The result of the resolved form that is wrong.
    wrong: Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wrong {
    Nothing,
    Rows,
    Some,
    Every,
    Changes,
}

fn echo(near: i64, far: i64) -> Mask {
    Mask::of(Echo { near, far, wrong: Wrong::Nothing })
}

impl Atom for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "echo({}, {})", self.near, self.far)
    }

    fn check(&self) -> Result<(), String> {
        match self.near <= self.far {
            true => Ok(()),
            false => Err(format!("near is {} and far is {}: give near first", self.near, self.far)),
        }
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        (self.near..=self.far).contains(&(pair.q - pair.k))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(self.clone()))
    }
}

impl ResolvedAtom for Echo {
    fn row(&self, q: i64, _: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let more = i64::from(self.wrong == Wrong::Rows);
        emit(q - self.far, q - self.near + 1 + more);
    }

    fn bounds(&self, queries: Range<i64>, _: Range<i64>) -> Reach {
        let (first, last) = (queries.start, queries.end - 1);
        let (less, more) = (i64::from(self.wrong == Wrong::Some), i64::from(self.wrong == Wrong::Every));
        let some = vec![first - self.far..last - self.near + 1 - less];
        let every = vec![last - self.far..first - self.near + 1 + more];
        Reach::Keys { some, every }
    }

    fn next_change(&self, q: i64) -> i64 {
        q + 1 + i64::from(self.wrong == Wrong::Changes)
    }
}

/// Tokens with a label read tokens with the label, in the listed batch rows. The atom has no faster form than its
/// cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Club {
    label: &'static str,
}

impl Atom for Club {
    fn name(&self) -> &'static str {
        "club"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "club({:?})", self.label)
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![Input::Label(self.label)]
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        binding.label(self.label)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        pair.has_label(self.label, pair.q) && pair.has_label(self.label, pair.k)
    }

    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        format!("query {} and key {} are {}both members", pair.q, pair.k, if allowed { "" } else { "not " })
    }
}

#[test]
fn an_atom_with_bounds_is_exact_and_plans_a_million_tokens() {
    for mask in [echo(3, 9), atoms::causal() & echo(0, 40), (atoms::causal() - echo(2, 5)) | atoms::keys(0..3)] {
        for shape in [Shape::square(70), Shape::cached(33, 50), Shape::cross(20, 90).batch(2).heads(2)] {
            verify(&mask, &shape, &Facts::new()).unwrap();
        }
        let placed = Facts::new().positions(vec![(0..64).map(|slot| (slot + 40) % 64).collect::<Vec<i64>>()]);
        verify(&mask, &Shape::cached(50, 14), &placed).unwrap();
    }
    let bound = (atoms::causal() & echo(64, 4096)).bind(&Shape::square(1 << 20), &Facts::new()).unwrap();
    let start = Instant::now();
    let plan = bound.plan();
    println!("echo(64, 4096) at 1048576 x 1048576: planned in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let window = atoms::window(4096, -64).bind(&Shape::square(1 << 20), &Facts::new()).unwrap().plan();
    assert_eq!(plan.bytes(), window.bytes(), "as the built-in atom of the same cells");
    assert_eq!(plan.patterns()[0].tile(5000), window.patterns()[0].tile(5000));
}

#[test]
fn an_atom_without_a_faster_form_is_exact() {
    let facts = Facts::new().label("chess", [2, 3, 17, 30]);
    let mask = Mask::of(Club { label: "chess" });
    for mask in [mask.clone(), !mask.clone(), atoms::causal() & mask.clone() | atoms::sliding(3)] {
        verify(&mask, &Shape::square(40).batch(2).heads(3), &facts).unwrap();
        verify(&mask, &Shape::cached(20, 20), &facts).unwrap();
    }
    let bound = mask.bind(&Shape::square(40).heads(8), &facts).unwrap();
    assert_eq!(bound.pattern_count(), 1, "heads share a plan");
    assert_eq!(bound.explain(0, 0, 3, 4).unwrap().root.why, "query 3 and key 4 are not both members");
    let missing = mask.bind(&Shape::square(40), &Facts::new()).unwrap_err();
    assert!(missing.to_string().starts_with("`club(\"chess\")` needs the label \"chess\""), "{missing}");
    let refused = echo(5, 2).bind(&Shape::square(4), &Facts::new()).unwrap_err();
    assert_eq!(refused.to_string(), "`echo(5, 2)`: near is 5 and far is 2: give near first");
}

#[test]
fn verify_names_what_disagrees() {
    for (wrong, named) in [
        (Wrong::Rows, "contain key"),
        (Wrong::Some, "out key"),
        (Wrong::Every, "the lower bound of query rows"),
        (Wrong::Changes, "reports that these query rows read the same keys"),
    ] {
        let mask = Mask::of(Echo { near: 3, far: 9, wrong });
        let error = verify(&mask, &Shape::square(40), &Facts::new()).unwrap_err().to_string();
        assert!(error.contains("`echo(3, 9)`") && error.contains(named), "{wrong:?}: {error}");
    }
}

#[test]
fn it_is_a_value_among_others() {
    let mask = echo(3, 9) & atoms::causal();
    assert_eq!(mask, echo(3, 9) & atoms::causal());
    assert_ne!(mask, echo(3, 8) & atoms::causal());
    assert_eq!((mask.clone() & mask.clone()).simplify().to_string(), "causal & echo(3, 9)");
    assert_eq!((mask.clone() & !echo(3, 9)).simplify(), atoms::none());
    assert_eq!(echo(3, 9).atom_as::<Echo>().unwrap().far, 9);
    assert!(matches!(mask.equivalent(&mask).unwrap(), Equivalence::Equal { .. }));
    match mask.equivalent(&atoms::window(9, -3)).unwrap() {
        Equivalence::Undecided { atoms, .. } => assert_eq!(atoms, ["echo(3, 9)"]),
        other => panic!("{other}"),
    }
}

#[test]
fn it_has_no_serial_form() {
    let mask = echo(3, 9) & atoms::causal();
    let plan = mask.bind(&Shape::square(8), &Facts::new()).unwrap().plan();
    let error = plan.to_json().unwrap_err().to_string();
    assert!(error.starts_with("plan: `echo(3, 9)` is defined outside of noren"), "{error}");
    assert!(serde_json::to_string(&plan).is_err() && serde_json::to_string(&mask).is_err());
    assert!(mask.to_string().parse::<Mask>().is_err());
}

#[test]
fn functions_are_atoms() {
    let near = Mask::from_fn(|cell| cell.query.abs_diff(cell.key) as usize <= cell.batch + cell.head);
    let shape = Shape::square(20).batch(2).heads(2);
    let mask = atoms::causal() & near.clone();
    verify(&mask, &shape, &Facts::new()).unwrap();
    let bound = mask.bind(&shape, &Facts::new()).unwrap();
    assert!(bound.allowed(1, 1, 9, 7) && !bound.allowed(1, 0, 9, 7));
    assert_eq!(near, near.clone());
    assert_ne!(near, Mask::from_fn(|_| true));
    let blocks = Mask::from_fn(|Cell { query, key, .. }| query / 64 == key / 64);
    let bounded = blocks.with_bounds(|Cells { queries, .. }| {
        let (first, last) = (queries.start / 64 * 64, (queries.end - 1) / 64 * 64);
        Reach::Keys { some: vec![first..last + 64], every: vec![last..first + 64] }
    });
    let bounded = bounded.unwrap();
    verify(&bounded, &Shape::square(300), &Facts::new()).unwrap();
    assert!(bounded.bind(&Shape::square(1 << 20), &Facts::new()).unwrap().plan().bytes() < 4 << 20);
}
