//! [`Entry`] and [`Picture`]: a word, its parameters and what it looks like.

/// A parameter of an atom or a score.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// A description that follows "the": "number of keys".
    pub(crate) what: &'static str,
    pub(crate) required: bool,
}

/// The name and the parameters of an atom or a score.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) params: &'static [Param],
    /// How many of the parameters may be given without their name.
    pub(crate) positional: usize,
    /// True when the first parameter takes a list, so that several values belong into one.
    pub(crate) lists: bool,
    /// An example that works.
    pub(crate) example: &'static str,
}

/// A required parameter.
pub(crate) const fn need(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: true }
}

/// An optional parameter.
pub(crate) const fn may(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: false }
}

impl Entry {
    /// A word whose parameters may all be given without their names.
    pub(crate) const fn new(name: &'static str, example: &'static str, params: &'static [Param]) -> Self {
        Entry { name, params, positional: params.len(), lists: false, example }
    }

    /// The same with `count` parameters that may be given without their names.
    pub(crate) const fn positional(mut self, count: usize) -> Self {
        self.positional = count;
        self
    }

    /// The same with a first parameter that takes a list.
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
    /// Queries, keys, and the position of the first query.
    pub size: (usize, usize, i64),
    /// The facts, as JSON.
    pub facts: &'static str,
}

impl Picture {
    /// A square picture without facts.
    pub(crate) const fn square(mask: &'static str, len: usize) -> Self {
        Picture { mask, size: (len, len, 0), facts: "{}" }
    }

    /// The same with facts.
    pub(crate) const fn facts(mut self, facts: &'static str) -> Self {
        self.facts = facts;
        self
    }
}
