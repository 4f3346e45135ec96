//! [`Known`]: sizes, non-padding tokens, documents and positions from the arrays given with a mask.

use crate::intent::{PerRow, number, row};
use crate::read::context::Context;
use crate::read::kinds::Role;
use crate::read::values::Values;
use noren_mask::bits::{row_of, set_bit};
use noren_mask::{Error, Side};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The arrays given with the mask, by name.
pub(crate) struct Companions<'a>(pub(crate) &'a BTreeMap<String, Values>);

/// Names of the arrays that `Known` and the check of scores read.
pub(crate) const NAMES: &[&[&str]] = &[
    IDS,
    SEGMENTS,
    POSITIONS,
    LENGTHS,
    DOCUMENTS,
    PADDING,
    KV_POSITIONS,
    Q_POSITIONS,
    ENCODER_IDS,
    ENCODER_LENGTHS,
    ENCODER_PADDING,
    DECODER_IDS,
    DECODER_LENGTHS,
    DECODER_PADDING,
    BLOCKS,
    FLAGGED_BLOCKS,
    SCORES,
    PARENTS,
    WRITTEN,
];

impl<'a> Companions<'a> {
    /// Returns the first array whose name is in `names`, with its name; `None` if no such array is given.
    pub(crate) fn named(&self, names: &[&str]) -> Option<(&'a str, &'a Values)> {
        let (name, values) = names.iter().find_map(|name| self.0.get_key_value(*name))?;
        Some((name, values))
    }

    /// Returns the first array whose name is in `names`; `None` if no such array is given.
    pub(crate) fn get(&self, names: &[&str]) -> Option<&'a Values> {
        Some(self.named(names)?.1)
    }

    /// Returns the first array whose name is in `names`, as rows of integers; `None` if no such array is given or the
    /// array cannot be read as rows of integers.
    pub(crate) fn rows(&self, names: &[&str]) -> Option<Vec<Vec<i64>>> {
        self.get(names)?.rows()
    }

    /// Returns the first array whose name is in `names`, as a list of integers; `None` if no such array is given or the
    /// array cannot be read as integers.
    pub(crate) fn list(&self, names: &[&str]) -> Option<Vec<i64>> {
        self.get(names)?.whole()
    }
}

pub(crate) const SCORES: &[&str] = &["scores", "attention_scores", "logits_before_mask"];
// The first name of a meaning: `Input::companion` replaces the others (`noren_mask::batch::Meaning::names`).
pub(crate) const IDS: &[&str] = &["input_ids"];
pub(crate) const SEGMENTS: &[&str] = &["segment_ids", "seq_idx"];
/// Names of arrays that hold the borders of packed documents.
pub(crate) const ENDS: &[&str] = &["cu_seqlens"];
pub(crate) const DOCUMENTS: &[&str] = &["documents"];
pub(crate) const POSITIONS: &[&str] = &["position_ids"];
pub(crate) const LENGTHS: &[&str] = &["lengths"];
pub(crate) const PADDING: &[&str] = &["attention_mask", "key_padding_mask", "padding_mask"];
pub(crate) const ENCODER_IDS: &[&str] = &["encoder_input_ids"];
const ENCODER_LENGTHS: &[&str] = &["encoder_lengths", "kv_lengths"];
pub(crate) const ENCODER_PADDING: &[&str] =
    &["encoder_attention_mask", "encoder_key_padding_mask", "encoder_padding_mask"];
const DECODER_IDS: &[&str] = &["decoder_input_ids"];
const DECODER_LENGTHS: &[&str] = &["decoder_lengths", "q_lengths", "query_lengths"];
const DECODER_PADDING: &[&str] = &["decoder_attention_mask", "decoder_key_padding_mask", "decoder_padding_mask"];

pub(crate) const KV_POSITIONS: &[&str] = &["kv_positions", "key_positions", "cache_positions", "slot_positions"];
pub(crate) const Q_POSITIONS: &[&str] = &["query_positions", "q_positions", "cache_position"];
const PARENTS: &[&str] = &["parents", "tree_parents", "parent_ids"];
const WRITTEN: &[&str] = &["kv_written", "written", "cache_written"];
pub(crate) const BLOCKS: &[&str] = &["block_ids", "image_ids", "image_group_ids", "group_ids", "span_ids"];
pub(crate) const FLAGGED_BLOCKS: &[&str] =
    &["image_mask", "is_image", "modality_ids", "mm_token_type_ids", "token_type_ids"];

