//! Checks the arrays given with a mask: positions, labels, pooled states, probabilities, packed lengths.

pub(crate) mod borders;
pub(crate) mod labels;
pub(crate) mod packed;
pub(crate) mod positions;
pub(crate) mod table;
pub(crate) mod tensors;
pub(crate) mod weights;

use crate::companions::labels::{COMPLETION_IDS, COMPLETIONS, LABELS, Scene};
use crate::companions::packed::{LONGEST, packed_lengths, restarts};
use crate::companions::positions::positions;
use crate::companions::table::{Checked, sources, tokens_of, used};
use crate::companions::tensors::{POOLED, STATES, VALUES};
use crate::companions::weights::PROBABILITIES;
use crate::intent::held::Held;
use crate::intent::known::{self, Companions, ENDS, IDS, Known, LENGTHS, PADDING, POSITIONS, SEGMENTS, Sizes};
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::read::input::Input;
use crate::read::kinds::{Convention, Role};
use crate::read::values::Values;
use crate::read::words::counted;
use crate::report::wrong::{Wrong, listed};
use crate::report::{Certainty, Finding, Report, Severity, Verdict};
use noren_mask::bits::{bit, count, ends, row_of};
use noren_mask::{Error, Side};
use std::collections::{BTreeMap, BTreeSet};

const KEY_OWNERS: &[&str] = &["kv_seq_ids", "slot_seq_ids", "slot_owners", "kv_owners", "key_seq_ids"];
const QUERY_OWNERS: &[&str] = &["query_seq_ids", "q_seq_ids", "query_owners"];

/// The arrays that the checks of this folder compare: all accepted names of each, and the arrays and declarations with which each is
/// compared.
const COMPARED: &[(&[&str], &str)] = &[
    (LABELS, "input_ids of the same shape"),
    (ENDS, "input_ids, segment_ids, position_ids of one row, or max_seqlen"),
    (LONGEST, "cu_seqlens"),
    (KEY_OWNERS, "query_seq_ids, if it has one number for each key of the mask"),
    (QUERY_OWNERS, "kv_seq_ids, if it has one number for each query of the mask"),
    (COMPLETION_IDS, "completion_mask of the same shape and eos_token_id"),
    (COMPLETIONS, "completion_ids or input_ids of the same shape and eos_token_id"),
    (POOLED, "hidden of the shape [batch, tokens, width], if it has the shape [batch, width]"),
    (STATES, "pooled of the shape [batch, width], if it has the shape [batch, tokens, width]"),
    (
        PROBABILITIES,
        "a mask of the same queries and keys, or with the padding of its keys (of the encoder, if kind=cross), if it has the shape [batch, heads, queries, keys]",
    ),
    (VALUES, "a mask of the same keys"),
    (known::BLOCKS, "a mask whose kind has blocks"),
    (known::FLAGGED_BLOCKS, "a mask whose kind has blocks"),
    (
        POSITIONS,
        "the padding or documents of other arrays, if it has one number for each token, and one row or one for each batch row",
    ),
    (IDS, "attention_mask, lengths or position_ids if pad_token_id is declared, or with labels of the same shape"),
    (PADDING, "lengths, position_ids, pooled, labels, or input_ids with pad_token_id"),
    (LENGTHS, "attention_mask, position_ids, pooled, labels, or input_ids with pad_token_id"),
    (SEGMENTS, "position_ids, cu_seqlens or a mask"),
];

/// Returns one message for each given array that no check reads, because its name is unknown. Returns an error if such a
/// name looks like a misspelled known name.
pub(super) fn unread(beside: &Companions<'_>) -> Result<Vec<String>, Error> {
    let known = || COMPARED.iter().map(|entry| entry.0).chain(known::NAMES.iter().copied()).flatten().copied();
    let unread = beside.0.keys().filter(|name| !known().any(|k| k == name.as_str()));
    let says = |name: &String| match noren_mask::nearest(name, known()) {
        Some(near) => Err(Error::invalid(format!("the array `{name}` has an unknown name: did you mean `{near}`?"))),
        None => Ok(format!("the array `{name}`: no check reads an array of this name")),
    };
    unread.map(says).collect()
}

