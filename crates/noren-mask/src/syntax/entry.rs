//! [`Entry`] and [`Picture`]: a word of the text language, its parameters and its picture.

/// A parameter of an atom or a score.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// A description of the parameter without an article, such as "number of keys". Messages add "the" before it.
    pub(crate) what: &'static str,
    pub(crate) required: bool,
}

/// The name and the parameters of an atom or a score.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
    /// The number of parameters that may be given without their names, from the first one on.
    pub(crate) positional: usize,
    /// True if the first parameter is a list. Then several values must be given as one list in brackets.
    pub(crate) lists: bool,
    /// An example of the atom or score, as valid text.
    pub(crate) example: &'static str,
}

/// Returns a required parameter.
pub(crate) const fn need(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: true }
}

/// Returns an optional parameter.
pub(crate) const fn may(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: false }
}

impl Entry {
    /// Returns a word whose parameters may all be given without their names.
    pub(crate) const fn new(name: &'static str, example: &'static str, params: &'static [Param]) -> Self {
        Entry { name, params, positional: params.len(), lists: false, example }
    }

    /// Returns the word with `count` parameters that may be given without their names.
    pub(crate) const fn positional(mut self, count: usize) -> Self {
        self.positional = count;
        self
    }

    /// Returns the word with a list as its first parameter.
    pub(crate) const fn lists(mut self) -> Self {
        self.lists = true;
        self
    }
}

/// A picture of an atom in the documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picture {
    /// The mask, as text.
    pub mask: &'static str,
    /// (Number of queries, number of keys, position of the first query).
    pub size: (usize, usize, i64),
    /// The facts, as JSON.
    pub facts: &'static str,
}

impl Picture {
    /// Returns a square picture of `len` queries and keys, without facts.
    pub(crate) const fn square(mask: &'static str, len: usize) -> Self {
        Picture { mask, size: (len, len, 0), facts: "{}" }
    }

    /// Returns the picture with facts, as JSON.
    pub(crate) const fn facts(mut self, facts: &'static str) -> Self {
        self.facts = facts;
        self
    }
}
