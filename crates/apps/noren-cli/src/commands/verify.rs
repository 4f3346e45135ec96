//! `noren verify`: checks a certificate of `noren flow` with a second implementation.

use crate::commands::flow::{StackArgs, tell_channels};
use crate::failure::{Failure, Result};
use crate::output::{BAD, GOOD, STRONG, Screen, paint, with_note};
use crate::verdict::Verdict;
use clap::Args;
use noren_verify::{MOST_BYTES, Report, RuleReport, Witness, verify_for};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// File of the certificate, as `noren flow -o FILE` and the explorer write it
    certificate: PathBuf,
    #[command(flatten)]
    stack: StackArgs,
}

const EXAMPLES: &str = "\
A second implementation, which shares no code with `noren flow`, computes every count, path and verdict again. If masks are given, the certificate must contain exactly these masks. --facts, --len, --layers and the other options are compared with the certificate, also without masks. The exit code is 0 when the policy holds, 1 when the policy is broken or nothing is established, 2 when the certificate is not valid.

Examples:
  noren verify certificate.json
  noren verify certificate.json --facts facts.json --len 8
  noren verify certificate.json 'causal & documents([5, 3])' --layers 4 --facts facts.json";

pub(crate) fn run(args: &VerifyArgs, screen: &mut Screen) -> Result<Verdict> {
    let name = args.certificate.display();
    let unreadable = |e: std::io::Error| Failure::new(format!("{name}: the file cannot be read: {e}"));
    let bytes = std::fs::metadata(&args.certificate).map_err(unreadable)?.len();
    if bytes > MOST_BYTES as u64 {
        return Err(Failure::new(format!(
            "{name}: the file has {bytes} bytes: give a certificate of at most {MOST_BYTES} bytes"
        )));
    }
    let text = std::fs::read_to_string(&args.certificate).map_err(unreadable)?;
    let given = args.stack.expected()?;
    let report = with_note("checking the certificate ...", || verify_for(&text, &given))
        .map_err(|refusal| Failure::new(format!("{name}: {refusal}")))?;
    let about = match args.stack.given() {
        true => "the certificate is unchanged, it is for exactly the given masks, and its verdict is correct",
        false => "the certificate is unchanged, and its verdict is correct",
    };
    screen.line(format!("{}: {about}", paint(GOOD, "verified")))?;
    screen.line(format!(
        "{} batch row(s), {} head(s), {} tokens, {} layers with {} different mask(s), {} closure(s) (tokens that a set of sources influences) checked layer by layer, sha256 {}",
        report.batch, report.heads, report.tokens, report.layers, report.masks, report.closures, report.sha256
    ))?;
    screen.line(format!("\n{}\n{}", paint(STRONG, "policy"), report.policy.join("\n")))?;
    tell(&report, screen)?;
    tell_channels(screen)?;
    Ok(if report.holds { Verdict::Yes } else { Verdict::No })
}

/// Prints the verdict, then the rules that decide the verdict: the broken rules, or all rules if no rule is broken.
fn tell(report: &Report, screen: &mut Screen) -> Result<()> {
    let broken = report.rules.iter().filter(|rule| rule.violated).count();
    let verdict = match (report.pairs, broken) {
        (0, _) => format!("{}: the policy denies no pair of tokens", paint(BAD, "nothing established")),
        (pairs, 0) => format!(
            "{}: no source token influences its target token in the {pairs} denied pair(s)",
            paint(GOOD, "holds")
        ),
        (pairs, broken) => {
            format!(
                "{}: the policy denies {pairs} pair(s) of tokens; counted for each batch row, {broken} rule(s) are broken",
                paint(BAD, "broken")
            )
        }
    };
    screen.line(format!("\n{verdict}"))?;
    let listed = report.rules.iter().filter(|rule| rule.violated || broken == 0);
    screen.list(&listed.map(line).collect::<Vec<_>>())
}

fn line(rule: &RuleReport) -> String {
    let place = format!("{} (batch row {})", rule.rule, rule.batch);
    match (&rule.witness, rule.pairs) {
        (Some(witness), pairs) => {
            let reached = rule.reached_pairs.map_or("at least 1".to_string(), |reached| reached.to_string());
            format!("{place}: {reached} of {pairs} denied pair(s) connected, {}", path(witness))
        }
        (None, 0) => format!("{place}: nothing is established, because the rule denies no pair of tokens"),
        (None, pairs) => format!("{place}: the rule holds for {pairs} denied pair(s)"),
    }
}

fn path(witness: &Witness) -> String {
    let steps = witness.steps.iter().map(|(layer, token)| format!(" -> token {token} in layer {layer}"));
    format!("token {}{}", witness.source, steps.collect::<String>())
}
