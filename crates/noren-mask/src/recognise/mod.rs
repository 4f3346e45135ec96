//! [`recognise`]: from cells to the expression that says them.

use crate::doctor::intent::{Groups, Intent};
use crate::keep::{Keep, count, ends, ones};
use crate::mask::{Arm, Mask, Node, Padding, PerRow, Side};
use crate::set::Selector;
use crate::{Shape, atoms};
use std::rc::Rc;

/// Cells listed beyond the expression; more of them and the mask counts as not recognised.
const MOST_EXCEPTIONS: usize = 64;

/// What [`recognise`] found.
#[derive(Clone, PartialEq, Debug)]
pub struct Recognised {
    /// The expression, to be bound to `shape` without facts.
    pub mask: Mask,
    /// The shape that the expression speaks of: with fewer queries than keys, the queries are the last of them.
    pub shape: Shape,
    /// Cells `[batch, head, query, key]` where the mask is the other way round, when they are few.
    pub exceptions: Vec<[usize; 4]>,
    /// Number of such cells; 0 when the expression is exact.
    pub wrong: u64,
}

impl Recognised {
    /// True when the expression allows exactly the cells.
    pub fn is_exact(&self) -> bool {
        self.wrong == 0
    }

    /// The expression in words, with what it leaves out.
    pub fn expression(&self) -> String {
        match self.wrong {
            0 => self.mask.to_string(),
            n if self.exceptions.is_empty() => format!("no pattern known (nearest is `{}`, {n} cells off)", self.mask),
            n => format!("{} except for {n} cell(s)", self.mask),
        }
    }
}

/// The smallest expression found that allows the cells of `keep`, or the nearest with its exceptions.
///
/// It tries causality and its offset, windows, chunks, prefixes, first keys that everybody reads, documents, strides and
/// padding, alone and together, for each distinct batch row and head. It looks at rows as words, so 16384 x 16384 cells take
/// a fraction of a second.
///
/// ```
/// use noren_mask::{Keep, recognise};
/// let keep = Keep::from_fn([2, 1, 8, 8], |[b, _, q, k]| k <= q && q - k < 3 && k >= 2 * b);
/// assert_eq!(recognise(&keep).mask.to_string(), "sliding(3) & padding(side=left, lengths=[8, 6])");
/// ```
pub fn recognise(keep: &Keep) -> Recognised {
    let [batch, heads, q_len, kv_len] = keep.dims();
    let offset = if q_len <= kv_len { kv_len as i64 - q_len as i64 } else { 0 };
    let shape = Shape::new(q_len, kv_len, offset).batch(batch).heads(heads);
    let mut distinct: Vec<(usize, usize)> = Vec::new();
    let mut which = Vec::with_capacity(batch * heads);
    for b in 0..batch {
        for h in 0..heads {
            let same = |&(b0, h0): &(usize, usize)| (0..q_len).all(|i| keep.row(b0, h0, i) == keep.row(b, h, i));
            let known = distinct.iter().position(same);
            which.push(known.unwrap_or_else(|| {
                distinct.push((b, h));
                distinct.len() - 1
            }));
        }
    }
    let fits: Vec<Fit> = distinct.iter().map(|&(b, h)| Fit::new(keep, b, h, offset)).collect();
    let mut wrong = 0;
    let mut exceptions = Vec::new();
    for (at, &fit) in which.iter().enumerate() {
        wrong += fits[fit].wrong;
        let cell = |&[q, k]: &[usize; 2]| [at / heads, at % heads, q, k];
        exceptions.extend(
            fits[fit].exceptions.iter().map(cell).take(MOST_EXCEPTIONS + 1 - exceptions.len().min(MOST_EXCEPTIONS)),
        );
    }
    if wrong > MOST_EXCEPTIONS as u64 {
        exceptions.clear();
    }
    Recognised { mask: join(&fits, &which, [batch, heads, q_len, kv_len]), shape, exceptions, wrong }
}

/// One (batch, head): its terms.
struct Fit {
    /// The terms without padding.
    mask: Mask,
    /// The keys that anybody reads, where they are a run at one end.
    real: Option<(usize, usize)>,
    wrong: u64,
    exceptions: Vec<[usize; 2]>,
}

/// What the rows of a slice have in common.
struct Profile<'a> {
    keep: &'a Keep,
    b: usize,
    h: usize,
    offset: i64,
    /// Rows that are looked at: those that read something.
    rows: Vec<usize>,
    /// First and last key of each of them.
    ends: Vec<(usize, usize)>,
}

