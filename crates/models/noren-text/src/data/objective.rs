//! [`Sampler`]: batches of rows with the tokens that a model predicts in them.

use super::pack::{Row, Rows};
use crate::Error;
use crate::tokens::{Role, Tokenizer};
use noren_mask::{Mask, atoms, philox};
use std::fmt;
use std::str::FromStr;

/// The percentage of the tokens of a row that masked language modelling predicts (Devlin et al. 2019, BERT).
const PREDICTED: u32 = 15;
/// The percentage of the predicted tokens that are replaced by the mask token. Half of the other predicted tokens are
/// replaced by a random token, and half stay unchanged.
const MASKED: u32 = 80;

/// The training objective: which tokens a model predicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objective {
    /// Causal language modelling: at each token, the model predicts the next token.
    Clm,
    /// Masked language modelling: some tokens are replaced, and the model predicts the original tokens.
    Mlm,
    /// Causal and masked language modelling: two causal batches, then one masked batch, repeated. The mask depends on
    /// the objective of the batch.
    Both,
}

impl Objective {
    /// Returns the objective of batch `number`: [`Objective::Clm`] or [`Objective::Mlm`], never [`Objective::Both`].
    pub fn of_batch(self, number: u64) -> Objective {
        match self {
            Objective::Both if number % 3 == 2 => Objective::Mlm,
            Objective::Both => Objective::Clm,
            one => one,
        }
    }

    /// Returns the mask of the objective, without padding. With [`Objective::Mlm`], a query reads all keys of its
    /// document; with the other objectives, only those up to its own position.
    pub fn mask(self) -> Mask {
        match self {
            Objective::Mlm => atoms::documents(),
            _ => atoms::causal() & atoms::documents(),
        }
    }
}

impl FromStr for Objective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "clm" => Ok(Objective::Clm),
            "mlm" => Ok(Objective::Mlm),
            "both" => Ok(Objective::Both),
            other => Err(Error::Data(format!("there is no objective `{other}`: give clm, mlm or both"))),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objective::Clm => "clm",
            Objective::Mlm => "mlm",
            Objective::Both => "both",
        })
    }
}

/// Packed rows of one training step, with the tokens to predict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The objective of this batch: [`Objective::Clm`] or [`Objective::Mlm`].
    pub objective: Objective,
    /// The tokens that the model reads, `[rows, len]`.
    pub ids: Vec<Vec<u32>>,
    /// The token to predict at each position, `[rows, len]`; `None` at positions without a prediction.
    pub targets: Vec<Vec<Option<u32>>>,
    /// The lengths of the documents of each row. The tokens after the last document are padding.
    pub documents: Vec<Vec<usize>>,
}

impl Batch {
    /// Returns the number of positions with a token to predict.
    pub fn predicted(&self) -> usize {
        self.targets.iter().flatten().flatten().count()
    }

    /// Returns the number of non-padding tokens.
    pub fn real(&self) -> usize {
        self.documents.iter().flatten().sum()
    }
}

/// A source of training batches. Two samplers with equal arguments return equal batches for the same number and size.
#[derive(Clone, Debug)]
pub struct Sampler {
    rows: Rows,
    objective: Objective,
    seed: u64,
    mask: u32,
    /// The indices of all tokens of the vocabulary that are not special.
    text: Vec<u32>,
}

impl Sampler {
    /// Creates a sampler that draws from `rows`. The rows must come from `tokenizer`; `seed` determines all random
    /// choices.
    ///
    /// # Errors
    /// Returns [`Error::Data`] for a masked objective if the tokenizer has no mask token.
    pub fn new(rows: Rows, tokenizer: &dyn Tokenizer, objective: Objective, seed: u64) -> Result<Self, Error> {
        let mask = match (tokenizer.special(Role::Mask), objective) {
            (Some(mask), _) => mask,
            (None, Objective::Clm) => 0,
            (None, _) => {
                let message =
                    "the tokenizer has no mask token ([MASK] or <mask>): add a mask token, or give the objective clm";
                return Err(Error::Data(message.into()));
            }
        };
        let text = (0..tokenizer.vocab_size() as u32).filter(|id| !tokenizer.is_special(*id)).collect();
        Ok(Sampler { rows, objective, seed, mask, text })
    }

