//! The data of three elementary masks (atoms): the token tree of `tree`, the clearance levels of `clearance`, and the
//! grid of `neighborhood`.

use crate::read::expr::Branches;
use crate::runs::{Runs, normal};
use std::collections::BTreeMap;

/// A tree of tokens for the elementary mask (atom) `tree`, in which a query reads itself and its ancestors. Node `i` is
/// at the position `start + i`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    parents: Vec<i64>,
    /// For each node, the first node of its chain. A chain is a sequence of nodes with consecutive indices, in which
    /// each node is the parent of the next one; the chain of a node ends at this node and is as long as possible. For
    /// example, the parents `[-1, 0, 1, 0]` give `[0, 0, 0, 3]`. The function `row` adds the positions of a chain as
    /// one range.
    chain: Vec<usize>,
    /// The number of ancestors of each node.
    depth: Vec<i64>,
    window: Option<i64>,
    chunk: Option<i64>,
    start: i64,
}

impl Tree {
    /// Builds a tree whose node 0 is at the position `start`. If `given` has runs (chains of consecutive nodes), its
    /// parents are indices of runs, otherwise indices of nodes. Returns an error if a parent is not such an index, if
    /// the parents form a cycle, or if there are not as many runs as parents.
    pub(crate) fn new(given: &Branches, start: i64) -> Result<Self, String> {
        let count = given.parents.len();
        let parents = match &given.runs {
            None => given.parents.clone(),
            Some(runs) if runs.len() == count => {
                // the last node of each run
                let ends: Vec<i128> = runs
                    .iter()
                    .scan(-1, |end, run| {
                        *end += run;
                        Some(*end)
                    })
                    .collect();
                let mut parents = Vec::new();
                for (run, &parent) in given.parents.iter().enumerate() {
                    let parent = match usize::try_from(parent) {
                        Ok(parent) => *ends.get(parent).ok_or_else(|| {
                            format!("`tree`, in which the parent of run {run} (a chain of consecutive nodes) is {parent}, but no run has this index")
                        })?,
                        Err(_) => -1,
                    };
                    let first = parents.len() as i128;
                    parents.push(parent);
                    parents.extend(first..first + runs[run] - 1);
                }
                parents
            }
            Some(runs) => {
                return Err(format!(
                    "`tree` with {} runs (chains of consecutive nodes) and {count} parents, but each run needs one parent",
                    runs.len()
                ));
            }
        };
        let count = parents.len();
        if let Some(at) = parents.iter().position(|&parent| parent >= count as i128) {
            return Err(format!(
                "`tree`, in which the parent of node {at} is {}, but no node has this index",
                parents[at]
            ));
        }
        let parents: Vec<i64> = parents.iter().map(|&parent| parent as i64).collect();
        // The number of ancestors of each node; -1 if it is not known yet.
        let mut depth = vec![-1; count];
        for first in 0..count {
            let mut path = Vec::new();
            let mut node = first as i64;
            while node >= 0 && depth[node as usize] < 0 {
                if path.len() == count {
                    return Err(format!("`tree`, in which node {node} is its own ancestor"));
                }
                path.push(node as usize);
                node = parents[node as usize];
            }
            let mut above = if node < 0 { -1 } else { depth[node as usize] };
            for node in path.into_iter().rev() {
                above += 1;
                depth[node] = above;
            }
        }
        let mut chain: Vec<usize> = (0..count).collect();
        for node in 1..count {
            if parents[node] == node as i64 - 1 {
                chain[node] = chain[node - 1];
            }
        }
        let limit = |n: Option<i128>| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        Ok(Self { parents, chain, depth, window: limit(given.window), chunk: limit(given.chunk), start })
    }

    fn node(&self, position: i64) -> Option<usize> {
        usize::try_from(position - self.start).ok().filter(|&node| node < self.parents.len())
    }

    /// Returns the minimum depth (number of ancestors) of a key that the node `query` may read. The window and the
    /// chunk of the tree exclude keys of smaller depth.
    fn lowest(&self, query: usize) -> i64 {
        let deep = self.depth[query];
        let of_window = self.window.map_or(0, |window| deep - (window - 1));
        of_window.max(self.chunk.map_or(0, |chunk| deep - deep % chunk))
    }

    pub(crate) fn allowed(&self, q: i64, k: i64) -> bool {
        let (Some(query), Some(key)) = (self.node(q), self.node(k)) else { return false };
        let mut node = query;
        loop {
            if node == key {
                return self.depth[key] >= self.lowest(query);
            }
            match usize::try_from(self.parents[node]) {
                Ok(parent) => node = parent,
                Err(_) => return false,
            }
        }
    }

    /// Returns the positions that the query at position `q` may read, and the number of steps of the computation.
    pub(crate) fn row(&self, q: i64) -> (Runs, usize) {
        let mut out = Runs::new();
        let mut next = self.node(q);
        let lowest = next.map_or(0, |query| self.lowest(query));
        while let Some(node) = next.filter(|&node| self.depth[node] >= lowest) {
            let first = self.chain[node];
            let far = (lowest - self.depth[first]).max(0);
            out.push((self.start + first as i64 + far, self.start + node as i64 + 1));
            next = usize::try_from(self.parents[first]).ok();
        }
        let steps = out.len();
        (normal(out), steps)
    }
}

/// The clearance levels for the elementary mask (atom) `clearance`: one level for each position, from position 0. A
/// query reads the keys whose level is equal to or lower than the level of the query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    levels: Vec<i64>,
    /// For each clearance level, the positions with this level or a lower level. The map is empty if there are more
    /// than 64 different levels.
    below: BTreeMap<i64, Runs>,
}

