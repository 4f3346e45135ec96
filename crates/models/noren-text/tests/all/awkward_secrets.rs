//! Secrets in awkward forms are found as a whole. `NOREN_SECRETS` is the number of secrets that are drawn.

use noren_testing::awkward::{Case, WORDS, cases};
use noren_text::{Detector, Detectors};

/// Returns whether findings of its kind cover the secret.
fn is_whole(case: &Case, detectors: &Detectors) -> bool {
    let found = detectors.find(&case.text).unwrap();
    let mut covered = case.secret.start;
    for finding in found.iter().filter(|finding| finding.kind.as_str() == case.kind) {
        if finding.range.start <= covered {
            covered = covered.max(finding.range.end);
        }
    }
    covered >= case.secret.end
}

#[test]
fn awkward_secrets_are_found_whole() {
    let count = std::env::var("NOREN_SECRETS").ok().map_or(600, |count| count.parse().expect("a number"));
    let words = Detector::words("word", WORDS).unwrap();
    let detectors = "all".parse::<Detectors>().unwrap().with(words);
    let cases = cases(count, 15);
    let missed: Vec<&Case> = cases.iter().filter(|case| !is_whole(case, &detectors)).collect();
    for case in &missed {
        println!("missed: {} {:?} in {:?}", case.kind, &case.text[case.secret.clone()], case.text);
    }
    let found = count - missed.len();
    println!("{found} of {count} awkward secrets are found whole");
    assert!(found * 1000 >= count * 995, "{found} of {count}");
}
