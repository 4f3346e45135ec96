//! Which mistakes turn the intended mask into the given one, exactly.

use super::edits::{Edit, Post, other_side, shifted_rows};
use super::expect::Hypothesis;
use super::intent::{Groups, Intent, row};
use noren_mask::Keep;
use noren_mask::bits::{bit, count, ends, ones};
use std::rc::Rc;

/// What it costs to believe that only row 0 of the batch is right: more than a mistake of all rows that row 0 does not show.
const ONLY_ROW_0: f64 = 1.12;

/// The given cells, and in which order rows are best compared: few rows tell most masks apart.
pub(crate) struct Target<'a> {
    pub(crate) given: &'a Keep,
    heads: usize,
    order: Vec<(usize, usize)>,
    /// Ids of the keys, where known, and the id that ends a text.
    pub(crate) ids: Option<&'a [Vec<i64>]>,
    pub(crate) eos: Option<i64>,
    pub(crate) pad: Option<i64>,
    /// A mask of keys alone cannot get causality or windows wrong.
    pub(crate) keys_only: bool,
}

/// What explains the difference.
#[derive(Clone)]
pub(crate) struct Explanation {
    /// Which hypothesis it starts from.
    pub(crate) hypothesis: usize,
    /// Class and sentence of each mistake.
    pub(crate) mistakes: Vec<(&'static str, String)>,
    pub(crate) cost: f64,
}

impl<'a> Target<'a> {
    pub(crate) fn new(given: &'a Keep) -> Self {
        let [batch, heads, q_len, _] = given.dims();
        let mut order = Vec::with_capacity(batch * q_len);
        let telling = [q_len - 1, 0, q_len / 2, 1.min(q_len - 1), q_len / 3, q_len * 2 / 3, q_len * 3 / 4];
        for i in telling {
            order.extend((0..batch).map(|b| (b, i)));
        }
        for i in (0..q_len).filter(|i| !telling.contains(i)) {
            order.extend((0..batch).map(|b| (b, i)));
        }
        let heads = if given.heads_equal() { 1 } else { heads };
        Target { given, heads, order, ids: None, eos: None, pad: None, keys_only: false }
    }

    /// Whether `wrong` after `post` allows the given cells in every row of a real query of `right`.
    pub(crate) fn same(&self, right: &Intent, wrong: &Intent, post: Post) -> bool {
        self.same_rows(right, wrong, post, |b, i| right.cares(b, i))
    }

    /// What an explanation costs less when it fits the rows of padding too.
    fn bonus(&self, right: &Intent, wrong: &Intent, post: Post) -> f64 {
        match right.q_valid.is_some() && self.same_rows(right, wrong, post, |b, i| !right.cares(b, i)) {
            true => 0.12,
            false => 0.0,
        }
    }

    fn same_rows(&self, right: &Intent, wrong: &Intent, post: Post, looks: impl Fn(usize, usize) -> bool) -> bool {
        if post == Post::Transpose {
            return self.same_transposed(right, wrong);
        }
        let mut words = vec![0; wrong.words()];
        let tail = tail_mask(wrong.kv_len);
        self.order.iter().filter(|&&(b, i)| looks(b, i)).all(|&(b, i)| {
            match post {
                // How row 0 leaves its own padding is nobody's business: it is taken as it stands.
                Post::RowZero if b > 0 && !right.cares(0, i) => words.copy_from_slice(self.given.row(0, 0, i)),
                Post::RowZero => wrong.fill(0, i, &mut words),
                Post::BatchShift(n) => wrong.fill((b + n) % wrong.batch, i, &mut words),
                _ => wrong.fill(b, i, &mut words),
            }
            match post {
                Post::Complement => {
                    words.iter_mut().for_each(|w| *w = !*w);
                    if let Some(last) = words.last_mut() {
                        *last &= tail;
                    }
                }
                Post::Roll(n) => words = rolled(&words, wrong.kv_len, n),
                _ => {}
            }
            (0..self.heads).all(|h| self.given.row(b, h, i) == words)
        })
    }

    fn same_transposed(&self, right: &Intent, wrong: &Intent) -> bool {
        if wrong.q_len != wrong.kv_len {
            return false;
        }
        let turned = wrong.build().transposed();
        let cares = self.order.iter().filter(|&&(b, i)| right.cares(b, i));
        cares.into_iter().all(|&(b, i)| (0..self.heads).all(|h| self.given.row(b, h, i) == turned.row(b, 0, i)))
    }