/// Returns one message for each given array of a known name that is not in `compared`, the names of the compared arrays, and whether the
/// verdict is open without it. `sizes` are the sizes of the mask, if one is given: an array that gives its padding, documents or
/// positions is compared with its cells.
pub(super) fn uncompared(
    beside: &Companions<'_>,
    context: &Context,
    compared: &BTreeSet<String>,
    sizes: Option<Sizes>,
) -> Vec<(bool, String)> {
    let used = sizes.map(|sizes| used(beside, context, sizes)).unwrap_or_default();
    let needs = |name: &&str| {
        let found = COMPARED.iter().find(|(names, _)| names.contains(name)).map(|entry| entry.1);
        found.or_else(|| known::NAMES.iter().any(|names| names.contains(name)).then_some("a mask of the same sizes"))
    };
    let open = beside.0.iter().filter(|(name, _)| !compared.contains(*name) && !used.contains(*name));
    let says = |(name, values): (&String, &Values)| {
        let (with, name, shape) = (needs(&name.as_str())?, name.as_str(), values.shape());
        // The labels of a classifier are no tokens.
        let decides = [PROBABILITIES, POOLED, COMPLETIONS].concat().contains(&name)
            || LABELS.contains(&name)
                && sizes.is_some_and(|sizes| shape.len() == 2 && [sizes.q_len, sizes.kv_len].contains(&shape[1]));
        let says = format!("the array `{name}` of shape {shape:?} was not compared: it is compared with {with}");
        Some((decides, says))
    };
    open.filter_map(says).collect()
}

/// Compares every array given with the mask. `verdict` holds the cells of the mask; `None` if no mask is given. `intent` has the
/// padding and the documents of the tokens; `None` if they are unknown.
pub(crate) fn look(
    beside: &Companions<'_>,
    context: &Context,
    intent: Option<&Intent>,
    verdict: Option<&Held>,
) -> Vec<Checked> {
    let mut checked: Vec<Checked> = padding_side(beside, context, intent).map(Checked::from).into_iter().collect();
    match restarts(beside, context) {
        Some(comparison) => checked.push(comparison),
        None => checked.extend(positions(beside, context, intent)),
    }
    let mut others = beside.0.clone();
    others.retain(|name, _| !ENDS.contains(&name.as_str()));
    let others = tokens(&Companions(&others), context);
    checked.extend(packed_lengths(beside, context, verdict, others.as_ref()));
    checked.extend(flag(context).map(Checked::from));
    checked.extend(verdict.and_then(|verdict| owners(beside, verdict)));
    let scene = Scene::new(beside, context, intent);
    let of_tokens = [scene.labels(beside), tensors::pooling(beside, context, &scene)];
    for mut comparison in of_tokens.into_iter().flatten() {
        comparison.arrays.extend(intent.map(|intent| sources(beside, context, intent)).unwrap_or_default());
        checked.push(comparison);
    }
    checked.extend(scene.completion(beside));
    checked.extend(weights::probabilities(beside, context, verdict));
    checked.extend(verdict.and_then(|verdict| tensors::poisoned_values(beside, verdict)));
    checked
}

/// Returns the padding and the documents of the tokens from the given arrays, as a mask that allows all other cells; `None` if the
/// arrays do not give the number of batch rows and tokens.
pub(super) fn tokens(beside: &Companions<'_>, context: &Context) -> Option<Intent> {
    let (batch, len) = known::declared(beside, context);
    let width = |names| beside.get(names).filter(|v| v.shape().len() == 2).and_then(|v| v.shape().last().copied());
    let own = || beside.rows(COMPLETION_IDS);
    let batch = batch.or(len.map(|_| 1)).or_else(|| own().map(|rows| rows.len()));
    let kv_len = len.max(width(known::PADDING)).or_else(|| tensors::tokens(beside));
    let kv_len = kv_len.or_else(|| width(COMPLETION_IDS)).filter(|len| *len > 0)?;
    // Positions and ids may be given for the new tokens only.
    let q_len = width(POSITIONS).filter(|width| *width < kv_len && *width > 0).unwrap_or(kv_len);
    Some(tokens_of(beside, context, Sizes { batch: batch?, q_len, kv_len }))
}

