//! [`Entry`]: the name and parameters of an atom or a score modifier in the text language. [`Picture`]: a picture of an
//! atom's cells in the documentation.

/// A parameter of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Param {
    /// The name, as it is written before `=`.
    pub name: &'static str,
    /// A description of the parameter without an article, such as "number of keys, including the query's own".
    pub what: &'static str,
    /// True if the parameter must be given.
    pub required: bool,
}

/// The name and the parameters of an atom or a score modifier, from which its text is parsed.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) alias: Option<&'static str>,
    pub(crate) params: &'static [Param],
    /// The number of parameters that may be given without their names: the first `positional` parameters.
    pub(crate) positional: usize,
    /// True if the first parameter is a list. Several values of this parameter must then be written as one list in
    /// brackets, as in `keys([0, 2..4])`.
    pub(crate) lists: bool,
    /// An example of the atom or score modifier as valid text, such as `softcap(5)`. Error messages show it.
    pub(crate) example: &'static str,
}

/// Returns a required parameter with the name `name` and the description `what`.
pub(crate) const fn need(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: true }
}

/// Returns an optional parameter with the name `name` and the description `what`.
pub(crate) const fn may(name: &'static str, what: &'static str) -> Param {
    Param { name, what, required: false }
}

impl Entry {
    /// Returns an entry whose parameters may all be given without their names.
    pub(crate) const fn new(name: &'static str, example: &'static str, params: &'static [Param]) -> Self {
        Entry { name, alias: None, params, positional: params.len(), lists: false, example }
    }

    /// Returns this entry with another name that the mask language accepts.
    pub(crate) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    /// Returns this entry, changed so that only the first `count` parameters may be given without their names.
    pub(crate) const fn positional(mut self, count: usize) -> Self {
        self.positional = count;
        self
    }

    /// Returns this entry, changed so that its first parameter is a list.
    pub(crate) const fn lists(mut self) -> Self {
        self.lists = true;
        self
    }
}

/// A picture of the cells of a mask, which the documentation of an atom shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picture {
    /// The mask, as text.
    pub mask: &'static str,
    /// (Number of queries, number of keys, position of the first query).
    pub size: (usize, usize, i64),
    /// The facts to which the mask is bound, as JSON.
    pub facts: &'static str,
}

impl Picture {
    /// Returns a square picture of `len` queries and keys, without facts.
    pub(crate) const fn square(mask: &'static str, len: usize) -> Self {
        Picture { mask, size: (len, len, 0), facts: "{}" }
    }

    /// Returns this picture with the facts `facts`, as JSON.
    pub(crate) const fn facts(mut self, facts: &'static str) -> Self {
        self.facts = facts;
        self
    }
}
