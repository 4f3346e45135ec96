//! The atoms: one module with a type and builders for each elementary mask.
//!
//! Builders accept any number. Invalid values (`chunk(0)`, a reversed range) give an error when the mask is bound or when text is
//! parsed. The types hold the parameters of atoms; [`Mask::atom_as`](crate::Mask::atom_as) returns them.
//! [`atom`](crate::atom) explains how to write an atom of your own.
#![doc = ""]
#![doc = include_str!("../../docs/masks.md")]

mod arms;
mod causal;
mod chunk;
mod clearance;
mod constants;
mod dense;
mod distances;
mod documents;
mod function;
mod global;
mod keys;
mod neighborhood;
mod padding;
mod prefix;
mod prelude;
mod queries;
mod random;
mod random_blocks;
mod shared;
mod sliding;
mod spans;
mod stride;
mod tiled;
mod tiles;
mod tree;
mod window;

pub use arms::{arm, batch, heads, layers, otherwise};
pub use constants::{full, none};
pub use function::{Cell, Cells};
pub use tiled::TileFunction;
pub use tiles::TileCells;
pub use window::Limit;

use crate::mask::definition::Definition;
use crate::mask::{Atom, AtomRef, Mask};

/// Exports the types and builders of all atoms, and lists their definitions. Each line is `module: Type, builders;`. The
/// order of the lines is the order in which atoms are listed and sorted.
macro_rules! register {
    ($($module:ident: $atom:ident, $($builder:ident),+;)*) => {
        $(pub use $module::{$atom, $($builder),+};)*

        /// The definitions of all words of the mask language with which a mask can begin: atoms, `heads`, `batch` and
        /// `layers`.
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
    padding: Padding, padding, padding_with;
    documents: Documents, documents, documents_of;
    spans: Spans, spans;
    tree: Tree, tree;
    clearance: Clearance, clearance;
    neighborhood: Neighborhood, neighborhood, neighborhood_dilated;
    random: Random, random;
    random_blocks: RandomBlocks, random_blocks;
    dense: Dense, dense;
}

/// Returns the definition of the word `name`.
pub(crate) fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.names().any(|own| own == name))
}

/// Returns whether an atom is built in, so that it can be written as text.
fn is_builtin(atom: &dyn Atom) -> bool {
    DEFINITIONS.iter().any(|definition| (definition.is)(atom))
}

/// Returns the first atom of a mask that is not built in, and therefore cannot be written as text.
pub(crate) fn foreign(mask: &Mask) -> Option<&AtomRef> {
    mask.atoms().into_iter().find(|atom| !is_builtin(&***atom))
}
