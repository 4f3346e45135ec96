//! Repairs of all planted mistakes: a repaired array has the form of the given array, differs from it, leaves no non-padding row
//! without keys, and is correct when it is checked with the same declarations.
//!
//! `NOREN_DOCTOR=n` runs n times the number of cases.

use crate::doctor::Dice;
use crate::doctor::faults::{FAULTS, Faulty};
use crate::doctor::more::MORE;
use noren_doctor::{Report, Verdict};

/// Returns what is wrong with the repair in `report`; `None` if the report has no repair or a sound one.
fn unsound(faulty: &Faulty, report: &Report) -> Option<String> {
    let (repair, fixed) = (report.repair.as_ref()?, report.fixed.as_ref()?);
    let given = faulty.input.mask()?;
    if (repair.shape(), repair.dtype()) != (given.shape(), given.dtype()) {
        return Some("another form".into());
    }
    if repair == given {
        return Some("the repair is the input".into());
    }
    let [batch, heads, q_len, _] = fixed.dims();
    let empty = |b: usize, i: usize| (0..heads).any(|h| fixed.row(b, h, i).iter().all(|w| *w == 0));
    if (0..batch).any(|b| (0..q_len).any(|i| faulty.scene.cares(b, i) && empty(b, i))) {
        return Some("a non-padding row has no key".into());
    }
    let again = faulty.input.clone().with_mask(repair.clone()).diagnose().expect("a usable mask");
    // Arrays beside the mask keep their own mistakes.
    let beside = |class: &str| report.findings.iter().any(|f| f.class == class && f.repair.is_none());
    let rest: Vec<&str> = again.classes().into_iter().filter(|class| !beside(class)).collect();
    let sound = rest.is_empty() && (again.faulty() || !faulty.scene.declare_kind || again.verdict == Verdict::Correct);
    (!sound).then(|| format!("not correct when checked again: {again}"))
}

#[test]
fn every_repair_is_correct_when_it_is_checked_again() {
    let factor: u64 = std::env::var("NOREN_DOCTOR").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut problems = Vec::new();
    for varied in [false, true] {
        for (number, (name, plant)) in FAULTS.iter().chain(MORE).enumerate() {
            let first = (number as u64) << 32 | u64::from(varied) << 31 | 1 << 30;
            for seed in first..first + 12 * factor {
                let Some(faulty) = plant(&mut Dice::new(seed, varied), 20) else { continue };
                let report = faulty.input.diagnose().expect("a usable mask");
                let texts = report.findings.iter().filter_map(|f| f.repair.as_deref());
                let named = texts
                    .clone()
                    .any(|text| text == "none" || text.contains("except for") || text.contains("no expression"));
                let problem = if named { Some("a text that is no repair".into()) } else { unsound(&faulty, &report) };
                problems.extend(problem.map(|what| format!("{name}, seed {seed:#x}: {what}\n{report}")));
            }
        }
    }
    assert!(problems.is_empty(), "{}\n{}", problems.len(), problems[..problems.len().min(5)].join("\n"));
}
