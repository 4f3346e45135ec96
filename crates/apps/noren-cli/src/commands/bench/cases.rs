//! [`Case`]: lists the cases to measure, which are all combinations of the given masks, lengths and other options.

use super::args::BenchArgs;
use super::op::Op;
use crate::failure::{Failure, Result};
use clap::ValueEnum;
use noren::{Dtype, Options};
use noren_mask::{BoundMask, Facts, Shape, Spec};
use std::fmt;

/// Default masks of the operations forward and backward without `--quick`.
const MASKS: &str = "full, causal, sliding(256), causal & documents, padding";
/// Default masks of the operations forward and backward with `--quick`.
const QUICK_MASKS: &str = "full, causal, sliding(256)";
/// Default masks of the operation decode. Other masks are left out, because with one query they often allow the same
/// cells as one of these masks.
const DECODE_MASKS: &str = "causal, sliding(256)";

/// Lengths of the documents in the facts of a case, in sixteenths of the sequence length.
const DOCUMENTS: [usize; 8] = [1, 2, 1, 3, 4, 2, 2, 1];

/// Maximum number of threads of a benchmark case.
const MOST_THREADS: usize = 256;
/// Maximum number of heads of a benchmark case.
const MOST_HEADS: usize = 1 << 12;
/// Maximum number of bytes of the arrays of a benchmark case.
const MOST_BYTES: usize = 1 << 36;

/// One case to measure; each case is a row of the table.
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) dtype: Dtype,
    pub(super) spec: Spec,
    /// Number of keys. The number of queries is the same, or 1 for decode.
    pub(super) len: usize,
    pub(super) dim: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) threads: usize,
}

impl Case {
    /// Returns one benchmark case for each combination of the options (operation, format, mask, length and others).
    ///
    /// # Errors
    ///
    /// Returns an error if a combination cannot be measured.
    pub(super) fn all(args: &BenchArgs) -> Result<Vec<Case>> {
        let or = |given: &[usize], usual: &[usize]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
        let lens = or(&args.lens, if args.quick { &[1024] } else { &[1024, 4096] });
        let dims = or(&args.dims, if args.quick { &[64] } else { &[64, 128] });
        let threads = or(&args.threads, &[std::thread::available_parallelism().map_or(1, |n| n.get())]);
        let ops = if args.ops.is_empty() { Op::value_variants().to_vec() } else { args.ops.clone() };
        let dtypes = if args.dtypes.is_empty() { vec![Dtype::F32, Dtype::Bf16] } else { args.dtypes.clone() };
        let mut cases = Vec::new();
        for &op in &ops {
            let (heads, kv_heads) = match op {
                Op::Decode => (args.heads.unwrap_or(32), args.kv_heads.or(args.heads).unwrap_or(8)),
                _ => (args.heads.unwrap_or(16), args.kv_heads.or(args.heads).unwrap_or(16)),
            };
            let usual = match op {
                Op::Decode => DECODE_MASKS,
                _ if args.quick => QUICK_MASKS,
                _ => MASKS,
            };
            let specs = masks(args.masks.as_deref().unwrap_or(usual))?;
            for &threads in &threads {
                for &dtype in &dtypes {
                    for &dim in &dims {
                        for &len in &lens {
                            for spec in specs.iter().cloned() {
                                let case = Case { op, dtype, spec, len, dim, heads, kv_heads, threads };
                                case.check()?;
                                cases.push(case);
                            }
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Returns an error if a size is 0 or too large, or if the mask does not fit the shape and the facts of this case.
    fn check(&self) -> Result<()> {
        let Case { len, dim, heads, kv_heads, threads, .. } = *self;
        for (name, value, most) in
            [("--threads", threads, MOST_THREADS), ("--heads", heads, MOST_HEADS), ("--kv-heads", kv_heads, MOST_HEADS)]
        {
            if value == 0 || value > most {
                return Err(Failure::new(format!("{name} is {value}: give 1 to {most}")));
            }
        }
        for (name, value) in [("--lens", len), ("--dims", dim)] {
            if value == 0 {
                return Err(Failure::new(format!("{name} contains 0: give values of at least 1")));
            }
        }
        let bytes = len.checked_mul(dim).and_then(|n| n.checked_mul((heads + kv_heads) * 2 * self.dtype.size()));
        if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
            let message =
                format!("{len} tokens with {heads} heads of head_dim {dim} need more than {} GiB", MOST_BYTES >> 30);
            return Err(Failure::new(message).hint("give smaller values of --lens, --dims or --heads"));
        }
        self.bind()?;
        self.options().map(drop)
    }

    /// Returns the number of queries.
    pub(super) fn q_len(&self) -> usize {
        match self.op {
            Op::Decode => 1,
            Op::Forward | Op::Backward => self.len,
        }
    }

    /// Returns the mask bound to the shape and the facts of this benchmark case.
    pub(super) fn bind(&self) -> Result<BoundMask> {
        let shape = Shape::cached(self.len - self.q_len(), self.q_len()).heads(self.heads).kv_heads(self.kv_heads);
        Ok(self.spec.mask.bind(&shape, &self.facts())?)
    }

    /// Returns the facts of this case: document lengths and numbers of non-padding tokens.
    pub(super) fn facts(&self) -> Facts {
        let borders = DOCUMENTS.iter().scan(0, |sum, share| {
            let start = *sum;
            *sum += share;
            Some(*sum * self.len / 16 - start * self.len / 16)
        });
        let documents: Vec<usize> = borders.filter(|len| *len > 0).collect();
        Facts::new().documents(vec![documents]).lengths([self.len.div_ceil(2)])
    }

    /// Returns the kernel options that apply the score modifiers of this case's mask.
    pub(super) fn options(&self) -> Result<Options<'static>> {
        Options::for_scores(&self.spec.scores, self.heads, |score, name| {
            let failure = Failure::new(format!(
                "the score modifier `{score}` needs the array {name:?}, which noren bench does not have"
            ));
            Err(failure.hint("give a score without an array, such as alibi or softcap(30)"))
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}, {} x {}", self.op, self.dtype, self.spec, self.len, self.dim)
    }
}

/// Parses a list of masks that are separated by commas. Commas inside parentheses, brackets or quotes do not separate
/// masks.
fn masks(list: &str) -> Result<Vec<Spec>> {
    let (mut depth, mut quoted, mut start) = (0i32, false, 0);
    let mut parts = Vec::new();
    for (at, sign) in list.char_indices() {
        match sign {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().map(|part| crate::args::parse(part.trim(), None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_a_mask_belong_to_it() {
        let texts = |list| masks(list).expect("masks").iter().map(Spec::to_string).collect::<Vec<_>>();
        assert_eq!(texts("full,causal"), ["full", "causal"]);
        assert_eq!(texts("window(left=3, right=1), keys([1, 2])"), ["window(left=3, right=1)", "keys([1, 2])"]);
        assert_eq!(texts(r#"keys(label="a,b"),full"#), [r#"keys(label="a,b")"#, "full"]);
        assert!(masks("full,").is_err() && masks("causl").is_err());
    }
}