    /// Number of cells that differ from `right` in rows of real queries, and the first few of them.
    pub(crate) fn wrong_cells(&self, right: &Intent, first: usize) -> (u64, Vec<[usize; 4]>) {
        let mut words = vec![0; right.words()];
        let (mut total, mut cells) = (0, Vec::new());
        let [batch, heads, q_len, _] = self.given.dims();
        for b in 0..batch {
            for h in 0..heads {
                for i in (0..q_len).filter(|&i| right.cares(b, i)) {
                    right.fill(b, i, &mut words);
                    let wrong: Vec<u64> = words.iter().zip(self.given.row(b, h, i)).map(|(a, g)| a ^ g).collect();
                    total += count(&wrong);
                    if cells.len() < first {
                        let room = first - cells.len();
                        cells.extend(ones(&wrong).take(room).map(|k| [b, h, i, k]));
                    }
                }
            }
        }
        (total, cells)
    }

    /// The keys that are hidden from every query that could read them: padding as the given mask has it. `None` where a key
    /// is hidden from some and visible to others, or where something is visible that `wrong` forbids.
    fn plane(&self, right: &Intent, wrong: &Intent) -> Option<Plane> {
        let mut open = wrong.clone();
        open.valid = None;
        let mut words = vec![0; open.words()];
        let kv_len = open.kv_len;
        let none = vec![0u64; open.words()];
        let mut seen = vec![none.clone(); open.batch];
        let mut hidden = vec![none; open.batch];
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            open.fill(b, i, &mut words);
            for h in 0..self.heads {
                // Where the author took a query for padding it may read itself all the same.
                let own = usize::try_from(open.slot(b, i)).unwrap_or(usize::MAX);
                for (w, given) in self.given.row(b, h, i).iter().enumerate() {
                    let others = if own / 64 == w { !(1 << (own % 64)) } else { u64::MAX };
                    if given & !words[w] & others != 0 {
                        return None;
                    }
                    let others = if kv_len == 1 || open.q_len == 1 { u64::MAX } else { others };
                    seen[b][w] |= given & others;
                    // A query that does not read itself tells as much as one that does not read another key.
                    hidden[b][w] |= words[w] & !given;
                }
            }
            if seen[b].iter().zip(&hidden[b]).any(|(s, h)| s & h != 0) {
                return None;
            }
        }
        Some(Plane { seen, hidden })
    }

