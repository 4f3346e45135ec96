//! [`Program`]: a mask as conditions on indices and positions, from which the code of all targets is written.

pub(crate) mod atoms;
pub(crate) mod build;
pub(crate) mod builder;
pub(crate) mod ground;
pub(crate) mod names;
pub(crate) mod table;

use crate::program::table::Table;
use std::rc::Rc;

/// An expression for a whole number, such as a position; its value depends on the cell.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Num {
    /// Position of the query.
    Q,
    /// Position of the key.
    K,
    /// Index of the query row in the array of cells.
    Row,
    /// Index of the key in the array of cells.
    Key,
    /// Index of the batch row.
    Batch,
    /// Index of the query head.
    Head,
    /// A constant.
    Const(i64),
    /// An operation on two numbers: the result of `first op second`.
    Op(Op, Box<Num>, Box<Num>),
    /// An entry of a table of whole numbers, at the given indices.
    Entry(Rc<Table>, Vec<Num>),
}

/// An operation on two whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Add,
    Sub,
    /// Division, rounded down.
    Div,
    /// Remainder of [`Op::Div`]; never negative if the divisor is positive.
    Rem,
    /// The larger of two numbers; the second one is a constant.
    Max,
    /// The smaller of two numbers; the second one is a constant.
    Min,
}

/// A comparison of two whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// A condition on one cell.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Test {
    /// True or false for every cell.
    Always(bool),
    /// A comparison of two numbers.
    Compare(Compare, Num, Num),
    /// An entry of a table of booleans, at the given indices.
    Entry(Rc<Table>, Vec<Num>),
    /// The number is in the list.
    OneOf(Num, Vec<i64>),
    /// The number is in one of the ranges `[start, end)` of positions.
    InRanges(Num, Vec<Range>),
    /// The list has a range `[start, end)` that contains both numbers.
    SameRange(Num, Num, Vec<Range>),
    /// The condition for one axis of a window on a grid: `at` holds the coordinates of query and key on this axis, which
    /// has `length` places, and the key's coordinate is in the window around the query's coordinate.
    Near { at: (Num, Num), length: i64, window: i64, step: i64 },
    /// The random number for the pair of positions of query and key (Philox 4x32-10) is below `threshold`.
    Drawn { seed: u64, threshold: u64 },
    /// All conditions hold.
    All(Vec<Test>),
    /// One or more conditions hold.
    Any(Vec<Test>),
    /// The condition does not hold.
    Not(Box<Test>),
    /// One of [`Program::parts`].
    Part(Rc<Part>),
}

/// A range of positions `[start, end)`; without an end if `end` is `None`.
pub(crate) type Range = (i64, Option<i64>);

/// A named condition that is true for the allowed cells of one elementary mask.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Part {
    /// The name of the variable that holds the condition.
    pub(crate) name: String,
    /// The condition.
    pub(crate) test: Test,
}

/// The indices on which a condition depends: batch row, head, query row, key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Uses {
    pub(crate) batch: bool,
    pub(crate) head: bool,
    pub(crate) query: bool,
    pub(crate) key: bool,
}

/// A mask as conditions: named conditions, the tables that they read, and the combination of the named conditions.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The tables of facts (data given with a mask), in the order of the generated code.
    pub(crate) tables: Vec<Rc<Table>>,
    /// The named conditions of the elementary masks, to which `Test::Part` refers.
    pub(crate) parts: Vec<Rc<Part>>,
    /// The combination of `parts`, which is true if the query may read the key.
    pub(crate) root: Test,
    /// The arrays of `dense(...)` that the user of the generated code supplies, as (name of the array in the facts,
    /// variable).
    pub(crate) given: Vec<(String, String)>,
    /// The position of a query, computed from `Num::Row` and `Num::Batch`; `None` if it is equal to the index of the
    /// query row.
    pub(crate) query: Option<Num>,
    /// The position of a key, computed from `Num::Key` and `Num::Batch`; `None` if it is equal to the index of the key.
    pub(crate) key: Option<Num>,
}

