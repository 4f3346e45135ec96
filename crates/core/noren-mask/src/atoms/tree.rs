//! `tree`: a node reads itself and its ancestors, or the nearest of them.

use super::prelude::*;
use std::collections::BinaryHeap;

/// The parameters of the atom `tree`: nodes at consecutive positions, each with a parent.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::Tree};
/// // a prompt of 3 tokens and two continuations of 2 tokens each; every token reads the last 4 tokens of its own path
/// let mask = Tree::new([-1, 0, 0]).runs([3, 2, 2]).window(4).mask();
/// assert_eq!(mask.to_string(), "tree(parents=[-1, 0, 0], runs=[3, 2, 2], window=4)");
/// let bound = mask.bind(&Shape::square(7), &Facts::new())?;
/// let keys = |q| (0..7).filter(|k| bound.allowed(0, 0, q, *k)).collect::<Vec<_>>();
/// assert_eq!((keys(4), keys(6)), (vec![1, 2, 3, 4], vec![1, 2, 5, 6]));
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tree {
    /// The parent of each run, as an index into this list; -1 for a run that begins at a root. A run is a chain of
    /// nodes ([`runs`](Self::runs) gives its length). The parent of the first node of a run is the last node of the
    /// parent run.
    pub parents: Vec<i64>,
    /// Number of nodes of each run (chain), in which each node is the parent of the next node. If the list is empty,
    /// each run has one node.
    pub runs: Vec<usize>,
    /// Maximum number of keys that a query reads: itself and its nearest ancestors. `None` means all ancestors.
    pub window: Option<usize>,
    /// Length of a chunk in nodes. Each path from a root is split into chunks of this length, and a query reads only
    /// the ancestors in its own chunk. `None` means all ancestors.
    pub chunk: Option<usize>,
    /// Position of the first node.
    pub start: usize,
}

/// Returns the mask in which the key is the query or one of its ancestors in a tree. Node `i` has position `start + i`; a root
/// has parent -1. [`Tree`] has further parameters.
/// Text: `tree(parents=[-1, 0, 0], start=n)`.
pub fn tree(parents: impl Into<Vec<i64>>, start: usize) -> Mask {
    Tree::new(parents).start(start).mask()
}

impl Tree {
    /// Returns a tree with one node for each parent, the first at position 0, in which a query reads all its ancestors.
    pub fn new(parents: impl Into<Vec<i64>>) -> Self {
        Tree { parents: parents.into(), runs: Vec::new(), window: None, chunk: None, start: 0 }
    }

    /// Sets the position of the first node.
    pub fn start(mut self, start: usize) -> Self {
        self.start = start;
        self
    }

    /// Sets the number of nodes of each run, a chain in which each node is the parent of the next one. The parents that
    /// were given to [`new`](Self::new) are then indices of runs: the parent of the first node of a run is the last
    /// node of the parent run.
    pub fn runs(mut self, runs: impl Into<Vec<usize>>) -> Self {
        self.runs = runs.into();
        self
    }

    /// Sets the maximum number of keys that a query reads: itself and its nearest ancestors.
    pub fn window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    /// Splits each path from a root into chunks of `chunk` nodes. A query then reads only the ancestors in its own
    /// chunk.
    pub fn chunk(mut self, chunk: usize) -> Self {
        self.chunk = Some(chunk);
        self
    }

    /// Returns the mask of this tree.
    pub fn mask(self) -> Mask {
        Mask::of(self)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        if self.runs.is_empty() {
            self.parents.len()
        } else {
            self.runs.iter().fold(0, |n, run| n.saturating_add(*run))
        }
    }

    /// Returns the number of nodes of the run (chain of nodes) with index `run`.
    fn run_len(&self, run: usize) -> usize {
        self.runs.get(run).copied().unwrap_or(1)
    }

    /// Returns (index of the run, number of nodes before the node in this run) for the run (chain of nodes) that
    /// contains `node`. Returns `None` if the node is outside the tree.
    fn place(&self, node: i64) -> Option<(usize, usize)> {
        let mut left = usize::try_from(node).ok()?;
        if self.runs.is_empty() {
            return (left < self.parents.len()).then_some((left, 0));
        }
        for (run, len) in self.runs.iter().enumerate() {
            if left < *len {
                return Some((run, left));
            }
            left -= len;
        }
        None
    }

    /// Returns the index of the parent run of the run (chain of nodes) with index `run`; `None` if this run begins at a
    /// root.
    fn parent(&self, run: usize) -> Option<usize> {
        usize::try_from(self.parents[run]).ok()
    }

    /// Returns the number of ancestors of the first node of the run (chain of nodes) with index `run`.
    fn depth(&self, run: usize) -> usize {
        std::iter::successors(self.parent(run), |run| self.parent(*run)).map(|run| self.run_len(run)).sum()
    }

