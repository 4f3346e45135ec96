//! `noren verify`: a certificate of `noren flow`, checked again.

use crate::Verdict;
use crate::failure::{Failure, Result};
use crate::flow::{StackArgs, tell_channels, tell_ruling};
use crate::output::{GOOD, STRONG, Screen, paint, with_note};
use clap::Args;
use noren_mask::flow::Certificate;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The certificate
    certificate: PathBuf,
    #[command(flatten)]
    stack: StackArgs,
}

const EXAMPLES: &str = "\
The hashes are checked, then the policy over the masks once more. With masks the certificate must be about exactly these.
The exit code is 0 when the policy holds, 1 when it is broken, 2 when the certificate cannot be trusted.

Examples:
  noren verify certificate.json
  noren verify certificate.json 'causal & documents([5, 3])' --layers 4 --facts facts.json";

/// A certificate holds expressions and facts; larger ones are not read.
const MOST_BYTES: u64 = 1 << 30;

pub(crate) fn run(args: &VerifyArgs, screen: &mut Screen) -> Result<Verdict> {
    let name = args.certificate.display();
    let unreadable = |e: std::io::Error| Failure::new(format!("{name}: cannot be read: {e}"));
    let bytes = std::fs::metadata(&args.certificate).map_err(unreadable)?.len();
    if bytes > MOST_BYTES {
        return Err(Failure::new(format!("{name}: {bytes} bytes are no certificate: at most {MOST_BYTES} are read")));
    }
    let text = std::fs::read_to_string(&args.certificate).map_err(unreadable)?;
    let certificate = Certificate::from_json(&text).map_err(|e| Failure::from(e).of(name))?;
    let ruling = with_note("checking everything again ...", || certificate.verify())?;
    if args.stack.given() {
        certificate.matches(&args.stack.flow()?.0)?;
    }
    let what =
        if args.stack.given() { "about these masks and unchanged" } else { "unchanged, and its verdict is right" };
    screen.line(format!("{}: the certificate is {what}", paint(GOOD, "verified")))?;
    let distinct: std::collections::BTreeSet<&String> = certificate.layers.iter().collect();
    screen.line(format!(
        "{} layers of {} mask(s), sha256 {}",
        certificate.layers.len(),
        distinct.len(),
        certificate.masks_sha256
    ))?;
    screen.line(format!("\n{}\n{}", paint(STRONG, "policy"), certificate.policy.trim_end()))?;
    tell_ruling(ruling, screen)?;
    tell_channels(screen)?;
    Ok(if certificate.holds() { Verdict::Yes } else { Verdict::No })
}