impl Num {
    pub(crate) fn op(self, op: Op, other: impl Into<Num>) -> Num {
        match (op, other.into()) {
            (Op::Add | Op::Sub, Num::Const(0)) | (Op::Div, Num::Const(1)) => self,
            (Op::Add, Num::Const(n)) if n < 0 => Num::Op(Op::Sub, Box::new(self), Box::new(Num::Const(-n))),
            (Op::Sub, Num::Const(n)) if n < 0 => Num::Op(Op::Add, Box::new(self), Box::new(Num::Const(-n))),
            (op, other) => Num::Op(op, Box::new(self), Box::new(other)),
        }
    }

    pub(crate) fn plus(self, other: impl Into<Num>) -> Num {
        self.op(Op::Add, other)
    }

    pub(crate) fn minus(self, other: impl Into<Num>) -> Num {
        self.op(Op::Sub, other)
    }

    fn is(self, compare: Compare, other: impl Into<Num>) -> Test {
        Test::Compare(compare, self, other.into())
    }

    pub(crate) fn equals(self, other: impl Into<Num>) -> Test {
        self.is(Compare::Equal, other)
    }

    pub(crate) fn differs(self, other: impl Into<Num>) -> Test {
        self.is(Compare::Unequal, other)
    }

    pub(crate) fn below(self, other: impl Into<Num>) -> Test {
        self.is(Compare::Less, other)
    }

    pub(crate) fn at_most(self, other: impl Into<Num>) -> Test {
        self.is(Compare::AtMost, other)
    }

    pub(crate) fn above(self, other: impl Into<Num>) -> Test {
        self.is(Compare::More, other)
    }

    pub(crate) fn at_least(self, other: impl Into<Num>) -> Test {
        self.is(Compare::AtLeast, other)
    }

    /// Calls `visit` for this number and for all numbers from which it is computed.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Num)) {
        visit(self);
        match self {
            Num::Op(_, a, b) => {
                a.walk(visit);
                b.walk(visit);
            }
            Num::Entry(_, indices) => indices.iter().for_each(|index| index.walk(visit)),
            _ => {}
        }
    }
}

impl From<i64> for Num {
    fn from(n: i64) -> Num {
        Num::Const(n)
    }
}

impl Test {
    /// Returns the condition that all `tests` hold. Constants are left out, and nested `All` lists become one list.
    pub(crate) fn all(tests: impl IntoIterator<Item = Test>) -> Test {
        let mut parts = Vec::new();
        for test in tests {
            match test {
                Test::Always(true) => {}
                Test::Always(false) => return Test::Always(false),
                Test::All(inner) => parts.extend(inner),
                test => parts.push(test),
            }
        }
        match parts.len() {
            0 => Test::Always(true),
            1 => parts.remove(0),
            _ => Test::All(parts),
        }
    }

    /// Returns the condition that one or more of `tests` hold. Constants are left out, and nested `Any` lists become
    /// one list.
    pub(crate) fn any(tests: impl IntoIterator<Item = Test>) -> Test {
        let mut parts = Vec::new();
        for test in tests {
            match test {
                Test::Always(false) => {}
                Test::Always(true) => return Test::Always(true),
                Test::Any(inner) => parts.extend(inner),
                test => parts.push(test),
            }
        }
        match parts.len() {
            0 => Test::Always(false),
            1 => parts.remove(0),
            _ => Test::Any(parts),
        }
    }

    /// Returns the condition that `self` does not hold.
    pub(crate) fn negated(self) -> Test {
        match self {
            Test::Always(value) => Test::Always(!value),
            Test::Not(inner) => *inner,
            test => Test::Not(Box::new(test)),
        }
    }

    pub(crate) fn and(self, other: Test) -> Test {
        Test::all([self, other])
    }

