//! The doctor on correct masks and on masks with one known mistake, of many families, sizes and conventions.
//!
//! `NOREN_DOCTOR=n` runs n times the number of cases; `cargo test --test all doctor_cases:: -- --nocapture` prints the table.

use crate::doctor;
use crate::doctor::Dice;
use crate::doctor::faults::{FAULTS, Faulty};
use crate::doctor::more::MORE;
use crate::doctor::scene::{FAMILIES, Scene};
use noren_doctor::{Context, Dtype, Input, Numbers, Report, Values};
use noren_mask::Keep;
use noren_testing::cases::{masks, worlds};
use noren_testing::check;
use proptest::prelude::*;

fn factor() -> usize {
    std::env::var("NOREN_DOCTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Returns whether the repaired cells equal the intended ones in every row of a non-padding query.
fn repaired(faulty: &Faulty, report: &Report) -> bool {
    let Some(fixed) = &report.fixed else { return false };
    let [b, h, q, k] = fixed.dims();
    let meant: &Keep = &faulty.meant;
    let [batch, _, q_meant, k_meant] = meant.dims();
    // A mask with one batch row applies to all rows.
    if (b != 1 && b != batch) || [q, k] != [q_meant, k_meant] {
        return false;
    }
    let cares = |b: usize, i: &usize| faulty.scene.cares(b, *i);
    let same =
        |n: usize, h: usize, i: usize| (0..k).all(|j| fixed.get([n.min(b - 1), h, i, j]) == meant.get([n, 0, i, j]));
    (0..batch).all(|n| (0..h).all(|h| (0..q).filter(|i| cares(n, i)).all(|i| same(n, h, i))))
}

#[test]
fn known_mistakes_are_found_named_and_repaired() {
    known_mistakes(false);
}

#[test]
fn known_mistakes_stored_in_unusual_ways() {
    known_mistakes(true);
}

fn known_mistakes(varied: bool) {
    let each = 60 * factor();
    let mut failures = Vec::new();
    println!("{:36} {:>6} {:>8} {:>8} {:>8}", "mistake", "cases", "found %", "named %", "fixed %");
    let mut totals = [0usize; 4];
    for (number, (name, plant)) in FAULTS.iter().chain(MORE).enumerate() {
        let (mut cases, mut found, mut named, mut fixed) = (0, 0, 0, 0);
        let mut seed = (number as u64) << 32 | u64::from(varied) << 31;
        let mut missed: Vec<String> = Vec::new();
        let first = seed;
        // Some mistakes need rare scenes.
        while cases < each && seed < first + 200 * each as u64 {
            seed += 1;
            let mut dice = Dice::new(seed, varied);
            let largest = if seed.is_multiple_of(10) { 70 } else { 24 };
            let Some(faulty) = plant(&mut dice, largest) else { continue };
            cases += 1;
            let report = faulty.input.diagnose().unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}"));
            let right_class = report.classes().first().is_some_and(|c| faulty.classes.contains(c));
            let right_repair = repaired(&faulty, &report);
            found += usize::from(report.faulty());
            named += usize::from(right_class);
            fixed += usize::from(right_repair);
            if (!report.faulty() || !right_class || !right_repair) && missed.len() < 3 {
                let s = &faulty.scene;
                missed.push(format!(
                    "  seed {seed:#x}: {:?} kind {} batch {} {}x{} past {} lengths {:?} left {} {:?} {:?}: {:?} fixed {right_repair} | {}",
                    s.family, s.declare_kind, s.batch, s.q, s.k, s.past, s.lengths, s.left, s.code, s.given, report.classes(), report.description
                ));
            }
        }
        let percent = |n: usize| 100.0 * n as f64 / cases.max(1) as f64;
        println!("{name:36} {cases:6} {:8.1} {:8.1} {:8.1}", percent(found), percent(named), percent(fixed));
        missed.iter().for_each(|m| println!("{m}"));
        for (total, n) in totals.iter_mut().zip([cases, found, named, fixed]) {
            *total += n;
        }
        if cases > 0 && percent(found) < 95.0 {
            failures.push(*name);
        }
    }
    let percent = |n: usize| 100.0 * n as f64 / totals[0] as f64;
    println!(
        "{:36} {:6} {:8.1} {:8.1} {:8.1}",
        "all",
        totals[0],
        percent(totals[1]),
        percent(totals[2]),
        percent(totals[3])
    );
    assert!(failures.is_empty(), "found less than 95 % of {failures:?}");
    assert!(percent(totals[2]) > 95.0 && percent(totals[3]) > 95.0);
}

#[test]
fn healthy_masks_raise_no_alarm() {
    let cases = 4000 * factor();
    let mut alarms = vec![Vec::new(); FAMILIES.len()];
    for seed in 0..cases as u64 {
        let at = seed as usize % FAMILIES.len();
        let mut dice = Dice::new(seed ^ 0xABCD_0000_0000, seed % 2 == 1);
        let scene = Scene::new(FAMILIES[at], &mut dice, if seed % 50 == 0 { 90 } else { 22 });
        let keys = matches!(scene.family, doctor::scene::Family::KeysBoth | doctor::scene::Family::KeysCausal);
        let cells = if keys { scene.plane() } else { scene.stored() };
        let report = scene.input(&cells, &mut dice).diagnose().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if report.faulty() {
            alarms[at].push(format!(
                "  seed {seed}: kind {} batch {} {}x{} past {} lengths {:?} left {} {:?} {:?} window {:?}: {:?}\n{report}",
                scene.declare_kind, scene.batch, scene.q, scene.k, scene.past, scene.lengths, scene.left, scene.code, scene.given, scene.window, report.classes()
            ));
        }
    }
    let total: usize = alarms.iter().map(Vec::len).sum();
    for (family, alarms) in FAMILIES.iter().zip(&alarms).filter(|(_, a)| !a.is_empty()) {
        println!("{family:?}: {} alarms", alarms.len());
        alarms.iter().take(2).for_each(|a| println!("{a}"));
    }
    println!("{total} alarms in {cases}");
    assert!(total * 1000 <= cases, "{total} false alarms in {cases}");
}

/// Compares random masks with their full expression, in any shape and storage.
#[test]
fn random_masks_with_their_declaration_raise_no_alarm() {
    let cases = worlds(20, 900).prop_flat_map(|world| (masks(&world), Just(world), 0..6u8));
    let count = 2000 * factor() as u32;
    check(count, cases, |(mask, world, code)| {
        let bound = world.bind(&mask);
        let keep = Keep::of(&bound);
        let shape = keep.dims();
        let additive = |fill: f32, dtype| {
            let cells = keep.cells().map(|c| if c { 0.0 } else { fill }).collect();
            Values::new(&shape, dtype, Numbers::Single(cells))
        };
        let (values, convention) = match code {
            0 => (Values::bools(&shape, keep.cells().collect()), "keep_bool"),
            1 => (Values::bools(&shape, keep.cells().map(|c| !c).collect()), "ignore_bool"),
            2 => (Values::ints(&shape, keep.cells().map(i64::from).collect()), "keep_01"),
            3 => (additive(f32::NEG_INFINITY, Dtype::F32), "additive"),
            4 => (additive(-65504.0, Dtype::F16), "additive"),
            _ => (additive(f32::MIN, Dtype::F32), "additive"),
        };
        let context = Context::from_json(&format!(r#"{{"convention": "{convention}"}}"#)).expect("a context");
        let input = Input::new(values.expect("all cells")).context(context).meant(&bound);
        let report = input.diagnose().expect("a sound mask");
        assert!(!report.faulty(), "{mask}: {report}");
    });
    println!("no alarm in {count} random masks");
}
