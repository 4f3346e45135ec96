//! `closure`: cells that a Rust closure in the facts allows.

use super::shared::given_words;
use crate::Error;
use crate::basis::{Binding, Family, Input, Pair, Rank, Site, check_name};
use crate::definition::{Builtin, Word};
use crate::mask::{Atom, Mask};
use crate::pattern::{Pattern, SharedClosure};
use crate::resolution::Resolution;
use crate::resolve::RowFacts;
use crate::sentence::Sentence;
use crate::syntax::{Arguments, Entry, Name, Parsed, need};
use std::fmt;

/// The parameters of the atom `closure`: the name of a closure in the facts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Closure {
    /// Name of the closure.
    pub name: String,
}

/// Returns the mask of the cells that the closure `name` in the facts allows. Text: `closure(name)`.
pub fn closure(name: impl Into<String>) -> Mask {
    Mask::of(Closure { name: name.into() })
}

impl Atom for Closure {
    fn name(&self) -> &'static str {
        "closure"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "closure({})", Name(&self.name))
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![Input::Closure(&self.name)]
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        match binding.facts().closures.contains_key(&self.name) {
            true => Ok(()),
            false => binding
                .missing(&format!("the closure {:?}", self.name), "add the closure to the facts with Facts::closure"),
        }
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let closure = pair.facts().closures.get(&self.name);
        closure.is_some_and(|closure| (closure.allowed)(pair.batch, pair.head, pair.row, pair.key))
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(given_words(&format!("closure {:?}", self.name)))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let closure = Box::new(SharedClosure(site.facts().closures.get(&self.name)?.clone()));
        Some(Resolution(Pattern::Closure { closure, batch: site.batch(), head: site.head() }))
    }

    fn rank(&self) -> Rank {
        Family::Given.at(1)
    }
}

impl Builtin for Closure {
    const WORD: Word = Word {
        entry: Entry::new("closure", "closure(name)", &[need("name", "name of the closure")]),
        aliases: &[],
        title: "`closure(name)`",
        doc: "Cells that the named Rust closure in the facts allows. The closure takes (batch row, head, query row, \
              key).",
        pictures: &[],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Closure { name: arguments.need(0)?.name()? })
    }
}
