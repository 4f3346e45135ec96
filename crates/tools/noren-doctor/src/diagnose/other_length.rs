//! Arrays with other numbers of queries or keys than declared.

use crate::array::limits::MOST_BUILT;
use crate::candidates::expect::Hypothesis;
use crate::diagnose::Case;
use crate::intent::Intent;
use crate::intent::held::Held;
use crate::intent::known::{Sizes, bits};
use crate::read::kinds::Role;
use crate::report::{Certainty, Finding, Open, Report};
use noren_mask::Keep;
use noren_mask::bits::bit;
use std::rc::Rc;

impl Case<'_> {
    /// Returns the question about the keys of a cache, if it may have more slots than the texts have tokens, or hold only the keys of the
    /// declared window. `wanted` has the number of keys of all tokens.
    pub(crate) fn trimmed(&self, wanted: Sizes) -> Option<Open> {
        let Sizes { q_len, kv_len, .. } = self.alignment.sizes;
        let decodes = self.alignment.keys_only && self.context.kind.is_some_and(|kind| kind.causal);
        if decodes && kv_len > wanted.kv_len && self.context.kv_len.is_none() {
            let says = format!("the array has {kv_len} keys, but the texts have {} tokens", wanted.kv_len);
            let readings = ["the cache has more slots than the texts have tokens", "the mask was made for other texts"];
            return Some(Open::new(&readings, format!("{says}: does the cache have {kv_len} slots? declare kv_len")));
        }
        let window = self.context.window.filter(|_| self.context.kind.is_none_or(|kind| kind.sliding))?;
        let enough = kv_len as i64 >= window + q_len as i64 - 1 && kv_len < wanted.kv_len && q_len == wanted.q_len;
        let question = format!(
            "the mask has {kv_len} keys, but the cache and the new tokens have {}: which positions have these keys? declare kv_positions",
            wanted.kv_len
        );
        let readings = ["the cache holds only the last keys", "the mask was not extended while decoding"];
        (enough && self.context.kv_len.is_none()).then(|| Open::new(&readings, question))
    }

    /// Reports an array whose number of queries or keys differs from the declared number `wanted`.
    pub(crate) fn other_length(
        &self,
        given: Keep,
        wanted: Sizes,
        hypotheses: &[Hypothesis],
        report: &mut Report,
    ) -> Held {
        let sizes = self.alignment.sizes;
        let cached = self.context.past.iter().any(|p| *p > 0);
        let has = format!("the mask has {} keys but", sizes.kv_len);
        let (class, text) = match () {
            () if (sizes.q_len, sizes.kv_len) == (wanted.kv_len, wanted.q_len) && wanted.q_len != wanted.kv_len => (
                "broadcast_wrong_axis",
                format!(
                    "queries and keys are exchanged: the array has {} queries and {} keys, but {} queries and {} keys are declared",
                    sizes.q_len, sizes.kv_len, wanted.q_len, wanted.kv_len
                ),
            ),
            () if sizes.kv_len == wanted.kv_len => (
                "stale_or_bucketed_mask",
                format!("the mask has {} queries but {} are declared", sizes.q_len, wanted.q_len),
            ),
            () if self.context.role == Role::Cross => (
                "cross_attention_mask",
                format!("{has} the encoder has {} tokens: the decoder's own mask was passed", wanted.kv_len),
            ),
            () if sizes.kv_len < wanted.kv_len && cached => (
                "stale_decode_mask",
                format!(
                    "{has} the cache and the new tokens have {}: the mask was not extended while decoding",
                    wanted.kv_len
                ),
            ),
            () if sizes.kv_len > wanted.kv_len && self.context.window.is_some() => (
                "stale_or_bucketed_mask",
                format!(
                    "{has} {} are expected: if the cache holds only the keys of the window, pass the last {} columns of the mask",
                    wanted.kv_len, wanted.kv_len
                ),
            ),
            () => ("stale_or_bucketed_mask", format!("{has} {} are expected", wanted.kv_len)),
        };
        report.findings.push(Finding::of(class, Certainty::Certain, text));
        let cells = [wanted.batch, wanted.q_len, wanted.kv_len].iter().map(|&n| n as u128).product::<u128>();
        let intent = hypotheses.first().and_then(|h| self.extended(&given, h.intent.clone()));
        let fixed = intent.as_ref().filter(|_| cells <= MOST_BUILT).map(Intent::build);
        if cells > MOST_BUILT {
            report.unknown.push(format!(
                "the repaired mask: it was not computed, because its {cells} cells are more than the maximum of {MOST_BUILT}"
            ));
        }
        report.given = Some(given.clone());
        report.fixed = fixed.clone();
        self.held(fixed.unwrap_or(given), intent)
    }
    /// Returns the intended mask `right` without the keys that `given` hides from every query, if no padding is declared. `None` if it is
    /// unknown which keys these are, because `given` has more keys.
    fn extended(&self, given: &Keep, right: Intent) -> Option<Intent> {
        let [batch, heads, q_len, kv_len] = given.dims();
        let seen = |b: usize, k: usize| (0..heads).any(|h| (0..q_len).any(|i| bit(given.row(b, h, i), k)));
        let hidden = |b: usize, k: usize| b < batch && k < kv_len && !seen(b, k);
        if self.known.valid.is_some() || !(0..batch).any(|b| (0..kv_len).any(|k| hidden(b, k))) {
            return Some(right);
        }
        let real = |b: usize| bits(right.kv_len, |k| !hidden(b, k));
        let rows = Rc::new((0..right.batch).map(real).collect());
        (kv_len < right.kv_len).then(|| right.padded(&rows))
    }
}
