//! The catalogue of the audit: the checks of a running model, which `nr.audit` in Python runs.
//!
//! A check runs the model twice, with and without a change of one input, and compares the outputs: some outputs must
//! change, the others must not. This module has the names and texts of the checks, the tokens to change, the outputs to
//! compare, the limit of rounding, and the list of untested points. Code in other crates makes inputs, runs models and
//! measures differences.

use serde::Serialize;

/// The number of padding tokens that a padding check adds at one end of the sequence.
pub const PADS: usize = 9;
/// The sequence lengths in tokens, in the order in which the audit tries them. The audit uses the first length at which
/// the last output cannot depend on the first tokens, even through all layers. A longer sequence crosses more multiples
/// of 64.
pub const LENGTHS: [usize; 3] = [72, 136, 264];
/// The number of batch rows in a run of the model in which each batch row has one changed token: the same text, with a
/// different token changed in each row.
pub const ROWS: usize = 8;

/// One check of a running model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// The name of the check in reports and arguments.
    pub name: &'static str,
    /// The heading of the check in reports.
    pub title: &'static str,
    /// The steps of the check, in words.
    pub does: &'static str,
    /// The condition under which a model passes the check, such as `the outputs agree`.
    pub holds: &'static str,
    /// The sentences that explain a failure to the user, one for each kind of failure. Each `{}` in a sentence is
    /// replaced by a name, such as the name of the changed token.
    pub broken: &'static [&'static str],
    /// The usual cause of a failure, with names of mistakes in the doctor's catalogue (`docs/doctor.md`).
    pub likely: &'static str,
}

