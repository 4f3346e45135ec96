//! Facts from tensors that you already have: token ids, padding masks, segment ids, position ids, `cu_seqlens`.
//!
//! Each of these tensors has less information than [`Facts`]. If a tensor can have more than one meaning, the result is
//! an error with advice.

use super::{Facts, RealTokens, Table, real_run};
use crate::Error;
use crate::facts::array::{ADDITIVE, additive_keep};
use crate::facts::shape::Shape;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::{Rows, Side};
use std::collections::HashSet;

impl Facts {
    /// Returns lengths and padding side from token ids `[batch, length]` that are padded with `pad_id`.
    ///
    /// A batch row may have padding at one end or at both ends. If rows have padding at different ends, the result has
    /// [`real_keys`](Self::real_keys) instead of lengths. If `pad_id` is also a real token (GPT-2 style, pad = eos or bos),
    /// padding cannot be recognised from ids. Two signs of this case give an error: a pad id between real tokens, and rows
    /// that all have exactly one pad id at one end while some rows also have padding at the other end. An eos token
    /// directly before the padding cannot be detected: pass its id to [`from_token_ids_with`](Self::from_token_ids_with).
    ///
    /// ```
    /// use noren_mask::{Facts, Side};
    /// let facts = Facts::from_token_ids(&[[5, 8, 2, 0], [7, 2, 0, 0]], 0)?;
    /// assert_eq!(facts, Facts::new().lengths([3, 2]));
    /// let facts = Facts::from_token_ids(&[[0, 5, 8], [7, 2, 9]], 0)?;
    /// assert_eq!(facts, Facts::new().lengths([2, 3]).side(Side::Left));
    /// let error = Facts::from_token_ids(&[[5, 0, 8, 0]], 0).unwrap_err().to_string();
    /// assert!(error.contains("is also a real token"), "{error}");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, if rows have different lengths, or if the pad id is also a real token.
    pub fn from_token_ids<R: AsRef<[i64]>>(rows: &[R], pad_id: i64) -> Result<Self, Error> {
        Self::from_token_ids_with(rows, pad_id, &[])
    }

