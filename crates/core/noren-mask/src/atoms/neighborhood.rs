//! `neighborhood`: windows over a grid of one to three dimensions.

use super::prelude::*;
use crate::mask::pattern::Pattern;
use crate::sets::leaf;
use std::sync::Arc;

/// The parameters of the atom `neighborhood`: windows over a row-major grid, shifted inward at the edges of the grid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighborhood {
    /// Number of grid cells in each dimension. Neighbors in the last dimension have consecutive positions.
    pub grid: Vec<usize>,
    /// Number of cells of the window in each dimension.
    pub size: Vec<usize>,
    /// Distance between neighboring cells of the window in each dimension, in grid cells.
    pub dilation: Vec<usize>,
}

/// Returns the mask in which the key is in the window of grid cells around the query. At edges the window is shifted inward
/// (NATTEN). The grid has one to three dimensions, row-major. Text: `neighborhood(grid=[8, 9], size=[3, 5])`.
pub fn neighborhood(grid: impl Into<Vec<usize>>, size: impl Into<Vec<usize>>) -> Mask {
    let grid = grid.into();
    let dilation = vec![1; grid.len()];
    neighborhood_dilated(grid, size, dilation)
}

/// Returns the mask of [`neighborhood`] with gaps in the window: in each dimension, neighboring cells of the window are
/// `dilation` grid cells apart. Text: `neighborhood(grid=[8, 9], size=[3, 3], dilation=[2, 2])`.
pub fn neighborhood_dilated(
    grid: impl Into<Vec<usize>>,
    size: impl Into<Vec<usize>>,
    dilation: impl Into<Vec<usize>>,
) -> Mask {
    Mask::of(Neighborhood { grid: grid.into(), size: size.into(), dilation: dilation.into() })
}

impl Neighborhood {
    /// Returns the number of cells of the grid, or `usize::MAX` if this number does not fit in 64 bits.
    pub fn cells(&self) -> usize {
        self.grid.iter().fold(1usize, |product, n| product.saturating_mul(*n))
    }

    /// Returns the grid coordinates of a position as text, such as `(1, 4)`.
    fn coordinates(&self, position: i64) -> String {
        let inside = usize::try_from(position).ok().filter(|at| *at < self.cells());
        let Some(mut at) = inside else { return "outside the grid".into() };
        let mut out: Vec<String> = Vec::new();
        for len in self.grid.iter().rev() {
            out.push((at % len).to_string());
            at /= len;
        }
        out.reverse();
        format!("({})", out.join(", "))
    }
}

impl Atom for Neighborhood {
    fn name(&self) -> &'static str {
        "neighborhood"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = Call::new(f, "neighborhood")?;
        call.option("grid", &Some(List(&self.grid)))?;
        call.option("size", &Some(List(&self.size)))?;
        let plain = self.dilation.len() == self.grid.len() && self.dilation.iter().all(|d| *d == 1);
        call.option("dilation", &(!plain).then_some(List(&self.dilation)))?;
        call.end()
    }

    fn check(&self) -> Result<(), String> {
        let Neighborhood { grid, size, dilation } = self;
        let dimensions = grid.len();
        if !(1..=3).contains(&dimensions) {
            return Err(format!("`grid` has {dimensions} dimensions: give 1, 2 or 3 dimensions"));
        }
        for (name, list) in [("size", size), ("dilation", dilation)] {
            if list.len() != dimensions {
                return Err(format!(
                    "`{name}` has {} entries but `grid` has {dimensions} dimensions: give one entry for each dimension",
                    list.len()
                ));
            }
        }
        for (name, list) in [("grid", grid), ("size", size), ("dilation", dilation)] {
            list.iter().try_for_each(|n| count(name, *n))?;
        }
        within("the cell count", self.cells())?;
        for ((&grid, &size), &dilation) in grid.iter().zip(size).zip(dilation) {
            let reach = (size - 1).saturating_mul(dilation).saturating_add(1);
            if reach > grid {
                return Err(format!(
                    "a window of {size} cells with dilation {dilation} spans {reach} cells but this dimension of the grid has {grid}: \
                     give a smaller size or dilation"
                ));
            }
        }
        Ok(())
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        binding.each_row(|row, extent| {
            // a grid may have more cells than there are tokens so far
            extent.check(binding.atom, "grid cells", self.cells().min(extent.all), row)
        })
    }

    /// Returns whether the key is in the window in every dimension. The window has `size` grid cells, whose distances
    /// from the query are multiples of `dilation`. It begins `size / 2` of these cells before the query, and moves
    /// inward at edges of the grid.
    fn allows(&self, pair: &Pair<'_>) -> bool {
        let (Ok(mut q), Ok(mut k)) = (usize::try_from(pair.q), usize::try_from(pair.k)) else { return false };
        if q >= self.cells() || k >= self.cells() {
            return false;
        }
        (0..self.grid.len()).rev().all(|i| {
            let (len, window, step) = (self.grid[i], self.size[i], self.dilation[i]);
            let (x, y) = (q % len, k % len);
            (q, k) = (q / len, k / len);
            let reachable = (len - x % step).div_ceil(step);
            let first = (x / step).saturating_sub(window / 2).min(reachable.saturating_sub(window));
            x % step == y % step && (first..first + window).contains(&(y / step))
        })
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let at = |token: Token| self.coordinates(token.position);
        let with = |is: &str| {
            sentence![
                "grid cell ",
                key(at),
                " of the key is ",
                is,
                " the window around grid cell ",
                query(at),
                " of the query"
            ]
        };
        Some(Sentence::by_result(with("in"), with("outside")))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let windows = leaf::Neighborhood::new(&self.grid, &self.size, &self.dilation, site.keys_end());
        Some(Resolution(Pattern::Neighborhood(Arc::new(windows))))
    }

    fn rank(&self) -> Rank {
        Family::Structure.at(2)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        EveryLength::Places(Places::new().each(0, self.cells(), 1))
    }

    fn sizes(&self, _: Case) -> Sizes {
        Sizes::default().to(self.cells())
    }
}

impl Builtin for Neighborhood {
    const WORD: Word = Word {
        entry: Entry::new(
            "neighborhood",
            "neighborhood(grid=[8, 9], size=[3, 5])",
            &[
                need("grid", "number of cells in each dimension"),
                need("size", "number of cells of the window in each dimension"),
                may("dilation", "distance between neighboring cells of the window in each dimension"),
            ],
        ),
        title: "`neighborhood(grid=[..], size=[..], dilation=[..])`",
        doc: "The key is in the window of grid cells around the query (NATTEN). In each dimension, the window begins \
              `size / 2` steps of `dilation` cells before the query, and moves inward at edges. The grid has one to \
              three dimensions and is row-major.",
        pictures: &[
            Picture::square("neighborhood(grid=[3, 4], size=[3, 3])", 12),
            Picture::square("neighborhood(grid=[8], size=[3], dilation=[2])", 8),
        ],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let grid = arguments.need(0)?.wholes_or_one(1)?;
        let size = arguments.need(1)?.wholes_or_one(grid.len())?;
        let dilation = match arguments.get(2) {
            Some(given) => given.wholes_or_one(grid.len())?,
            None => vec![1; grid.len()],
        };
        Ok(Neighborhood { grid, size, dilation })
    }
}