impl Profile<'_> {
    fn row(&self, i: usize) -> &[u64] {
        self.keep.row(self.b, self.h, i)
    }

    fn position(&self, i: usize) -> i64 {
        i as i64 + self.offset
    }

    /// Number of cells that differ from `intent`, and the first few; gives up beyond `limit`.
    fn wrong(&self, intent: &Intent, limit: u64) -> (u64, Vec<[usize; 2]>) {
        let mut words = vec![0; intent.words()];
        let (mut wrong, mut cells) = (0, Vec::new());
        let q_len = intent.q_len;
        let telling = [q_len - 1, 0, q_len / 2, q_len / 3];
        let rest = (0..q_len).filter(|i| !telling.contains(i));
        let unique = telling.iter().enumerate().filter(|(n, i)| !telling[..*n].contains(i)).map(|(_, i)| *i);
        for i in unique.chain(rest) {
            intent.fill(0, i, &mut words);
            if words != self.row(i) {
                words.iter_mut().zip(self.row(i)).for_each(|(w, g)| *w ^= g);
                wrong += count(&words);
                if cells.len() <= MOST_EXCEPTIONS {
                    cells.extend(ones(&words).take(MOST_EXCEPTIONS).map(|k| [i, k]));
                }
                if wrong > limit {
                    break;
                }
            }
        }
        cells.sort_unstable();
        (wrong, cells)
    }
}

impl Fit {
    fn new(keep: &Keep, b: usize, h: usize, offset: i64) -> Self {
        let [_, _, q_len, kv_len] = keep.dims();
        let mut seen = vec![0u64; kv_len.div_ceil(64)];
        let (mut rows, mut found) = (Vec::new(), Vec::new());
        for i in 0..q_len {
            let row = keep.row(b, h, i);
            if let Some(range) = ends(row) {
                rows.push(i);
                found.push(range);
                seen.iter_mut().zip(row).for_each(|(s, w)| *s |= w);
            }
        }
        let Some((first, last)) = ends(&seen) else {
            return Fit { mask: atoms::none(), real: None, wrong: 0, exceptions: Vec::new() };
        };
        let profile = Profile { keep, b, h, offset, rows, ends: found };
        let run = count(&seen) == (last - first + 1) as u64 && (first > 0) != (last + 1 < kv_len);
        let mut base = Intent::new(1, q_len, kv_len, vec![offset]);
        if count(&seen) < kv_len as u64 {
            base.valid = Some(Rc::new(vec![seen]));
        }
        let mut best: Option<(Intent, u64, Vec<[usize; 2]>)> = None;
        for intent in candidates(&profile, &base, first) {
            let limit = best.as_ref().map_or(u64::MAX, |b| b.1.saturating_sub(1));
            let (wrong, cells) = profile.wrong(&intent, limit);
            if best.as_ref().is_none_or(|b| wrong < b.1) {
                best = Some((intent, wrong, cells));
            }
            if wrong == 0 {
                break;
            }
        }
        let (intent, wrong, exceptions) = best.unwrap_or((base, u64::MAX, Vec::new()));
        let mask = expression(&intent, run);
        Fit { mask, real: run.then_some((first, last + 1)), wrong, exceptions }
    }
}

