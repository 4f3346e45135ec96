//! `noren bench`: measures the limits of this machine, and the fraction of these limits that attention reaches.

mod args;
mod cases;
mod limits;
mod op;
mod ops;
mod report;

use crate::failure::Result;
use crate::output::Screen;
use crate::progress::Progress;
use crate::verdict::Verdict;
pub(crate) use args::BenchArgs;
use cases::Case;
use limits::Limits;
use noren::Isa;
use report::{Report, Row};

pub(crate) fn run(args: &BenchArgs, screen: &mut Screen) -> Result<Verdict> {
    // Errors in the cases are reported before the limits are measured.
    let cases = Case::all(args)?;
    let isa = Isa::choose(None)?;
    let (probe_time, budget) = args.times()?;
    let mut threads: Vec<usize> = cases.iter().map(|case| case.threads).chain([1]).collect();
    threads.sort_unstable();
    threads.dedup();

    let memory = args.memory();
    let plan = limits::probes(&memory, &threads);
    let mut progress = Progress::new(Some((plan.len() + cases.len()) as u64));
    let mut limits = Limits::new(isa, memory);
    for (probe, threads) in plan {
        progress.message(format!("{probe}, {threads} threads"));
        progress.add(1);
        limits.measure(probe, threads, probe_time);
    }
    let mut report = Report::new(limits, &threads);
    if !args.json {
        progress.aside(|| report.print_limits(screen))?;
    }
    for case in cases {
        progress.message(case.to_string());
        progress.add(1);
        let row = Row::new(&case, &ops::measure(&case, budget)?, &report.limits, probe_time);
        if !args.json {
            progress.aside(|| row.print(report.rows.is_empty(), screen))?;
        }
        report.rows.push(row);
    }
    drop(progress);
    if args.json {
        screen.json(&report)?;
    }
    Ok(Verdict::Yes)
}