    /// Returns the number of ancestors of the node of a query or key, or 0 if `token` is not a node of the tree.
    fn depth_at(&self, token: Token) -> i64 {
        let place = self.place(token.position - self.start as i64);
        place.map_or(0, |(run, at)| (self.depth(run) + at) as i64)
    }

    /// Returns the number of steps from child to parent that lead from the query at position `q` to the key at position
    /// `k`. Returns `None` if the key is neither the query nor an ancestor of the query.
    fn distance(&self, q: i64, k: i64) -> Option<usize> {
        let (mut run, mut at) = self.place(q)?;
        let (end, end_at) = self.place(k)?;
        let mut distance = 0;
        while run != end {
            distance += at + 1;
            run = self.parent(run)?;
            at = self.run_len(run) - 1;
        }
        at.checked_sub(end_at).map(|more| distance + more)
    }
}

impl Atom for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = Call::new(f, "tree")?;
        call.option("parents", &Some(List(&self.parents)))?;
        call.option("runs", &(!self.runs.is_empty()).then_some(List(&self.runs)))?;
        call.option("window", &self.window)?;
        call.option("chunk", &self.chunk)?;
        call.option("start", &(self.start != 0).then_some(self.start))?;
        call.end()
    }

    fn check(&self) -> Result<(), String> {
        within("start", self.start)?;
        let parents = &self.parents;
        let (nodes, kind) = (parents.len(), if self.runs.is_empty() { "node" } else { "run" });
        if !self.runs.is_empty() && self.runs.len() != nodes {
            return Err(format!(
                "`runs` has {} lengths, but there are {nodes} parents: give one length for each parent",
                self.runs.len()
            ));
        }
        if let Some(run) = self.runs.iter().position(|len| *len == 0) {
            return Err(format!("run {run} (chain of nodes) of the tree has 0 nodes: give at least 1 node"));
        }
        within("the node count", self.node_count())?;
        self.window.map_or(Ok(()), |window| count("window", window))?;
        self.chunk.map_or(Ok(()), |chunk| count("chunk", chunk))?;
        for (node, &parent) in parents.iter().enumerate() {
            if parent < -1 || parent >= nodes as i64 {
                return Err(format!(
                    "{kind} {node} has parent {parent}, but there are {nodes} {kind}s: give -1 for a root or a {kind} from 0 to {}",
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
                        "{kind} {node} is its own ancestor: give one {kind} of the cycle the parent -1"
                    ));
                }
            }
        }
        Ok(())
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let start = self.start as i64;
        let Some(distance) = self.distance(pair.q - start, pair.k - start) else { return false };
        let in_chunk = || {
            let depth = self.place(pair.q - start).map(|(run, at)| self.depth(run) + at);
            self.chunk.zip(depth).is_none_or(|(chunk, depth)| distance <= depth % chunk)
        };
        self.window.is_none_or(|window| distance < window) && in_chunk()
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let start = self.start as i64;
        let node = move |token: Token| match self.place(token.position - start) {
            Some(_) => format!("node {}", token.position - start),
            None => "outside the tree".into(),
        };
        let ancestor = |is: &str| {
            let (q, k) = (query_position(), key_position());
            sentence!["key ", k, " (", key(node), ") ", is, " an ancestor of query ", q, " (", query(node), ")"]
        };
        let itself = sentence!["query and key are both ", query(node)];
        let allowed = Sentence::by(Test::Mask(super::window(0, 0)), itself, ancestor("is"));
        let (of_query, of_key) = (move |token| self.depth_at(token), move |token| self.depth_at(token));
        let above = Piece::Difference(Box::new(of_query), Box::new(of_key));
        let window = format!(", outside the window of {}", self.window.unwrap_or_default());
        let far = sentence!["key ", key_position(), " is ", above, " nodes above query ", query_position(), window];
        let (q, k) = (query_position(), key_position());
        let chunk = sentence!["key ", k, " is an ancestor of query ", q, ", but in an earlier chunk"];
        let whole = Tree { window: None, chunk: None, ..self.clone() };
        let near = Tree { chunk: None, ..self.clone() };
        let denied = match (self.window, self.chunk) {
            (None, None) => ancestor("is not"),
            (Some(_), None) => Sentence::by(Test::Mask(whole.mask()), far, ancestor("is not")),
            (None, Some(_)) => Sentence::by(Test::Mask(whole.mask()), chunk, ancestor("is not")),
            (Some(_), Some(_)) => {
                let related = Sentence::by(Test::Mask(near.mask()), chunk, far);
                Sentence::by(Test::Mask(whole.mask()), related, ancestor("is not"))
            }
        };
        Some(Sentence::by_result(allowed, denied))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(Paths::new(self)))
    }

    fn rank(&self) -> Rank {
        Family::Structure.at(1)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        let paths = Paths::new(self);
        let deepest = paths.runs.iter().map(|run| run.depth + run.len).max().unwrap_or(0);
        EveryLength::Places(Places::new().each(self.start, self.node_count(), deepest as usize))
    }
}