    /// Returns the facts of [`from_token_ids`](Self::from_token_ids). `real_ids` lists ids that are real tokens, such
    /// as eos and bos.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let rows = [[5, 8, 50256, 50256]]; // the first 50256 may end the text
    /// assert!(Facts::from_token_ids(&rows, 50256).is_ok());
    /// let error = Facts::from_token_ids_with(&rows, 50256, &[50256]).unwrap_err().to_string();
    /// assert!(error.contains("give lengths or an attention_mask instead of token ids"), "{error}");
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`from_token_ids`](Self::from_token_ids), and an error if `pad_id` is in `real_ids` and
    /// occurs in a row, because padding and real tokens cannot be distinguished.
    pub fn from_token_ids_with<R: AsRef<[i64]>>(rows: &[R], pad_id: i64, real_ids: &[i64]) -> Result<Self, Error> {
        const ADVICE: &str = "give lengths or an attention_mask instead of token ids";
        let len = check_rows("token_ids", rows)?;
        let refuse = |problem: String| Err(Error::fact("token_ids", format!("{problem}: {ADVICE}")));
        let (mut keys, mut ends) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for (row, ids) in rows.iter().map(AsRef::as_ref).enumerate() {
            let Some(first) = ids.iter().position(|id| *id != pad_id) else {
                if real_ids.contains(&pad_id) {
                    return refuse(format!(
                        "pad id {pad_id} is also a real token, and batch row {row} contains only this id"
                    ));
                }
                keys.push(IntervalSet::new());
                continue;
            };
            let end = ids.iter().rposition(|id| *id != pad_id).map_or(len, |last| last + 1);
            if let Some(hole) = ids[first..end].iter().position(|id| *id == pad_id) {
                return refuse(format!(
                    "pad id {pad_id} is also a real token: in batch row {row}, key {} has this id and is between other tokens",
                    first + hole
                ));
            }
            if real_ids.contains(&pad_id) && end - first < len {
                return refuse(format!(
                    "pad id {pad_id} is also a real token, so this id can be text or padding at the end of batch row {row}"
                ));
            }
            keys.push(IntervalSet::from(first as u32..end as u32));
            ends.push((first, len - end));
        }
        let both = ends.iter().any(|e| e.0 > 0) && ends.iter().any(|e| e.1 > 0);
        let one_each = |count: fn(&(usize, usize)) -> usize| ends.iter().all(|e| count(e) == 1);
        for (what, one_each) in [("beginning", one_each(|e| e.0)), ("end", one_each(|e| e.1))] {
            if both && one_each {
                return refuse(format!(
                    "exactly one id {pad_id} is at the {what} of every batch row, and some batch rows have this id at the other \
                     end too: pad id {pad_id} is probably also a real token (eos or bos)"
                ));
            }
        }
        Ok(Facts { real: Some(real_tokens(keys, len as u32)), table: Table(Some(("token_ids", len))), ..Facts::new() })
    }

    /// Returns the real tokens from a padding mask `[batch, length]` in which true = real token (Hugging Face's
    /// `attention_mask`).
    ///
    /// Padding at one end in all rows becomes [`lengths`](Self::lengths) with its side; other padding becomes
    /// [`real_keys`](Self::real_keys).
    ///
    /// ```
    /// use noren_mask::{Facts, Side};
    /// let facts = Facts::padding_from_keep(&[[false, true, true], [true, true, true]])?;
    /// assert_eq!(facts, Facts::new().lengths([2, 3]).side(Side::Left));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, or if rows have different lengths.
    pub fn padding_from_keep<R: AsRef<[bool]>>(rows: &[R]) -> Result<Self, Error> {
        Self::padding_from("keep padding", rows, |keep| Ok(*keep))
    }

    /// Returns the real tokens from a padding mask `[batch, length]` in which true = padding (`key_padding_mask` of
    /// `nn.MultiheadAttention`).
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::padding_from_drop(&[[false, false, true]])?;
    /// assert_eq!(facts, Facts::new().lengths([2]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, or if rows have different lengths.
    pub fn padding_from_drop<R: AsRef<[bool]>>(rows: &[R]) -> Result<Self, Error> {
        Self::padding_from("drop padding", rows, |drop| Ok(!drop))
    }

    /// Returns the real tokens from a padding mask `[batch, length]` that is added to scores: 0 means a real token;
    /// -inf, or the lowest finite number of a float type, means padding.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::padding_from_additive(&[[0.0, 0.0, f32::MIN]])?;
    /// assert_eq!(facts, Facts::new().lengths([2]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, if rows have different lengths, or if a row contains another number.
    pub fn padding_from_additive<R: AsRef<[f32]>>(rows: &[R]) -> Result<Self, Error> {
        Self::padding_from("additive padding", rows, |cell| {
            additive_keep((*cell).into())
                .ok_or_else(|| Error::fact("additive padding", format!("the mask contains {cell}: {ADDITIVE}")))
        })
    }

    pub(crate) fn padding_from<T, R: AsRef<[T]>>(
        fact: &'static str,
        rows: &[R],
        keep: impl Fn(&T) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let len = check_rows(fact, rows)?;
        let mut keys = Vec::with_capacity(rows.len());
        for cells in rows.iter().map(AsRef::as_ref) {
            let mut set = IntervalSet::new();
            for (key, cell) in cells.iter().enumerate() {
                if keep(cell)? {
                    set.push(key as u32, key as u32 + 1);
                }
            }
            keys.push(set);
        }
        Ok(Facts { real: Some(real_tokens(keys, len as u32)), table: Table(Some((fact, len))), ..Facts::new() })
    }

    /// Returns documents and non-padding tokens from segment ids `[batch, length]`. Ids count from 1, and 0 means
    /// padding (T5X, MaxText, Megatron). A document is a run of equal ids. Padding between documents becomes a document
    /// too.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::from_segment_ids(&[[1, 1, 2, 2, 0], [1, 1, 1, 1, 1]])?;
    /// assert_eq!(facts, Facts::new().lengths([4, 5]).documents(vec![vec![2, 2], vec![5]]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, if rows have different lengths, if an id is negative, or if an id occurs
    /// again after another id. Rows that begin with 0 are also an error, because ids may count from 0: in this case, call
    /// [`from_segment_ids_with`](Self::from_segment_ids_with), which takes the id of padding.
    pub fn from_segment_ids<R: AsRef<[i64]>>(rows: &[R]) -> Result<Self, Error> {
        let refuse = |problem: String| Err(Error::fact("segment_ids", problem));
        check_rows("segment_ids", rows)?;
        for (row, ids) in rows.iter().map(AsRef::as_ref).enumerate() {
            if let Some((key, id)) = ids.iter().enumerate().find(|(_, id)| **id < 0) {
                return refuse(format!(
                    "batch row {row} has id {id} at key {key}: ids count from 1 and 0 is padding; if {id} is padding, \
                         set segment_padding"
                ));
            }
        }
        match rows.iter().position(|ids| ids.as_ref()[0] == 0) {
            Some(row) => refuse(format!(
                "batch row {row} begins with id 0: the id can be left padding or the number of a document: give \
                     segment_padding (0 if id 0 is padding, or none), or number documents from 1"
            )),
            None => Self::from_segment_ids_with(rows, Some(0)),
        }
    }

    /// Returns documents and non-padding tokens from segment ids. `padding` is the id of padding. `None` means that
    /// there is no padding: every id is the id of a document.
    ///
    /// ```
    /// use noren_mask::{Facts, Side};
    /// let rows = [[0, 0, 1, 1, 1]];
    /// let padded = Facts::from_segment_ids_with(&rows, Some(0))?;
    /// assert_eq!(padded, Facts::new().lengths([3]).side(Side::Left).documents(vec![vec![3]]));
    /// let packed = Facts::from_segment_ids_with(&rows, None)?;
    /// assert_eq!(packed, Facts::new().documents(vec![vec![2, 3]]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, if rows have different lengths, or if an id occurs again after another id.
    pub fn from_segment_ids_with<R: AsRef<[i64]>>(rows: &[R], padding: Option<i64>) -> Result<Self, Error> {
        let len = check_rows("segment_ids", rows)?;
        let mut facts = match padding {
            Some(id) => Self::padding_from("segment_ids", rows, |cell| Ok(*cell != id))?,
            None => Facts::new(),
        };
        let owner = |(row, ids): (usize, &R)| {
            let ids = ids.as_ref();
            segment_owners("segment_ids", row, ids, &|key| Some(ids[key]) != padding)
        };
        let owners = rows.iter().enumerate().map(owner).collect::<Result<_, _>>()?;
        facts.documents = Some(documents_of(owners, facts.real.as_ref(), len));
        Ok(facts)
    }

    /// Returns documents from position ids `[batch, length]` that start at 0 in every document and rise by 1 within it.
    ///
    /// Padding tokens also have position ids (usually 0 or 1), so padding cannot be recognised. If a row has padding, call
    /// [`with_position_ids`](Self::with_position_ids) on facts that give the padding.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::from_position_ids(&[[0, 1, 2, 0, 1]])?;
    /// assert_eq!(facts, Facts::new().documents(vec![vec![3, 2]]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are no rows, if rows have different lengths, if a row does not begin at 0, or if a step is neither
    /// +1 nor a restart at 0. Rows that begin with two zeros or end with a zero are also an error, because these may be documents
    /// of one token or padding.
    pub fn from_position_ids<R: AsRef<[i64]>>(rows: &[R]) -> Result<Self, Error> {
        Facts::new().with_position_ids(rows)
    }

    /// Adds documents to these facts, read from position ids as in [`from_position_ids`](Self::from_position_ids). Position
    /// ids of padding tokens are ignored.
    ///
    /// ```
    /// use noren_mask::{Facts, Side};
    /// let facts = Facts::new().lengths([3]).side(Side::Left).with_position_ids(&[[1, 1, 0, 1, 0]])?;
    /// assert_eq!(facts, Facts::new().lengths([3]).side(Side::Left).documents(vec![vec![2, 1]]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`from_position_ids`](Self::from_position_ids) for the non-padding tokens, and an error if the
    /// non-padding tokens do not fit the rows.
    pub fn with_position_ids<R: AsRef<[i64]>>(mut self, rows: &[R]) -> Result<Self, Error> {
        const FACT: &str = "position_ids";
        let len = check_rows(FACT, rows)?;
        let real = self.real.as_ref().map(|real| real_sets(FACT, real, rows.len(), len as u32)).transpose()?;
        let owner = |(row, ids): (usize, &R)| {
            let (ids, real) = (ids.as_ref(), real.as_ref().map(|sets| &sets[row]));
            if real.is_none() && len > 1 && (ids[..2] == [0, 0] || ids[len - 1] == 0) {
                let place = if ids[len - 1] == 0 { "at its end" } else { "twice at its beginning" };
                return Err(Error::fact(
                    FACT,
                    format!(
                        "batch row {row}: the row has position id 0 {place}, which can mean padding or a document of one token: \
                         give lengths or an attention_mask too, or the documents themselves"
                    ),
                ));
            }
            position_owners(row, ids, real)
        };
        let owners = rows.iter().enumerate().map(owner).collect::<Result<_, _>>()?;
        self.documents = Some(documents_of(owners, self.real.as_ref(), len));
        Ok(self)
    }

    /// Returns the documents of one batch row from `cu_seqlens`, the varlen form of FlashAttention: the number 0,
    /// followed by the end of every document.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// assert_eq!(Facts::from_cu_seqlens(&[0, 5, 32])?, Facts::new().documents(vec![vec![5, 27]]));
    /// let error = Facts::from_cu_seqlens(&[5, 32]).unwrap_err().to_string();
    /// assert_eq!(error, "facts: cu_seqlens: the list begins with 5: give 0 and then the end of every document, such as [0, 5, 32] for documents of lengths [5, 27]");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are fewer than two entries, if the first entry is not 0, if an entry is lower than the one before
    /// it, or if there are more than [`Shape::MAX_LEN`] tokens.
    pub fn from_cu_seqlens(ends: &[i64]) -> Result<Self, Error> {
        const FORM: &str =
            "give 0 and then the end of every document, such as [0, 5, 32] for documents of lengths [5, 27]";
        let refuse = |problem: String| Err(Error::fact("cu_seqlens", problem));
        if ends.len() < 2 {
            return refuse(format!("the list has {} entries: {FORM}", ends.len()));
        }
        if ends[0] != 0 {
            return refuse(format!("the list begins with {}: {FORM}", ends[0]));
        }
        if let Some((i, w)) = ends.windows(2).enumerate().find(|(_, w)| w[1] < w[0]) {
            return refuse(format!(
                "the ends decrease from {} to {} at entry {}: give ends that do not decrease, or give lengths as `documents`",
                w[0],
                w[1],
                i + 1
            ));
        }
        let total = ends[ends.len() - 1];
        if total > Shape::MAX_LEN as i64 {
            return refuse(format!(
                "the documents have {total} tokens in total (the last entry), but at most {} tokens are supported",
                Shape::MAX_LEN
            ));
        }
        let lengths: Vec<usize> = ends.windows(2).map(|w| (w[1] - w[0]) as usize).collect();
        Ok(Facts::new().documents(vec![lengths]))
    }
}