/// All checks, in the order of reports.
pub const CHECKS: [Check; 16] = [
    Check {
        name: "prefix",
        title: "prefix invariance",
        does: "the end of the sequence is changed",
        holds: "outputs that may not read the changed tokens do not change",
        broken: &["outputs depend on tokens that come after them or that they may not read"],
        likely: "causal_leak or causal_dropped of docs/doctor.md: a mask that is missing or one cell too wide",
    },
    Check {
        name: "reach",
        title: "change of one token at a time",
        does: "one token of the sequence is changed at a time, until each token was changed once",
        holds: "outputs that may not depend on the changed token do not change; outputs that read the changed token in every layer change",
        broken: &[
            "outputs depend on {} that they may not read",
            "outputs that should depend on {} do not change with it",
        ],
        likely: "causal_leak, sliding_window_off_by_one or implicit_causal of docs/doctor.md: a mask with one cell too many or too few",
    },
    Check {
        name: "liveness",
        title: "liveness",
        does: "one token is changed",
        holds: "every output that reads the changed token in every layer changes (if one does not, a library made the mask causal, or a mask hides too much)",
        broken: &["outputs that should depend on {} do not change with it"],
        likely: "implicit_causal or causal_alignment of docs/doctor.md: a mask that hides too much",
    },
    Check {
        name: "layers",
        title: "keys that each layer reads",
        does: "in the *input* of each layer, one token is changed at a time, and the other tokens of this input stay the same",
        holds: "in each layer, exactly those outputs change whose query may read the changed token by the declared mask",
        broken: &[],
        likely: "window_missing_or_wrong_layer, sliding_window_off_by_one, causal_leak",
    },
    Check {
        name: "window",
        title: "window reach",
        does: "the beginning of the sequence is changed",
        holds: "outputs that the windows of all layers together cannot connect to the changed tokens do not change",
        broken: &["outputs depend on tokens beyond the reach of all windows"],
        likely: "window_missing_or_wrong_layer, sliding_window_off_by_one",
    },
    Check {
        name: "padding_right",
        title: "padding invariance (right)",
        does: "padding tokens of several ids are added on the right, and the ids of this padding are changed",
        holds: "outputs of non-padding tokens do not change",
        broken: &["{} on the right changes outputs of non-padding tokens"],
        likely: "padding_keys_visible, pooling_includes_padding, non_attention_op_leaks_padding",
    },
    Check {
        name: "padding_left",
        title: "padding invariance (left)",
        does: "padding tokens of several ids are added on the left, and the ids of this padding are changed",
        holds: "outputs of non-padding tokens do not change",
        broken: &["{} on the left changes outputs of non-padding tokens"],
        likely: "padding_side of docs/doctor.md (position ids that count padding tokens), or padding_keys_visible",
    },
    Check {
        name: "mask_liveness",
        title: "mask liveness",
        does: "the model runs with a mask that hides some tokens, and with a mask that hides none",
        holds: "outputs change, so the model reads the mask",
        broken: &["{} has no effect on the outputs"],
        likely: "mask_lost_on_the_way, mask_ignored_by_backend",
    },
    Check {
        name: "redaction",
        title: "redaction swap",
        does: "tokens that the mask hides are changed",
        holds: "the outputs of all other tokens do not change",
        broken: &["outputs depend on tokens that the mask hides"],
        likely: "padding_keys_visible, mask_ignored_by_backend",
    },
    Check {
        name: "weak_fill",
        title: "strength of the mask value",
        does: "keys of hidden tokens are made so large that their scores are in the millions",
        holds: "no output changes: the value that hides the keys is much lower than -1e4",
        broken: &["hidden keys are read when their scores are large: the value that the mask adds is not low enough"],
        likely: "fill_value_wrong of docs/doctor.md: hidden cells hold a finite value such as -1e4 instead of -inf",
    },
    Check {
        name: "lengths",
        title: "every length",
        does: "the model reads sequences of every length up to the tested length: alone, as the beginning of the longest sequence, and with padding",
        holds: "the outputs agree",
        broken: &[
            "a sequence of {} tokens alone gives other outputs than at the beginning of a sequence of {} tokens",
            "padding on the {} changes outputs of a sequence of {} tokens",
        ],
        likely: "stale_or_bucketed_mask, causal_alignment, padding_keys_visible",
    },
    Check {
        name: "batch",
        title: "batch-mate invariance",
        does: "the model reads sequences alone, and in every row of batches with other sequences of equal and of different lengths",
        holds: "the outputs of each sequence are the same in all runs",
        broken: &["outputs depend on the other sequences of the batch"],
        likely: "batch_row_wrong or head_batch_layout of docs/doctor.md, or a normalisation over the batch",
    },
    Check {
        name: "documents",
        title: "document isolation",
        does: "the model reads two documents that are packed into one row, then the same row with one document changed, and one document alone",
        holds: "the outputs of a document do not depend on the other document",
        broken: &["{} reads another document"],
        likely: "cross_document of docs/doctor.md: packed sequences under a plain causal mask",
    },
    Check {
        name: "cache",
        title: "cache compared with one pass",
        does: "the model runs in one pass, and token by token through the cache; in Python also with a row that is padded on the left",
        holds: "the outputs agree",
        broken: &["outputs through the cache differ from the outputs of one pass"],
        likely: "stale_decode_mask, causal_alignment, ring_buffer_misaligned",
    },
    Check {
        name: "chunks",
        title: "chunks compared with one pass",
        does: "the model runs in one pass, and in chunks of tokens through the cache; in Python also with a row that is padded on the left",
        holds: "the outputs agree",
        broken: &["outputs through the cache differ from the outputs of one pass"],
        likely: "causal_alignment, ring_buffer_misaligned, chunk_boundary",
    },
    Check {
        name: "backends",
        title: "comparison of backends",
        does: "the model runs with eager attention, with SDPA and with its default attention, or with the functions of `backends={name: function}`",
        holds: "the outputs agree",
        broken: &["{} and {} have different outputs"],
        likely: "mask_ignored_by_backend, fully_masked_row",
    },
];