    /// Returns the rows from which the sampler draws.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the batch with the index `number`, which has `size` rows. In a sequence of batches, every row is drawn
    /// once before any row is drawn again.
    pub fn batch(&self, number: u64, size: usize) -> Batch {
        let mut batch = Sampler::empty(self.objective.of_batch(number));
        let count = self.rows.len() as u64;
        let mut epoch = (u64::MAX, Vec::new());
        for draw in number * size as u64..(number + 1) * size as u64 {
            if epoch.0 != draw / count {
                epoch = (draw / count, self.shuffled(draw / count));
            }
            self.add_row(&mut batch, epoch.1[(draw % count) as usize], draw);
        }
        batch
    }

    /// Returns batches of all rows in their order, for validation. A batch has `size` rows; the last batch may have
    /// fewer. For the same `objective`, every call selects the same tokens to predict.
    pub fn in_order(&self, objective: Objective, size: usize) -> impl Iterator<Item = Batch> {
        (0..self.rows.len()).step_by(size.max(1)).map(move |first| {
            let mut batch = Sampler::empty(objective);
            for at in first..(first + size.max(1)).min(self.rows.len()) {
                self.add_row(&mut batch, at, at as u64);
            }
            batch
        })
    }

    /// Returns the random order in which the rows are drawn in epoch `epoch`, as indices of rows (the shuffle of Fisher
    /// and Yates).
    fn shuffled(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        for at in (1..order.len()).rev() {
            let words = philox([at as u32, epoch as u32, (epoch >> 32) as u32, 0x0DE5], self.seed);
            order.swap(at, below(words[0], at as u32 + 1) as usize);
        }
        order
    }

    fn empty(objective: Objective) -> Batch {
        Batch { objective, ids: Vec::new(), targets: Vec::new(), documents: Vec::new() }
    }

    /// Adds the row with the index `at` to a batch: the tokens that the model reads, and the tokens to predict. `draw`,
    /// the number of rows drawn before this row, determines the random choices.
    fn add_row(&self, batch: &mut Batch, at: usize, draw: u64) {
        let row = self.rows.get(at);
        let (ids, targets) = match batch.objective {
            Objective::Mlm => self.corrupted(row, draw),
            _ => (row.ids.clone(), next_tokens(row)),
        };
        batch.ids.push(ids);
        batch.targets.push(targets);
        batch.documents.push(row.documents.clone());
    }

    /// Returns the tokens of a row with some of them replaced, and the tokens to predict. Padding and special tokens
    /// are never replaced.
    fn corrupted(&self, row: &Row, draw: u64) -> (Vec<u32>, Vec<Option<u32>>) {
        let mut ids = row.ids.clone();
        let mut targets = vec![None; ids.len()];
        for at in 0..row.real() {
            let words = philox([at as u32, draw as u32, (draw >> 32) as u32, 0x3A5C], self.seed);
            if self.text.binary_search(&ids[at]).is_err() || below(words[0], 100) >= PREDICTED {
                continue;
            }
            targets[at] = Some(ids[at]);
            match below(words[1], 100) {
                n if n < MASKED => ids[at] = self.mask,
                n if n < MASKED + (100 - MASKED) / 2 => {
                    ids[at] = self.text[below(words[2], self.text.len() as u32) as usize]
                }
                _ => {}
            }
        }
        (ids, targets)
    }
}

/// Returns, for each token, the next token of its document; `None` for the last token of a document
/// and for padding.
fn next_tokens(row: &Row) -> Vec<Option<u32>> {
    let mut targets = vec![None; row.ids.len()];
    let mut start = 0;
    for length in &row.documents {
        let end = start + length;
        for at in start + 1..end {
            targets[at - 1] = Some(row.ids[at]);
        }
        start = end;
    }
    targets
}

/// Converts the random 32-bit number `word` to a random number from 0 to `bound - 1`: the upper 32 bits of `word *
/// bound`.
fn below(word: u32, bound: u32) -> u32 {
    ((u64::from(word) * u64::from(bound)) >> 32) as u32
}
