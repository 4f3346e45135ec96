//! The names with which atoms are written.

pub(super) use crate::Error;
pub(super) use crate::facts::resolve::RowFacts;
pub(super) use crate::mask::basis::{
    Binding, ByAddress, Case, Family, Input, Line, Pair, Places, Rank, Runs, Site, Sizes, count, within,
};
pub(super) use crate::mask::definition::{Builtin, Word};
pub(super) use crate::mask::resolution::Resolution;
pub(super) use crate::mask::resolved::{Reach, ResolvedAtom, RowWork};
pub(super) use crate::mask::sentence::{
    Piece, Sentence, Test, Token, key, key_position, query, query_position, sentence,
};
pub(super) use crate::mask::{Atom, EveryLength, Mask, Simplified};
pub(super) use crate::syntax::{Arguments, Call, Entry, List, Parsed, Picture, may, need};
pub(super) use std::fmt;
pub(super) use std::ops::Range;
