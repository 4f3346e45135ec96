//! Which mistakes turn the intended mask into the given one, exactly.

use super::edits::{Edit, Post};
use super::expect::Hypothesis;
use super::intent::{Groups, Intent, row};
use super::planes::Plane;
use noren_mask::Keep;
use noren_mask::bits::{bit, count, ends, ones};
use std::rc::Rc;

/// Pairs of mistakes are looked for where a hypothesis has a smaller doubt than this.
const MOST_DOUBT_OF_PAIRS: f64 = 0.25;

/// What it costs to believe that only row 0 of the batch is right: more than a mistake of all rows that row 0 does not show.
const ONLY_ROW_0: f64 = 1.12;

/// The given cells, and in which order rows are best compared: few rows tell most masks apart.
#[derive(Clone)]
pub(crate) struct Target<'a> {
    pub(crate) given: &'a Keep,
    /// The heads that are looked at, by batch row: one where all heads are equal.
    pub(super) heads: Vec<Vec<usize>>,
    pub(super) order: Vec<(usize, usize)>,
    /// True when some batch rows or heads are left out.
    pub(super) part: bool,
    /// Ids of the keys, where known, and the id that ends a text.
    pub(crate) ids: Option<&'a [Vec<i64>]>,
    pub(crate) eos: Option<i64>,
    pub(crate) pad: Option<i64>,
    /// A mask of keys alone cannot get causality or windows wrong.
    pub(crate) keys_only: bool,
    /// The stored row of keys of each batch row, where the mask is one.
    pub(crate) plane: Option<&'a Keep>,
}

/// A class of mistakes with its sentence.
pub(super) type Mistake = (&'static str, String);

/// What explains the difference.
#[derive(Clone)]
pub(crate) struct Explanation {
    /// Which hypothesis it starts from.
    pub(crate) hypothesis: usize,
    /// Class and sentence of each mistake.
    pub(crate) mistakes: Vec<Mistake>,
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
        Target {
            given,
            heads: vec![(0..heads).collect(); batch],
            order,
            part: false,
            ids: None,
            eos: None,
            pad: None,
            keys_only: false,
            plane: None,
        }
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

    pub(super) fn same_rows(
        &self,
        right: &Intent,
        wrong: &Intent,
        post: Post,
        looks: impl Fn(usize, usize) -> bool,
    ) -> bool {
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
            self.heads[b].iter().all(|&h| self.given.row(b, h, i) == words)
        })
    }

    fn same_transposed(&self, right: &Intent, wrong: &Intent) -> bool {
        if wrong.q_len != wrong.kv_len {
            return false;
        }
        let turned = wrong.build().transposed();
        let cares = self.order.iter().filter(|&&(b, i)| right.cares(b, i));
        cares.into_iter().all(|&(b, i)| self.heads[b].iter().all(|&h| self.given.row(b, h, i) == turned.row(b, 0, i)))
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
    pub(super) fn plane(&self, right: &Intent, wrong: &Intent) -> Option<Plane> {
        if let Some(plane) = self.plane {
            return Some(Plane::stored(plane, right.batch));
        }
        let mut open = wrong.clone();
        open.valid = None;
        let mut words = vec![0; open.words()];
        let kv_len = open.kv_len;
        let none = vec![0u64; open.words()];
        let mut seen = vec![none.clone(); open.batch];
        let mut hidden = vec![none; open.batch];
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            open.fill(b, i, &mut words);
            for &h in &self.heads[b] {
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
        let rows = (0..open.batch).filter(|&b| !self.heads[b].is_empty()).collect();
        Some(Plane { seen, hidden, rows })
    }

    /// Documents as the given mask has them: each query's first visible key names its document.
    fn documents(&self, right: &Intent, wrong: &Intent) -> Option<Intent> {
        let mut ids = vec![vec![-1i64; wrong.kv_len]; wrong.batch];
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            let slot = usize::try_from(wrong.slot(b, i)).ok().filter(|s| *s < wrong.kv_len)?;
            ids[b][slot] = ends(self.given.row(b, self.heads[b][0], i))?.0 as i64 + 1;
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
                self.in_part(&hypothesis.intent, declared, &mut |mistakes, cost| found.push(one(mistakes, cost)));
            }
        }
        if found.is_empty() {
            for (index, hypothesis) in hypotheses.iter().enumerate().filter(|(_, h)| h.doubt < MOST_DOUBT_OF_PAIRS) {
                let one = |mistakes, cost| Explanation { hypothesis: index, mistakes, cost: cost + hypothesis.doubt };
                self.pairs(&hypothesis.intent, &mut |mistakes, cost| found.push(one(mistakes, cost)));
            }
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    pub(super) fn singles(&self, right: &Intent, declared: bool, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
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
        if let Some((mistake, cost)) = self.emptied_rows(right) {
            found(vec![mistake], cost);
        }
        if right.batch > 1 && !self.part {
            self.only_row_0(right, &edits, found);
            if let Some(mistake) = self.permuted_rows(right) {
                found(vec![mistake], 1.3);
            }
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
    fn only_row_0(&self, right: &Intent, edits: &[Edit], found: &mut dyn FnMut(Vec<Mistake>, f64)) {
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
            .all(|&(b, i)| self.heads[b].iter().all(|&h| self.given.row(b, h, i).iter().all(|w| *w == 0)))
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
        if right.batch > 1 && !self.part {
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
        let b = (0..right.batch).find(|&b| right.cares(b, last) && !self.heads[b].is_empty())?;
        let first = ends(self.given.row(b, self.heads[b][0], last))?.0 as i64;
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
        let b = (0..right.batch).find(|&b| right.cares(b, i) && !self.heads[b].is_empty())?;
        let last = ends(self.given.row(b, self.heads[b][0], i))?.1 as i64;
        (last < right.kv_len as i64 - 1).then_some(last - right.position(b, i))
    }

    fn pairs(&self, right: &Intent, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
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
