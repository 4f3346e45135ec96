//! [`Scene`]: the content of a picture, independent of the output format (terminal, SVG or PNG).

use super::picture::Picture;
use super::text::{clean, grouped, index_list};
use noren_mask::interval::IntervalSet;
use noren_mask::{Cover, Error, Grid, GridOptions, PatternPlan, SpanKind, checked_range};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The content of one picture cell. The content determines the color of the cell. `TileAllowed` and `TileDenied` occur
/// only if tiles are shown, and the last five variants only in pictures of a difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ink {
    Allowed,
    TileAllowed,
    Mixed,
    TileDenied,
    Denied,
    OnlyFirst,
    OnlySecond,
    BothWays,
    Common,
    CommonMixed,
}

impl Ink {
    pub(super) const ALL: [Ink; 10] = [
        Ink::Allowed,
        Ink::TileAllowed,
        Ink::Mixed,
        Ink::TileDenied,
        Ink::OnlyFirst,
        Ink::OnlySecond,
        Ink::BothWays,
        Ink::Common,
        Ink::CommonMixed,
        Ink::Denied,
    ];
}

/// The pairs (batch row, head) with equal cells; one panel shows them all. `batch` and `head` are those of the first
/// pair.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) caption: Option<String>,
}

/// The checked selection of batch rows, heads, queries and keys to draw.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) groups: Vec<Group>,
    pub(super) queries: Range<u32>,
    pub(super) keys: Range<u32>,
    /// Sentences about the parts of the mask that the picture omits.
    notes: Vec<String>,
}

impl Layout {
    pub(super) fn new(picture: &Picture<'_>) -> Result<Self, Error> {
        let (bound, shape) = (picture.bound, picture.bound.shape());
        let (batch, head) = (picture.batch.unwrap_or(0), picture.head.unwrap_or(0));
        bound.check_pair(batch, head)?;
        if let Some(other) = picture.other {
            bound.check_comparable(other)?;
        }
        let queries = checked_range("query rows", &picture.queries, shape.q_len())?;
        let keys = checked_range("keys", &picture.keys, shape.kv_len())?;
        picture.check_labels()?;
        let mut notes = Vec::new();
        let mut by_pattern: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
        for b in picture.batch.map_or(0..shape.batch_len(), |b| b..b + 1) {
            for h in picture.head.map_or(0..shape.head_count(), |h| h..h + 1) {
                let key = (bound.pattern_of(b, h), picture.other.map_or(0, |o| o.pattern_of(b, h)));
                by_pattern.entry(key).or_default().push((b, h));
            }
        }
        let mut pairs: Vec<_> = by_pattern.into_values().collect();
        pairs.sort();
        if let Some(other) = picture.other {
            let all = pairs.len();
            let mut differ = Vec::new();
            let whole =
                GridOptions { max_rows: 1, max_cols: 1, queries: picture.queries.clone(), keys: picture.keys.clone() };
            for group in &pairs {
                let (b, h) = group[0];
                let minus = |x: &noren_mask::BoundMask, y| x.grid_minus(y, b, h, &whole).map(|g| g.covers()[0]);
                if minus(bound, other)? != Cover::Empty || minus(other, bound)? != Cover::Empty {
                    differ.push(group.clone());
                }
            }
            match differ.len() {
                0 => {
                    let shown = queries.len() == shape.q_len() && keys.len() == shape.kv_len();
                    notes.push(match shown {
                        true => "both masks allow the same cells".to_owned(),
                        false => "both masks allow the same cells in the part that the picture shows".to_owned(),
                    });
                    pairs.truncate(1);
                }
                n if n < all => {
                    notes.push(format!("{} of {all} different patterns of heads and batch rows are equal in both masks and are not shown", all - n));
                    pairs = differ;
                }
                _ => {}
            }
        }
        let most = picture.max_panels.max(1);
        if pairs.len() > most {
            notes.push(format!(
                "only the first {most} of {} different patterns of heads and batch rows are shown",
                pairs.len()
            ));
            pairs.truncate(most);
        }
        let caption = |group: &[(usize, usize)]| caption(group, shape.batch_len(), shape.head_count());
        let groups =
            pairs.iter().map(|g| Group { batch: g[0].0, head: g[0].1, caption: caption(g) }).collect::<Vec<_>>();
        Ok(Layout { groups, queries, keys, notes })
    }