impl Check {
    /// Returns the check whose name is `name`, or `None` if there is no such check.
    pub fn named(name: &str) -> Option<&'static Check> {
        CHECKS.iter().find(|check| check.name == name)
    }

    /// Returns the sentence of `broken` with the index `which`. The first `{}` in the sentence is replaced by the first
    /// text of `about`, the second `{}` by the second text, and so on.
    pub fn sentence(&self, which: usize, about: &[&str]) -> String {
        about.iter().fold(self.broken[which].to_owned(), |text, word| text.replacen("{}", word, 1))
    }
}

/// One trial of a check: the changed tokens and the compared outputs. A trial runs the model with the original tokens and with the changed tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Change {
    /// A description of the change, such as `tokens 6.. changed`.
    pub what: String,
    /// The sentence that a report shows if this trial fails.
    pub broken: String,
    /// The indices of the changed tokens.
    pub tokens: Vec<usize>,
    /// True if each batch row is a copy of the sequence in which one of the tokens is changed; false if there is one
    /// batch row, in which all the tokens are changed.
    pub one_by_one: bool,
    /// The compared outputs, as `(batch row, index of the token)`.
    pub compared: Vec<(usize, usize)>,
    /// True if all compared outputs must change; false if all compared outputs must stay equal.
    pub moves: bool,
}

/// The dependencies in a model with declared masks, for one sequence: which outputs may depend on which tokens, and
/// which outputs must.
pub struct Reads<'a> {
    /// The number of tokens of the sequence.
    pub length: usize,
    /// A function of (query, key): returns whether the output of the query may depend on the key through all layers.
    pub reach: &'a dyn Fn(usize, usize) -> bool,
    /// A function of (query, key): returns whether the query reads the key in every layer. A change of such a key must
    /// change the output of the query.
    pub direct: &'a dyn Fn(usize, usize) -> bool,
}