    /// Documents as the given mask has them: each query's first visible key names its document.
    fn documents(&self, right: &Intent, wrong: &Intent) -> Option<Intent> {
        let mut ids = vec![vec![-1i64; wrong.kv_len]; wrong.batch];
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            let slot = usize::try_from(wrong.slot(b, i)).ok().filter(|s| *s < wrong.kv_len)?;
            ids[b][slot] = ends(self.given.row(b, 0, i))?.0 as i64 + 1;
        }
        for list in &mut ids {
            // Keys that no query stands at belong where the next one does.
            for k in (0..list.len().saturating_sub(1)).rev().filter(|_| wrong.q_len < wrong.kv_len) {
                if list[k] == -1 && list[k + 1] > 0 && list[k + 1] <= k as i64 + 1 {
                    list[k] = list[k + 1];
                }
            }
        }
        Some(Intent { segments: Some(Rc::new(Groups::new(ids))), ..wrong.clone() })
    }

    /// True when the mask is the intended one.
    pub(crate) fn is(&self, intent: &Intent) -> bool {
        self.same(intent, intent, Post::None)
    }

    /// The same where documents are packed but nobody said where they end.
    pub(crate) fn is_with_some_documents(&self, intent: &Intent) -> Option<Intent> {
        let found = self.documents(intent, intent)?;
        self.same(intent, &found, Post::None).then_some(found)
    }

    /// Single mistakes, then pairs; the cheapest explanations first.
    pub(crate) fn explain(&self, hypotheses: &[Hypothesis], declared: bool) -> Vec<Explanation> {
        let mut found = Vec::new();
        for (index, hypothesis) in hypotheses.iter().enumerate() {
            let one = |mistakes, cost| Explanation { hypothesis: index, mistakes, cost: cost + hypothesis.doubt };
            self.singles(&hypothesis.intent, declared, &mut |mistakes, cost| found.push(one(mistakes, cost)));
        }
        if found.is_empty() {
            for (index, hypothesis) in hypotheses.iter().enumerate() {
                let one = |mistakes, cost| Explanation { hypothesis: index, mistakes, cost: cost + hypothesis.doubt };
                self.pairs(&hypothesis.intent, &mut |mistakes, cost| found.push(one(mistakes, cost)));
            }
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    fn singles(&self, right: &Intent, declared: bool, found: &mut dyn FnMut(Vec<(&'static str, String)>, f64)) {
        let edits = self.edits(right);
        for post in self.posts(right) {
            if post != Post::None && self.same(right, right, post) {
                found(
                    vec![(post.class().unwrap_or("unexplained_difference"), post.says())],
                    post.cost() - self.bonus(right, right, post),
                );
            }
        }
        for &edit in &edits {
            let Some(wrong) = edit.apply(right) else { continue };
            if self.same(right, &wrong, Post::None) {
                found(vec![self.mistake(edit, right)], edit.cost() - self.bonus(right, &wrong, Post::None));
            }
        }
        if let Some(says) = self.other_tree(right) {
            found(vec![("tree_mask", says.to_string())], 1.2);
        }
        if right.batch > 1 {
            self.only_row_0(right, &edits, found);
        }
        if let Some((mistake, cost)) = self.padding(right, right) {
            found(vec![mistake], cost);
        }
        if right.segments.is_some()
            && let Some(wrong) = self.documents(right, right)
            && self.same(right, &wrong, Post::None)
        {
            found(vec![documents_mistake(right, &wrong)], 1.05);
        }
        if declared
            && !self.keys_only
            && let Some((wrong, edit)) = self.other_window(right)
            && self.same(right, &wrong, Post::None)
        {
            found(vec![self.mistake(edit, right)], 1.4);
        }
        if let Some(by) = self.other_border(right).filter(|_| !self.keys_only) {
            let edit = Edit::Causal(by);
            if let Some(wrong) = edit.apply(right).filter(|_| by.abs() > 2)
                && self.same(right, &wrong, Post::None)
            {
                found(vec![self.mistake(edit, right)], 1.6);
            }
        }
    }

    /// Row 0 of the batch is right, and all others have one and the same mistake, which would show in row 0 too.
    fn only_row_0(&self, right: &Intent, edits: &[Edit], found: &mut dyn FnMut(Vec<(&'static str, String)>, f64)) {
        let first = |b: usize, i: usize| b == 0 && right.cares(b, i);
        let others = |b: usize, i: usize| b > 0 && right.cares(b, i);
        if !self.same_rows(right, right, Post::None, first) {
            return;
        }
        let none = Intent::new(right.batch, right.q_len, right.kv_len, right.past.to_vec());
        let made = edits.iter().filter_map(|edit| Some((edit.apply(right)?, edit.says(right))));
        let whole = [(none, "they have no mask at all: every query reads every key".to_string())];
        for (wrong, says) in made.chain(whole) {
            let others_wrong = self.same_rows(right, &wrong, Post::None, others);
            if others_wrong && !self.same_rows(right, &wrong, Post::None, first) {
                let text = format!("row 0 of the batch is right and the other rows are not: {says}");
                found(vec![("batch_row_wrong", text)], ONLY_ROW_0);
            }
        }
        if self
            .order
            .iter()
            .filter(|&&(b, i)| others(b, i))
            .all(|&(b, i)| (0..self.heads).all(|h| self.given.row(b, h, i).iter().all(|w| *w == 0)))
        {
            let text = "row 0 of the batch is right and the other rows are not: they read nothing".to_string();
            found(vec![("batch_row_wrong", text)], ONLY_ROW_0);
        }
    }

    fn edits(&self, right: &Intent) -> Vec<Edit> {
        let mut edits = Edit::all(right);
        if self.keys_only {
            let of_keys = [Edit::DropPadding, Edit::Unwritten, Edit::DropDocuments, Edit::DropRedactions];
            edits.retain(|edit| of_keys.contains(edit));
        }
        edits
    }

    fn mistake(&self, edit: Edit, right: &Intent) -> (&'static str, String) {
        (edit.class(right), edit.says(right))
    }

    fn posts(&self, right: &Intent) -> Vec<Post> {
        let mut posts = vec![Post::Complement, Post::Transpose];
        if right.batch > 1 {
            posts.push(Post::RowZero);
            posts.extend((1..right.batch.min(64)).map(Post::BatchShift));
        }
        if right.kv_len <= 2048 && (right.k_positions.is_some() || right.kv_len > right.q_len) {
            posts.extend((1..right.kv_len).map(Post::Roll));
        }
        posts
    }

    /// The padding as it stands in the mask against the padding there should be.
    fn padding(&self, right: &Intent, wrong: &Intent) -> Option<((&'static str, String), f64)> {
        let valid = right.valid.as_ref()?;
        let plane = self.plane(right, wrong)?;
        plane.judge(right, valid, self)
    }

    /// A window of another width, or one that nobody declared.
    fn other_window(&self, right: &Intent) -> Option<(Intent, Edit)> {
        if right.k_positions.is_some() || right.tree.is_some() {
            return None;
        }
        let last = right.q_len - 1;
        let b = (0..right.batch).find(|&b| right.cares(b, last))?;
        let first = ends(self.given.row(b, 0, last))?.0 as i64;
        let left = right.position(b, last) - first;
        let edit = match right.left {
            Some(declared) if left != declared => Edit::Window(left - declared),
            None if left < right.position(b, last) => Edit::AddWindow(left),
            _ => return None,
        };
        Some((edit.apply(right)?, edit))
    }

    /// How far the causal border is off, by a row in the middle.
    fn other_border(&self, right: &Intent) -> Option<i64> {
        right.causal?;
        let i = right.q_len / 2;
        let b = (0..right.batch).find(|&b| right.cares(b, i))?;
        let last = ends(self.given.row(b, 0, i))?.1 as i64;
        (last < right.kv_len as i64 - 1).then_some(last - right.position(b, i))
    }

    fn pairs(&self, right: &Intent, found: &mut dyn FnMut(Vec<(&'static str, String)>, f64)) {
        let edits = self.edits(right);
        for (n, &first) in edits.iter().enumerate() {
            let Some(once) = first.apply(right) else { continue };
            for post in [Post::Complement, Post::Transpose, Post::RowZero] {
                if (post != Post::RowZero || right.batch > 1)
                    && (post != Post::Transpose || right.kv_len <= 1024)
                    && self.same(right, &once, post)
                {
                    let by_post = (post.class().unwrap_or_default(), post.says());
                    found(vec![by_post, self.mistake(first, right)], post.cost() + first.cost());
                }
            }
            if let Some((mistake, cost)) = self.padding(right, &once) {
                found(vec![self.mistake(first, right), mistake], first.cost() + cost);
            }
            if right.segments.is_some()
                && let Some(wrong) = self.documents(right, &once)
                && self.same(right, &wrong, Post::None)
            {
                found(vec![self.mistake(first, right), documents_mistake(right, &wrong)], first.cost() + 1.05);
            }
            for &second in &edits[n + 1..] {
                let Some(twice) = second.apply(&once) else { continue };
                if self.same(right, &twice, Post::None) {
                    found(vec![self.mistake(first, right), self.mistake(second, right)], first.cost() + second.cost());
                }
            }
        }
    }
}

/// Which keys the given mask treats as real (`seen`) and as padding (`hidden`), by batch row; the rest no query could read.
struct Plane {
    seen: Vec<Vec<u64>>,
    hidden: Vec<Vec<u64>>,
}

impl Plane {
    /// Whether it is `other`, as far as it tells.
    fn is(&self, other: &[Vec<u64>]) -> bool {
        let told = |b: usize| self.seen[b].iter().zip(&self.hidden[b]).zip(row(other, b));
        (0..self.seen.len()).all(|b| told(b).all(|((s, h), o)| s & !o == 0 && h & o == 0))
    }

    fn judge(&self, right: &Intent, valid: &[Vec<u64>], target: &Target<'_>) -> Option<((&'static str, String), f64)> {
        let batch = right.batch;
        let kv_len = right.kv_len;
        if self.is(valid) {
            return None;
        }
        let each = |f: &dyn Fn(&[u64]) -> Vec<u64>| -> Vec<Vec<u64>> { (0..batch).map(|b| f(row(valid, b))).collect() };
        let all = noren_mask::bits::row_of(kv_len, 0, kv_len);
        let not = |r: &[u64]| r.iter().zip(&all).map(|(w, a)| !w & a).collect::<Vec<u64>>();
        let say = |class, text: &str, cost| Some(((class, text.to_string()), cost));
        let extra: u64 = (0..batch).map(|b| overlap(&self.seen[b], &not(row(valid, b)))).sum();
        let missing: u64 = (0..batch).map(|b| overlap(&self.hidden[b], row(valid, b))).sum();
        // Where nothing is seen but a query's own key, a narrow window looks the same.
        let seen = target.keys_only || self.seen.iter().flatten().any(|w| *w != 0);
        if seen && self.is(&each(&not)) {
            return say(
                "inverted_polarity",
                "padding is the other way round: real tokens are hidden and padding is visible",
                0.95,
            );
        }
        if extra == 0
            && missing > 0
            && let Some(text) = self.holes(valid, target)
        {
            return Some((("pad_equals_eos_holes", text), 0.9));
        }
        if batch > 1 {
            let first = row(valid, 0);
            let same_lengths = (1..batch).all(|b| row(valid, b) == first);
            if !same_lengths && count(first) < kv_len as u64 && self.is(&vec![first.to_vec(); batch]) {
                return say("batch_row_wrong", "every batch row has the padding of row 0", 1.0);
            }
            let only_first: Vec<Vec<u64>> =
                (0..batch).map(|b| if b == 0 { first.to_vec() } else { all.clone() }).collect();
            if count(first) < kv_len as u64 && self.is(&only_first) {
                return say("batch_row_wrong", "only row 0 of the batch has its padding hidden", 1.0);
            }
            let nothing = vec![0u64; all.len()];
            let only_first: Vec<Vec<u64>> =
                (0..batch).map(|b| if b == 0 { first.to_vec() } else { nothing.clone() }).collect();
            if self.is(&only_first) {
                return say("batch_row_wrong", "only row 0 of the batch has a mask: the others read nothing", 1.0);
            }
        }
        if missing == 0 && self.hidden.iter().all(|h| h.iter().all(|w| *w == 0)) {
            let written = (0..batch)
                .map(|b| super::intent::number(&right.past, b).max(0) as usize + right.q_len)
                .max()
                .unwrap_or(0);
            return match written < kv_len && right.past.iter().any(|p| *p != 0) {
                true => say(
                    "unwritten_cache_visible",
                    "slots of the cache that nothing has been written to are visible",
                    1.0,
                ),
                false => {
                    say("padding_keys_visible", "padding keys are visible to real queries: nothing is hidden", 1.0)
                }
            };
        }
        if self.is(&each(&|r| other_side(r, kv_len))) {
            return say("padding_side", "padding is hidden at the wrong end of the rows", 1.0);
        }
        for by in 1..batch.min(64) {
            if self.is(&shifted_rows(valid, batch, by)) {
                return say("batch_row_wrong", "batch rows have each other's padding", 1.2);
            }
        }
        Some(self.lengths(right, valid, extra, missing))
    }

    /// Real tokens that are hidden wherever their id is the one that ends a text or pads it.
    fn holes(&self, valid: &[Vec<u64>], target: &Target<'_>) -> Option<String> {
        let ids = target.ids?;
        let mut seen_id: Option<i64> = None;
        for b in 0..self.hidden.len() {
            let real: Vec<u64> = self.hidden[b].iter().zip(row(valid, b)).map(|(h, v)| h & v).collect();
            for k in ones(&real) {
                let id = *row(ids, b).get(k)?;
                let special = Some(id) == target.eos || Some(id) == target.pad;
                if !special || seen_id.is_some_and(|s| s != id) {
                    return None;
                }
                seen_id = Some(id);
            }
        }
        let id = seen_id?;
        Some(format!(
            "real tokens with id {id} are hidden: the mask was made as ids != {id}, but {id} also ends texts; take lengths, never ids"
        ))
    }

    /// Other lengths than there are.
    fn lengths(&self, right: &Intent, valid: &[Vec<u64>], extra: u64, missing: u64) -> ((&'static str, String), f64) {
        let past = right.past.iter().copied().max().unwrap_or(0);
        // Every new token is hidden: a mask of the cache alone.
        let new_hidden = |b: usize| {
            let start = super::intent::number(&right.past, b).max(0) as usize;
            (start..(start + right.q_len).min(right.kv_len)).all(|k| bit(&self.hidden[b], k) || !bit(row(valid, b), k))
        };
        let stale = extra == 0 || (0..right.batch).all(new_hidden);
        if past > 0 && missing > 0 && stale && right.k_positions.is_none() {
            let text =
                format!("{missing} real key(s) are hidden: the padding mask was not extended when the cache grew");
            return (("stale_decode_mask", text), 1.1);
        }
        let runs = (0..right.batch).all(|b| is_run(&self.seen[b]));
        let text = |what: &str| format!("{what}: {extra} padding key(s) visible, {missing} real key(s) hidden");
        match () {
            () if runs && extra > 0 && missing == 0 && right.batch == 1 => {
                (("stale_or_bucketed_mask", text("the mask is made for a longer text than there is")), 1.2)
            }
            () if runs => (("stale_or_bucketed_mask", text("the mask has the lengths of another batch")), 1.2),
            () if extra > 0 && missing == 0 => (("padding_keys_visible", text("some padding keys are visible")), 1.3),
            () if extra == 0 => {
                let hole = (0..right.batch).find_map(|b| {
                    let real: Vec<u64> = self.hidden[b].iter().zip(row(valid, b)).map(|(h, v)| h & v).collect();
                    ones(&real).next().map(|k| (b, k))
                });
                let place = hole.map_or(String::new(), |(b, k)| format!(", the first at key {k} of batch row {b}"));
                (("pad_equals_eos_holes", format!("{missing} real key(s) are hidden inside the text{place}")), 1.3)
            }
            () => (("stale_or_bucketed_mask", text("the padding in the mask is not that of these texts")), 1.4),
        }
    }
}

/// Which of the declared borders between documents the mask has.
fn documents_mistake(right: &Intent, wrong: &Intent) -> (&'static str, String) {
    let (Some(declared), Some(found)) = (&right.segments, &wrong.segments) else {
        return ("cross_document", String::new());
    };
    let mut kinds = [0usize; 4]; // right, moved by one, missing, invented
    for b in 0..right.batch {
        let borders = |ids: &[i64]| -> Vec<i64> {
            (1..ids.len()).filter(|&k| ids[k] != ids[k - 1] && ids[k] > 0 && ids[k - 1] > 0).map(|k| k as i64).collect()
        };
        let (a, f) = (borders(row(&declared.ids, b)), borders(row(&found.ids, b)));
        for border in &a {
            match () {
                () if f.contains(border) => kinds[0] += 1,
                () if f.contains(&(border - 1)) || f.contains(&(border + 1)) => kinds[1] += 1,
                () => kinds[2] += 1,
            }
        }
        let near = |x: &i64| a.iter().any(|border| (border - x).abs() <= 1);
        kinds[3] += f.iter().filter(|x| !near(x)).count();
    }
    let [ok, moved, missing, invented] = kinds;
    match () {
        () if missing > 0 => (
            "cross_document",
            format!(
                "documents packed into one row read each other: {missing} of {} borders are missing",
                ok + moved + missing
            ),
        ),
        () if moved > 0 => (
            "document_boundary_off_by_one",
            format!("{moved} of {} borders between documents are one token off", ok + moved),
        ),
        () => (
            "document_boundary_off_by_one",
            format!("{invented} border(s) between documents where there should be none"),
        ),
    }
}

fn overlap(a: &[u64], b: &[u64]) -> u64 {
    a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum()
}

fn is_run(row: &[u64]) -> bool {
    ends(row).is_none_or(|(first, last)| count(row) == (last - first + 1) as u64)
}

fn tail_mask(len: usize) -> u64 {
    match len % 64 {
        0 => u64::MAX,
        n => u64::MAX >> (64 - n),
    }
}

fn rolled(row: &[u64], len: usize, by: usize) -> Vec<u64> {
    let mut out = vec![0; row.len()];
    (0..len).filter(|&k| bit(row, k)).for_each(|k| noren_mask::bits::set_bit(&mut out, (k + by) % len));
    out
}
