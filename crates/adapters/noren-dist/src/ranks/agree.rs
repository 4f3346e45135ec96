//! Agreements: ranks compare their next computation before any array is sent.
//!
//! In an agreement, every rank sends [`SLOTS`] digests (short hashes) to every other rank: one of the name of its next
//! call, one of the version, and one of each value that must be equal. The format is the same in every version. Ranks
//! that make different calls, or the same call with different masks, return an error. Without agreements, the ranks
//! would wait for each other, or add results that do not belong together.

use crate::ranks::link::{spread, to_all};
use crate::ranks::{Error, Link};
use hmac_sha256::Hash;

/// The version of the messages between ranks. The version increases when the content or order of these messages
/// changes.
const PROTOCOL: u32 = 1;
/// The number of digests that a rank sends in an agreement: one for the name of its next call, one for the version, and
/// 14 for values.
const SLOTS: usize = 16;
/// The length of a digest in bytes.
const SIZE: usize = 16;
const REFUSED: &str = "refused its input";

type Word = [u8; SIZE];

/// The values of a rank's next call that must be equal on all ranks, as (name, value).
pub(crate) type Said = Vec<(&'static str, String)>;

/// Runs `check` on this rank's input, and then checks that all ranks make the same call: the name of the call, `what`,
/// and the `Said` that `check` returns must be equal on all ranks. Returns the `R` that `check` returns.
///
/// If `check` returns an error on a rank, that rank returns this error, and the other ranks return
/// [`Error::Disagreement`]. If the names or values of ranks differ, every rank returns [`Error::Disagreement`].
pub(crate) fn checked<R>(
    link: &dyn Link,
    what: &str,
    check: impl FnOnce() -> Result<(Said, R), Error>,
) -> Result<R, Error> {
    let (said, found) = check().inspect_err(|_| tell_refusal(link))?;
    agree(link, what, &said)?;
    Ok(found)
}

/// Reports to the other ranks that this rank refused its input. Call this function instead of an attention or decoding
/// call; the other ranks, which make that call, then return [`Error::Disagreement`].
pub fn refuse(link: &dyn Link) {
    link.job().call();
    tell_refusal(link);
}

fn tell_refusal(link: &dyn Link) {
    // the error of this rank's input is returned, because it has more details than an error of this exchange
    let _ = exchanged(link, words(REFUSED, &[]));
}

/// Checks that all ranks are about to make the same computation. The ranks compare the name `what` of the computation,
/// and the pairs (name, value) in `said`, at most 14.
///
/// # Errors
/// Returns [`Error::Input`] for more than 14 pairs, [`Error::Disagreement`] on every rank if the ranks differ, and
/// [`Error::Lost`] if a rank is gone.
pub fn agree(link: &dyn Link, what: &str, said: &[(&str, String)]) -> Result<(), Error> {
    if said.len() > SLOTS - 2 {
        tell_refusal(link);
        let (given, most) = (said.len(), SLOTS - 2);
        return Err(Error::Input(format!(
            "{what}: {given} values are given for the comparison of ranks, but at most {most} are possible"
        )));
    }
    let found = exchanged(link, words(what, said))?;
    compare(link.rank(), what, said, &found)
}

fn compare(rank: usize, what: &str, said: &[(&str, String)], found: &[Vec<Word>]) -> Result<(), Error> {
    let (me, first) = (format!("rank {rank} of {}", found.len()), &found[0]);
    let differing =
        |wrong: &dyn Fn(&[Word]) -> bool| (0..found.len()).filter(|r| wrong(&found[*r])).collect::<Vec<_>>();
    let refuse = |problem| Err(Error::Disagreement(problem));
    let refused = differing(&|words| words[0] == digest(REFUSED));
    if !refused.is_empty() {
        let who = names(&refused);
        return refuse(format!(
            "{me}: {what} does not start, because {who} refused the input: see the error message of each refusing rank"
        ));
    }
    let other = differing(&|words| words[1] != first[1]);
    if !other.is_empty() {
        let (version, who) = (env!("CARGO_PKG_VERSION"), names(&other));
        return refuse(format!(
            "{me} (noren {version}): {who} run another version of noren than rank 0: install the same version for all ranks"
        ));
    }
    let elsewhere = differing(&|words| words[0] != first[0]);
    if !elsewhere.is_empty() {
        return refuse(format!(
            "{me} calls {what}, but {} and rank 0 make different calls: all ranks must make the same calls in the same \
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
            "{me}: {what} does not start, because rank {other} and rank 0 differ in: {}; give equal values on every rank (values on this rank: {})",
            named.join(", "),
            here.join(", ")
        ));
    }
    Ok(())
}

fn words(what: &str, said: &[(&str, String)]) -> Vec<Word> {
    let version = format!("{} {PROTOCOL}", env!("CARGO_PKG_VERSION"));
    let values = said.iter().map(|(_, value)| value.as_str());
    let mut words: Vec<Word> = [what, version.as_str()].into_iter().chain(values).map(digest).collect();
    words.resize(SLOTS, Word::default());
    words
}

/// Sends this rank's digests to all ranks, and returns the digests of all ranks in the order of ranks.
fn exchanged(link: &dyn Link, mine: Vec<Word>) -> Result<Vec<Vec<Word>>, Error> {
    let mine = mine.concat();
    let (outgoing, expected) = to_all(link, &mine);
    link.job().agreed(mine.len() * outgoing.len());
    let found = spread(link, mine, outgoing, &expected)?;
    Ok(found.iter().map(|bytes| bytes.as_chunks().0.to_vec()).collect())
}

fn digest(bytes: impl AsRef<[u8]>) -> Word {
    let hash = Hash::hash(bytes.as_ref());
    std::array::from_fn(|i| hash[i])
}

/// Returns the digest of `bytes` (the first 16 bytes of its SHA-256) in hexadecimal digits.
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
        assert!(call.contains("rank 1 of 3 calls attention, but rank 2 and rank 0 make different calls"), "{call}");
        let mask = problem("attention", |words| words[2] = digest("full"));
        assert!(
            mask.contains("rank 2 and rank 0 differ in: mask;") && mask.contains("on this rank: mask causal"),
            "{mask}"
        );
        let refused = problem("attention", |words| words[0] = digest(REFUSED));
        assert!(refused.contains("rank 2 refused the input"), "{refused}");
    }
}