impl Reads<'_> {
    /// Returns the trials of one check: `prefix`, `reach`, `liveness`, `window` or `redaction`.
    ///
    /// # Errors
    /// Returns the reason as text if the check does not apply to these masks, or if `check` is another check: the
    /// trials of other checks change more than tokens.
    pub fn changes(&self, check: &str) -> Result<Vec<Change>, &'static str> {
        let (half, last) = (self.length / 2, self.length - 1);
        let (found, otherwise) = match check {
            "prefix" => {
                let cuts = [1, half, 64].into_iter().filter(|cut| *cut < self.length);
                let found = cuts.map(|cut| self.hidden(check, format!("tokens {cut}.. changed"), cut..self.length));
                (found.collect::<Vec<_>>(), "every output may read every token")
            }
            "window" => {
                let mut change = self.hidden(check, "tokens 0..3 changed".to_owned(), 0..3);
                change.compared.retain(|(_, at)| *at > 2);
                (vec![change], "through all layers, every output depends on the first tokens")
            }
            "liveness" => {
                let found = [0, half, last].into_iter().map(|token| self.live(token)).collect();
                (found, "there is no output that reads one of the changed tokens in every layer")
            }
            "reach" => {
                let turns = (0..self.length).step_by(ROWS);
                (turns.flat_map(|first| self.one_by_one(first)).collect(), "every output may read every token")
            }
            "redaction" => (
                vec![self.masked([half, half + 1])],
                "the sequence is too short: the check changes two tokens and compares the outputs of all others",
            ),
            _ => return Err("this check changes more than tokens, so its trials are not lists of changed tokens"),
        };
        let found: Vec<Change> = found.into_iter().filter(|change| !change.compared.is_empty()).collect();
        if found.is_empty() { Err(otherwise) } else { Ok(found) }
    }

    fn change(&self, check: &str, what: String, tokens: Vec<usize>) -> Change {
        let broken = Check::named(check).map_or(String::new(), |check| check.sentence(0, &[]));
        Change { what, broken, tokens, one_by_one: false, compared: Vec::new(), moves: false }
    }

    /// Returns the trial that changes `tokens` and compares the outputs that depend on none of these tokens. These outputs must stay equal.
    fn hidden(&self, check: &str, what: String, tokens: std::ops::Range<usize>) -> Change {
        let safe = |q: &usize| !tokens.clone().any(|k| k == *q || (self.reach)(*q, k));
        let compared = (0..self.length).filter(safe).map(|q| (0, q)).collect();
        Change { compared, ..self.change(check, what, tokens.clone().collect()) }
    }

    /// Returns the trial that changes `token` and compares the outputs that read `token` in every layer. These outputs must change.
    fn live(&self, token: usize) -> Change {
        let compared = (0..self.length).filter(|q| *q != token && (self.direct)(*q, token)).map(|q| (0, q)).collect();
        let broken = format!("outputs that should depend on token {token} do not change with it");
        Change {
            compared,
            broken,
            moves: true,
            ..self.change("liveness", format!("token {token} changed"), vec![token])
        }
    }

    /// Returns two trials that change [`ROWS`] tokens from index `first` on, one token in each batch row. After the
    /// last token follows token 0. The first trial compares the outputs that may not depend on the changed token, which
    /// must stay equal. The second trial compares the outputs that read the changed token in every layer, which must
    /// change.
    fn one_by_one(&self, first: usize) -> [Change; 2] {
        let tokens: Vec<usize> = (first..first + ROWS).map(|token| token % self.length).collect();
        let (low, high) = (tokens.iter().min().copied().unwrap_or(0), tokens.iter().max().copied().unwrap_or(0));
        [false, true].map(|moves| {
            let wanted = |q: usize, k: usize| if moves { (self.direct)(q, k) } else { !(self.reach)(q, k) };
            let rows = tokens.iter().enumerate();
            let compared = rows.flat_map(|(row, k)| (0..self.length).map(move |q| (row, q, *k)));
            let compared = compared.filter(|(_, q, k)| q != k && wanted(*q, *k)).map(|(row, q, _)| (row, q)).collect();
            let check = &CHECKS[1];
            let broken = check.sentence(usize::from(moves), &[if moves { "a token" } else { "tokens" }]);
            let what = format!("tokens {low}..{} changed one by one", high + 1);
            Change { compared, broken, moves, one_by_one: true, ..self.change(check.name, what, tokens.clone()) }
        })
    }

    /// Returns the trial that changes the two tokens `tokens`, which no other token may read. The outputs of all other
    /// tokens must stay equal.
    fn masked(&self, tokens: [usize; 2]) -> Change {
        let compared = (0..self.length).filter(|at| !tokens.contains(at)).map(|at| (0, at)).collect();
        let what = format!("tokens {} and {} changed, which the mask hides", tokens[0], tokens[1]);
        Change { compared, ..self.change("redaction", what, tokens.into()) }
    }
}

/// The properties of an audited model and of the runs of the audit, from which the list of untested points follows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope<'a> {
    /// The number of tokens of the longest sequence, with padding.
    pub longest: usize,
    /// The number of rows of the largest batch.
    pub rows: usize,
    /// True if the model was tested in training mode, false if in evaluation mode; `None` if the model has no modes.
    pub training: Option<bool>,
    /// Number of heads with different declared masks.
    pub heads: usize,
    /// True if each layer was also tested separately.
    pub layers: bool,
    /// True if the model was compiled with `torch.compile`, and the audit ran the uncompiled model.
    pub compiled: bool,
    /// Whether the model accepts a padding mask.
    pub padding: bool,
    /// The names of the checks that ran.
    pub checks: &'a [&'a str],
}

impl Scope<'_> {
    /// Returns the points that the audit did not test, as text.
    pub fn not_tested(&self) -> Vec<String> {
        let mut found = vec![
            format!("sequences longer than {}", self.longest),
            format!("batches of more than {} rows", self.rows),
            "masks that depend on content".to_owned(),
            "gradients".to_owned(),
        ];
        let mut open = |applies: bool, what: &str| found.extend(applies.then(|| what.to_owned()));
        open(self.training == Some(true), "evaluation mode");
        open(self.training == Some(false), "training mode");
        open(self.training == Some(true), "dropout");
        open(
            self.training.is_some(),
            "a head that reads too few tokens, if another head of the layer reads the missing ones",
        );
        open(self.heads > 1, "a head that reads tokens that the declared mask allows only to another head");
        open(!self.layers, "the keys that each layer reads");
        open(self.compiled, "the code that torch.compile makes of the model (the audit ran the model uncompiled)");
        open(!self.padding, "padding, because the model takes no mask");
        let missing: Vec<&str> =
            CHECKS.iter().map(|check| check.name).filter(|name| !self.checks.contains(name)).collect();
        open(!missing.is_empty(), &format!("the checks {}", missing.join(", ")));
        found
    }
}

