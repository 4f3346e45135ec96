//! `dense`: cells from a named array.

use super::prelude::*;
use super::shared::given_words;
use crate::mask::basis::check_name;
use crate::mask::pattern::Pattern;
use crate::syntax::Name;

/// The parameters of the atom `dense`: the name of an array in the facts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dense {
    /// Name of the array in the facts.
    pub name: String,
}

/// Returns the mask of the cells that the array `name` in the facts allows. Text: `dense(name)`.
pub fn dense(name: impl Into<String>) -> Mask {
    Mask::of(Dense { name: name.into() })
}

impl Atom for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dense({})", Name(&self.name))
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![Input::Array(&self.name)]
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let Some(array) = binding.facts().arrays.get(&self.name) else {
            return binding.missing(&format!("the array {:?}", self.name), "add the array to the facts' arrays");
        };
        let shape = binding.shape();
        let (batch, heads) = (shape.batch_len(), shape.head_count());
        let [b, h, q, k] = array.shape();
        if (b == 1 || b == batch) && (h == 1 || h == heads) && (q, k) == (shape.q_len(), shape.kv_len()) {
            return Ok(());
        }
        let one_or = |n: usize| if n == 1 { "1".to_string() } else { format!("1 or {n}") };
        let (batch, heads) = (one_or(batch), one_or(heads));
        let needed = format!("[{batch}, {heads}, {}, {}]", shape.q_len(), shape.kv_len());
        binding.refuse(format!("the array's shape is {:?} but {needed} is needed", array.shape()))
    }

    fn uses_query_offset(&self) -> bool {
        false
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let array = pair.facts().arrays.get(&self.name);
        array.is_some_and(|array| array.allowed(pair.batch, pair.head, pair.row, pair.key))
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(given_words(&format!("array {:?}", self.name)))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let array = site.facts().arrays.get(&self.name)?.clone();
        let slice = array.slice_index(site.batch(), site.head());
        Some(Resolution(Pattern::Array(ByAddress(array), slice)))
    }

    fn rank(&self) -> Rank {
        Family::Given.at(0)
    }
}

impl Builtin for Dense {
    const WORD: Word = Word {
        entry: Entry::new("dense", "dense(name)", &[need("name", "name of an array in the facts")]),
        title: "`dense(name)`",
        doc: "Cells that the named array in the facts allows. The array is dense, sparse by rows, a list of cells or a \
              list of blocks. The facts give the polarity of each array: keep, drop or additive.",
        pictures: &[Picture::square("dense(mine)", 3)
            .facts(r#"{"arrays": {"mine": {"keep": [[1, 0, 0], [1, 1, 0], [0, 1, 1]]}}}"#)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Dense { name: arguments.need(0)?.name()? })
    }
}
