//! The atoms: one file and one builder for each thing a mask can say.
//!
//! Builders take any number; a value that makes no sense (`chunk(0)`, a reversed range) is refused with its name when the
//! mask is bound, or by the parser at its place in the text. The types hold the atoms' parameters:
//! [`Mask::atom_as`](crate::Mask::atom_as) returns them. [`atom`](crate::atom) explains how to write an atom of your own.
#![doc = ""]
#![doc = include_str!("../../docs/masks.md")]

mod arms;
mod constants;
mod function;
mod shared;

pub use arms::{batch, heads, layers};
pub use constants::{full, none};

use crate::definition::Definition;
use crate::mask::{Atom, AtomRef, Mask};

/// `module: Type, builders;` for each atom, in the order in which atoms are offered and sorted.
macro_rules! register {
    ($($module:ident: $atom:ident, $($builder:ident),+;)*) => {
        $(mod $module; pub use $module::{$atom, $($builder),+};)*

        /// Every word that stands for a mask.
        pub(crate) static DEFINITIONS: &[Definition] = &[
            constants::FULL,
            constants::NONE,
            $(Definition::of::<$atom>(),)*
            arms::HEADS,
            arms::BATCH,
            arms::LAYERS,
        ];
    };
}

register! {
    causal: Causal, causal, causal_offset;
    window: Window, window;
    sliding: Sliding, sliding;
    chunk: Chunk, chunk;
    stride: Stride, stride;
    distances: Distances, distances;
    prefix: Prefix, prefix;
    keys: Keys, keys;
    queries: Queries, queries;
    global: Global, global;
    padding: Padding, padding, padding_side, padding_with;
    documents: Documents, documents, documents_of;
    spans: Spans, spans;
    tree: Tree, tree;
    clearance: Clearance, clearance;
    neighborhood: Neighborhood, neighborhood, neighborhood_dilated;
    random: Random, random;
    random_blocks: RandomBlocks, random_blocks;
    dense: Dense, dense;
    closure: Closure, closure;
}

/// The word called `name`.
pub(crate) fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.names().any(|own| own == name))
}

/// Whether an atom is one of this crate's, which text can say.
fn is_builtin(atom: &dyn Atom) -> bool {
    DEFINITIONS.iter().any(|definition| (definition.is)(atom))
}

/// The first atom of a mask that is not of this crate, and that text therefore cannot say.
pub(crate) fn foreign(mask: &Mask) -> Option<&AtomRef> {
    mask.atoms().into_iter().find(|atom| !is_builtin(&***atom))
}