    /// Returns (rows, columns) of a panel, in picture cells, at most (`max_rows`, `max_cols`). `aspect` is the height
    /// of a cell divided by its width. If the mask fits, every picture cell is one mask cell. Otherwise, picture cells
    /// cover approximately square parts of the mask, but the shorter side of the panel has at least a quarter of its
    /// maximum.
    pub(super) fn size(&self, max_rows: usize, max_cols: usize, aspect: usize) -> (usize, usize) {
        let (q, k) = (self.queries.len(), self.keys.len());
        let (max_rows, max_cols) = (max_rows.max(1), max_cols.max(1));
        if q <= max_rows && k <= max_cols {
            return (q, k);
        }
        let scale = (k as f64 / max_cols as f64).max(q as f64 / (max_rows * aspect) as f64);
        let part = |len: usize, per_cell: f64, most: usize| {
            let even = (len as f64 / per_cell).ceil() as usize;
            even.max(most / 4).min(most).min(len).max(1)
        };
        (part(q, scale * aspect as f64, max_rows), part(k, scale, max_cols))
    }

    /// Returns the content of `picture`. Each panel (the drawing of the cells of one batch row and head) has `rows` x
    /// `cols` picture cells.
    pub(super) fn scene(&self, picture: &Picture<'_>, rows: usize, cols: usize) -> Result<Scene, Error> {
        let options = GridOptions {
            max_rows: rows,
            max_cols: cols,
            queries: Some(self.queries.start as usize..self.queries.end as usize),
            keys: Some(self.keys.start as usize..self.keys.end as usize),
        };
        let panels = self.groups.iter().map(|g| Panel::new(picture, g, &options)).collect::<Result<Vec<_>, _>>()?;
        let used: BTreeSet<Ink> = panels.iter().flat_map(|p| p.inks.iter().copied()).collect();
        let sampled = panels.iter().any(|p| p.grid.is_sampled());
        let always = match picture.other {
            Some(_) => &[Ink::OnlyFirst, Ink::OnlySecond, Ink::Common, Ink::Denied][..],
            None if picture.tiles.is_some() => &[Ink::Allowed, Ink::TileAllowed, Ink::TileDenied, Ink::Denied],
            None => &[Ink::Allowed, Ink::Denied],
        };
        let legend = Ink::ALL.into_iter().filter(|i| used.contains(i) || always.contains(i)).collect();
        let mut notes = self.notes.clone();
        if sampled {
            let most = |len: usize, parts: usize, one, more| count(len.div_ceil(parts), one, more);
            let queries = most(self.queries.len(), rows, "query", "queries");
            let keys = most(self.keys.len(), cols, "key", "keys");
            notes.insert(0, format!("one cell of the picture shows up to {queries} × {keys}"));
        }
        Ok(Scene {
            title: picture.title.clone().map_or_else(|| clean(&picture.bound.mask().to_string()), |t| clean(&t)),
            second: picture.other.map(|o| clean(&o.mask().to_string())),
            about: about(picture, self),
            panels,
            legend,
            sampled,
            tiles: picture.other.is_none() && picture.tiles.is_some(),
            notes,
        })
    }
}

fn count(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { more })
}

/// Returns a text with the size of the mask and, if only a part of the mask is shown, the shown range.
pub(super) fn about(picture: &Picture<'_>, layout: &Layout) -> String {
    let shape = picture.bound.shape();
    let mut parts =
        vec![format!("{} × {}", count(shape.q_len(), "query", "queries"), count(shape.kv_len(), "key", "keys"))];
    if shape.batch_len() > 1 {
        parts.push(count(shape.batch_len(), "batch row", "batch rows"));
    }
    if shape.head_count() > 1 {
        parts.push(count(shape.head_count(), "head", "heads"));
    }
    let part = |name: &str, range: &Range<u32>, len: usize| {
        (range.len() < len).then(|| format!("{name} {}..{}", range.start, range.end))
    };
    let shown = [part("query rows", &layout.queries, shape.q_len()), part("keys", &layout.keys, shape.kv_len())];
    let shown: Vec<String> = shown.into_iter().flatten().collect();
    if !shown.is_empty() {
        parts.push(format!("showing {}", shown.join(" and ")));
    }
    parts.join(", ")
}