/// Sizes, padding, documents, positions and trees that follow from the declarations and from the other given arrays.
/// Nothing is read from the cells of the mask.
#[derive(Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) batch: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
    pub(crate) past: Vec<i64>,
    /// True when the declarations give the positions of the queries.
    pub(crate) past_declared: bool,
    pub(crate) ids: Option<Vec<Vec<i64>>>,
    /// One bit for each key, 1 for a non-padding key; `None` if the padding is unknown. If one id is both padding and
    /// the end of texts, the first such id after a text counts as the end of the text.
    pub(crate) valid: Option<PerRow<u64>>,
    /// A second reading of `valid`, in which the first padding id after a text counts as padding; `None` if the padding
    /// id does not also end texts.
    pub(crate) valid_too: Option<PerRow<u64>>,
    pub(crate) q_valid: Option<PerRow<bool>>,
    pub(crate) segments: Option<PerRow<i64>>,
    /// True when the documents follow from the given positions, and no given array lists the documents.
    pub(crate) segments_from_positions: bool,
    /// Position ids of the tokens, `[batch, length]`; `None` if no position ids are given.
    pub(crate) positions: Option<Vec<Vec<i64>>>,
    pub(crate) q_positions: Option<PerRow<i64>>,
    pub(crate) k_positions: Option<PerRow<i64>>,
    pub(crate) parents: Option<Vec<i64>>,
    pub(crate) blocks: Option<PerRow<i64>>,
    pub(crate) side: Option<Side>,
    /// True if lengths are given without the side of the padding: it is then assumed to be on the right.
    pub(crate) side_assumed: bool,
    /// For cross-attention, one bit for each token of the decoder, 1 for a non-padding token; otherwise `None`.
    pub(crate) decoder_valid: Option<PerRow<u64>>,
}

/// Numbers of batch rows, queries and keys, from the shape of the mask and the declarations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
}

/// Returns (batch size, number of tokens in a batch row) from the declarations and the arrays given with the mask;
/// `None` for an unknown number.
pub(crate) fn declared(companions: &Companions<'_>, context: &Context) -> (Option<usize>, Option<usize>) {
    let of = |names: &[&str]| {
        let shape = companions.get(names).map(Values::shape);
        shape.filter(|s| s.len() == 2 && !s.contains(&0)).map(|s| (s[0], s[1]))
    };
    // With a ring buffer, the given positions and ids belong only to the new tokens, so they do not give the number of
    // keys.
    let ring = companions.get(KV_POSITIONS).is_some();
    let tokens = of(IDS)
        .or_else(|| of(ENCODER_IDS))
        .or_else(|| of(SEGMENTS))
        .or_else(|| of(PADDING))
        .or_else(|| of(ENCODER_PADDING))
        .or_else(|| of(POSITIONS))
        .or_else(|| of(BLOCKS));
    let one =
        |names: &[&str]| companions.get(names).map(Values::shape).filter(|s| s.len() == 1 && s[0] > 0).map(|s| s[0]);
    let lengths =
        one(LENGTHS).or_else(|| one(ENCODER_LENGTHS)).or((context.lengths.len() > 1).then_some(context.lengths.len()));
    let alone = one(IDS).or_else(|| one(SEGMENTS)).or_else(|| one(POSITIONS));
    (context.batch.or(tokens.map(|t| t.0)).or(lengths), tokens.map(|t| t.1).or(alone).filter(|_| !ring))
}

impl Known {
    pub(crate) fn new(companions: &Companions<'_>, context: &Context, sizes: Sizes) -> Self {
        let Sizes { batch, q_len, kv_len } = sizes;
        let cross = context.role == Role::Cross;
        let past = match (&context.past[..], cross) {
            ([], false) => vec![kv_len as i64 - q_len as i64],
            ([], true) => vec![0],
            (past, _) => past.to_vec(),
        };
        let encoder = if cross { companions.rows(ENCODER_IDS) } else { None };
        let ids = encoder.or_else(|| companions.rows(IDS));
        let parents = companions.list(PARENTS);
        let mut known = Known {
            batch,
            q_len,
            kv_len,
            past,
            past_declared: !context.past.is_empty() || cross,
            parents,
            side: context.side,
            ids,
            ..Known::default()
        };
        known.read_positions(companions, context);
        known.read_padding(companions, context);
        known.read_segments(companions, context);
        known.read_blocks(companions, context);
        known.queries(companions, context);
        known
    }

