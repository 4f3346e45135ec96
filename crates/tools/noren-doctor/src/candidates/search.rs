//! Searches for mistakes that change the intended mask into exactly the given mask.

use crate::candidates::expect::Hypothesis;
use crate::candidates::target::{Mistake, Target, is_full};
use crate::intent::edits::{Edit, Post};
use crate::intent::families::families;
use crate::intent::{Intent, PerRow, row};
use crate::read::words::counted;
use crate::report::wrong::Wrong;
use crate::report::{Certainty, Finding};
use noren_mask::bits::{ends, row_of};
use std::rc::Rc;

/// The maximum `doubt` (excluded) of a hypothesis for which pairs of mistakes are searched. A hypothesis is a possible
/// intended mask; its `doubt` is the cost of the assumption that this mask was intended.
const MOST_DOUBT_OF_PAIRS: f64 = 0.25;

/// The maximum difference (excluded) of cost at which the report names a second explanation beside the best one.
const CLOSE: f64 = 0.25;

/// The cost above which two frequent mistakes may be more likely than one mistake.
const RARE: f64 = 2.0;

/// The cost of the explanation that batch row 0 is correct and all other batch rows have the same mistake. The report
/// names the explanation with the lowest cost. For comparison, a frequent mistake in all batch rows costs about 1.
const ONLY_ROW_0: f64 = 1.12;

/// One or two mistakes that together explain every cell in which the given mask differs from a possible intended mask.
#[derive(Clone)]
pub(crate) struct Explanation {
    /// The index of the hypothesis (a possible intended mask) that the mistakes change into the given mask.
    pub(crate) hypothesis: usize,
    /// The class and the description of each mistake.
    pub(crate) mistakes: Vec<Mistake>,
    /// The cost of the mistakes plus the field `doubt` of the hypothesis. The explanation with the lowest cost is
    /// preferred.
    pub(crate) cost: f64,
}

impl Explanation {
    /// Returns the mistakes of the best explanation, the first of `found`, with notes on at most two others of similar cost. They are
    /// certain if `certain` is true and every explanation has the same class. `refine` returns the class to report for a class.
    pub(crate) fn findings(
        found: &[Explanation],
        certain: bool,
        wrong: &Wrong,
        refine: &dyn Fn(&'static str) -> &'static str,
    ) -> Vec<Finding> {
        let Some(best) = found.first() else { return Vec::new() };
        let near = |e: &&Explanation| e.cost < best.cost + CLOSE && e.mistakes.len() == best.mistakes.len();
        let mut classes = vec![refine(best.mistakes[0].0)];
        for class in found.iter().filter(near).map(|e| refine(e.mistakes[0].0)) {
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        let one_class = found.iter().all(|e| e.mistakes.len() == 1 && e.mistakes[0].0 == best.mistakes[0].0);
        let certainty = if certain && one_class { Certainty::Certain } else { Certainty::Likely };
        let mistakes = best.mistakes.iter();
        let named = mistakes.map(|(class, says)| wrong.marked(Finding::of(refine(class), certainty, says.clone())));
        let same = "this class of mistake would produce the same array, so it may be the cause too";
        let notes = classes[1..].iter().take(2).map(|class| Finding::of(class, Certainty::Possible, same).note());
        named.chain(notes).collect()
    }
}

impl Target<'_> {
    /// Returns explanations of the cells in which the given mask differs from one of the possible intended masks
    /// `hypotheses`, sorted by ascending cost. Three searches run one after another until a search finds an
    /// explanation: for one mistake, for one mistake in only some batch rows or heads, and for two mistakes. `declared`
    /// is true if the user declared a kind of mask.
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
        if found.iter().all(|explanation| explanation.cost > RARE) {
            for (index, hypothesis) in hypotheses.iter().enumerate().filter(|(_, h)| h.doubt < MOST_DOUBT_OF_PAIRS) {
                let one = |mistakes, cost| Explanation { hypothesis: index, mistakes, cost: cost + hypothesis.doubt };
                self.pairs(&hypothesis.intent, &mut |mistakes, cost| found.push(one(mistakes, cost)));
            }
        }
        found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        found
    }