/// Returns for each token of a row the id of its document, or `None` for tokens that are not kept. Returns an error that
/// names `fact` if an id occurs again after another id.
pub(crate) fn segment_owners(
    fact: &str,
    row: usize,
    ids: &[i64],
    kept: &dyn Fn(usize) -> bool,
) -> Result<Vec<Option<i64>>, Error> {
    let (mut seen, mut last) = (HashSet::new(), None);
    let owner = |(key, id): (usize, &i64)| {
        if !kept(key) {
            return Ok(None);
        }
        if last != Some(*id) && !seen.insert(*id) {
            return Err(Error::fact(
                fact,
                format!(
                    "batch row {row} has id {id} again at key {key}: the keys of a document must be consecutive; give segments that \
                     interleave as an array, `dense(name)`"
                ),
            ));
        }
        last = Some(*id);
        Ok(last)
    };
    ids.iter().enumerate().map(owner).collect()
}

/// Returns for each token of a row the number of its document, or `None` for padding. A document begins at each position
/// 0. `real` is the non-padding tokens; `None` if the row has no padding.
pub(crate) fn position_owners(row: usize, ids: &[i64], real: Option<&IntervalSet>) -> Result<Vec<Option<i64>>, Error> {
    let (mut document, mut last) = (0, None);
    let owner = |(key, &id): (usize, &i64)| {
        if real.is_some_and(|set| !set.contains(key as u32)) {
            return Ok(None);
        }
        let problem = match last {
            _ if id == 0 => {
                document += 1;
                None
            }
            Some(last) if id.checked_sub(1) == Some(last) => None,
            Some(last) => Some(format!(
                "key {key} has position {id} after position {last}: positions rise by 1 within a document and restart at 0"
            )),
            None if real.is_none() => Some(format!(
                "the first position is {id}, but a document begins at position 0: if the first tokens are padding, give \
                 lengths or an attention_mask too"
            )),
            None => Some(format!("the first real token has position {id}, but a document begins at position 0")),
        };
        last = Some(id);
        problem.map_or(Ok(Some(document)), |problem| {
            Err(Error::fact("position_ids", format!("batch row {row}: {problem}")))
        })
    };
    ids.iter().enumerate().map(owner).collect()
}