    /// Returns true if `rows` has one entry for each key in each row, and has one row, or one row for each batch row.
    pub(crate) fn fits<T>(&self, rows: &[Vec<T>]) -> bool {
        rows.first().is_some_and(|r| r.len() == self.kv_len) && self.one_each(rows)
    }

    fn one_each<T>(&self, list: &[T]) -> bool {
        list.len() == 1 || list.len() == self.batch
    }

    fn read_positions(&mut self, companions: &Companions<'_>, context: &Context) {
        let fits = |rows: Vec<Vec<i64>>, width: usize, batch: usize| {
            (rows[0].len() == width && (rows.len() == 1 || rows.len() == batch)).then_some(rows)
        };
        let flat = companions.get(POSITIONS).is_some_and(|v| v.shape().len() <= 2);
        let positions = companions.rows(POSITIONS).filter(|_| flat);
        self.k_positions = companions.rows(KV_POSITIONS).and_then(|r| fits(r, self.kv_len, self.batch)).map(Rc::new);
        let queries = companions.rows(Q_POSITIONS).and_then(|r| fits(r, self.q_len, self.batch));
        let from_ids = || positions.clone().filter(|_| self.q_len != self.kv_len || self.k_positions.is_some());
        let queries = queries.or_else(|| from_ids().and_then(|r| fits(r, self.q_len, self.batch)));
        // In a ring buffer the last query is the newest token, unless the declared past gives another position.
        let newest = || -> Option<Vec<Vec<i64>>> {
            let rows = self.k_positions.as_ref().filter(|_| context.past.is_empty())?;
            let last = |r: &Vec<i64>| r.iter().copied().max().unwrap_or(0) - self.q_len as i64 + 1;
            Some(rows.iter().map(|r| (0..self.q_len as i64).map(|i| last(r) + i).collect()).collect())
        };
        self.q_positions = queries.or_else(newest).filter(|_| self.k_positions.is_some()).map(Rc::new);
        self.positions = positions.filter(|rows| self.fits(rows));
    }

