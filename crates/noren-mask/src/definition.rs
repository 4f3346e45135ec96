//! [`Definition`]: a word of the language: how it is read, what it means and what it looks like.

use crate::mask::{Arm, Atom, Mask, Node};
use crate::syntax::{Arguments, Entry, Parsed, Picture};

/// What the language and the documentation know of a word.
pub(crate) struct Word {
    pub(crate) entry: Entry,
    /// Other names.
    pub(crate) aliases: &'static [&'static str],
    /// The forms it takes: `` `causal`, `causal(offset=n)` ``.
    pub(crate) title: &'static str,
    /// What it allows: a paragraph of Markdown.
    pub(crate) doc: &'static str,
    pub(crate) pictures: &'static [Picture],
}

/// An atom of this crate: it has a word, and text is read as it.
pub(crate) trait Builtin: Atom + Sized {
    /// The word.
    const WORD: Word;

    /// The atom with these arguments.
    fn read(arguments: &Arguments) -> Parsed<Self>;
}

/// The node of a combination with these arms.
pub(crate) type Arms = fn(Vec<Arm>) -> Node;

/// How what follows a word is read.
pub(crate) enum Read {
    /// Arguments.
    Arguments(fn(&Arguments) -> Parsed<Mask>),
    /// Arms.
    Arms(Arms),
}

/// A word in the registry.
pub(crate) struct Definition {
    pub(crate) word: Word,
    pub(crate) read: Read,
    /// Whether an atom is of this type.
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

    /// A word that is no atom.
    pub(crate) const fn new(word: Word, read: Read) -> Self {
        Definition { word, read, is: |_| false }
    }

    /// The names under which it is written.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.word.entry.name).chain(self.word.aliases.iter().copied())
    }
}
