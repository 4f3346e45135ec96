//! The catalogue of the audit: the checks of a running model, in Rust (`noren_candle::audit`) and in Python
//! (`nr.audit`).
//!
//! A check runs the model twice, with and without a change of one input, and compares the outputs. Some outputs must change and others must not. This
//! module has the names and texts of the checks, the tokens that are changed, the outputs that are compared, the limit of rounding, and the list of
//! untested points. Code in other crates makes inputs, runs models and measures differences.

use serde::Serialize;

/// The number of padding tokens that a check of padding adds at one end of the sequence.
pub const PADS: usize = 9;
/// The sequence lengths that the audit tries, one after another. The first length is used at which the last output
/// cannot depend on the first tokens, even through all layers. A longer length crosses more multiples of 64.
pub const LENGTHS: [usize; 3] = [72, 136, 264];
/// The number of batch rows of one run of the model. A different token is changed in each row.
pub const ROWS: usize = 8;

/// One check of a running model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// The name in reports and arguments.
    pub name: &'static str,
    /// The heading in reports.
    pub title: &'static str,
    /// The procedure of the check, in words.
    pub does: &'static str,
    /// The condition under which a model passes the check, such as `the outputs agree`.
    pub holds: &'static str,
    /// The meaning of a failure, with one sentence for each kind of failure. Each `{}` is replaced by a name, such as the name of the changed token.
    pub broken: &'static [&'static str],
    /// The usual cause of a failure, with names of the doctor's catalogue.
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
        likely: "causal_leak, causal_dropped: a mask that is missing or one cell too wide",
    },
    Check {
        name: "reach",
        title: "every token by itself",
        does: "every token is changed by itself",
        holds: "outputs that may not depend on the token do not change, outputs that read the token directly change",
        broken: &["outputs depend on {}tokens that they may not read", "outputs that should read {}token do not"],
        likely: "causal_leak, sliding_window_off_by_one, implicit_causal: one cell too many or too few",
    },
    Check {
        name: "liveness",
        title: "liveness",
        does: "one token is changed",
        holds: "every output that reads the token directly changes (otherwise: implicit causality, or a mask that hides too much)",
        broken: &["outputs that should read {} do not"],
        likely: "implicit_causal, causal_alignment: a mask that hides too much",
    },
    Check {
        name: "layers",
        title: "what each layer reads",
        does: "in each layer's *input*, every token is changed by itself, and the layer's other inputs are restored",
        holds: "exactly those outputs of the layer change that may read the token by its declared mask",
        broken: &[],
        likely: "window_missing_or_wrong_layer, sliding_window_off_by_one, causal_leak",
    },
    Check {
        name: "window",
        title: "window reach",
        does: "the beginning of the sequence is changed",
        holds: "outputs beyond the reach of all windows together do not change",
        broken: &["outputs depend on tokens beyond the reach of all windows"],
        likely: "window_missing_or_wrong_layer, sliding_window_off_by_one",
    },
    Check {
        name: "padding_right",
        title: "padding invariance (right)",
        does: "padding of several ids is added on the right, and the ids are changed",
        holds: "outputs of real tokens do not change",
        broken: &["{} on the right changes outputs of real tokens"],
        likely: "padding_keys_visible, pooling_includes_padding, non_attention_op_leaks_padding",
    },
    Check {
        name: "padding_left",
        title: "padding invariance (left)",
        does: "padding of several ids is added on the left, and the ids are changed",
        holds: "outputs of real tokens do not change",
        broken: &["{} on the left changes outputs of real tokens"],
        likely: "padding_side (position ids counted from the slot), padding_keys_visible",
    },
    Check {
        name: "mask_liveness",
        title: "mask liveness",
        does: "the model runs on padded tokens with their mask, and with a mask of ones",
        holds: "outputs change, so the model reads the mask",
        broken: &["{} has no effect"],
        likely: "mask_lost_on_the_way, mask_ignored_by_backend",
    },
    Check {
        name: "redaction",
        title: "redaction swap",
        does: "tokens are masked out and changed",
        holds: "no other output changes",
        broken: &["outputs depend on tokens that are masked out"],
        likely: "padding_keys_visible, mask_ignored_by_backend",
    },
    Check {
        name: "weak_fill",
        title: "weight of the mask",
        does: "keys of hidden tokens are made so large that their scores are in the millions",
        holds: "no output changes: the value that hides the keys is much lower than -1e4",
        broken: &["hidden keys are read when their scores are large: the mask adds a value that is too small"],
        likely: "fill_value_wrong: a finite value such as -1e4 instead of -inf",
    },
    Check {
        name: "lengths",
        title: "every length",
        does: "the sequence runs at every length up to the tested one: alone, as the beginning of the longest, and padded",
        holds: "the outputs agree",
        broken: &[
            "a sequence of {} tokens alone gives other outputs than at the beginning of {}",
            "padding on the {} changes outputs of a sequence of {} tokens",
        ],
        likely: "stale_or_bucketed_mask, causal_alignment, padding_keys_visible",
    },
    Check {
        name: "batch",
        title: "batch-mate invariance",
        does: "four sequences run alone and in batches: in every row, with equal and with different lengths, and with other batch mates",
        holds: "the outputs of each sequence are the same in all runs",
        broken: &["outputs depend on the other sequences of the batch"],
        likely: "batch_row_wrong, head_batch_layout, normalisation over the batch",
    },
    Check {
        name: "documents",
        title: "document isolation",
        does: "two documents run in one row, and one of them is changed; one of them also runs alone",
        holds: "the outputs of the other document do not change",
        broken: &["{}one document reads another"],
        likely: "cross_document: packed sequences under a plain causal mask",
    },
    Check {
        name: "cache",
        title: "cache against one pass",
        does: "the model runs in one pass, and token by token through the cache, with a row padded on the left",
        holds: "the outputs agree",
        broken: &["outputs through the cache differ from the outputs of one pass"],
        likely: "stale_decode_mask, causal_alignment, ring_buffer_misaligned",
    },
    Check {
        name: "chunks",
        title: "chunked prefill against one pass",
        does: "the model runs in one pass, and in chunks through the cache, with a row padded on the left",
        holds: "the outputs agree",
        broken: &["outputs through the cache differ from the outputs of one pass"],
        likely: "causal_alignment, ring_buffer_misaligned, chunk_boundary",
    },
    Check {
        name: "backends",
        title: "backend against backend",
        does: "the model runs with eager attention, with SDPA and with its default; or with `backends={name: function}`",
        holds: "the outputs agree",
        broken: &["{} and {} have different outputs"],
        likely: "mask_ignored_by_backend, fully_masked_row",
    },
];