/// Returns the padding that an array or the declared lengths give to the tokens, with its name, as a mask to check against the padding that
/// the other arrays give; `None` if nothing else gives it.
pub(super) fn padding(input: &Input) -> Option<(String, Input)> {
    let own = &input.context;
    let (pad_id, eos_id, bos_id, side) = (own.pad_id, own.eos_id, own.bos_id, own.side);
    let context = Context { pad_id, eos_id, bos_id, side, convention: Some(Convention::Keep), ..Context::default() };
    let lengths = Context { lengths: own.lengths.clone(), ..context.clone() };
    let mut arrays = input.companions.clone();
    arrays.retain(|name, _| [IDS, known::LENGTHS, known::PADDING].concat().contains(&name.as_str()));
    let given = known::PADDING.iter().find_map(|name| arrays.remove_entry(*name));
    // Ids of the new tokens do not give the padding of cached keys.
    let width = |values: &Values| values.shape().last().copied();
    arrays.retain(|name, ids| {
        !IDS.contains(&name.as_str()) || given.as_ref().is_none_or(|(_, mask)| width(mask) == width(ids))
    });
    let counted = !own.lengths.is_empty() || known::LENGTHS.iter().any(|name| arrays.contains_key(*name));
    let by_ids = own.pad_id.is_some() && IDS.iter().any(|name| arrays.contains_key(*name));
    let keys = input.mask.as_ref().and_then(width);
    let new_tokens = own.past.iter().any(|past| *past > 0) && arrays.get(IDS[0]).and_then(width) < keys;
    let (name, mask, context) = match given {
        Some((name, mask)) if counted || by_ids => (name, mask, lengths),
        None if counted && by_ids && !new_tokens => {
            let valid = tokens(&Companions(&arrays), &lengths)?;
            arrays.retain(|name, _| IDS.contains(&name.as_str()));
            let rows = valid.valid.as_ref()?.iter().map(|row| (0..valid.kv_len).map(|k| i64::from(bit(row, k))));
            let mask = Values::ints(&[rows.len(), valid.kv_len], rows.flatten().collect()).ok()?;
            ("lengths".to_string(), mask, context)
        }
        _ => return None,
    };
    if let Some(rows) = ends_of_rows(&name, &mask, &arrays, &context) {
        // The ids say nothing else about the padding that they give.
        arrays.retain(|_, _| rows.rows() != mask.rows());
        arrays.insert(PADDING[0].to_string(), rows);
    }
    let role = (own.role != Role::Cross && !own.kind.is_some_and(|kind| kind.cross)).then_some(Role::KeyPadding)?;
    let alone = Input::new(mask).context(Context { role, role_declared: true, ..context });
    Some((name, Input { companions: arrays, ..alone }))
}

/// If ids give the padding, and the id of padding also ends texts, returns the padding of each row: with or without the end of the text, as
/// in the given padding `mask` of the array `name`. Lengths also state how many such ids end a text. `None` in other cases.
fn ends_of_rows(name: &str, mask: &Values, arrays: &BTreeMap<String, Values>, context: &Context) -> Option<Values> {
    let given = mask.rows()?;
    let len = given[0].len();
    let known = Known::new(&Companions(arrays), context, Sizes { batch: given.len(), q_len: len, kv_len: len });
    let (valid, other) = (known.valid?, known.valid_too?);
    let of_row = |b: usize| {
        let (own, with_end) = (known::bits(len, |k| given[b][k] != 0), row(&valid, b));
        // One such id at the start is the padding or the start of the text. Texts that are padded on the left may end with several.
        let stop = |row: &[u64]| ends(row).map_or(0, |ends| ends.1 + 1);
        let last = if context.side == Some(Side::Left) { len } else { 0 };
        let lead = known.ids.iter().flat_map(|ids| row(ids, b)).take_while(|id| Some(**id) == context.pad_id).count();
        let starts = [ends(with_end).map_or(0, |ends| ends.0), lead];
        let runs = starts
            .into_iter()
            .flat_map(|start| [stop(with_end), stop(row(&other, b)), last].map(|stop| row_of(len, start, stop)));
        let counts = LENGTHS.contains(&name) && own.iter().zip(row(&other, b)).all(|(own, text)| text & !own == 0);
        let is_own = counts || own == row(&other, b) || count(&own) > 0 && runs.into_iter().any(|run| run == own);
        let right = if is_own { own } else { with_end.to_vec() };
        (0..len).map(move |k| i64::from(bit(&right, k)))
    };
    Values::ints(&[given.len(), len], (0..given.len()).flat_map(of_row).collect()).ok()
}

