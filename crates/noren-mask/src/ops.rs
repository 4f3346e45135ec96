//! Operators on masks: `&`, `|`, `-` and `!`.

use crate::mask::{Mask, Node};
use std::ops;

impl ops::BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        Mask::all([self, other])
    }
}

impl ops::BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask::any([self, other])
    }
}

impl ops::Sub for Mask {
    type Output = Mask;
    fn sub(self, other: Mask) -> Mask {
        Mask::new(Node::Minus(self, other))
    }
}

impl ops::Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask::new(Node::Not(self))
    }
}