    fn read_padding(&mut self, companions: &Companions<'_>, context: &Context) {
        let cross = context.role == Role::Cross;
        let lengths = companions
            .list(if cross { ENCODER_LENGTHS } else { LENGTHS })
            .or_else(|| companions.list(LENGTHS))
            .or_else(|| (!context.lengths.is_empty()).then(|| context.lengths.clone()))
            .filter(|lengths| self.one_each(lengths));
        let ids = self.ids.clone().filter(|rows| self.fits(rows));
        if self.side.is_none()
            && let (Some(rows), Some(pad)) = (&ids, context.pad_id)
        {
            self.side = Some(if padded_left(rows, pad, lengths.as_deref()) { Side::Left } else { Side::Right });
        }
        // A document number 0 at the start of a row is padding.
        let led = |r: &Vec<i64>| r.first() == Some(&0) && r.last() > Some(&0);
        if self.side.is_none() && companions.rows(SEGMENTS).is_some_and(|rows| rows.iter().any(led)) {
            self.side = Some(Side::Left);
        }
        self.side_assumed = self.side.is_none() && lengths.is_some();
        let left = self.side == Some(Side::Left);
        let run = |n: i64| {
            let n = n.clamp(0, self.kv_len as i64) as usize;
            let start = if left { self.kv_len - n } else { 0 };
            row_of(self.kv_len, start, start + n)
        };
        let flags = |rows: Vec<Vec<i64>>| -> Option<PerRow<u64>> {
            self.fits(&rows).then(|| Rc::new(rows.iter().map(|r| bits(self.kv_len, |k| r[k] != 0)).collect()))
        };
        // In cross-attention, `attention_mask` belongs to the encoder if no array with an encoder's name is given, as
        // in the call of an encoder-decoder model.
        let of_encoder = || companions.rows(ENCODER_PADDING).filter(|_| cross).and_then(flags);
        let declared = of_encoder().or_else(|| companions.rows(PADDING).and_then(flags));
        let written = match companions.rows(WRITTEN) {
            Some(rows) if rows[0].len() == self.kv_len => flags(rows),
            numbers => {
                let numbers = numbers.map_or_else(|| context.written.clone(), |rows| rows.concat());
                let first = |&n: &i64| row_of(self.kv_len, 0, n.clamp(0, self.kv_len as i64) as usize);
                (!numbers.is_empty() && self.one_each(&numbers)).then(|| Rc::new(numbers.iter().map(first).collect()))
            }
        };
        self.valid = match (declared, lengths, &ids, context.pad_id) {
            (Some(rows), ..) => Some(rows),
            (None, Some(lengths), ..) => Some(Rc::new(lengths.iter().map(|&n| run(n)).collect())),
            (None, None, Some(rows), Some(pad)) => {
                let shared = context.eos_id == Some(pad) || context.bos_id == Some(pad);
                if shared {
                    // Rows may be padded at both ends. A single such token may begin a text.
                    let starts = |r: &Vec<i64>| (2..r.len()).contains(&r.iter().take_while(|id| **id == pad).count());
                    let left = left || rows.iter().any(starts);
                    let all: Vec<Vec<u64>> = rows.iter().map(|r| real_run(r, pad, left, true)).collect();
                    self.valid_too = Some(Rc::new(rows.iter().map(|r| real_run(r, pad, left, false)).collect()));
                    Some(Rc::new(all))
                } else {
                    Some(Rc::new(rows.iter().map(|r| bits(self.kv_len, |k| r[k] != pad)).collect()))
                }
            }
            _ => None,
        };
        if let Some(written) = written {
            let both = |b: usize| -> Vec<u64> {
                let valid = self.valid.as_ref().map(|rows| row(rows, b).to_vec());
                let valid = valid.unwrap_or_else(|| row_of(self.kv_len, 0, self.kv_len));
                valid.iter().zip(row(&written, b)).map(|(v, w)| v & w).collect()
            };
            self.valid = Some(Rc::new((0..self.batch).map(both).collect()));
        }
    }

    fn read_segments(&mut self, companions: &Companions<'_>, context: &Context) {
        let numbered = |ends: &mut dyn Iterator<Item = i64>| {
            let mut segments = vec![0; self.kv_len];
            let ends: Vec<i64> = ends.map(|end| end.clamp(0, self.kv_len as i64)).collect();
            for (number, w) in (1..).zip(ends.windows(2)).filter(|(_, w)| w[0] < w[1]) {
                segments[w[0] as usize..w[1] as usize].fill(number);
            }
            segments
        };
        let from_ends = companions.list(ENDS).filter(|_| self.batch == 1);
        let from_ends = from_ends.map(|ends| vec![numbered(&mut ends.into_iter())]);
        let summed = |lengths: &Vec<i64>| {
            let ends = lengths.iter().scan(0i64, |end, n| {
                *end = end.saturating_add(*n);
                Some(*end)
            });
            numbered(&mut std::iter::once(0).chain(ends))
        };
        let from_lengths = companions.rows(DOCUMENTS).filter(|rows| self.one_each(rows));
        let from_lengths = from_lengths.map(|rows| rows.iter().map(summed).collect());
        let given = companions.rows(SEGMENTS).filter(|rows| self.fits(rows)).or(from_ends).or(from_lengths);
        if let Some(rows) = given {
            if rows.iter().any(|r| r.contains(&0)) {
                let real = |b: usize| {
                    let valid = self.valid.as_ref().map(|v| row(v, b));
                    bits(self.kv_len, |k| row(&rows, b)[k] != 0 && valid.is_none_or(|v| noren_mask::bits::bit(v, k)))
                };
                self.valid = Some(Rc::new((0..rows.len().max(self.batch)).map(real).collect()));
            }
            self.segments = Some(Rc::new(rows));
            return;
        }
        self.segments_of_positions();
        let packed = context.kind.is_some_and(|kind| kind.packed && !kind.cross) && context.bos_id != context.eos_id;
        if let (None, true, Some(ids)) = (&self.segments, packed, &self.ids)
            && self.fits(ids)
        {
            self.segments = self.segments_of_ids(ids, context).map(Rc::new);
        }
    }