/// Intents that hold all cells of the slice, simple ones first.
fn candidates(profile: &Profile<'_>, base: &Intent, first_real: usize) -> Vec<Intent> {
    let reach = |(i, e): (&usize, &(usize, usize))| e.1 as i64 - profile.position(*i);
    let pairs = || profile.rows.iter().zip(&profile.ends);
    let kv_len = base.kv_len as i64;
    // Rows cut off by the last key say nothing of how far they would read on.
    let last_real = profile.ends.iter().map(|e| e.1).max().unwrap_or(0);
    let right =
        pairs().filter(|(_, e)| e.1 < last_real).map(reach).max().or_else(|| pairs().map(reach).max()).unwrap_or(0);
    let left = pairs().map(|(i, e)| profile.position(*i) - e.0 as i64).max().unwrap_or(0);
    let steady = pairs().filter(|(_, e)| e.0 > first_real).map(|(i, e)| profile.position(*i) - e.0 as i64).max();
    let mut bases = vec![base.clone()];
    if right < kv_len - 1 {
        bases.push(Intent { causal: Some(right), ..base.clone() });
    }
    let mut out = Vec::new();
    for intent in &bases {
        out.push(intent.clone());
        if let Some(left) = steady {
            out.push(Intent { left: Some(left), ..intent.clone() });
        }
        if left < 0 {
            out.push(Intent { left: Some(left), ..intent.clone() });
        }
    }
    let first_keys = common_start(profile, first_real, true);
    let prefix = common_start(profile, first_real, false);
    if prefix > first_real && right > 0 {
        // Beyond the prefix, as far as rows read on.
        let after = |(i, e): &(&usize, &(usize, usize))| e.1 >= prefix && profile.position(**i) < e.1 as i64;
        let beyond = pairs().filter(after).count();
        if beyond == 0 {
            out.push(Intent { causal: Some(0), prefix: Some(Rc::new(vec![prefix as i64])), ..base.clone() });
        }
    }
    if first_keys > first_real {
        let inner = pairs().filter_map(|(i, _)| {
            let row = profile.row(*i);
            let next = ones(row).find(|&k| k >= first_keys)?;
            (next > first_keys).then(|| profile.position(*i) - next as i64)
        });
        if let Some(left) = inner.max() {
            out.push(Intent { causal: Some(right), left: Some(left), sinks: first_keys - first_real, ..base.clone() });
        }
    }
    out.extend(chunked(profile, &bases));
    out.extend(documented(profile, &bases));
    out
}

/// How many keys from `first` on every row reads, or every row that stands after them.
fn common_start(profile: &Profile<'_>, first: usize, later: bool) -> usize {
    let mut end = profile.keep.dims()[3];
    for &i in &profile.rows {
        let limit = if later { (profile.position(i) + 1).clamp(0, end as i64) as usize } else { end };
        let row = profile.row(i);
        let missing = (first..end.min(limit.max(first))).find(|&k| !crate::keep::bit(row, k));
        end = missing.unwrap_or(end);
        if end == first {
            break;
        }
    }
    end
}

fn chunked(profile: &Profile<'_>, bases: &[Intent]) -> Vec<Intent> {
    let mut starts: Vec<usize> = profile.ends.iter().map(|e| e.0).collect();
    starts.dedup();
    let Some(size) = starts.windows(2).map(|w| w[1] as i64 - w[0] as i64).next().filter(|n| *n > 0) else {
        return Vec::new();
    };
    let origin = starts[0] as i64 % size;
    bases
        .iter()
        .map(|i| Intent { chunk: Some((size, Rc::new(vec![origin]))), ..i.clone() })
        .filter(|_| origin == 0)
        .collect()
}

fn documented(profile: &Profile<'_>, bases: &[Intent]) -> Vec<Intent> {
    let kv_len = profile.keep.dims()[3];
    let mut ids = vec![0i64; kv_len];
    for (i, e) in profile.rows.iter().zip(&profile.ends) {
        if let Some(slot) = usize::try_from(profile.position(*i)).ok().filter(|s| *s < kv_len) {
            ids[slot] = e.0 as i64 + 1;
        }
    }
    for k in (0..kv_len.saturating_sub(1)).rev() {
        if ids[k] == 0 && ids[k + 1] > 0 && ids[k + 1] <= k as i64 + 1 {
            ids[k] = ids[k + 1];
        }
    }
    if ids.windows(2).any(|w| w[1] != 0 && w[1] < w[0]) {
        return Vec::new();
    }
    let groups = Rc::new(Groups::new(vec![ids]));
    bases.iter().map(|i| Intent { segments: Some(groups.clone()), ..i.clone() }).collect()
}

