//! Agreements: before any array is sent, ranks compare what they are about to do.
//!
//! An agreement is [`SLOTS`] digests from every rank to every other, in every version, so that ranks which call different things,
//! or the same with different masks, find out instead of waiting for each other or adding up what does not belong together.

use crate::link::exchange;
use crate::{Error, Link};
use hmac_sha256::Hash;

/// Changes with what is sent and in which order.
const PROTOCOL: u32 = 1;
const SLOTS: usize = 16;
const SIZE: usize = 16;
const REFUSED: &str = "refused its input";

type Word = [u8; SIZE];

/// What a rank says: names with their values.
pub(crate) type Said = Vec<(&'static str, String)>;

/// Agrees on `what` with what `check` says of this rank's input.
///
/// An error of `check` is told to the others, who get [`Error::Disagreement`], and returned here.
pub(crate) fn checked<R>(
    link: &dyn Link,
    what: &str,
    check: impl FnOnce() -> Result<(Said, R), Error>,
) -> Result<(R, u64), Error> {
    match check() {
        Ok((said, found)) => Ok((found, agree(link, what, &said)?)),
        Err(error) => {
            // this rank's error says more than that the others are gone too
            let _ = gather(link, words(REFUSED, &[]));
            Err(error)
        }
    }
}

/// Bytes that were sent for it.
fn agree(link: &dyn Link, what: &str, said: &Said) -> Result<u64, Error> {
    let found = gather(link, words(what, said))?;
    compare(link.rank(), what, said, &found)?;
    Ok(((link.ranks() - 1) * SLOTS * SIZE) as u64)
}

fn compare(rank: usize, what: &str, said: &Said, found: &[Vec<Word>]) -> Result<(), Error> {
    let (me, first) = (format!("rank {rank} of {}", found.len()), &found[0]);
    let differing =
        |wrong: &dyn Fn(&[Word]) -> bool| (0..found.len()).filter(|r| wrong(&found[*r])).collect::<Vec<_>>();
    let refuse = |problem| Err(Error::Disagreement(problem));
    let refused = differing(&|words| words[0] == digest(REFUSED));
    if !refused.is_empty() {
        let who = names(&refused);
        return refuse(format!("{me}: {what} is not begun, for {who} refused the input: see the error there"));
    }
    let other = differing(&|words| words[1] != first[1]);
    if !other.is_empty() {
        let (version, who) = (env!("CARGO_PKG_VERSION"), names(&other));
        return refuse(format!(
            "{me} (noren {version}): {who} run another version of noren than rank 0: install the same one everywhere"
        ));
    }
    let elsewhere = differing(&|words| words[0] != first[0]);
    if !elsewhere.is_empty() {
        return refuse(format!(
            "{me} is at {what}, but {} and rank 0 are not at the same call: all ranks must make the same calls in the same \
             order",
            names(&elsewhere)
        ));
    }
    for (other, words) in found.iter().enumerate() {
        let wrong: Vec<usize> = (0..said.len()).filter(|i| words[i + 2] != first[i + 2]).collect();
        if wrong.is_empty() {
            continue;
        }
        let named: Vec<&str> = wrong.iter().map(|i| said[*i].0).collect();
        let here: Vec<String> = wrong.iter().map(|i| format!("{} {}", said[*i].0, short(&said[*i].1))).collect();
        return refuse(format!(
            "{me}: {what} is not begun, for rank {other} and rank 0 differ in: {}; give the same on every rank (here: {})",
            named.join(", "),
            here.join(", ")
        ));
    }
    Ok(())
}

fn words(what: &str, said: &[(&'static str, String)]) -> Vec<Word> {
    let version = format!("{} {PROTOCOL}", env!("CARGO_PKG_VERSION"));
    let values = said.iter().map(|(_, value)| value.as_str());
    let mut words: Vec<Word> = [what, version.as_str()].into_iter().chain(values).map(digest).collect();
    debug_assert!(words.len() <= SLOTS);
    words.resize(SLOTS, Word::default());
    words
}

/// Returns the words of all ranks, in their order.
fn gather(link: &dyn Link, mine: Vec<Word>) -> Result<Vec<Vec<Word>>, Error> {
    let others = || (0..link.ranks()).filter(|rank| *rank != link.rank());
    let outgoing = others().map(|rank| (rank, mine.concat())).collect();
    let expected = others().map(|rank| (rank, SLOTS * SIZE)).collect();
    let mut found = vec![mine; link.ranks()];
    exchange(link, outgoing, &expected, |arrivals| {
        for rank in others() {
            found[rank] = arrivals.take(rank)?.as_chunks().0.to_vec();
        }
        Ok(())
    })?;
    Ok(found)
}

fn digest(bytes: impl AsRef<[u8]>) -> Word {
    let hash = Hash::hash(bytes.as_ref());
    std::array::from_fn(|i| hash[i])
}

/// Returns a digest as text.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    noren_mask::text::hex(&digest(bytes))
}

fn names(ranks: &[usize]) -> String {
    let list: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list.join(", "))
}

fn short(value: &str) -> String {
    if value.chars().count() <= 80 { value.to_owned() } else { value.chars().take(77).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(what: &str, change: impl FnOnce(&mut Vec<Word>)) -> String {
        let said = vec![("mask", "causal".to_owned())];
        let mut found = vec![words(what, &said); 3];
        change(&mut found[2]);
        compare(1, what, &said, &found).unwrap_err().to_string()
    }

    #[test]
    fn what_differs_is_named() {
        let said = vec![("mask", "causal".to_owned())];
        assert_eq!(compare(1, "attention", &said, &vec![words("attention", &said); 3]), Ok(()));
        let version = problem("attention", |words| words[1] = digest("0.0.7 1"));
        assert!(version.contains("rank 2 run another version"), "{version}");
        let call = problem("attention", |words| words[0] = digest("a step of decoding"));
        assert!(call.contains("rank 1 of 3 is at attention, but rank 2 and rank 0 are not at the same call"), "{call}");
        let mask = problem("attention", |words| words[2] = digest("full"));
        assert!(mask.contains("rank 2 and rank 0 differ in: mask;") && mask.contains("here: mask causal"), "{mask}");
        let refused = problem("attention", |words| words[0] = digest(REFUSED));
        assert!(refused.contains("rank 2 refused the input"), "{refused}");
    }
}
