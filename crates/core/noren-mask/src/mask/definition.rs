//! [`Definition`]: a word of the mask language, with its parser, documentation and pictures.

use crate::mask::{Arm, Atom, Mask, Node};
use crate::syntax::{Arguments, Entry, Parsed, Picture};

/// A word of the mask language with its documentation.
pub(crate) struct Word {
    pub(crate) entry: Entry,
    /// The forms in which the word is written, as Markdown: `` `causal`, `causal(offset=n)` ``.
    pub(crate) title: &'static str,
    /// A paragraph of Markdown about the cells that the word allows.
    pub(crate) doc: &'static str,
    pub(crate) pictures: &'static [Picture],
}

/// An atom of this crate: it has a word and can be parsed from text.
pub(crate) trait Builtin: Atom + Sized {
    /// The word of the atom in the mask language.
    const WORD: Word;

    /// Returns the atom with these arguments.
    fn read(arguments: &Arguments) -> Parsed<Self>;
}

/// A function that returns the node of `heads(...)`, `batch(...)` or `layers(...)` with the given arms. An arm is a
/// mask with its set of heads, batch rows or layers.
pub(crate) type Arms = fn(Vec<Arm>) -> Node;

/// The function that parses the text after a word of the mask language, such as its arguments.
pub(crate) enum Read {
    /// The word has arguments, and the function returns the mask for these arguments.
    Arguments(fn(&Arguments) -> Parsed<Mask>),
    /// The word has arms, such as `heads`, and the function returns the node with these arms. An arm is a mask with its
    /// set of heads, batch rows or layers.
    Arms(Arms),
}

/// A word of the mask language, with its parser.
pub(crate) struct Definition {
    pub(crate) word: Word,
    pub(crate) read: Read,
    /// A function that returns whether an atom has the type of this definition.
    pub(crate) is: fn(&dyn Atom) -> bool,
}

impl Definition {
    pub(crate) const fn of<A: Builtin>() -> Self {
        Definition {
            word: A::WORD,
            read: Read::Arguments(|arguments| A::read(arguments).map(Mask::of)),
            is: |atom| atom.as_any().is::<A>(),
        }
    }

    /// Returns the definition of a word that is not an atom.
    pub(crate) const fn new(word: Word, read: Read) -> Self {
        Definition { word, read, is: |_| false }
    }

    /// Returns the name and the alias of the word.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.word.entry.name).chain(self.word.entry.alias)
    }
}
