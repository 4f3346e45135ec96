//! [`Wrong`]: the cells in which the given mask differs from another mask.

use crate::report::{Finding, SHOWN};
use noren_mask::Keep;
use noren_mask::bits::{count, ones};
use std::collections::BTreeSet;

/// The cells in which the given mask differs from another mask, in the rows that are compared.
pub(crate) struct Wrong {
    /// Number of these cells.
    pub(crate) count: u64,
    /// The first of these cells, at most `SHOWN`, as `[batch, head, query, key]`.
    first: Vec<[usize; 4]>,
    /// The pairs (batch row, head) with at least one of these cells.
    pub(crate) slices: BTreeSet<(usize, usize)>,
    queries: BTreeSet<usize>,
    keys: Vec<u64>,
    dims: [usize; 4],
}

impl Wrong {
    /// Returns the wrong cells of a mask of the sizes `dims`, `[batch, heads, q_len, kv_len]`. `differs([batch row, head, query], row)`
    /// writes one bit for each key, 1 for a wrong cell. It is called for the queries for which `cares(batch row, query)` is true.
    pub(crate) fn of(
        dims: [usize; 4],
        cares: &dyn Fn(usize, usize) -> bool,
        mut differs: impl FnMut([usize; 3], &mut [u64]),
    ) -> Self {
        let [batch, heads, q_len, kv_len] = dims;
        let (mut row, keys) = (vec![0; kv_len.div_ceil(64)], vec![0; kv_len.div_ceil(64)]);
        let (slices, queries) = (BTreeSet::new(), BTreeSet::new());
        let mut out = Wrong { count: 0, first: Vec::new(), slices, queries, keys, dims };
        for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            for i in (0..q_len).filter(|&i| cares(b, i)) {
                differs([b, h, i], &mut row);
                let wrong = count(&row);
                if wrong > 0 {
                    out.count += wrong;
                    out.slices.insert((b, h));
                    out.queries.insert(i);
                    out.keys.iter_mut().zip(&row).for_each(|(all, word)| *all |= word);
                    out.first.extend(ones(&row).take(SHOWN - out.first.len()).map(|k| [b, h, i, k]));
                }
            }
        }
        out
    }

    /// Returns the finding with the number of wrong cells and the first wrong cells added.
    pub(crate) fn marked(&self, finding: Finding) -> Finding {
        Finding { wrong_cells: self.count, first_cells: self.first.clone(), ..finding }
    }

    /// Returns the first wrong cell, as `[batch, head, query, key]`.
    pub(crate) fn first_cell(&self) -> Option<[usize; 4]> {
        self.first.first().copied()
    }

    /// Returns the batch rows, heads, queries and keys of the wrong cells as text, such as `batch row 1, key 3`, without the dimensions
    /// in which more than half of the indices (of batch rows, all) have a wrong cell; `None` if there is no other dimension.
    pub(crate) fn place(&self) -> Option<String> {
        let axes: [BTreeSet<usize>; 4] = [
            self.slices.iter().map(|slice| slice.0).collect(),
            self.slices.iter().map(|slice| slice.1).collect(),
            self.queries.clone(),
            ones(&self.keys).collect(),
        ];
        let named = ["batch row", "head", "query", "key"].into_iter().zip(&axes).zip(self.dims);
        let named = named.filter(|((name, at), all)| at.len() * 2 <= *all || at.len() < *all && *name == "batch row");
        let parts: Vec<String> = named.map(|((name, at), _)| listed(name, at)).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Returns the cells in which `given` differs from `meant`, in the rows for which `cares(batch row, query)` is true.
pub(crate) fn difference(given: &Keep, meant: &Keep, cares: &dyn Fn(usize, usize) -> bool) -> Wrong {
    differing(given, meant, cares, |given, meant| given ^ meant)
}

/// Returns the cells for which `differs` gives 1, for each word of 64 cells of `given` and of `meant`.
pub(crate) fn differing(
    given: &Keep,
    meant: &Keep,
    cares: &dyn Fn(usize, usize) -> bool,
    differs: fn(u64, u64) -> u64,
) -> Wrong {
    let of = |[b, h, i]: [usize; 3], row: &mut [u64]| {
        let pairs = given.row(b, h, i).iter().zip(meant.row(b, h, i));
        row.iter_mut().zip(pairs).for_each(|(word, (given, meant))| *word = differs(*given, *meant));
    };
    Wrong::of(given.dims(), cares, of)
}

/// Returns text such as `key 3`, `keys 3 to 8` or `keys 1, 4` for a set of indices of the dimension `name`.
pub(crate) fn listed(name: &str, at: &BTreeSet<usize>) -> String {
    let (Some(first), Some(last)) = (at.first(), at.last()) else { return name.to_string() };
    let plural = if name == "query" { "queries".to_string() } else { format!("{name}s") };
    match at.len() {
        1 => format!("{name} {first}"),
        n if last - first + 1 == n => format!("{plural} {first} to {last}"),
        n if n <= SHOWN => format!("{plural} {}", at.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        n => format!("{n} {plural} from {first} to {last}"),
    }
}

/// Returns the keys that `given` hides from every query although `meant` does not, as text such as `keys 3, 6 of batch row 0`, if `given`
/// differs from `meant` in nothing else; otherwise `None`. A query may read its own key. Only rows of queries for which
/// `cares(batch row, query)` is true are compared.
pub(crate) fn hidden_keys(given: &Keep, meant: &Keep, cares: &dyn Fn(usize, usize) -> bool) -> Option<String> {
    let [batch, heads, q_len, kv_len] = given.dims();
    let mut hides = Vec::new();
    for b in 0..batch {
        let mut seen = vec![0u64; kv_len.div_ceil(64)];
        let mut hidden = seen.clone();
        for (h, i) in (0..heads).flat_map(|h| (0..q_len).map(move |i| (h, i))).filter(|&(_, i)| cares(b, i)) {
            let own = (i + kv_len).checked_sub(q_len);
            for (w, (given, meant)) in given.row(b, h, i).iter().zip(meant.row(b, h, i)).enumerate() {
                if given & !meant != 0 {
                    return None;
                }
                hidden[w] |= meant & !given;
                seen[w] |= given & if own.is_some_and(|own| own / 64 == w) { !(1 << (own? % 64)) } else { u64::MAX };
            }
        }
        if seen.iter().zip(&hidden).any(|(seen, hidden)| seen & hidden != 0) || count(&hidden) > 0 && count(&seen) == 0
        {
            return None;
        }
        hides.push(hidden);
    }
    keys_of_rows(&hides)
}

/// Returns the keys of each batch row, one bit for each key, as text such as `keys 3, 6 of batch row 0, key 4 of batch rows 1, 2`; `None`
/// if no row has a key.
pub(crate) fn keys_of_rows(keys: &[Vec<u64>]) -> Option<String> {
    of_rows("key", &keys.iter().map(|keys| ones(keys).collect()).collect::<Vec<_>>())
}

/// Returns the indices of each batch row as text such as `keys 3, 6 of batch row 0, key 4 of batch rows 1, 2`; `None` if no row has an
/// index. `name` is the name of an index.
pub(crate) fn of_rows(name: &str, indices: &[BTreeSet<usize>]) -> Option<String> {
    let mut rows: Vec<(String, BTreeSet<usize>)> = Vec::new();
    for (b, at) in indices.iter().enumerate().filter(|(_, at)| !at.is_empty()) {
        let at = listed(name, at);
        match rows.iter_mut().find(|(other, _)| *other == at) {
            Some((_, rows)) => _ = rows.insert(b),
            None => rows.push((at, BTreeSet::from([b]))),
        }
    }
    let of = |(text, rows): &(String, BTreeSet<usize>)| match rows.len() == indices.len() {
        true => text.clone(),
        false => format!("{text} of {}", listed("batch row", rows)),
    };
    let more = if rows.len() > SHOWN { ", ..." } else { "" };
    let shown: Vec<String> = rows.iter().take(SHOWN).map(of).collect();
    (!rows.is_empty()).then(|| shown.join(", ") + more)
}
