//! [`Rows`]: documents in rows of equal length.

use crate::Error;
use crate::tokens::{Role, Tokenizer};
use std::collections::BTreeMap;

/// One row of tokens: documents, or parts of long documents, one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Tokens, with padding on the right.
    pub ids: Vec<u32>,
    /// The length of each document in the row, or of the part of a document that is in the row, in order. The tokens
    /// after the last document are padding.
    pub documents: Vec<usize>,
}

impl Row {
    /// Returns the number of non-padding tokens.
    pub fn real(&self) -> usize {
        self.documents.iter().sum()
    }
}

/// Rows of equal length with packed documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    len: usize,
    rows: Vec<Row>,
}

impl Rows {
    /// Tokenises `documents` and packs them, in their order, into rows of `len` tokens.
    ///
    /// If a document does not fit into the rest of a row, its remaining tokens are placed in the next row. Each piece
    /// of a document begins with the tokenizer's begin token, and the last piece ends with its end token, if the
    /// tokenizer has them. No piece begins in a row of which less than an eighth, or fewer than 4 tokens, remain; this
    /// rest becomes padding.
    ///
    /// # Errors
    /// Returns [`Error::Data`] if there is no text, if `len` is below 8, or if the tokenizer has neither a padding
    /// token nor an end token.
    pub fn pack<S: AsRef<str>>(documents: &[S], tokenizer: &dyn Tokenizer, len: usize) -> Result<Self, Error> {
        if len < 8 {
            return Err(Error::Data(format!("rows of {len} tokens are too short: give at least 8")));
        }
        let padding = tokenizer.special(Role::Padding).or(tokenizer.special(Role::End));
        let Some(padding) = padding else {
            return Err(Error::Data(
                "the tokenizer has no padding token and no end token: add one of the two tokens".into(),
            ));
        };
        let mut packer = Packer {
            len,
            padding,
            begin: tokenizer.special(Role::Begin),
            end: tokenizer.special(Role::End),
            rows: Vec::new(),
            open: Row { ids: Vec::with_capacity(len), documents: Vec::new() },
        };
        for document in documents {
            let tokens = tokenizer.encode(document.as_ref())?;
            let text = tokens.ids.iter().zip(&tokens.special).filter(|(_, special)| !**special).map(|(id, _)| *id);
            packer.add(&text.collect::<Vec<_>>());
        }
        packer.close();
        match packer.rows.is_empty() {
            true => Err(Error::Data("the text is empty: give documents with text".into())),
            false => Ok(Rows { len, rows: packer.rows }),
        }
    }

    /// Returns the number of tokens of a row, with padding.
    pub fn row_len(&self) -> usize {
        self.len
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns row `at`.
    pub fn get(&self, at: usize) -> &Row {
        &self.rows[at]
    }

    /// Returns all rows.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Splits the rows into `(rows for training, rows for validation)`. The last of every `nth` consecutive rows is for
    /// validation. If there are fewer than `nth` rows, only the last row is for validation.
    ///
    /// # Errors
    /// Returns [`Error::Data`] if there is only one row, or if `nth` is below 2.
    pub fn split(self, nth: usize) -> Result<(Rows, Rows), Error> {
        if self.rows.len() < 2 || nth < 2 {
            let message = format!(
                "{} rows of {} tokens cannot be split with every {nth}th row for validation: training and validation need at least one row each, so give more text, shorter rows, or 2 or more in place of {nth}",
                self.rows.len(),
                self.len
            );
            return Err(Error::Data(message));
        }
        let nth = nth.min(self.rows.len());
        let (mut train, mut held) = (Vec::new(), Vec::new());
        for (at, row) in self.rows.into_iter().enumerate() {
            if at % nth == nth - 1 { held.push(row) } else { train.push(row) }
        }
        let of = |rows| Rows { len: self.len, rows };
        Ok((of(train), of(held)))
    }

    /// Returns the entropy of the token frequencies, in nats, without special tokens. This is the loss of a model that
    /// predicts each token only from its frequency.
    pub fn unigram_entropy(&self, tokenizer: &dyn Tokenizer) -> f64 {
        let mut counts = BTreeMap::new();
        let tokens = self.rows.iter().flat_map(|row| &row.ids[..row.real()]);
        for id in tokens.filter(|id| !tokenizer.is_special(**id)) {
            *counts.entry(*id).or_insert(0u64) += 1;
        }
        let all = counts.values().sum::<u64>() as f64;
        counts.values().map(|n| *n as f64 / all).map(|p| -p * p.ln()).sum()
    }
}

struct Packer {
    len: usize,
    padding: u32,
    begin: Option<u32>,
    end: Option<u32>,
    rows: Vec<Row>,
    open: Row,
}

impl Packer {
    fn add(&mut self, mut text: &[u32]) {
        while !text.is_empty() {
            if self.len - self.open.ids.len() < (self.len / 8).max(4) {
                self.close();
            }
            let signs = usize::from(self.begin.is_some()) + usize::from(self.end.is_some());
            let space = self.len - self.open.ids.len();
            let last = text.len() + signs <= space;
            // A part that continues in the next row needs no end token, so a document without space for it is split.
            let most = if self.end.is_some() { text.len() - 1 } else { text.len() };
            let taken = if last { text.len() } else { (space - usize::from(self.begin.is_some())).min(most) };
            let before = self.open.ids.len();
            self.open.ids.extend(self.begin);
            self.open.ids.extend(&text[..taken]);
            self.open.ids.extend(self.end.filter(|_| last));
            self.open.documents.push(self.open.ids.len() - before);
            text = &text[taken..];
        }
    }

    fn close(&mut self) {
        if !self.open.ids.is_empty() {
            self.open.ids.resize(self.len, self.padding);
            self.rows.push(std::mem::replace(&mut self.open, Row { ids: Vec::new(), documents: Vec::new() }));
        }
    }
}
