//! [`Sentence`]: the reason why a cell is allowed or denied, as data. A program that cannot call this crate, such as
//! the script of a web page, can then show the same reasons.
//!
//! Most reasons differ from cell to cell only in words that depend on the query alone or on the key alone, such as a
//! position, a document or a level. A [`Sentence`] contains the fixed text, functions from a token to its words, and
//! conditions that choose between two texts. [`BoundMask::explain`](crate::BoundMask::explain) evaluates sentences, and
//! pages that are saved in a file contain the same sentences with tables of their words.

pub use crate::mask::{Number, Piece, Sentence, Test, Token, Words};
use std::fmt;

/// Returns a piece of a sentence that is the text `words(query)`, where `query` is the query of the cell.
pub fn query<'a>(words: impl Fn(Token) -> String + 'a) -> Piece<'a> {
    Piece::Query(Box::new(words))
}

/// Returns a piece of a sentence that is the text `words(key)`, where `key` is the key of the cell.
pub fn key<'a>(words: impl Fn(Token) -> String + 'a) -> Piece<'a> {
    Piece::Key(Box::new(words))
}

/// Returns a piece of a sentence that is the position of the cell's query.
pub fn query_position() -> Piece<'static> {
    query(|token| token.position.to_string())
}

/// Returns a piece of a sentence that is the position of the cell's key.
pub fn key_position() -> Piece<'static> {
    key(|token| token.position.to_string())
}

impl<'a> Sentence<'a> {
    /// Returns the sentence that consists of `pieces`, one after another.
    ///
    /// ```
    /// use noren_mask::sentence::{Sentence, key_position};
    /// let sentence = Sentence::of(["key ".into(), key_position(), " is even".into()]);
    /// assert_eq!(sentence.0.len(), 3);
    /// ```
    pub fn of(pieces: impl IntoIterator<Item = Piece<'a>>) -> Self {
        Sentence(pieces.into_iter().collect())
    }

    /// Returns a sentence with two texts: `yes` for cells that the explained mask allows, and `no` for cells that it
    /// denies.
    pub fn by_result(yes: Sentence<'a>, no: Sentence<'a>) -> Self {
        Sentence::by(Test::Allowed, yes, no)
    }

    /// Returns a sentence with two texts: `yes` for cells for which `test` is true, and `no` for all other cells.
    pub fn by(test: Test, yes: Sentence<'a>, no: Sentence<'a>) -> Self {
        Sentence::of([Piece::If(test, yes, no)])
    }
}

impl From<&str> for Piece<'_> {
    fn from(text: &str) -> Self {
        Piece::Text(text.to_string())
    }
}

impl From<String> for Piece<'_> {
    fn from(text: String) -> Self {
        Piece::Text(text)
    }
}

impl<T: Into<String>> From<T> for Sentence<'_> {
    fn from(text: T) -> Self {
        Sentence::of([Piece::Text(text.into())])
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Text(text) => write!(f, "{text:?}"),
            Piece::Query(_) => f.write_str("Query"),
            Piece::Key(_) => f.write_str("Key"),
            Piece::Difference(..) => f.write_str("Difference"),
            Piece::If(test, yes, no) => f.debug_tuple("If").field(test).field(yes).field(no).finish(),
            Piece::First(truth, sentences, none) => {
                f.debug_tuple("First").field(truth).field(sentences).field(none).finish()
            }
            Piece::Operand(index) => write!(f, "Operand({index})"),
            Piece::Atom(atom) => write!(f, "Atom({atom})"),
        }
    }
}

/// Returns the sentence of the given pieces. Each piece is text or a [`Piece`].
macro_rules! sentence {
    ($($piece:expr),* $(,)?) => {
        $crate::mask::sentence::Sentence::of([$($crate::mask::sentence::Piece::from($piece)),*])
    };
}
pub(crate) use sentence;
