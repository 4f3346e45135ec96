//! `noren attend`: computes masked attention over tensors in a file, or over a built-in example.

mod args;
mod example;
pub(crate) mod heat;
mod inputs;
mod job;
mod minimap;
pub(crate) mod report;
mod verify;

use crate::failure::Result;
use crate::output::Screen;
use crate::target::Target;
use crate::verdict::Verdict;
pub(crate) use args::AttendArgs;
use inputs::Inputs;
use job::Job;
use noren_input::tensors::TensorFile;

pub(crate) fn run(args: &AttendArgs, screen: &mut Screen) -> Result<Verdict> {
    // A file that cannot be written is reported before the computation starts.
    let target = args.output.as_deref().map(Target::new).transpose()?;
    let Some(path) = &args.input else { return example::run(args, target.as_ref(), screen) };
    let spec = crate::args::parse(args.mask.as_deref().unwrap_or("full"), args.facts.layer)?;
    let (facts, _) = args.facts.read(&[])?;
    let inputs = Inputs::read(&mut TensorFile::open(path)?, &spec)?;
    let job = Job::new(&inputs, &spec, &facts, args)?;
    let done = job.run()?;
    let check = if args.verify { Some(verify::against_reference(&job, &done)?) } else { None };
    done.save(target.as_ref())?;
    let report = report::Report::new(&job, &done, check.clone(), args);
    if args.json {
        screen.json(&report)?;
    } else {
        screen.line(format!("{:<9} {}", "input", path.display()))?;
        report.print(screen)?;
    }
    Ok(match check {
        Some(check) if !check.holds => Verdict::No,
        _ => Verdict::Yes,
    })
}