impl Levels {
    pub(crate) fn new(levels: &[i64]) -> Self {
        let mut out = Self { levels: levels.to_vec(), below: BTreeMap::new() };
        let mut distinct = levels.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() <= 64 {
            out.below = distinct.into_iter().map(|level| (level, out.at_most(level))).collect();
        }
        out
    }

    /// Returns the number of stored clearance levels plus the number of stored ranges of positions. The memory limit
    /// counts both.
    pub(crate) fn stored(&self) -> usize {
        self.levels.len() + self.below.values().map(Vec::len).sum::<usize>()
    }

    fn level(&self, position: i64) -> Option<i64> {
        usize::try_from(position).ok().and_then(|at| self.levels.get(at)).copied()
    }

    pub(crate) fn allowed(&self, q: i64, k: i64) -> bool {
        matches!((self.level(q), self.level(k)), (Some(query), Some(key)) if query >= key)
    }

    fn at_most(&self, most: i64) -> Runs {
        let within = self.levels.iter().enumerate().filter(|level| *level.1 <= most);
        normal(within.map(|(at, _)| (at as i64, at as i64 + 1)).collect())
    }

    /// Returns the positions that the query at position `q` may read, and the number of steps of the computation.
    pub(crate) fn row(&self, q: i64) -> (Runs, usize) {
        let Some(level) = self.level(q) else { return (Runs::new(), 1) };
        match self.below.get(&level) {
            Some(runs) => (runs.clone(), runs.len()),
            None => (self.at_most(level), self.levels.len()),
        }
    }
}

/// The grid of the elementary mask (atom) `neighborhood`, in which a query reads the keys in a window around the query.
/// Positions are grid cells in row-major order. The grid has three dimensions; a grid with fewer dimensions gets
/// leading dimensions of length 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    /// `(length, window size, dilation)` of each dimension. The length is in grid cells, the window size is a number of
    /// keys, and the dilation is the distance between neighbouring keys of the window.
    dims: [(i64, i64, i64); 3],
}

impl Grid {
    pub(crate) fn new(grid: &[i128], size: &[i128], dilation: &[i128]) -> Self {
        let mut dims = [(1, 1, 1); 3];
        for at in 0..grid.len() {
            let near = |value: i128| value.clamp(1, 1 << 40) as i64;
            dims[3 - grid.len() + at] = (near(grid[at]), near(size[at]), near(dilation[at]));
        }
        Self { dims }
    }

    /// Returns the number of cells of the grid, or 2^62 if the grid has more cells.
    pub(crate) fn cells(&self) -> i64 {
        self.dims.iter().fold(1_i64, |cells, dim| cells.saturating_mul(dim.0).min(1 << 62))
    }

    /// Returns the three grid coordinates of a position; `None` if the position is outside the grid.
    fn cell(&self, position: i64) -> Option<[i64; 3]> {
        let [(depth, ..), (height, ..), (width, ..)] = self.dims;
        let line = position.div_euclid(width);
        let layer = line.div_euclid(height);
        (position >= 0 && layer < depth).then(|| [layer, line.rem_euclid(height), position.rem_euclid(width)])
    }

    /// Returns the first coordinate of the window around the coordinate `x` in dimension `dim`, and the number of
    /// coordinates in the window. Coordinates of the window are one dilation apart. For example, with window size 3 and
    /// dilation 2, the window around `x = 4` has the coordinates 2, 4 and 6. At the edges of the grid, the window is
    /// moved inward.
    fn window(&self, dim: usize, x: i64) -> (i64, i64) {
        let (len, size, dilation) = self.dims[dim];
        let residue = x % dilation;
        let cells = (len - residue - 1) / dilation + 1;
        let first = (x / dilation - size / 2).clamp(0, (cells - size).max(0));
        (first * dilation + residue, size.min(cells))
    }

    pub(crate) fn allowed(&self, q: i64, k: i64) -> bool {
        let (Some(query), Some(key)) = (self.cell(q), self.cell(k)) else { return false };
        (0..3).all(|dim| {
            let ((first, count), dilation) = (self.window(dim, query[dim]), self.dims[dim].2);
            let distance = key[dim] - first;
            distance >= 0 && distance % dilation == 0 && distance / dilation < count
        })
    }

    /// Returns an upper bound of the number of ranges that [`row`](Self::row) returns with the same `end`, for any
    /// query.
    pub(crate) fn most_runs(&self, end: i64) -> i64 {
        let [(_, z, _), (_, y, _), (_, x, dx)] = self.dims;
        z.saturating_mul(y).saturating_mul(if dx == 1 { 1 } else { x }).min(end)
    }

    /// Returns the positions below `end` that the query at position `q` may read, and the number of steps of the
    /// computation.
    pub(crate) fn row(&self, q: i64, end: i64) -> (Runs, usize) {
        let Some(query) = self.cell(q) else { return (Runs::new(), 1) };
        let [_, (height, _, dy), (width, _, dx)] = self.dims;
        let dz = self.dims[0].2;
        let [(z, nz), (y, ny), (x, nx)] = [0, 1, 2].map(|dim| self.window(dim, query[dim]));
        let mut out = Runs::new();
        for layer in
            (0..nz).map(|at| z + at * dz).take_while(|layer| layer.saturating_mul(height).saturating_mul(width) < end)
        {
            for line in
                (0..ny).map(|at| (layer * height + y + at * dy).saturating_mul(width)).take_while(|&line| line < end)
            {
                let cells = (0..nx).map(|at| line + x + at * dx).take_while(|&cell| cell < end);
                if dx == 1 {
                    out.push((line + x, (line + x + nx).min(end)));
                } else {
                    out.extend(cells.map(|cell| (cell, cell + 1)));
                }
            }
        }
        let steps = out.len();
        (normal(out), steps)
    }
}
