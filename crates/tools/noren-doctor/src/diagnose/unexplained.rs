//! Reports on a mask that differs from the declaration, when neither one nor two known mistakes explain the
//! differences.

use crate::candidates::expect::Hypothesis;
use crate::candidates::resemble;
use crate::candidates::target::Target;
use crate::diagnose::Case;
use crate::diagnose::questions::streaming;
use crate::intent::edits::Post;
use crate::intent::held::Held;
use crate::intent::leaks::Leaks;
use crate::intent::{Intent, number};
use crate::read::kinds::Role;
use crate::recognise::recognise;
use crate::report::verdict::{Outcome, compared};
use crate::report::wrong::{Wrong, hidden_keys};
use crate::report::{Certainty, Finding, Report};
use noren_mask::Keep;
use noren_mask::bits::ends;

/// The class and the cells of leaks to the unwritten slots of a cache.
const UNWRITTEN: (&str, &str) = ("unwritten_cache_visible", "cache slots to which nothing has been written");

impl Case<'_> {
    /// Reports a mask that no known mistake explains. If a kind is declared, the finding names a class only if one term
    /// of the intended mask forbids every wrong cell. If no kind is declared, the finding names only cells that are
    /// wrong in every kind of mask, such as visible padding.
    pub(crate) fn unexplained(
        &self,
        given: Keep,
        hypotheses: &[Hypothesis],
        report: &mut Report,
        outcome: &mut Outcome,
    ) -> Held {
        let asked = self.hidden_keys(&given, hypotheses).or_else(|| self.groups(&given, hypotheses));
        if let Some((intent, open)) = asked {
            (outcome.fits, outcome.open) = (true, vec![open]);
            return self.undecided(given, Some(&intent), report);
        }
        let target = Target::new(&given);
        let inverse = streaming(hypotheses).into_iter().find(|h| target.same(&h.intent, &h.intent, Post::Complement));
        if let Some(Hypothesis { intent, open, .. }) = inverse {
            let finding = Finding::of("inverted_polarity", Certainty::Likely, Post::Complement.says());
            report.findings.push(target.wrong(&intent).marked(finding));
            outcome.open = open;
            return self.undecided(given, Some(&intent), report);
        }
        let nearest = hypotheses.iter().map(|h| (target.wrong(&h.intent), h)).min_by_key(|(wrong, _)| wrong.count);
        let Some((wrong, hypothesis)) = nearest else {
            return self.undecided(given, None, report);
        };
        let right = &hypothesis.intent;
        let declared = self.is_declared(right);
        if declared && hypothesis.open.iter().any(|open| !open.between) {
            // The missing declaration may explain the whole difference.
            outcome.open = hypothesis.open.clone();
            return self.undecided(given, Some(right), report);
        }
        let named = match declared {
            true => self.only_leaks(&given, right),
            false => self.forbidden(&given, right),
        };
        match named {
            Some((class, says, loosest)) => {
                let held = self.leaking(given, right, &loosest, (class, says), wrong, report);
                if !declared {
                    // The remaining cells may have other mistakes, unless the result equals a known mask.
                    report.fixed = report.fixed.take().filter(|fixed| resemble::exact(fixed, hypotheses).is_some());
                }
                held
            }
            None if declared => self.without_a_name(given, right, wrong, report),
            None => {
                let found = resemble::nearest(&given, hypotheses);
                (report.compared, report.rows_left_out) = compared(&found.intent, given.dims()[1]);
                let shown = recognise(&given);
                outcome.nearest = Some(match shown.is_exact() && found.off > 0 {
                    true => (format!("`{}`", shown.expression()), 0),
                    false => (found.name, found.off),
                });
                self.undecided(given, None, report)
            }
        }
    }

    /// Returns true if every cell of the intended mask is declared: its kind, its tree, or for rows of keys the padding.
    fn is_declared(&self, right: &Intent) -> bool {
        self.context.kind.is_some() || right.tree.is_some() || self.is_compared_padding()
    }

    /// Reports only the query rows without visible keys. The other cells cannot be judged, and the report has no
    /// repair. `intent` is the intended mask, if it is known. Returns the cells and the intended mask for later checks.
    pub(crate) fn undecided(&self, given: Keep, intent: Option<&Intent>, report: &mut Report) -> Held {
        if let Some(intent) = intent {
            (report.compared, report.rows_left_out) = compared(intent, given.dims()[1]);
        }
        self.empty_rows(intent, report);
        report.given = Some(self.as_read(&given));
        self.held(given, intent.cloned())
    }

    /// Returns (class, description, mask) if all wrong cells are visible cells that one term of the intended mask
    /// `right`, such as the padding term, forbids. Otherwise returns `None`. The returned mask is `right`.
    fn only_leaks(&self, given: &Keep, right: &Intent) -> Option<(&'static str, String, Intent)> {
        let leaks = Leaks::count(given, right);
        if leaks.hidden > 0 || leaks.visible == 0 {
            return None;
        }
        let all = leaks.visible;
        let (class, _, what) = leaks.terms.into_iter().find(|(_, cells, _)| *cells == all)?;
        let (class, what) = match class {
            "causal_leak" if right.causal.is_some() && self.unwritten(given) => UNWRITTEN,
            class => (class, what),
        };
        let says = format!("{all} cells let queries read {what}; all other cells are as declared");
        Some((class, says, right.clone()))
    }

    /// Returns (class, description, mask) for visible cells that are wrong in every kind of mask: padding, other
    /// documents, redacted keys, unwritten cache slots. The returned mask is `right` without causality, window, chunks,
    /// prefix, blocks and tree, so it still forbids padding, other documents and redacted keys. `None` if the given
    /// mask has no such cells.
    fn forbidden(&self, given: &Keep, right: &Intent) -> Option<(&'static str, String, Intent)> {
        let loosest = Intent {
            causal: None,
            left: None,
            right: None,
            chunk: None,
            prefix: None,
            blocks: None,
            tree: None,
            ..right.clone()
        };
        let leaks = Leaks::count(given, &loosest);
        let [redacted, documents, padding, ..] = leaks.terms;
        let order =
            if documents.1 >= padding.1 { [documents, padding, redacted] } else { [padding, documents, redacted] };
        let unwritten = || {
            let worst = self.unwritten(given).then(|| Leaks::count(given, right))?;
            let future = Some(worst.of("causal_leak")).filter(|cells| *cells > 0 && *cells == worst.visible)?;
            Some((UNWRITTEN.0, future, UNWRITTEN.1))
        };
        let (class, n, what) = order.into_iter().find(|(_, cells, _)| *cells > 0).or_else(unwritten)?;
        Some((class, format!("{n} cells let queries read {what}"), loosest))
    }

    /// Reports visible cells that must be hidden, as a finding of `class` with the text `says`. The repair hides these
    /// cells and changes no other cell. If a kind is declared, if `right` has a tree, or if the cells are unwritten
    /// cache slots, these are the cells that the intended mask `right` forbids. Otherwise they are the cells that
    /// `loosest` forbids: the intended mask with only the terms that every kind of mask may have, such as padding.
    /// `wrong` has the number of cells that differ from `right`, and the first of these cells.
    fn leaking(
        &self,
        given: Keep,
        right: &Intent,
        loosest: &Intent,
        (class, says): (&'static str, String),
        wrong: Wrong,
        report: &mut Report,
    ) -> Held {
        let whole = self.is_declared(right) || class == "unwritten_cache_visible";
        let wrong = if whole { wrong } else { forbidden_cells(&given, loosest) };
        let class = match self.context.role {
            Role::Cross if class == "padding_keys_visible" => "cross_attention_mask",
            _ => class,
        };
        report.findings.push(wrong.marked(Finding::of(class, Certainty::Likely, says)));
        self.empty_rows(Some(right), report);
        report.given = Some(self.as_read(&given));
        let (base, intent) = if whole { (right, right) } else { (loosest, right) };
        let fixed = base.cut(&given, whole);
        report.fixed = Some(fixed.clone());
        self.held(fixed, Some(intent.clone()))
    }

    /// Reports wrong cells that no known mistake explains. The report has the declared cells, but no repair.
    fn without_a_name(&self, given: Keep, right: &Intent, wrong: Wrong, report: &mut Report) -> Held {
        let leaks = Leaks::count(&given, right);
        let place = wrong.place().map(|place| format!(", all of them in {place}")).unwrap_or_default();
        let says = format!(
            "{} cells differ from the declared mask{place}, and neither one nor two known mistakes explain all these cells: {} visible cells \
             should be hidden, {} hidden cells should be visible; build the mask from the declaration",
            wrong.count, leaks.visible, leaks.hidden
        );
        let built = right.build();
        let meant = built.expand([right.batch, given.dims()[1], right.q_len, right.kv_len]);
        let known = self.known.valid.is_some() || self.known.segments.is_some();
        let keys = hidden_keys(&given, &meant, &|b, i| right.cares(b, i)).filter(|_| known);
        let (class, says) = match &keys {
            Some(keys) => (
                "hidden_keys",
                format!("hidden from every query: {keys}, which should be visible; all other cells are as declared"),
            ),
            None => ("unexplained_difference", says),
        };
        // Without a visible cell, the rows that read no key are the whole difference.
        let empty = given.count() == 0;
        if !empty {
            report.findings.push(wrong.marked(Finding::of(class, Certainty::Likely, says)));
        }
        self.empty_rows(Some(right), report);
        report.given = Some(self.as_read(&given));
        match keys.is_some() || empty {
            true => report.fixed = Some(meant),
            false => report.expected = Some(meant),
        }
        self.held(built, Some(right.clone()))
    }

    /// Returns true if, for some batch row and head, every query reads a cache slot after the newest token. Returns
    /// false if no number of cached tokens is declared.
    fn unwritten(&self, given: &Keep) -> bool {
        let [batch, heads, q_len, kv_len] = given.dims();
        let declared = !self.context.past.is_empty() && self.known.k_positions.is_none();
        let written = |b: usize| number(&self.known.past, b).max(0) as usize + q_len;
        let reads = |b: usize, h: usize, i: usize| ends(given.row(b, h, i)).is_some_and(|e| e.1 >= written(b));
        declared && (0..batch).any(|b| written(b) < kv_len && (0..heads).any(|h| (0..q_len).all(|i| reads(b, h, i))))
    }
}

/// Returns the visible cells that the mask `loosest` forbids in rows of non-padding queries.
fn forbidden_cells(given: &Keep, loosest: &Intent) -> Wrong {
    let allowed = loosest.cut(given, false);
    let of = |[b, h, i]: [usize; 3], row: &mut [u64]| {
        let pairs = given.row(b, h, i).iter().zip(allowed.row(b, h, i));
        row.iter_mut().zip(pairs).for_each(|(word, (given, allowed))| *word = given & !allowed);
    };
    Wrong::of(given.dims(), &|b, i| loosest.cares(b, i), of)
}
