//! `window`: keys from `left` positions before the query to `right` positions after the query.

use super::prelude::*;
use super::shared::band;
use crate::sets::scalar::Offset;

/// The parameters of the atom `window`: keys around the query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Number of keys before the query, negative if the window begins after the query. `None` means no limit.
    pub left: Option<i64>,
    /// Number of keys after the query, negative if the window ends before the query. `None` means no limit.
    pub right: Option<i64>,
}

/// One side of a [`window`]: an [`Offset`], or `None` for no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<i64>);

impl<O: Offset> From<O> for Limit {
    fn from(offset: O) -> Self {
        Limit(Some(offset.offset()))
    }
}

impl From<Option<i64>> for Limit {
    fn from(limit: Option<i64>) -> Self {
        Limit(limit)
    }
}

/// Returns the mask of keys `q - left <= k <= q + right`, both ends included. If `left` or `right` is `None`, the mask
/// has no limit on that side. A negative `left` begins the range after the query; a negative `right` ends the range
/// before the query. Text: `window(left=L, right=R)`.
pub fn window(left: impl Into<Limit>, right: impl Into<Limit>) -> Mask {
    Mask::of(Window { left: left.into().0, right: right.into().0 })
}

impl Atom for Window {
    fn name(&self) -> &'static str {
        "window"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = Call::new(f, "window")?;
        call.option("left", &self.left)?;
        call.option("right", &self.right)?;
        call.end()
    }

    fn check(&self) -> Result<(), String> {
        if self.left.is_none() && self.right.is_none() {
            return Err(
                "both sides are open: give left, right or both, as in `window(left=4, right=0)`, or write `full`"
                    .into(),
            );
        }
        within("left", self.left.unwrap_or(0).unsigned_abs() as usize)?;
        within("right", self.right.unwrap_or(0).unsigned_abs() as usize)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let Pair { q, k, .. } = *pair;
        self.left.is_none_or(|left| q - left <= k) && self.right.is_none_or(|right| k <= q + right)
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(band(self.left.map(|left| -left), self.right))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::band(self.left.map(|left| -left), self.right))
    }

    fn simplify(&self) -> Simplified {
        Simplified::line(Line::distances(self.left.map_or(i64::MIN, i64::wrapping_neg), self.right.unwrap_or(i64::MAX)))
    }

    fn rank(&self) -> Rank {
        Family::Band.at(1)
    }
}

impl Builtin for Window {
    const WORD: Word = Word {
        entry: Entry::new(
            "window",
            "window(left=4, right=0)",
            &[may("left", "number of keys before the query"), may("right", "number of keys after the query")],
        ),
        title: "`window(left=L, right=R)`",
        doc: "`q - L <= k <= q + R`, both ends included. A side that is not given is unbounded. A negative value moves \
              that end to the other side of the query. flash-attention's `window_size=(L, R)` and Splash's `LocalMask` \
              are the same mask.",
        pictures: &[Picture::square("window(left=2, right=1)", 8), Picture::square("window(left=2)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let side = |index| arguments.get(index).map(|given| given.integer()).transpose();
        Ok(Window { left: side(0)?, right: side(1)? })
    }
}
