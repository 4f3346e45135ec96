//! Operators on masks: `&`, `|`, `-` and `!` on values and references, and the assignment operators (`&=`, `|=`, `-=`).

use crate::mask::{Mask, Node};
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Sub, SubAssign};

impl BitAnd for Mask {
    type Output = Mask;
    fn bitand(self, other: Mask) -> Mask {
        Mask::all([self, other])
    }
}

impl BitOr for Mask {
    type Output = Mask;
    fn bitor(self, other: Mask) -> Mask {
        Mask::any([self, other])
    }
}

impl Sub for Mask {
    type Output = Mask;
    fn sub(self, other: Mask) -> Mask {
        Mask::new(Node::Minus(self, other))
    }
}

impl Not for Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        Mask::new(Node::Not(self))
    }
}

impl Not for &Mask {
    type Output = Mask;
    fn not(self) -> Mask {
        !self.clone()
    }
}

/// Implements an operator such as `&` for references to masks, and its assignment operator such as `&=`. Clones of a
/// mask only increment a reference count.
macro_rules! by_reference {
    ($($operator:ident, $function:ident, $assign:ident, $assign_function:ident;)*) => {$(
        impl $operator<&Mask> for &Mask {
            type Output = Mask;
            fn $function(self, other: &Mask) -> Mask {
                self.clone().$function(other.clone())
            }
        }

        impl $operator<Mask> for &Mask {
            type Output = Mask;
            fn $function(self, other: Mask) -> Mask {
                self.clone().$function(other)
            }
        }

        impl $operator<&Mask> for Mask {
            type Output = Mask;
            fn $function(self, other: &Mask) -> Mask {
                self.$function(other.clone())
            }
        }

        impl $assign for Mask {
            fn $assign_function(&mut self, other: Mask) {
                *self = (&*self).$function(other);
            }
        }

        impl $assign<&Mask> for Mask {
            fn $assign_function(&mut self, other: &Mask) {
                *self = (&*self).$function(other);
            }
        }
    )*};
}
by_reference! {
    BitAnd, bitand, BitAndAssign, bitand_assign;
    BitOr, bitor, BitOrAssign, bitor_assign;
    Sub, sub, SubAssign, sub_assign;
}

#[cfg(test)]
mod tests {
    use crate::atoms::*;

    #[test]
    fn operators_on_references_are_those_on_values() {
        let (a, b) = (causal(), stride(2));
        let expected = [a.clone() & b.clone(), a.clone() | b.clone(), a.clone() - b.clone(), !a.clone()];
        assert_eq!([&a & &b, &a | &b, &a - &b, !&a], expected);
        assert_eq!([a.clone() & &b, a.clone() | &b, a.clone() - &b], expected[..3]);
        assert_eq!([&a & b.clone(), &a | b.clone(), &a - b.clone()], expected[..3]);
    }

    #[test]
    fn assigning_operators_collect_masks_in_a_loop() {
        let mut mask = none();
        for n in [1, 4, 9] {
            mask |= keys(n);
        }
        mask &= causal();
        mask &= &padding();
        mask -= &keys(0);
        assert_eq!(mask.to_string(), "((none | keys(1) | keys(4) | keys(9)) & causal & padding) - keys(0)");
    }
}