/// The atom `tree` as planning evaluates it. Node `i` has position `start + i`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Paths {
    start: i64,
    /// The chains of nodes, ascending by first node. The first chain begins at node 0, and each other chain begins
    /// where the previous chain ends.
    runs: Vec<Chain>,
    /// True if every parent comes before its children.
    ordered: bool,
    /// Maximum number of keys that a query reads ([`Tree::window`]). If there is no maximum, the number of nodes of the
    /// tree.
    window: i64,
    /// Length of a chunk in nodes ([`Tree::chunk`]). If paths are not split into chunks, the number of nodes of the
    /// tree.
    chunk: i64,
}

/// Consecutive nodes, in which each node is the parent of the next node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Chain {
    /// The index of the first node.
    first: i64,
    /// The number of nodes.
    len: i64,
    /// The number of ancestors of the first node.
    depth: i64,
    /// The parent of the first node: (index of the parent node, index of the chain that contains the parent node).
    /// `None` if the first node is a root.
    parent: Option<(i64, usize)>,
}

impl Chain {
    /// Returns the index of the first node after this chain.
    fn end(&self) -> i64 {
        self.first + self.len
    }
}

impl Paths {
    fn new(tree: &Tree) -> Self {
        let len = |run: usize| tree.run_len(run) as i64;
        // Runs of the mask that continue the run before them are joined.
        let mut runs: Vec<Chain> = Vec::new();
        let mut index: Vec<usize> = Vec::with_capacity(tree.parents.len());
        for (run, &parent) in tree.parents.iter().enumerate() {
            match runs.last_mut().filter(|_| run > 0 && parent == run as i64 - 1) {
                Some(last) => last.len += len(run),
                None => {
                    let first = runs.last().map_or(0, Chain::end);
                    runs.push(Chain { first, len: len(run), depth: 0, parent: None });
                }
            }
            index.push(runs.len() - 1);
        }
        let ends: Vec<i64> = (0..tree.parents.len())
            .scan(0, |end, run| {
                *end += len(run);
                Some(*end)
            })
            .collect();
        for (run, &parent) in tree.parents.iter().enumerate() {
            if let Ok(parent) = usize::try_from(parent)
                && (run == 0 || index[run] != index[run - 1])
            {
                runs[index[run]].parent = Some((ends[parent] - 1, index[parent]));
            }
        }
        for first in 0..runs.len() {
            let mut path = vec![first];
            while let Some((_, up)) = runs[path[path.len() - 1]].parent.filter(|(_, up)| runs[*up].depth == 0) {
                path.push(up);
            }
            for run in path.into_iter().rev() {
                if let Some((node, up)) = runs[run].parent {
                    runs[run].depth = runs[up].depth + node - runs[up].first + 1;
                }
            }
        }
        let ordered = runs.iter().all(|run| run.parent.is_none_or(|(node, _)| node < run.first));
        let nodes = tree.node_count() as i64;
        let or_all = |n: Option<usize>| n.map_or(nodes, |n| n as i64).max(1);
        Paths { start: tree.start as i64, runs, ordered, window: or_all(tree.window), chunk: or_all(tree.chunk) }
    }

    fn node_count(&self) -> i64 {
        self.runs.last().map_or(0, Chain::end)
    }

    /// Returns the index in `runs` of the chain that contains a node.
    fn run_of(&self, node: i64) -> usize {
        self.runs.partition_point(|run| run.end() <= node)
    }

    /// Returns the number of ancestors of node `node`, which is in the chain `runs[run]`.
    fn depth(&self, run: usize, node: i64) -> i64 {
        self.runs[run].depth + node - self.runs[run].first
    }

    /// Returns the minimum depth (number of ancestors) of the keys that a query with `depth` ancestors reads. The
    /// result does not decrease from parent to child.
    fn lowest(&self, depth: i64) -> i64 {
        (depth - self.window + 1).max(depth / self.chunk * self.chunk)
    }

    /// Returns the positions of the nodes `first..=last`.
    fn positions(&self, first: i64, last: i64) -> Range<i64> {
        self.start + first..self.start + last + 1
    }
}

/// An entry of the queue in [`Paths::bounds`]: some queries whose paths to the root enter the chain `run`. The nodes at
/// which the paths enter the chain are from `nearest` to `last`, both included.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    last: i64,
    nearest: i64,
    /// The minimum depth (number of ancestors) of the keys that at least one of the queries reads.
    lowest: i64,
    run: usize,
}

