//! The types with which one elementary mask (atom) is evaluated, bound and compared. For example, [`Pair`] is a cell,
//! and [`Binding`] is an atom with its shape and facts.

mod address;
mod binding;
mod extent;
mod input;
mod limits;
mod line;
mod pair;
mod places;
mod runs;
mod value;

pub(crate) use address::ByAddress;
pub use binding::Binding;
pub(crate) use extent::queries_end;
pub use input::Input;
pub(crate) use limits::{LIMIT, check_lengths, check_name, check_set, check_spans, count, within};
pub(crate) use line::Axis;
pub use line::{Family, Line, Rank};
pub use pair::{Pair, Site};
pub use places::{Case, Places, Sizes};
pub(crate) use runs::Runs;
pub(crate) use value::ByValue;
pub use value::Value;