/// The upper limit of the result of [`rounding`], relative to the largest output: a larger difference never counts as
/// rounding.
pub const MOST: f64 = 0.5;
/// The number of operations in one layer whose results are rounded to the type of the model: norms, projections,
/// rotation, scores, weights and sums.
const ROUNDED: f64 = 16.0;
/// The number of long sums in one layer: input projections, attention, output projection, feed-forward block.
const SUMS: f64 = 4.0;
/// The maximum difference that counts as rounding, in standard deviations of the rounding error.
const DEVIATIONS: f64 = 4.0;

/// Returns the maximum difference between the outputs of two runs that counts as rounding, relative to the largest
/// output: `4 sqrt(2 (depth + 1) (16 u^2 + 4 width s^2))`, at most [`MOST`].
///
/// `unit` is the unit roundoff `u` of the type of the model, such as 2^-24 for `f32`. `s` is the unit roundoff of the
/// type in which sums are computed: `f32` if the type of the model is narrower, otherwise the type of the model.
/// `depth` is the number of layers, and `width` is the number of terms of the longest sum. Errors of different
/// operations are independent, so their squares are added: over the operations of a layer, over the layers and the
/// output head, and over both runs.
pub fn rounding(unit: f64, depth: usize, width: usize) -> f64 {
    let summed = unit.min(f64::from(f32::EPSILON) / 2.0);
    let variance = ROUNDED * unit * unit + SUMS * width as f64 * summed * summed;
    (DEVIATIONS * (2.0 * (depth as f64 + 1.0) * variance).sqrt()).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_check() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/audit.md")).unwrap();
        for check in CHECKS {
            let row = format!("| `{}` | {} | {} |", check.name, check.does, check.holds);
            assert!(page.contains(&row), "docs/audit.md lacks the row\n{row}");
        }
    }

    #[test]
    fn changes_of_a_causal_mask() {
        let causal = |q: usize, k: usize| k <= q;
        let reads = Reads { length: 12, reach: &causal, direct: &causal };
        let prefix = reads.changes("prefix").unwrap();
        assert_eq!((prefix.len(), &prefix[1].what), (2, &"tokens 6.. changed".to_owned()));
        assert_eq!(prefix[1].compared, (0..6).map(|q| (0, q)).collect::<Vec<_>>());
        assert_eq!(reads.changes("window"), Err("through all layers, every output depends on the first tokens"));
        let live = reads.changes("liveness").unwrap();
        assert_eq!(live.iter().map(|change| change.tokens[0]).collect::<Vec<_>>(), [0, 6]);
        assert!(live.iter().all(|change| change.moves && change.compared.iter().all(|(_, q)| *q > change.tokens[0])));
        let reach = reads.changes("reach").unwrap();
        let cells: usize = reach.iter().map(|change| change.compared.len()).sum();
        // 16 columns without the token itself; four columns are tried twice
        assert_eq!((reach.len(), cells), (4, 16 * 11));
        let all = |_: usize, _: usize| true;
        assert_eq!(
            Reads { length: 12, reach: &all, direct: &all }.changes("prefix").map(|_| ()),
            Err("every output may read every token")
        );
    }

    #[test]
    fn the_bound_of_rounding_grows_with_depth_and_ends() {
        assert!(rounding(2f64.powi(-24), 2, 81) < rounding(2f64.powi(-24), 12, 81));
        assert_eq!(rounding(2f64.powi(-3), 100, 81), MOST);
    }
}