impl ResolvedAtom for Paths {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let mut node = q - self.start;
        if !(0..self.node_count()).contains(&node) {
            return;
        }
        let mut at = self.run_of(node);
        let depth = self.lowest(self.depth(at, node));
        let lowest_key = if self.ordered { keys.start } else { i64::MIN };
        while self.start + node >= lowest_key {
            let run = &self.runs[at];
            let first = run.first + (depth - run.depth).max(0);
            emit(self.start + first, self.start + node + 1);
            match run.parent.filter(|_| run.depth > depth) {
                Some(parent) => (node, at) = parent,
                None => break,
            }
        }
    }

    /// Returns bounds on the keys that `queries` read. The bounds are exact without a window and chunks. The chains of
    /// nodes are visited from the last to the first, each once for all queries together, because queries share most
    /// ancestors. If a parent comes after its child, returns [`Reach::ByRows`]: rows must be evaluated one by one.
    fn bounds(&self, queries: Range<i64>, _: Range<i64>) -> Reach {
        if !self.ordered {
            return Reach::ByRows;
        }
        let nodes = (queries.start - self.start).max(0)..(queries.end - self.start).min(self.node_count());
        let (mut some, mut every) = (Vec::new(), Vec::new());
        if nodes.is_empty() {
            return Reach::Keys { some, every };
        }
        // a row outside the tree reads no key, so no key is read by every row
        let mut common = nodes.end - nodes.start == queries.end - queries.start;
        let mut highest = 0;
        let mut heap = BinaryHeap::new();
        for at in self.run_of(nodes.start)..self.runs.len() {
            let run = &self.runs[at];
            if run.first >= nodes.end {
                break;
            }
            let (nearest, last) = (run.first.max(nodes.start), run.end().min(nodes.end) - 1);
            highest = highest.max(self.lowest(self.depth(at, last)));
            heap.push(Visit { last, nearest, lowest: self.lowest(self.depth(at, nearest)), run: at });
        }
        while let Some(mut visit) = heap.pop() {
            let run = &self.runs[visit.run];
            while let Some(next) = heap.peek().filter(|next| next.run == visit.run) {
                visit.nearest = visit.nearest.min(next.nearest);
                visit.lowest = visit.lowest.min(next.lowest);
                heap.pop();
            }
            some.push(self.positions(run.first + (visit.lowest - run.depth).max(0), visit.last));
            let first = run.first + (highest - run.depth).max(0);
            if common && heap.is_empty() && first <= visit.nearest {
                every.push(self.positions(first, visit.nearest));
            }
            match run.parent.filter(|_| run.depth > visit.lowest) {
                Some((node, up)) => heap.push(Visit { last: node, nearest: node, lowest: visit.lowest, run: up }),
                None => common = false,
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
            &[
                need("parents", "parent of each node (with `runs`, of each run), -1 for a root"),
                may("start", "position of the first node"),
                may("runs", "number of nodes of each run; each node is the parent of the next one"),
                may("window", "maximum number of keys: the query and its nearest ancestors"),
                may(
                    "chunk",
                    "number of nodes of the chunks into which each path from a root is split; a query reads only its own chunk",
                ),
            ],
        ),
        title: "`tree(parents=[...], start=n)`",
        doc: "The key is the query or one of its ancestors. Node `i` has position `n + i` [default: `n` = 0], and a root \
              has parent -1. With a cache of `n` keys (speculative decoding): `keys(..n) | tree(parents=[...], \
              start=n)`. With `runs`, the parents are those of runs of nodes, and a run continues the last node of its \
              parent: a prompt of 512 tokens with two continuations of 64 is `tree(parents=[-1, 0, 0], runs=[512, 64, \
              64])`. `window=W` and `chunk=C` are `sliding(W)` and `chunk(C)` along each path from a root.",
        pictures: &[
            Picture::square("tree(parents=[-1, 0, 0, 1, 1, 2])", 6),
            Picture { mask: "keys(..3) | tree(parents=[-1, 0, 0, 1], start=3)", size: (4, 7, 3), facts: "{}" },
            Picture::square("tree(parents=[-1, 0, 0], runs=[3, 4, 2])", 9),
            Picture::square("tree(parents=[-1, 0, 0], runs=[4, 5, 4], window=3)", 13),
        ],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let start = arguments.get(1).map(|given| given.whole()).transpose()?.unwrap_or(0);
        Ok(Tree {
            parents: arguments.need(0)?.integers()?,
            runs: arguments.get(2).map(|given| given.wholes()).transpose()?.unwrap_or_default(),
            window: arguments.get(3).map(|given| given.whole()).transpose()?,
            chunk: arguments.get(4).map(|given| given.whole()).transpose()?,
            start,
        })
    }
}