/// Returns the caption of a panel, such as `batch 0-1, heads 0-3, 5`, or `None` if there is only one batch row and
/// head.
pub(super) fn caption(pairs: &[(usize, usize)], batch: usize, heads: usize) -> Option<String> {
    let mut heads_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(b, h) in pairs {
        heads_of.entry(b).or_default().push(h);
    }
    let mut same: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for (b, list) in heads_of {
        match same.iter_mut().find(|(_, l)| *l == list) {
            Some((rows, _)) => rows.push(b),
            None => same.push((vec![b], list)),
        }
    }
    let part = |(rows, list): &(Vec<usize>, Vec<usize>)| {
        let mut words = Vec::new();
        if batch > 1 {
            words.push(format!("batch {}", index_list(rows)));
        }
        if heads > 1 {
            words.push(format!("{} {}", if list.len() == 1 { "head" } else { "heads" }, index_list(list)));
        }
        words.join(", ")
    };
    (batch > 1 || heads > 1).then(|| same.iter().map(part).collect::<Vec<_>>().join("; "))
}

/// The cells of one batch row and head, drawn as an [`Ink`] for each picture cell.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) caption: Option<String>,
    /// The batch row whose token labels and query offset the panel shows.
    pub(super) batch: usize,
    pub(super) offset: i64,
    pub(super) grid: Grid,
    /// The inks of all picture cells, row by row.
    pub(super) inks: Vec<Ink>,
}

impl Panel {
    fn new(picture: &Picture<'_>, group: &Group, options: &GridOptions) -> Result<Self, Error> {
        let (bound, Group { batch, head, caption }) = (picture.bound, group.clone());
        let grid = bound.grid(batch, head, options)?;
        let inks = match (picture.other, &picture.tiles) {
            (Some(other), _) => {
                let first = bound.grid_minus(other, batch, head, options)?;
                let second = other.grid_minus(bound, batch, head, options)?;
                let each = grid.covers().iter().zip(first.covers()).zip(second.covers());
                each.map(|((a, first), second)| difference(*a, *first, *second)).collect()
            }
            (None, Some(tiles)) => {
                let plan = bound.plan_of_pattern(bound.pattern_of(batch, head), tiles);
                tile_inks(&grid, &plan)
            }
            (None, None) => grid.covers().iter().map(|c| plain(*c)).collect(),
        };
        Ok(Panel { caption, batch, offset: bound.shape().query_offset(batch), grid, inks })
    }

    pub(super) fn row_count(&self) -> usize {
        self.grid.row_count()
    }

    pub(super) fn col_count(&self) -> usize {
        self.grid.col_count()
    }

    pub(super) fn ink(&self, row: usize, col: usize) -> Ink {
        self.inks[row * self.col_count() + col]
    }

    /// Returns the inks (contents of the picture cells, such as allowed or denied) of row `row` of the panel.
    pub(super) fn row(&self, row: usize) -> &[Ink] {
        &self.inks[row * self.col_count()..][..self.col_count()]
    }

    /// Returns the query rows of the panel.
    pub(super) fn queries(&self) -> Range<u32> {
        self.grid.queries(0).start as u32..self.grid.queries(self.row_count() - 1).end as u32
    }

    /// Returns the keys of the panel.
    pub(super) fn keys(&self) -> Range<u32> {
        self.grid.keys(0).start as u32..self.grid.keys(self.col_count() - 1).end as u32
    }
}

fn plain(cover: Cover) -> Ink {
    match cover {
        Cover::Empty => Ink::Denied,
        Cover::Mixed => Ink::Mixed,
        Cover::Full => Ink::Allowed,
    }
}

/// Returns the ink of a picture cell in a picture of a difference. If at least one mask cell under a picture cell
/// differs, even one of a million, the picture cell shows a difference.
fn difference(first: Cover, only_first: Cover, only_second: Cover) -> Ink {
    match (only_first != Cover::Empty, only_second != Cover::Empty, first) {
        (true, true, _) => Ink::BothWays,
        (true, false, _) => Ink::OnlyFirst,
        (false, true, _) => Ink::OnlySecond,
        (false, false, Cover::Empty) => Ink::Denied,
        (false, false, Cover::Mixed) => Ink::CommonMixed,
        (false, false, Cover::Full) => Ink::Common,
    }
}