    /// Calls `found(mistakes, cost)` for each single mistake that changes the intended mask `right` into the given
    /// mask. A mistake with a lower cost is more likely. `declared` is true if the user declared a kind of mask.
    pub(crate) fn singles(&self, right: &Intent, declared: bool, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
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
                let bonus = self.bonus(right, &wrong, Post::None);
                // A wrong operator changes the rows of padding queries too.
                let partly = matches!(edit, Edit::Either { .. }) && right.q_valid.is_some() && bonus == 0.0;
                found(vec![self.mistake(edit, right)], edit.cost() - bonus + if partly { 1.0 } else { 0.0 });
            }
        }
        if let Some(says) = self.other_tree(right) {
            found(vec![("tree_mask", says.to_string())], 1.2);
        }
        // Without a declared kind, queries and keys may belong to two grids, whose mask is unknown.
        let emptied = self.emptied_rows(right).filter(|_| declared || right.q_len == right.kv_len);
        if let Some((mistake, cost)) = emptied.or_else(|| self.equal_rows(right)) {
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
            found(vec![self.documents_mistake(right, &wrong)], 1.05);
        }
        if declared
            && !self.keys_only
            && let Some((wrong, edit)) = self.other_window(right)
            && self.same(right, &wrong, Post::None)
        {
            found(vec![self.mistake(edit, right)], 1.4);
        }
        if declared && !self.keys_only {
            self.other_sizes(right, found);
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

    /// Searches for one mistake (one of `edits`) in all batch rows except row 0, if row 0 is correct. Calls
    /// `found(mistakes, cost)` for each such mistake. Skips a mistake that would not change row 0: such a mistake may
    /// be in all batch rows, and `singles` finds it.
    fn only_row_0(&self, right: &Intent, edits: &[Edit], found: &mut dyn FnMut(Vec<Mistake>, f64)) {
        let first = |b: usize, i: usize| b == 0 && right.cares(b, i);
        let others = |b: usize, i: usize| b > 0 && right.cares(b, i);
        if !self.same_rows(right, right, Post::None, first) {
            return;
        }
        let none = Intent::new(right.batch, right.q_len, right.kv_len, right.past.to_vec());
        let made = edits.iter().filter_map(|edit| Some((edit.apply(right)?, edit.says(right))));
        let whole =
            [(none, "the batch rows after row 0 have no mask: every query of these rows reads every key".to_string())];
        for (wrong, says) in made.chain(whole) {
            let others_wrong = self.same_rows(right, &wrong, Post::None, others);
            if others_wrong && !self.same_rows(right, &wrong, Post::None, first) {
                let text = format!("batch row 0 is correct and the other batch rows are wrong: {says}");
                found(vec![("batch_row_wrong", text)], ONLY_ROW_0);
            }
        }
        if self
            .order
            .iter()
            .filter(|&&(b, i)| others(b, i))
            .all(|&(b, i)| self.heads[b].iter().all(|&h| self.given.row(b, h, i).iter().all(|w| *w == 0)))
        {
            let text =
                "batch row 0 is correct and the other batch rows are wrong: queries of the other batch rows read no key"
                    .to_string();
            found(vec![("batch_row_wrong", text)], ONLY_ROW_0);
        }
    }

    fn edits(&self, right: &Intent) -> Vec<Edit> {
        let mut edits = Edit::all(right);
        // A mask that hides nothing lacks its terms: no operator between them is wrong.
        edits.retain(|edit| !matches!(edit, Edit::Either { .. }) || !is_full(self.given));
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
        }
        if right.kv_len <= 2048 && (right.k_positions.is_some() || right.kv_len > right.q_len) {
            posts.extend((1..right.kv_len).map(Post::Roll));
        }
        posts
    }

    /// Returns the mistake in the padding of the given mask, with its cost. The given mask is compared with `wrong`,
    /// which is the intended mask `right` or this mask after another mistake. `None` if `right` has no padding, or if a
    /// mistake in the padding does not explain the given mask.
    fn padding(&self, right: &Intent, wrong: &Intent) -> Option<((&'static str, String), f64)> {
        let valid = right.valid.as_ref()?;
        let plane = self.plane(right, wrong)?;
        plane.judge(right, valid, self)
    }

    /// Returns the intended mask with the window width that the given mask shows, and the edit that sets this width.
    /// The width is that of the last query, in the first batch row in which the last query is not padding. `None` if
    /// the given mask shows no width other than the declared width, if no batch row has such a query, if the query
    /// reads no key, or if stored key positions or a tree are declared.
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

    /// Returns the mistake that padding is applied to queries instead of keys, with its cost, if some queries read all
    /// keys and all others no key, although the intended mask `right` hides only padding. The padding of the queries may
    /// be unknown, as in cross-attention without the ids of the decoder.
    fn equal_rows(&self, right: &Intent) -> Option<(Mistake, f64)> {
        let terms = right.causal.is_some() || right.left.is_some() || right.chunk.is_some() || right.segments.is_some();
        if terms || right.valid.is_none() || self.keys_only {
            return None;
        }
        let all = row_of(right.kv_len, 0, right.kv_len);
        let rows = || self.order.iter().flat_map(|&(b, i)| self.heads[b].iter().map(move |&h| self.given.row(b, h, i)));
        let is_full = |row: &[u64]| row == all;
        let is_empty = |row: &[u64]| row.iter().all(|word| *word == 0);
        let mixed = rows().any(is_full) && rows().any(is_empty) && rows().all(|row| is_full(row) || is_empty(row));
        mixed.then(|| (self.mistake(Edit::PaddingOnQueries, right), 1.1))
    }

    /// Calls `found(mistakes, cost)` if the given mask is the intended mask `right` with other chunks, prefixes or blocks,
    /// which are read from the given mask.
    fn other_sizes(&self, right: &Intent, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
        let same_terms = |shown: &Intent| {
            let terms = |i: &Intent| [i.chunk.is_some(), i.prefix.is_some(), i.left.is_some()];
            terms(shown) == terms(right) && (right.chunk.is_some() || right.prefix.is_some())
        };
        let mut report = |shown: &Intent, class, says| {
            if self.same(right, shown, Post::None) {
                found(vec![(class, says)], 1.5);
            }
        };
        for shown in families(self.given, right).iter().filter(|shown| same_terms(shown)) {
            let (class, says) = match (&shown.chunk, &right.chunk, &shown.prefix, &right.prefix) {
                (Some((n, _)), Some((declared, _)), ..) if n != declared => {
                    ("chunk_boundary", format!("chunks have {n} keys, but {declared} are declared"))
                }
                (_, _, Some(n), Some(declared)) if n != declared => {
                    let says = format!("the prefix has {n:?} keys, but {declared:?} are declared");
                    ("prefix_lm_or_block_wrong", says)
                }
                _ => continue,
            };
            report(shown, class, says);
        }
        if right.blocks.is_some() {
            let blocks = Some(self.shown_blocks(right));
            let says = "the blocks of tokens that read each other have other sizes than the declared blocks";
            report(&Intent { blocks, ..right.clone() }, "prefix_lm_or_block_wrong", says.to_string());
        }
    }

    /// Returns the blocks that the given mask shows: a query that reads later keys belongs to a block that ends with the
    /// last of these keys.
    fn shown_blocks(&self, right: &Intent) -> PerRow<i64> {
        let mut ids = vec![vec![-1i64; right.kv_len]; right.batch];
        for b in (0..right.batch).filter(|&b| !self.heads[b].is_empty()) {
            for i in (0..right.q_len).filter(|&i| right.cares(b, i)) {
                let (own, last) = (right.slot(b, i), ends(self.given.row(b, self.heads[b][0], i)).map_or(0, |e| e.1));
                if let Some(own) = usize::try_from(own).ok().filter(|own| *own < last) {
                    ids[b][own..=last].fill(last as i64);
                }
            }
        }
        Rc::new(ids)
    }

    /// Returns the causal offset that the given mask shows: the last visible key of the middle query minus the position
    /// of the middle query. For example, the offset is 1 if the query also reads the next key. `None` if the intended
    /// mask `right` is not causal, or if the middle query reads no key or reads the last key of the mask.
    fn other_border(&self, right: &Intent) -> Option<i64> {
        right.causal?;
        let i = right.q_len / 2;
        let b = (0..right.batch).find(|&b| right.cares(b, i) && !self.heads[b].is_empty())?;
        let last = ends(self.given.row(b, self.heads[b][0], i))?.1 as i64;
        (last < right.kv_len as i64 - 1).then_some(last - right.position(b, i))
    }

    /// Calls `found(mistakes, cost)` for each pair of mistakes that together change the intended mask `right` into the
    /// given mask. A pair with a lower cost is more likely.
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
                found(vec![self.mistake(first, right), self.documents_mistake(right, &wrong)], first.cost() + 1.05);
            }
            for &second in &edits[n + 1..] {
                let Some(twice) = second.apply(&once) else { continue };
                if self.same(right, &twice, Post::None) {
                    // A mistake that alone changes no cell is no mistake, such as a missing window that is wider than the cache.
                    let changes = |edit: &Edit| edit.apply(right).is_none_or(|wrong| !right.same_cells(&wrong));
                    let named = [first, second].into_iter().filter(changes);
                    let mistakes: Vec<_> = named.map(|edit| self.mistake(edit, right)).collect();
                    let bonus = self.bonus(right, &twice, Post::None);
                    if !mistakes.is_empty() {
                        found(mistakes, first.cost() + second.cost() - bonus);
                    }
                }
            }
        }
    }

    /// Returns the class and the description of a mistake in the borders between documents. `right` is the declared mask,
    /// and `wrong` is a mask with the borders of the given mask.
    fn documents_mistake(&self, right: &Intent, wrong: &Intent) -> (&'static str, String) {
        let (Some(declared), Some(found)) = (&right.segments, &wrong.segments) else {
            return ("cross_document", String::new());
        };
        let several = |ids: &Vec<i64>| {
            let runs: Vec<i64> = ids.chunk_by(|a, b| a == b).map(|run| run[0]).filter(|id| *id > 0).collect();
            runs.iter().enumerate().any(|(n, id)| runs[..n].contains(id))
        };
        if declared.iter().any(several) {
            let place = self.wrong(right).place().map(|place| format!(" in {place}")).unwrap_or_default();
            return ("cross_document", format!("tokens of different segments read each other{place}"));
        }
        let mut kinds = [0usize; 4]; // numbers of correct, shifted (by one token), missing and undeclared borders
        for b in 0..right.batch {
            let borders = |ids: &[i64]| -> Vec<i64> {
                (1..ids.len())
                    .filter(|&k| ids[k] != ids[k - 1] && ids[k] > 0 && ids[k - 1] > 0)
                    .map(|k| k as i64)
                    .collect()
            };
            let (a, f) = (borders(row(declared, b)), borders(row(found, b)));
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
                    "documents packed into one row read each other: {missing} of {} borders between documents are missing{}",
                    ok + moved + missing,
                    if invented > 0 {
                        format!(", and {} inside of documents", counted(invented as u64, "border"))
                    } else {
                        String::new()
                    }
                ),
            ),
            () if moved > 0 => (
                "document_boundary_off_by_one",
                format!("{moved} of {} borders between documents are shifted by one token", ok + moved),
            ),
            () => (
                "unexplained_difference",
                format!("{} between documents not declared", counted(invented as u64, "border")),
            ),
        }
    }
}