impl Check {
    /// Returns the check of a name.
    pub fn named(name: &str) -> Option<&'static Check> {
        CHECKS.iter().find(|check| check.name == name)
    }

    /// Returns the sentence with index `which` of `broken`. Each `{}` in the sentence is replaced by the next text of
    /// `about`.
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
    /// The changed tokens.
    pub tokens: Vec<usize>,
    /// True if the batch has one copy of the sequence for each changed token; false if the batch has one row, in which all tokens are changed.
    pub one_by_one: bool,
    /// The compared outputs, as `(batch row, index of the token)`.
    pub compared: Vec<(usize, usize)>,
    /// True if all compared outputs must change; false if all compared outputs must stay equal.
    pub moves: bool,
}

/// The masks of a model over one sequence, as functions of a query and a key.
pub struct Reads<'a> {
    /// The number of tokens of the sequence.
    pub length: usize,
    /// A function of (query, key): returns whether the output of the query may depend on the key through all layers.
    pub reach: &'a dyn Fn(usize, usize) -> bool,
    /// A function of (query, key): returns whether the query reads the key in every layer. A change of the key must then change the output.
    pub direct: &'a dyn Fn(usize, usize) -> bool,
}

impl Reads<'_> {
    /// Returns the trials of one check: `prefix`, `reach`, `liveness`, `window` or `redaction`.
    ///
    /// # Errors
    /// Returns the reason as text if the check does not apply to these masks, or if `check` is another check, which
    /// changes more than tokens.
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
                (found, "no output reads any other token directly in every layer")
            }
            "reach" => {
                let turns = (0..self.length).step_by(ROWS);
                (turns.flat_map(|first| self.one_by_one(first)).collect(), "every output may read every token")
            }
            "redaction" => (vec![self.masked([half, half + 1])], "the sequence is too short"),
            _ => return Err("the check changes more than tokens"),
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
        let broken = format!("outputs that should read token {token} do not");
        Change {
            compared,
            broken,
            moves: true,
            ..self.change("liveness", format!("token {token} changed"), vec![token])
        }
    }

    /// Returns two trials that change [`ROWS`] tokens from `first` on, one token in each batch row. The first trial
    /// compares the outputs that may not depend on the changed token; they must stay equal. The second trial compares
    /// the outputs that read the changed token in every layer; they must change.
    fn one_by_one(&self, first: usize) -> [Change; 2] {
        let tokens: Vec<usize> = (first..first + ROWS).map(|token| token % self.length).collect();
        let (low, high) = (tokens.iter().min().copied().unwrap_or(0), tokens.iter().max().copied().unwrap_or(0));
        [false, true].map(|moves| {
            let wanted = |q: usize, k: usize| if moves { (self.direct)(q, k) } else { !(self.reach)(q, k) };
            let rows = tokens.iter().enumerate();
            let compared = rows.flat_map(|(row, k)| (0..self.length).map(move |q| (row, q, *k)));
            let compared = compared.filter(|(_, q, k)| q != k && wanted(*q, *k)).map(|(row, q, _)| (row, q)).collect();
            let check = &CHECKS[1];
            let broken = check.sentence(usize::from(moves), &[if moves { "a " } else { "" }]);
            let what = format!("tokens {low}..{} changed one by one", high + 1);
            Change { compared, broken, moves, one_by_one: true, ..self.change(check.name, what, tokens.clone()) }
        })
    }

    /// Returns the trial that changes the two tokens `tokens`, which no other token may read. The outputs of all other
    /// tokens must stay equal.
    fn masked(&self, tokens: [usize; 2]) -> Change {
        let compared = (0..self.length).filter(|at| !tokens.contains(at)).map(|at| (0, at)).collect();
        let what = format!("masked tokens {}, {} changed", tokens[0], tokens[1]);
        Change { compared, ..self.change("redaction", what, tokens.into()) }
    }
}