/// The terms as a mask; padding at one end is said for all batch rows together.
fn expression(intent: &Intent, run: bool) -> Mask {
    let mut parts = Vec::new();
    match (intent.causal, intent.left) {
        (Some(0), Some(left)) if left >= 0 && intent.sinks == 0 => parts.push(atoms::sliding(left as u64 + 1)),
        (Some(0), Some(left)) if left >= 0 => {
            parts.push(atoms::sliding(left as u64 + 1) | atoms::causal() & atoms::keys(first_keys(intent)));
        }
        (Some(0), None) => parts.push(atoms::causal()),
        (Some(offset), None) => parts.push(atoms::causal_offset(offset)),
        (right, Some(left)) => parts.push(atoms::window(left, right)),
        (None, None) => {}
    }
    if let Some((size, _)) = &intent.chunk {
        parts.push(atoms::chunk(*size as u64));
    }
    if let Some(groups) = &intent.segments {
        let mut lengths: Vec<u64> = Vec::new();
        let ids = &groups.ids[0];
        for (k, id) in ids.iter().enumerate() {
            match lengths.last_mut() {
                Some(n) if ids[k - 1] == *id => *n += 1,
                _ => lengths.push(1),
            }
        }
        parts.push(atoms::documents_of(lengths));
    }
    if let Some(prefix) = &intent.prefix {
        let inner = Mask::all(std::mem::take(&mut parts));
        parts.push(inner | atoms::prefix(prefix[0].max(0) as u64));
    }
    if let Some(valid) = intent.valid.as_ref().filter(|_| !run) {
        let mut spans: Vec<std::ops::Range<u64>> = Vec::new();
        crate::array::bit_runs(&valid[0], 0, intent.kv_len as u32, |a, z| spans.push(u64::from(a)..u64::from(z)));
        parts.push(atoms::keys(spans));
    }
    match parts.is_empty() {
        true => atoms::full(),
        false => Mask::all(parts),
    }
}

fn first_keys(intent: &Intent) -> std::ops::Range<u64> {
    let first = intent.first_real(0) as u64;
    first..first + intent.sinks as u64
}

/// One mask of all slices: padding by batch row is said once, other differences as arms.
fn join(fits: &[Fit], which: &[usize], [batch, heads, _, kv_len]: [usize; 4]) -> Mask {
    let by_head = (0..batch).any(|b| (1..heads).any(|h| which[b * heads + h] != which[b * heads]));
    let rows: Vec<&Fit> = (0..batch).map(|b| &fits[which[b * heads]]).collect();
    let run = |f: &Fit| f.real.unwrap_or((0, kv_len));
    let left = rows.iter().all(|f| run(f).1 == kv_len);
    let right = rows.iter().all(|f| run(f).0 == 0);
    let padded = rows.iter().any(|f| f.real.is_some());
    let alike = rows.iter().all(|f| f.mask == rows[0].mask);
    if !by_head && alike && (left || right) {
        if !padded {
            return rows[0].mask.clone();
        }
        let padding = Padding {
            side: left.then_some(Side::Left),
            lengths: Some(rows.iter().map(|f| (run(f).1 - run(f).0) as u64).collect()),
            both: false,
        };
        let padding = atoms::padding_with(padding);
        return match rows[0].mask.node() {
            Node::Full => padding,
            _ => rows[0].mask.clone() & padding,
        };
    }
    if !by_head && alike_but_prefix(&rows) && !padded {
        let lengths = rows.iter().filter_map(|f| prefix_of(&f.mask)).collect::<Vec<u64>>();
        return atoms::causal() | Mask::new(Node::Prefix { lengths: PerRow::Each(lengths) });
    }
    let of = |f: &Fit| match f.real {
        Some((a, z)) => f.mask.clone() & atoms::keys(a as u64..z as u64),
        None => f.mask.clone(),
    };
    let heads_of = |b: usize| -> Mask {
        let own: Vec<Mask> = (0..heads).map(|h| of(&fits[which[b * heads + h]])).collect();
        match own.iter().all(|m| *m == own[0]) {
            true => own[0].clone(),
            false => arms(&own, Node::Heads),
        }
    };
    let all: Vec<Mask> = (0..batch).map(heads_of).collect();
    match all.iter().all(|m| *m == all[0]) {
        true => all[0].clone(),
        false => arms(&all, Node::Batch),
    }
}

fn prefix_of(mask: &Mask) -> Option<u64> {
    let Node::Or(parts) = mask.node() else { return None };
    match (parts[0].node(), parts.get(1)?.node()) {
        (Node::Causal { offset: 0 }, Node::Prefix { lengths: PerRow::All(n) }) if parts.len() == 2 => Some(*n),
        _ => None,
    }
}

fn alike_but_prefix(rows: &[&Fit]) -> bool {
    rows.iter().all(|f| prefix_of(&f.mask).is_some())
}

/// Runs of equal masks as arms.
fn arms(masks: &[Mask], node: fn(Vec<Arm>) -> Node) -> Mask {
    let mut arms = Vec::new();
    let mut start = 0;
    for end in 1..=masks.len() {
        if end == masks.len() || masks[end] != masks[start] {
            arms.push(Arm { selector: Selector::from(start as u64..end as u64), mask: masks[start].clone() });
            start = end;
        }
    }
    Mask::new(node(arms))
}