/// Returns the common length of all batch rows. Returns an error if there are no rows, if the lengths of rows differ,
/// or if the length is not from 1 to `Shape::MAX_LEN`.
pub(crate) fn check_rows<T, R: AsRef<[T]>>(fact: &str, rows: &[R]) -> Result<usize, Error> {
    let refuse = |problem: String| Err(Error::fact(fact, problem));
    let Some(len) = rows.first().map(|row| row.as_ref().len()) else {
        return refuse("the list has no rows: give one row per batch row".into());
    };
    if len == 0 || len > Shape::MAX_LEN {
        return refuse(format!("batch row 0 has {len} entries: give 1 to {}", Shape::MAX_LEN));
    }
    match rows.iter().map(|row| row.as_ref().len()).enumerate().find(|(_, n)| *n != len) {
        Some((row, n)) => {
            refuse(format!("batch row {row} has {n} entries but batch row 0 has {len}: pad all rows to one length"))
        }
        None => Ok(len),
    }
}

/// Returns lengths and a side if the padding of all batch rows is at the same end. Otherwise returns the set of
/// non-padding keys of each batch row.
pub(crate) fn real_tokens(keys: Vec<IntervalSet>, len: u32) -> RealTokens {
    for side in [Side::Right, Side::Left] {
        let lengths: Vec<usize> = keys.iter().map(|set| set.count() as usize).collect();
        if keys.iter().zip(&lengths).all(|(set, length)| *set == real_run(*length, side, len).into()) {
            return RealTokens::Lengths { lengths, side };
        }
    }
    RealTokens::Keys(keys)
}