/// The properties of an audited model and of the runs of the audit. The list of untested points depends on them.
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
    /// True if the model was compiled with `torch.compile`, and the audit ran it without the compilation.
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
        open(self.training.is_some(), "one head that reads too few tokens, if another head reads them");
        open(self.heads > 1, "one head that reads tokens that the intent allows to another head only");
        open(!self.layers, "the keys that each layer reads");
        open(self.compiled, "the code that torch.compile makes of the model (the audit ran the model uncompiled)");
        open(!self.padding, "padding (the model takes no mask)");
        let missing: Vec<&str> =
            CHECKS.iter().map(|check| check.name).filter(|name| !self.checks.contains(name)).collect();
        open(!missing.is_empty(), &format!("the checks {}", missing.join(", ")));
        found
    }
}

/// The upper bound of the result of [`rounding`]: a difference above half of the largest output never counts as
/// rounding.
pub const MOST: f64 = 0.5;
/// The number of results in one layer that are rounded to the type of the model: norms, projections, rotation, scores, weights, sums.
const ROUNDED: f64 = 16.0;
/// The number of long sums in one layer: input projections, attention, output projection, feed-forward block.
const SUMS: f64 = 4.0;
/// The maximum difference that counts as rounding, in standard deviations of the rounding error.
const DEVIATIONS: f64 = 4.0;

/// Returns the maximum difference between two passes that counts as rounding, relative to the largest output: `4 sqrt(2
/// (depth + 1) (16 u^2 + 4 width s^2))`, at most [`MOST`].
///
/// `unit` is the unit roundoff `u` of the type of the model, such as 2^-24 for `f32`. `s` is the unit roundoff of the
/// type of sums: `f32` for narrower types, otherwise the type itself. `depth` is the number of layers, and `width` is
/// the number of terms of the longest sum. Errors of different operations are independent, so their squares are added:
/// over the operations of a layer, over the layers and the output head, and over both passes.
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
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/audit.md")).unwrap();
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