/// Returns the ink (the kind of content) of each picture cell, from the allowed cells and the kind of the tile that
/// computes them. A picture cell that full tiles cover completely counts as full, and a picture cell that no tile
/// covers counts as skipped; every other picture cell counts as mixed.
fn tile_inks(grid: &Grid, plan: &PatternPlan) -> Vec<Ink> {
    let mut inks = Vec::with_capacity(grid.covers().len());
    let mut tile = 0;
    for row in 0..grid.row_count() {
        let queries = grid.queries(row);
        while (plan.tile(tile).end as usize) <= queries.start {
            tile += 1;
        }
        let (mut some, mut full): (Option<IntervalSet>, Option<IntervalSet>) = (None, None);
        for tile in (tile..plan.tile_count()).map(|i| plan.tile(i)).take_while(|t| (t.start as usize) < queries.end) {
            let of = |full: bool| -> IntervalSet {
                let spans = tile.spans.iter().filter(|s| !full || s.kind == SpanKind::Full);
                spans.map(|s| s.start..s.end).collect()
            };
            some = Some(some.map_or_else(|| of(false), |s| s.union(&of(false))));
            full = Some(full.map_or_else(|| of(true), |f| f.intersect(&of(true))));
        }
        let (some, full) = (some.unwrap_or_default(), full.unwrap_or_default());
        for col in 0..grid.col_count() {
            let keys = grid.keys(col);
            let (start, end) = (keys.start as u32, keys.end as u32);
            let mixed = some.meets(start, end) && !full.contains_range(start, end);
            inks.push(match (grid.cover(row, col), mixed) {
                (Cover::Full, true) => Ink::TileAllowed,
                (Cover::Empty, true) => Ink::TileDenied,
                (cover, _) => plain(cover),
            });
        }
    }
    inks
}

/// The content of a picture of a mask. The content is the same for a terminal, SVG and PNG.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) title: String,
    /// The title of the second mask in a comparison, or `None` if the picture shows one mask.
    pub(super) second: Option<String>,
    pub(super) about: String,
    pub(super) panels: Vec<Panel>,
    pub(super) legend: Vec<Ink>,
    /// True if a picture cell may contain more than one cell of the mask.
    pub(super) sampled: bool,
    pub(super) tiles: bool,
    pub(super) notes: Vec<String>,
}

impl Scene {
    /// Returns the meaning of `ink` (the content of a picture cell) in this picture, as a text for the legend.
    pub(super) fn meaning(&self, ink: Ink) -> &'static str {
        match (ink, self.sampled, self.tiles) {
            (Ink::Allowed, false, false) => "allowed",
            (Ink::Allowed, true, false) => "all allowed",
            (Ink::Allowed, false, true) => "allowed, in a full tile",
            (Ink::Allowed, true, true) => "all cells allowed, in full tiles",
            (Ink::TileAllowed, false, _) => "allowed, in a mixed tile",
            (Ink::TileAllowed, true, _) => "all cells allowed, in mixed tiles",
            (Ink::Mixed, ..) => "some allowed",
            (Ink::TileDenied, false, _) => "denied, in a mixed tile",
            (Ink::TileDenied, true, _) => "no cell allowed, in mixed tiles",
            (Ink::Denied, _, _) if self.second.is_some() => "denied by both",
            (Ink::Denied, false, false) => "denied",
            (Ink::Denied, true, false) => "none allowed",
            (Ink::Denied, _, true) => "empty",
            (Ink::OnlyFirst, false, _) => "only in the first mask",
            (Ink::OnlyFirst, true, _) => "some only in the first mask",
            (Ink::OnlySecond, false, _) => "only in the second mask",
            (Ink::OnlySecond, true, _) => "some only in the second mask",
            (Ink::BothWays, ..) => "some cells only in the first mask, others only in the second",
            (Ink::Common, ..) => "allowed by both",
            (Ink::CommonMixed, ..) => "equal in both masks, some cells allowed",
        }
    }
}