    /// Returns the document number of each token, if documents end with the declared `eos_token_id` or begin with `bos_token_id`, and a
    /// batch row has several. Padding has the number 0.
    fn segments_of_ids(&self, ids: &[Vec<i64>], context: &Context) -> Option<Vec<Vec<i64>>> {
        let of_row = |(b, ids): (usize, &Vec<i64>)| {
            let real = |k: usize| self.valid.as_ref().is_none_or(|v| noren_mask::bits::bit(row(v, b), k));
            let is = |k: usize, id: Option<i64>| real(k) && Some(ids[k]) == id;
            let mut number = 1;
            let mut of_token = |k: usize| {
                number += i64::from(k > 0 && real(k - 1) && (is(k - 1, context.eos_id) || is(k, context.bos_id)));
                if real(k) { number } else { 0 }
            };
            (0..ids.len()).map(&mut of_token).collect::<Vec<i64>>()
        };
        let rows: Vec<Vec<i64>> = ids.iter().enumerate().map(of_row).collect();
        rows.iter().flatten().any(|number| *number > 1).then_some(rows)
    }

    /// Finds documents in the given positions. If the position of a token is not the position of the previous token
    /// plus 1, a document begins at this token. Padding belongs to no document.
    fn segments_of_positions(&mut self) {
        let Some(positions) = &self.positions else { return };
        let mut several = false;
        let rows: Vec<Vec<i64>> = positions
            .iter()
            .enumerate()
            .map(|(b, p)| {
                let real = |k: usize| self.valid.as_ref().is_none_or(|v| noren_mask::bits::bit(row(v, b), k));
                let (start, end) = moving(p);
                let still = |k: usize| k < start || k >= end;
                let mut number = 0;
                let mut before: Option<i64> = None;
                let mut started = 0;
                let segments = (0..p.len())
                    .map(|k| {
                        if !real(k) || (self.valid.is_none() && still(k)) {
                            before = None;
                            return 0;
                        }
                        if before != Some(p[k] - 1) {
                            number += 1;
                            started += i64::from(p[k] == 0);
                        }
                        before = Some(p[k]);
                        number
                    })
                    .collect();
                // Positions that are all 0 are a mistake, not documents of one token each.
                let tokens = (0..p.len()).filter(|&k| real(k)).count() as i64;
                let moved = p.len() == self.kv_len && moved_padding(p, &real).is_some();
                several |= number > 1 && started == number && number < tokens && !moved;
                segments
            })
            .collect();
        if several {
            if self.valid.is_none() && rows.iter().any(|r| r.contains(&0)) {
                self.valid = Some(Rc::new(rows.iter().map(|r| bits(self.kv_len, |k| r[k] != 0)).collect()));
            }
            self.segments = Some(Rc::new(rows));
            self.segments_from_positions = true;
        }
    }

    fn read_blocks(&mut self, companions: &Companions<'_>, context: &Context) {
        let numbered = companions.rows(BLOCKS);
        let flagged = companions.rows(FLAGGED_BLOCKS);
        let runs = |rows: Vec<Vec<i64>>| -> Vec<Vec<i64>> {
            rows.iter()
                .map(|r| {
                    let mut number = -1;
                    (0..r.len())
                        .map(|k| {
                            number += i64::from(r[k] > 0 && (k == 0 || r[k - 1] != r[k]));
                            if r[k] > 0 { number } else { -1 }
                        })
                        .collect()
                })
                .collect()
        };
        // Flags such as token_type_ids also mark other things than blocks.
        let wanted = context.kind.is_none_or(|k| k.blocks);
        let numbered = numbered.map(|rows| match rows.iter().flatten().any(|&x| x < 0) {
            true => rows,
            false => runs(rows),
        });
        let flagged = flagged.filter(|_| wanted).map(runs);
        let blocks = numbered.or(flagged).filter(|rows| self.fits(rows));
        self.blocks = blocks.filter(|rows| rows.iter().flatten().any(|&x| x >= 0)).map(Rc::new);
    }