    /// Calls `visit` for this condition and all conditions inside this condition, but not inside named conditions
    /// (`Part`).
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Test)) {
        visit(self);
        match self {
            Test::All(tests) | Test::Any(tests) => tests.iter().for_each(|test| test.walk(visit)),
            Test::Not(test) => test.walk(visit),
            _ => {}
        }
    }

    /// Calls `visit` for all numbers in this condition, but not in named conditions (`Part`).
    pub(crate) fn numbers(&self, visit: &mut dyn FnMut(&Num)) {
        self.walk(&mut |test| match test {
            Test::Compare(_, a, b) | Test::SameRange(a, b, _) | Test::Near { at: (a, b), .. } => {
                a.walk(visit);
                b.walk(visit);
            }
            Test::Entry(_, indices) => indices.iter().for_each(|index| index.walk(visit)),
            Test::OneOf(a, _) | Test::InRanges(a, _) => a.walk(visit),
            Test::Drawn { .. } => {
                visit(&Num::Q);
                visit(&Num::K);
            }
            _ => {}
        });
    }
}

impl Program {
    /// Removes the named conditions, positions and tables on which no cell depends, for example the condition of
    /// `padding` in `none & padding`. `scored` is true if score modifiers read the positions. Only the program may refer to
    /// its named conditions and tables.
    pub(crate) fn prune(&mut self, scored: bool) {
        self.parts.retain(|part| Rc::strong_count(part) > 1);
        let (mut query, mut key) = (scored, scored);
        for test in self.tests() {
            test.numbers(&mut |num| {
                query |= *num == Num::Q;
                key |= *num == Num::K;
            });
        }
        self.query = self.query.take().filter(|_| query);
        self.key = self.key.take().filter(|_| key);
        self.tables.retain(|table| Rc::strong_count(table) > 1);
    }

    /// Returns the conditions of the named conditions, and the combination of these.
    fn tests(&self) -> impl Iterator<Item = &Test> {
        self.parts.iter().map(|part| &part.test).chain([&self.root])
    }

    /// Returns the variable that holds the array `name` of the facts. The user of the generated code defines this
    /// variable.
    pub(crate) fn variable_of(&self, name: &str) -> String {
        self.given.iter().find(|(array, _)| array == name).map_or_else(String::new, |(_, variable)| variable.clone())
    }

    /// Returns the indices on which `test` depends, directly or through positions and named conditions.
    pub(crate) fn uses(&self, test: &Test) -> Uses {
        let mut uses = Uses::default();
        self.add_uses(test, &mut uses);
        uses
    }

    fn add_uses(&self, test: &Test, uses: &mut Uses) {
        test.numbers(&mut |num| self.add_uses_of(num, uses));
        test.walk(&mut |test| {
            if let Test::Part(part) = test {
                self.add_uses(&part.test, uses);
            }
        });
    }

    fn add_uses_of(&self, num: &Num, uses: &mut Uses) {
        let position = match num {
            Num::Q => &self.query,
            Num::K => &self.key,
            _ => &None,
        };
        uses.batch |= *num == Num::Batch;
        uses.head |= *num == Num::Head;
        uses.query |= matches!(num, Num::Row | Num::Q);
        uses.key |= matches!(num, Num::Key | Num::K);
        if let Some(position) = position {
            position.walk(&mut |num| self.add_uses_of(num, uses));
        }
    }

    /// Returns true if at least one condition of the program satisfies `predicate`.
    pub(crate) fn has(&self, predicate: &dyn Fn(&Test) -> bool) -> bool {
        let mut found = false;
        for test in self.tests() {
            test.walk(&mut |test| found |= predicate(test));
        }
        found
    }

    /// Returns the largest absolute value of a constant in the program.
    pub(crate) fn largest(&self) -> u64 {
        let mut largest = 0u64;
        for test in self.tests() {
            test.numbers(&mut |num| {
                if let Num::Const(n) = num {
                    largest = largest.max(n.unsigned_abs());
                }
            });
            test.walk(&mut |test| match test {
                Test::OneOf(_, list) => list.iter().for_each(|n| largest = largest.max(n.unsigned_abs())),
                Test::InRanges(_, ranges) | Test::SameRange(_, _, ranges) => {
                    let ends = ranges.iter().flat_map(|(start, end)| [*start, end.unwrap_or(0)]);
                    ends.for_each(|n| largest = largest.max(n.unsigned_abs()));
                }
                Test::Near { length, .. } => largest = largest.max(length.unsigned_abs()),
                _ => {}
            });
        }
        self.tables.iter().fold(largest, |largest, table| largest.max(table.largest()))
    }
}
