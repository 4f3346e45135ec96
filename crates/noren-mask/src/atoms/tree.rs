//! `tree`: a node reads itself and its ancestors.

use crate::basis::{Case, Family, Pair, Places, Rank, Site, within};
use crate::definition::{Builtin, Word};
use crate::mask::{Atom, EveryLength, Mask};
use crate::resolution::Resolution;
use crate::resolved::{Reach, ResolvedAtom};
use crate::syntax::{Arguments, Call, Entry, List, Parsed, Picture, may, need};
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;

/// The parameters of the atom `tree`: nodes at consecutive positions, each with a parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tree {
    /// Index of the parent of each node; -1 for a root.
    pub parents: Vec<i64>,
    /// Position of the first node.
    pub start: u64,
}

/// Returns the mask in which the key is the query or one of its ancestors in a tree. Node `i` has position `start + i`; a root
/// has parent -1.
/// Text: `tree(parents=[-1, 0, 0], start=n)`.
pub fn tree(parents: impl Into<Vec<i64>>, start: u64) -> Mask {
    Mask::of(Tree { parents: parents.into(), start })
}

impl Tree {
    /// Returns the number of nodes on the longest path from a node to its root.
    fn depth(&self) -> u64 {
        let mut depth = vec![0u64; self.parents.len()];
        for first in 0..self.parents.len() {
            let mut path = Vec::new();
            let mut node = Some(first);
            while let Some(at) = node.filter(|at| depth[*at] == 0) {
                path.push(at);
                node = usize::try_from(self.parents[at]).ok();
            }
            let mut below = node.map_or(0, |at| depth[at]);
            for at in path.into_iter().rev() {
                below += 1;
                depth[at] = below;
            }
        }
        depth.into_iter().max().unwrap_or(0)
    }
}

impl Atom for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = Call::new(f, "tree")?;
        call.option("parents", &Some(List(&self.parents)))?;
        call.option("start", &(self.start != 0).then_some(self.start))?;
        call.end()
    }

    fn check(&self) -> Result<(), String> {
        within("start", self.start)?;
        let parents = &self.parents;
        let nodes = parents.len();
        for (node, &parent) in parents.iter().enumerate() {
            if parent < -1 || parent >= nodes as i64 {
                return Err(format!(
                    "node {node} has parent {parent}, but there are {nodes} nodes: give -1 for a root or a node from 0 to {}",
                    nodes - 1
                ));
            }
        }
        // Each walk stops at nodes that an earlier walk has passed, so all walks together take linear time.
        let mut walk_of = vec![usize::MAX; nodes];
        for first in 0..nodes {
            let mut node = first;
            while walk_of[node] == usize::MAX {
                walk_of[node] = first;
                match usize::try_from(parents[node]) {
                    Ok(parent) => node = parent,
                    Err(_) => break,
                }
                if walk_of[node] == first {
                    return Err(format!(
                        "node {node} is its own ancestor: give one node of the cycle the parent -1"
                    ));
                }
            }
        }
        Ok(())
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let start = self.start as i64;
        let mut node = pair.q - start;
        if node >= self.parents.len() as i64 {
            return false;
        }
        while node >= 0 && node != pair.k - start {
            node = self.parents[node as usize];
        }
        node >= 0
    }

    fn why(&self, pair: &Pair<'_>, allowed: bool) -> String {
        let Pair { q, k, .. } = *pair;
        let node = |at: i64| match at - self.start as i64 {
            n if (0..self.parents.len() as i64).contains(&n) => format!("node {n}"),
            _ => "outside the tree".into(),
        };
        match allowed {
            true if q == k => format!("query and key are {}", node(q)),
            true => format!("key {k} ({}) is an ancestor of query {q} ({})", node(k), node(q)),
            false => format!("key {k} ({}) is not an ancestor of query {q} ({})", node(k), node(q)),
        }
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(Paths::new(&self.parents, self.start)))
    }

    fn rank(&self) -> Rank {
        Family::Structure.at(1)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        EveryLength::Places(Places::new().each(self.start, self.parents.len() as u64, self.depth()))
    }
}

