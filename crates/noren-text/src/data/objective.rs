//! [`Sampler`]: batches of rows with what a model is asked of them.

use super::pack::{Row, Rows};
use crate::Error;
use crate::tokens::{Role, Tokenizer};
use noren_mask::{Mask, atoms, philox};
use std::fmt;
use std::str::FromStr;

/// Of a hundred tokens so many are asked for (Devlin et al. 2019, BERT).
const ASKED: u32 = 15;
/// Of a hundred that are asked for, so many stand as the mask token; of the rest, half as a token drawn at random and half as
/// themselves.
const MASKED: u32 = 80;

/// What a model is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Objective {
    /// Causal: each token is asked for the next.
    Clm,
    /// Masked: some tokens are replaced, and asked for what they were.
    Mlm,
    /// By turns: two batches causal, one masked. The mask says which.
    Both,
}

impl Objective {
    /// What the batch with this number is asked: never [`Objective::Both`].
    pub fn of_batch(self, number: u64) -> Objective {
        match self {
            Objective::Both if number % 3 == 2 => Objective::Mlm,
            Objective::Both => Objective::Clm,
            one => one,
        }
    }

    /// What tokens may read, padding aside: their own document, and with [`Objective::Clm`] only what came before.
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
            other => Err(Error::Data(format!("there is no objective `{other}`: clm, mlm and both are known"))),
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

/// Rows, what is asked of them, and the answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// What is asked: [`Objective::Clm`] or [`Objective::Mlm`].
    pub objective: Objective,
    /// Tokens as the model reads them, `[rows, len]`.
    pub ids: Vec<Vec<u32>>,
    /// The token that is asked for at each place, `[rows, len]`; `None` where nothing is.
    pub targets: Vec<Vec<Option<u32>>>,
    /// Lengths of the documents of each row; what they do not reach is padding.
    pub documents: Vec<Vec<usize>>,
}

impl Batch {
    /// Number of places at which a token is asked for.
    pub fn asked(&self) -> usize {
        self.targets.iter().flatten().flatten().count()
    }

    /// Number of tokens that are no padding.
    pub fn real(&self) -> usize {
        self.documents.iter().flatten().sum()
    }
}

/// Draws batches. The batch with a number is the same whenever it is drawn.
#[derive(Clone, Debug)]
pub struct Sampler {
    rows: Rows,
    objective: Objective,
    seed: u64,
    mask: u32,
    /// The tokens that stand for text.
    text: Vec<u32>,
}

impl Sampler {
    /// Draws from `rows`, made with `tokenizer`.
    ///
    /// # Errors
    /// [`Error::Data`] where a masked objective meets a tokenizer without a mask token.
    pub fn new(rows: Rows, tokenizer: &dyn Tokenizer, objective: Objective, seed: u64) -> Result<Self, Error> {
        let mask = match (tokenizer.special(Role::Mask), objective) {
            (Some(mask), _) => mask,
            (None, Objective::Clm) => 0,
            (None, _) => {
                let message = "the tokenizer has no mask token ([MASK] or <mask>): add one, or take the objective clm";
                return Err(Error::Data(message.into()));
            }
        };
        let text = (0..tokenizer.vocab_size() as u32).filter(|id| !tokenizer.is_special(*id)).collect();
        Ok(Sampler { rows, objective, seed, mask, text })
    }

    /// The rows that it draws from.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The batch with this number, of `size` rows: all rows come once before any comes again.
    pub fn batch(&self, number: u64, size: usize) -> Batch {
        let mut batch = Sampler::empty(self.objective.of_batch(number));
        let count = self.rows.len() as u64;
        let mut epoch = (u64::MAX, Vec::new());
        for draw in number * size as u64..(number + 1) * size as u64 {
            if epoch.0 != draw / count {
                epoch = (draw / count, self.shuffled(draw / count));
            }
            self.ask(&mut batch, epoch.1[(draw % count) as usize], draw);
        }
        batch
    }

    /// All rows in their order, `size` at a time (the last batch may be smaller), asked `objective` the same way each time:
    /// for validation.
    pub fn in_order(&self, objective: Objective, size: usize) -> impl Iterator<Item = Batch> {
        (0..self.rows.len()).step_by(size.max(1)).map(move |first| {
            let mut batch = Sampler::empty(objective);
            for at in first..(first + size.max(1)).min(self.rows.len()) {
                self.ask(&mut batch, at, at as u64);
            }
            batch
        })
    }

    /// The order of the rows in an epoch (Fisher and Yates).
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

    /// Adds row `at` to a batch, as draw number `draw`: what the model reads of it, and what it is asked for.
    fn ask(&self, batch: &mut Batch, at: usize, draw: u64) {
        let row = self.rows.get(at);
        let (ids, targets) = match batch.objective {
            Objective::Mlm => self.corrupted(row, draw),
            _ => (row.ids.clone(), next_tokens(row)),
        };
        batch.ids.push(ids);
        batch.targets.push(targets);
        batch.documents.push(row.documents.clone());
    }

    /// Some tokens of text replaced, never padding or special ones.
    fn corrupted(&self, row: &Row, draw: u64) -> (Vec<u32>, Vec<Option<u32>>) {
        let mut ids = row.ids.clone();
        let mut targets = vec![None; ids.len()];
        for at in 0..row.real() {
            let words = philox([at as u32, draw as u32, (draw >> 32) as u32, 0x3A5C], self.seed);
            if self.text.binary_search(&ids[at]).is_err() || below(words[0], 100) >= ASKED {
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

/// The token after each, within its document.
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

/// A number below `bound` from a random word, by multiplication and shift.
fn below(word: u32, bound: u32) -> u32 {
    ((u64::from(word) * u64::from(bound)) >> 32) as u32
}