    /// Returns an error if a given array fits neither the keys nor the queries.
    pub(crate) fn check(&self, companions: &Companions<'_>) -> Result<(), Error> {
        let rows = [IDS, SEGMENTS, PADDING, ENCODER_PADDING, BLOCKS, FLAGGED_BLOCKS, KV_POSITIONS];
        let is_row = |shape: &[usize]| {
            let width = shape.last().copied().unwrap_or(0);
            let count = shape[..shape.len() - 1].iter().product::<usize>();
            (width == self.kv_len || width == self.q_len) && (count == 1 || count == self.batch)
        };
        let is_number = |shape: &[usize]| matches!(shape, [n] if *n == 1 || *n == self.batch);
        for (name, values) in companions.0.iter().filter(|(_, values)| !values.shape().is_empty()) {
            let (one_of, shape) = (|lists: &[&[&str]]| lists.concat().contains(&name.as_str()), values.shape());
            let expected = match () {
                () if one_of(&rows) && !is_row(shape) => {
                    format!("[{}, {}] (batch rows, keys)", self.batch, self.kv_len)
                }
                () if one_of(&[DOCUMENTS]) && shape.len() > 1 && ![1, self.batch].contains(&shape[0]) => {
                    format!("[{}, documents] (batch rows, lengths of documents)", self.batch)
                }
                () if one_of(&[LENGTHS, ENCODER_LENGTHS]) && !is_number(shape) => {
                    format!("[{}] (batch rows)", self.batch)
                }
                () => continue,
            };
            return Err(Error::invalid(format!("the array `{name}` has the shape {shape:?}, expected {expected}")));
        }
        Ok(())
    }

    /// Finds the non-padding queries. In cross-attention, these are the non-padding tokens of the decoder. Otherwise, a
    /// query is non-padding if the key of the same token is non-padding.
    fn queries(&mut self, companions: &Companions<'_>, context: &Context) {
        if context.role == Role::Cross {
            let ids = companions.rows(DECODER_IDS).filter(|r| r[0].len() == self.q_len && self.one_each(r));
            let lengths = companions.list(DECODER_LENGTHS).filter(|lengths| self.one_each(lengths));
            let flags = companions.rows(DECODER_PADDING).filter(|r| r[0].len() == self.q_len && self.one_each(r));
            let left = self.side == Some(Side::Left);
            let is_not =
                |rows: Vec<Vec<i64>>, pad: i64| rows.iter().map(|r| r.iter().map(|x| *x != pad).collect()).collect();
            let rows: Option<Vec<Vec<bool>>> = match (ids, lengths, context.pad_id) {
                _ if flags.is_some() => flags.map(|rows| is_not(rows, 0)),
                (Some(rows), _, Some(pad)) => Some(is_not(rows, pad)),
                (_, Some(lengths), _) => Some(
                    lengths
                        .iter()
                        .map(|&n| {
                            (0..self.q_len as i64)
                                .map(|i| if left { i >= self.q_len as i64 - n } else { i < n })
                                .collect()
                        })
                        .collect(),
                ),
                _ => None,
            };
            self.decoder_valid = rows.as_ref().map(|rows| {
                Rc::new(rows.iter().map(|r| bits(self.kv_len, |k| r.get(k).copied().unwrap_or(false))).collect())
            });
            self.q_valid = rows.map(Rc::new);
            return;
        }
        // If ids are given only for the new tokens, the ids show which of the new tokens are padding.
        let new_ids = self
            .ids
            .as_ref()
            .filter(|rows| rows[0].len() == self.q_len && self.q_len != self.kv_len && self.one_each(rows));
        if let (Some(rows), Some(pad), false) = (new_ids, context.pad_id, context.eos_id == context.pad_id) {
            self.q_valid = Some(Rc::new(rows.iter().map(|r| r.iter().map(|id| *id != pad).collect()).collect()));
            return;
        }
        // In a ring buffer, the slot of a query does not identify its token.
        let rows = self.valid.as_ref().filter(|_| self.k_positions.is_none());
        self.q_valid = rows.map(|rows| {
            let query = |b: usize, i: usize| {
                let slot = number(&self.past, b) + i as i64;
                let slot = usize::try_from(slot).ok().filter(|s| *s < self.kv_len);
                slot.is_none_or(|s| noren_mask::bits::bit(row(rows, b), s))
            };
            Rc::new((0..self.batch).map(|b| (0..self.q_len).map(|i| query(b, i)).collect()).collect())
        });
    }
}

