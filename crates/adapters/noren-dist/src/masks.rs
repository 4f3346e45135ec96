//! Masks of long contexts for comparisons of partitions. Fixed seeds make the masks equal in every run.

use noren_mask::atoms::*;
use noren_mask::{BoundMask, Error, Facts, Mask, Shape};

/// A bound mask for comparisons of partitions, with a name.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the mask, which tables print.
    pub name: &'static str,
    /// The bound mask.
    pub bound: BoundMask,
}

/// Returns masks over `len` tokens for comparisons of partitions: packed documents, documents of very different
/// lengths, a window, a shared prefix, block-causal documents without and with global rows, and plain causal.
///
/// # Errors
/// Returns an error if a shape cannot have the length `len`.
pub fn cases(len: usize) -> Result<Vec<Case>, Error> {
    let packed = || lengths(len, 7, |dice| 4096 + (dice % 12289) as usize);
    let skewed = || lengths(len, 3, skew);
    let after = |prefix: usize| {
        let mut all = vec![prefix.min(len)];
        all.extend(lengths(len - all[0], 11, |dice| 4096 + (dice % 12289) as usize));
        all
    };
    let block_causal = || (causal() | chunk(1024)) & documents_of(packed());
    let rows: Vec<usize> = (0..64).map(|i| i * (len / 64)).collect();
    let masks: Vec<(&'static str, Mask)> = vec![
        ("packed documents 4-16k", causal() & documents_of(packed())),
        ("skewed documents 0.2-60k", causal() & documents_of(skewed())),
        ("window 4096", sliding(4096)),
        ("shared prefix 8192 + documents", causal() & (prefix(8192) | documents_of(after(8192)))),
        ("block-causal documents", block_causal()),
        ("block-causal documents + 64 global rows", block_causal() | queries(rows)),
        ("causal", causal()),
    ];
    let bind =
        |(name, mask): (&'static str, Mask)| Ok(Case { name, bound: mask.bind(&Shape::square(len), &Facts::new())? });
    masks.into_iter().map(bind).collect()
}

/// Returns a document length for the random number `dice`. One in 16 documents has 60,000 tokens; the other lengths are
/// distributed evenly on a logarithmic scale from 200 to 60,000 tokens, so most documents are short.
fn skew(dice: u64) -> usize {
    let share = (dice % 10_000) as f64 / 10_000.0;
    if dice.is_multiple_of(16) { 60_000 } else { (200.0 * 300f64.powf(share)) as usize }
}

/// Returns document lengths whose sum is `len`. `draw` converts a random number to a length; the random numbers depend
/// only on `seed`. The last length is shortened to fit.
fn lengths(len: usize, seed: u64, draw: impl Fn(u64) -> usize) -> Vec<usize> {
    let mut out = Vec::new();
    let mut left = len;
    for i in 0.. {
        if left == 0 {
            break;
        }
        let next = draw(mix(seed.wrapping_mul(1 << 32).wrapping_add(i))).clamp(1, left);
        out.push(next);
        left -= next;
    }
    out
}

/// Returns a pseudorandom number that depends only on `x`, by SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
