//! The mask language of noren.
pub mod atoms;
mod check;
mod error;
pub mod interval;
mod mask;
mod parse;
mod plan;
mod print;
mod score;
mod set;
mod shape;
mod simplify;

pub use error::Error;
pub use mask::{Arm, Mask, Node, Padding, PerRow, Real, Side};
pub use parse::ParseError;
pub use plan::{Kind, PatternPlan, Plan, PlanOptions, Tile, TileSpan};
pub use score::{Score, Spec};
pub use set::{Selector, Set, Span};
pub use shape::Shape;