/// Returns the comparison of the padding that the array `name` of `input` gives with the other arrays that give it. `report` has its result.
pub(super) fn of_padding(name: &str, input: &Input, report: &Report) -> Checked {
    let [batch, _, _, kv_len] = report.given.as_ref().map_or([0; 4], noren_mask::Keep::dims);
    let gives = |other: &str, values: &Values| match IDS.contains(&other) {
        true => input.context.pad_id.is_some() && values.shape().last() == Some(&kv_len),
        false => LENGTHS.contains(&other) && other != name,
    };
    let others = input.companions.iter().filter(|(other, values)| gives(other, values));
    let others: Vec<String> = others.map(|(other, _)| other.clone()).collect();
    let faults = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
    let findings =
        faults.map(|f| Finding { says: format!("`{name}`: {}", f.says), repair: None, ..f.clone() }).collect();
    let (says, mut arrays) = match report.verdict {
        Verdict::Correct => {
            let of = if others.is_empty() { "the declared lengths".to_string() } else { others.join(" and ") };
            (format!("`{name}` has the padding of {of}: {} compared", counted(batch as u64, "row")), others)
        }
        _ => (String::new(), others),
    };
    arrays.push(name.to_string());
    Checked { arrays, says, findings, open: Vec::new() }
}

/// Returns a finding if batch rows are padded on the right, but left padding is declared or the model generates text;
/// otherwise `None`.
fn padding_side(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Finding> {
    let valid = intent?.valid.as_ref()?;
    let kv_len = intent?.kv_len;
    let at_end: BTreeSet<usize> = (0..valid.len()).filter(|&b| !bit(&valid[b], kv_len - 1)).collect();
    let declared_left = context.side == Some(Side::Left);
    beside.get(IDS).filter(|_| !at_end.is_empty())?;
    let rows = format!("{} {}", listed("batch row", &at_end), if at_end.len() > 1 { "are" } else { "is" });
    let text = match () {
        () if context.generates && beside.get(LABELS).is_none() => format!(
            "{rows} padded on the right, but the model continues the text: the last logits belong to a padding token; pad on the left"
        ),
        () if declared_left && valid.iter().all(|r| bit(r, 0)) => {
            format!("left padding is declared, but {rows} padded on the right")
        }
        () => return None,
    };
    Some(Finding::of("padding_side", Certainty::Likely, text))
}

/// Returns a finding if `is_causal` is true, but the declared mask is not causal; otherwise `None`.
fn flag(context: &Context) -> Option<Finding> {
    let both_ways = context.kind.is_some_and(|k| !k.causal) || context.role == Role::Cross;
    (context.is_causal == Some(true) && both_ways).then(|| {
        let text = "is_causal is true, but the declared mask is not causal: the attention function adds causality to the mask; pass is_causal=False";
        Finding::of("implicit_causal", Certainty::Certain, text)
    })
}

/// Compares the sequence of each query with that of each cache slot that it reads.
fn owners(beside: &Companions<'_>, verdict: &Held) -> Option<Checked> {
    let (keys, queries) = (beside.list(KEY_OWNERS)?, beside.list(QUERY_OWNERS)?);
    let [_, _, q_len, kv_len] = verdict.keep.dims();
    if keys.len() != kv_len || queries.len() != q_len {
        return None;
    }
    let of = |[b, h, i]: [usize; 3], row: &mut [u64]| {
        let other = known::bits(kv_len, |k| keys[k] != queries[i]);
        let pairs = verdict.keep.row(b, h, i).iter().zip(&other);
        row.iter_mut().zip(pairs).for_each(|(word, (given, other))| *word = given & other);
    };
    let wrong = Wrong::of(verdict.keep.dims(), &|_, _| true, of);
    let says = |[_, _, i, k]: [usize; 4]| {
        let place = wrong.place().map(|place| format!(" ({place})")).unwrap_or_default();
        format!(
            "{} let queries read cache slots of another sequence{place}: query {i} of sequence {} reads cache slot {k} of sequence {}",
            counted(wrong.count, "cell"),
            queries[i],
            keys[k]
        )
    };
    let finding = |cell| wrong.marked(Finding::of("cross_request_contamination", Certainty::Certain, says(cell)));
    let arrays = [KEY_OWNERS, QUERY_OWNERS].map(|names| beside.named(names).map(|(name, _)| name.to_string()));
    Some(Checked {
        arrays: arrays.into_iter().flatten().collect(),
        says: format!(
            "every query reads only cache slots of its own sequence: {} compared",
            counted(q_len as u64, "row")
        ),
        findings: wrong.first_cell().map(finding).into_iter().collect(),
        open: Vec::new(),
    })
}