/// Returns the side on which the positions of a batch row are padded, and the positions with their padding on the side of
/// the padding of the tokens; `None` if the positions do not count the tokens from the other side. `is_real` is true for
/// non-padding tokens.
pub(crate) fn moved_padding(given: &[i64], is_real: &dyn Fn(usize) -> bool) -> Option<(&'static str, Vec<i64>)> {
    let (n, first) = (given.len(), is_real(0));
    let padding = (0..n).filter(|&at| !is_real(at)).count();
    let counts = |ids: &[i64]| ids.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    let at_end = (0..n).all(|at| is_real(at) == if first { at < n - padding } else { at >= padding });
    if padding == 0 || padding == n || !at_end || counts(given) {
        return None;
    }
    let (counted, still) = match first {
        true => (&given[padding..], &given[..padding]),
        false => (&given[..n - padding], &given[n - padding..]),
    };
    let fits = counts(counted) && still.iter().all(|x| *x == still[0]);
    let fill = |at: usize| vec![counted[at]; padding];
    (fits && counted.len() > 1).then(|| match first {
        true => ("left", [counted, &fill(counted.len() - 1)].concat()),
        false => ("right", [&fill(0), counted].concat()),
    })
}

/// Returns (first token, end) of the text in a batch row; the end is exclusive. The text is found from the positions of
/// the tokens: equal positions at the start or the end of the row are padding. For example, the positions 1, 1, 1, 0,
/// 1, 2 give (3, 6).
fn moving(positions: &[i64]) -> (usize, usize) {
    let n = positions.len();
    let same = |a: &i64, b: &i64| a == b;
    let first = positions.chunk_by(same).next().map_or(0, <[i64]>::len);
    let last = positions.chunk_by(same).next_back().map_or(0, <[i64]>::len);
    let start = match first {
        0 | 1 => 0,
        // The last of the equal positions belongs to the first token of the text.
        run if positions.get(run) == Some(&(positions[0] + 1)) => run - 1,
        run => run,
    };
    (start, if last > 1 { n - last } else { n })
}

/// Returns true if batch rows are padded on the left. `rows` holds the token ids, `pad` is the padding id, and
/// `lengths` holds the numbers of non-padding tokens. The lengths have priority over the ids, because the padding id
/// may also end texts.
fn padded_left(rows: &[Vec<i64>], pad: i64, lengths: Option<&[i64]>) -> bool {
    let leading = |r: &[i64]| r.iter().take_while(|id| **id == pad).count();
    let trailing = |r: &[i64]| r.iter().rev().take_while(|id| **id == pad).count();
    if let Some(lengths) = lengths.filter(|l| l.len() == rows.len()) {
        let missing = |(r, n): (&Vec<i64>, &i64)| r.len().saturating_sub((*n).max(0) as usize);
        let pairs = || rows.iter().zip(lengths);
        let left = pairs().all(|p| leading(p.0) >= missing(p));
        let right = pairs().all(|p| trailing(p.0) >= missing(p));
        if left != right {
            return left;
        }
    }
    let by_ends = |r: &Vec<i64>| leading(r) < r.len() && leading(r) > trailing(r);
    rows.iter().any(by_ends)
}

/// Returns a row of bits in which bit `k` is `test(k)`.
pub(crate) fn bits(len: usize, test: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut row = vec![0; len.div_ceil(64)];
    (0..len).filter(|&k| test(k)).for_each(|k| set_bit(&mut row, k));
    row
}

/// Returns one bit for each token of a batch row, 1 for a non-padding token, if the id `pad` marks both padding and the
/// end of a text. The consecutive tokens with this id at the right end of the row are padding, and if `left` is true those at the left
/// end; a single one at the right end of a row that may be padded on the left ends the text. If `end_is_real` is true, the first of the
/// tokens at the right end ends the text and counts as non-padding.
fn real_run(ids: &[i64], pad: i64, left: bool, end_is_real: bool) -> Vec<u64> {
    let n = ids.len();
    let first = if left { ids.iter().take_while(|id| **id == pad).count() } else { 0 };
    let padding = ids.iter().rev().take_while(|id| **id == pad).count();
    let padding = if left && padding == 1 { 0 } else { padding };
    row_of(n, first, (n - padding + usize::from(end_is_real && padding > 0)).clamp(first, n))
}