/// Returns the non-padding keys of `batch` batch rows with `len` keys each. Returns an error that names `fact` if
/// `real` does not fit these rows.
pub(crate) fn real_sets(fact: &str, real: &RealTokens, batch: usize, len: u32) -> Result<Vec<IntervalSet>, Error> {
    let refuse = |problem: String| Err(Error::fact(fact, problem));
    let (count, longest) = match real {
        RealTokens::Lengths { lengths, .. } => (lengths.len(), lengths.iter().copied().max()),
        RealTokens::Keys(keys) => {
            (keys.len(), keys.iter().filter_map(|k| Some(k.covering_range()?.end as usize)).max())
        }
    };
    if count != batch {
        return refuse(format!("the list has {batch} rows but the real tokens are given for {count} batch rows"));
    }
    if let Some(longest) = longest.filter(|n| *n > len as usize) {
        return refuse(format!("the rows have {len} keys but the real tokens extend over {longest} keys"));
    }
    Ok(match real {
        RealTokens::Lengths { lengths, side } => lengths.iter().map(|n| real_run(*n, *side, len).into()).collect(),
        RealTokens::Keys(keys) => keys.clone(),
    })
}

/// Returns document lengths for each batch row. `owners` has, for each batch row and key, the id of the document that
/// contains the key, or `None` for padding. If the padding of all batch rows is at the same end, it is in no document.
/// Other padding is a document, or part of the document that surrounds it.
pub(crate) fn documents_of(
    mut owners: Vec<Vec<Option<i64>>>,
    real: Option<&RealTokens>,
    len: usize,
) -> Rows<Vec<usize>> {
    let at_end = matches!(real, Some(RealTokens::Lengths { .. }));
    let lengths_of = |owner: &mut Vec<Option<i64>>| {
        let mut last: Option<usize> = None;
        for key in 0..len {
            if owner[key].is_some() {
                if let Some(last) = last.filter(|last| owner[*last] == owner[key]) {
                    let fill = owner[key];
                    owner[last..key].fill(fill);
                }
                last = Some(key);
            }
        }
        let runs = owner.chunk_by(|a, b| a == b);
        runs.filter(|run| !at_end || run[0].is_some()).map(|run| run.len()).collect()
    };
    Rows::Each(owners.iter_mut().map(lengths_of).collect())
}