/// A resolved `tree` with nodes at positions `start..start + len`, and its runs. In a run of nodes, each node is the
/// parent of the next node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Paths {
    start: i64,
    parents: Vec<i64>,
    /// For each node, the index of the first node of its run, in which each node is the parent of the next node.
    run_start: Vec<u32>,
    /// True if every parent comes before its children.
    ordered: bool,
}

impl Paths {
    fn new(parents: &[i64], start: u64) -> Self {
        let mut run_start: Vec<u32> = Vec::with_capacity(parents.len());
        for (i, &p) in parents.iter().enumerate() {
            run_start.push(if i > 0 && p == i as i64 - 1 { run_start[i - 1] } else { i as u32 });
        }
        let ordered = parents.iter().enumerate().all(|(i, &p)| p < i as i64);
        Paths { start: start as i64, parents: parents.to_vec(), run_start, ordered }
    }

    /// Returns the positions of the nodes `first..=last`.
    fn run(&self, first: i64, last: i64) -> Range<i64> {
        self.start + first..self.start + last + 1
    }
}

impl ResolvedAtom for Paths {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let mut node = q - self.start;
        if node >= self.parents.len() as i64 {
            return;
        }
        let lowest = if self.ordered { keys.start } else { i64::MIN };
        while node >= 0 && self.start + node >= lowest {
            let first = self.run_start[node as usize];
            emit(self.start + i64::from(first), self.start + node + 1);
            node = self.parents[first as usize];
        }
    }

    /// Returns exact bounds. The nodes are visited from the last to the first, each ancestor once for all queries,
    /// because the queries share most ancestors. If a parent comes after its child, the queries are visited one by one.
    fn bounds(&self, queries: Range<i64>, _: Range<i64>) -> Reach {
        if !self.ordered {
            return Reach::ByRows;
        }
        let nodes = (queries.start - self.start).max(0)..(queries.end - self.start).min(self.parents.len() as i64);
        // a row outside the tree reads no key, so no key is read by every row
        let mut common = nodes.end - nodes.start == queries.end - queries.start;
        let mut heap: BinaryHeap<i64> = nodes.collect();
        let (mut some, mut every) = (Vec::new(), Vec::new());
        while let Some(node) = heap.pop() {
            let first = i64::from(self.run_start[node as usize]);
            some.push(self.run(first, node));
            let mut nearest = node;
            while let Some(&next) = heap.peek().filter(|next| **next >= first) {
                nearest = next;
                heap.pop();
            }
            if common && heap.is_empty() {
                every.push(self.run(first, nearest));
            }
            let parent = self.parents[first as usize];
            if parent >= 0 {
                heap.push(parent);
            } else {
                common = false;
            }
        }
        Reach::Keys { some, every }
    }
}

impl Builtin for Tree {
    const WORD: Word = Word {
        entry: Entry::new(
            "tree",
            "tree(parents=[-1, 0, 0], start=8)",
            &[need("parents", "parent of each node, -1 for a root"), may("start", "position of the first node")],
        ),
        aliases: &[],
        title: "`tree(parents=[...], start=n)`",
        doc: "The key is the query or one of its ancestors. Node `i` has position `n + i` [default: `n` = 0], and a root \
              has parent -1. With a cache of `n` keys (speculative decoding): `keys(..n) | tree(parents=[...], \
              start=n)`.",
        pictures: &[
            Picture::square("tree(parents=[-1, 0, 0, 1, 1, 2])", 6),
            Picture { mask: "keys(..3) | tree(parents=[-1, 0, 0, 1], start=3)", size: (4, 7, 3), facts: "{}" },
        ],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let start = arguments.get(1).map(|given| given.whole()).transpose()?.unwrap_or(0);
        Ok(Tree { parents: arguments.need(0)?.integers()?, start })
    }
}
