//! [`Batch`]: the input tokens of one call of a model, with their padding and the data that masks need, such as labels.

use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};
use noren::noren_mask::interval::IntervalSet;
use noren::{Facts, Mask, Side, atoms};

/// The input tokens of one call of a model: either rows of equal length, which may be padded, or a single row in which
/// texts are packed one after another.
///
/// Positions are counted from the first non-padding token of a row (or of a text, if texts are packed). A text
/// therefore has the same positions with any padding.
///
/// ```
/// use noren_models::model::Batch;
/// use noren::{Facts, Side, atoms};
/// let padded = Batch::padded(&[vec![5, 6, 7], vec![8]], 0, Side::Left)?;
/// assert_eq!(padded.ids()[1], [0, 0, 8]);
/// let packed = Batch::packed(&[vec![5, 6, 7], vec![8]])?;
/// assert_eq!(packed.positions(), [[0, 1, 2, 0]]);
/// // A mask and facts of the caller join those of the model.
/// let hidden = padded.mask(!atoms::keys(noren::Positions::label("secret"))).facts(Facts::new().label("secret", [1]));
/// # let _ = hidden;
/// # Ok::<(), noren_models::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Vec<Vec<u32>>,
    keep: Vec<Vec<bool>>,
    positions: Vec<Vec<u32>>,
    types: Option<Vec<Vec<u32>>>,
    mask: Option<Mask>,
    facts: Facts,
    /// The lengths of packed texts in tokens; `None` if texts are not packed.
    documents: Option<Vec<usize>>,
    /// The tokens that are left out of the mean over a text, as (row, index in the row); sorted.
    unpooled: Vec<(usize, usize)>,
}

impl Batch {
    /// Makes a batch without padding from rows of token ids, which must have equal lengths.
    ///
    /// # Errors
    /// Returns an error if there is no token, or if rows have different lengths.
    pub fn new(ids: Vec<Vec<u32>>) -> Result<Self> {
        let keep = ids.iter().map(|row| vec![true; row.len()]).collect();
        Self::with_keep(ids, keep)
    }

    /// Makes a batch with one row for each text. Shorter texts are padded with the token `pad` on `side`.
    ///
    /// # Errors
    /// Returns an error if there is no text, or if a text has no tokens.
    pub fn padded(texts: &[Vec<u32>], pad: u32, side: Side) -> Result<Self> {
        check_texts(texts)?;
        let len = texts.iter().map(Vec::len).max().unwrap_or(0);
        let fill = |text: &Vec<u32>| -> (Vec<u32>, Vec<bool>) {
            let real = text.iter().map(|id| (*id, true));
            let padding = std::iter::repeat_n((pad, false), len - text.len());
            if side == Side::Left { padding.chain(real).unzip() } else { real.chain(padding).unzip() }
        };
        let (ids, keep) = texts.iter().map(fill).unzip();
        Self::with_keep(ids, keep)
    }

    /// Makes a batch with a single row, in which the texts are packed one after another. A token reads only tokens of
    /// its own text.
    ///
    /// # Errors
    /// Returns an error if there is no text, or if a text has no tokens.
    pub fn packed(texts: &[Vec<u32>]) -> Result<Self> {
        check_texts(texts)?;
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let batch = Self::new(vec![texts.concat()])?;
        let positions = lengths.iter().flat_map(|n| 0..*n as u32).collect();
        Ok(Batch {
            positions: vec![positions],
            mask: Some(atoms::documents()),
            facts: Facts::new().documents(lengths.clone()),
            documents: Some(lengths),
            ..batch
        })
    }

    /// Makes a batch from `ids` `[batch, length]` of whole numbers. A token is padding if its value in `keep` is 0
    /// (Hugging Face's `attention_mask`). Without `keep`, no token is padding.
    ///
    /// # Errors
    /// Returns an error for other shapes, and for ids that are not whole numbers from 0.
    pub fn from_tensors(ids: &Tensor, keep: Option<&Tensor>) -> Result<Self> {
        if ids.rank() != 2 || ids.elem_count() == 0 || !ids.dtype().is_int() {
            return Err(Error::tensor(
                "input_ids",
                ids,
                "give whole numbers of shape [batch, length], with at least one token",
            ));
        }
        let rows = ids.to_dtype(DType::I64)?.to_vec2::<i64>()?;
        let id = |id: i64| {
            u32::try_from(id).map_err(|_| Error::input("a token id", id, "ids are whole numbers from 0 to 2^32 - 1"))
        };
        let rows = rows.into_iter().map(|row| row.into_iter().map(id).collect()).collect::<Result<_>>()?;
        match keep {
            None => Self::new(rows),
            Some(keep) if keep.dims() == ids.dims() => {
                let keep = keep.ne(0f64)?.to_vec2::<u8>()?;
                Self::with_keep(rows, keep.into_iter().map(|row| row.into_iter().map(|x| x != 0).collect()).collect())
            }
            Some(keep) => {
                let expected = format!("attention_mask must have the shape of input_ids, {:?}", ids.dims());
                Err(Error::tensor("attention_mask", keep, expected))
            }
        }
    }

    fn with_keep(ids: Vec<Vec<u32>>, keep: Vec<Vec<bool>>) -> Result<Self> {
        let len = ids.first().map_or(0, Vec::len);
        if len == 0 {
            return Err(Error::input("the batch", "empty", "give at least one row of at least one token"));
        }
        if let Some(row) = ids.iter().position(|row| row.len() != len) {
            let given = format!("{} tokens", ids[row].len());
            return Err(Error::input(
                &format!("batch row {row}"),
                given,
                format!("batch row 0 has {len} tokens, and all rows need the same length: pad or pack the rows"),
            ));
        }
        let positions = keep.iter().map(|row| {
            let count = row.iter().scan(0u32, |real, keep| {
                let position = real.saturating_sub(u32::from(!keep));
                *real += u32::from(*keep);
                Some(position)
            });
            count.collect()
        });
        let positions = positions.collect();
        Ok(Batch {
            ids,
            keep,
            positions,
            types: None,
            mask: None,
            facts: Facts::new(),
            documents: None,
            unpooled: Vec::new(),
        })
    }

    /// Adds a mask. The model's mask, this mask and all masks that were added before are intersected.
    #[must_use]
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = Some(match self.mask {
            Some(other) => other & mask,
            None => mask,
        });
        self
    }

    /// Sets the facts that masks need: labels, clearance levels, arrays. Facts that were set before are replaced. Facts
    /// about padding and packed documents are added automatically. Facts that do not fit cause an error when a mask is
    /// bound to them.
    #[must_use]
    pub fn facts(mut self, facts: Facts) -> Self {
        self.facts = match &self.documents {
            Some(lengths) => facts.documents(lengths.clone()),
            None => facts,
        };
        self
    }

    /// Sets the segment of each token (BERT's `token_type_ids`).
    ///
    /// # Errors
    /// Returns an error if the number or the length of the rows differs from the batch.
    pub fn token_types(mut self, types: Vec<Vec<u32>>) -> Result<Self> {
        let fits = types.len() == self.ids.len() && types.iter().all(|row| row.len() == self.len());
        if !fits {
            let given = format!("{} rows", types.len());
            return Err(Error::input("token_type_ids", given, "give one token type for each token"));
        }
        self.types = Some(types);
        Ok(self)
    }

    /// Leaves tokens out of the mean over the tokens of their text, from which a ModernBERT with mean pooling predicts
    /// classes. `tokens` holds (row, index in the row) of each token. Other tokens can still read these tokens, unless a
    /// mask forbids it.
    #[must_use]
    pub fn unpooled(mut self, tokens: impl IntoIterator<Item = (usize, usize)>) -> Self {
        self.unpooled = tokens.into_iter().collect();
        self.unpooled.sort_unstable();
        self
    }

    /// Sets the positions of all tokens: positions are counted from 0 in each document, as in [`packed`](Self::packed).
    /// `documents` holds the lengths of the documents in each row, in tokens.
    #[must_use]
    pub(crate) fn positions_by_document(mut self, documents: &[Vec<usize>]) -> Self {
        for (row, documents) in self.positions.iter_mut().zip(documents) {
            let counted = documents.iter().flat_map(|len| 0..*len as u32).chain(std::iter::repeat(0));
            row.iter_mut().zip(counted).for_each(|(position, counted)| *position = counted);
        }
        self
    }

    /// Returns the token ids by row.
    pub fn ids(&self) -> &[Vec<u32>] {
        &self.ids
    }

    /// Returns a flag for each token, by row: true for a non-padding token, false for padding.
    pub fn keep(&self) -> &[Vec<bool>] {
        &self.keep
    }

    /// Returns the position of each token, by row. Padding before the first non-padding token has position 0.
    pub fn positions(&self) -> &[Vec<u32>] {
        &self.positions
    }

    /// Returns the segment (BERT's `token_type_ids`) of each token, by row; `None` if no segments were set.
    pub(crate) fn types(&self) -> Option<&[Vec<u32>]> {
        self.types.as_deref()
    }

    /// Returns the lengths of the packed texts in tokens; `None` if texts are not packed.
    pub fn documents(&self) -> Option<&[usize]> {
        self.documents.as_deref()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Returns the number of tokens of a row, including padding. The number is never 0.
    #[allow(clippy::len_without_is_empty)] // a batch is never empty
    pub fn len(&self) -> usize {
        self.ids[0].len()
    }

    /// Returns whether any row has padding.
    pub fn is_padded(&self) -> bool {
        self.keep.iter().flatten().any(|keep| !keep)
    }

    /// Returns the token ids of each row, without padding.
    pub fn real_ids(&self) -> Vec<Vec<u32>> {
        let real = |(ids, keep): (&Vec<u32>, &Vec<bool>)| {
            ids.iter().zip(keep).filter(|(_, keep)| **keep).map(|(id, _)| *id).collect()
        };
        self.ids.iter().zip(&self.keep).map(real).collect()
    }

    /// Returns the non-padding tokens of each text. If texts are not packed, each row is one text. Each token is given
    /// as (row, index in the row).
    pub fn texts(&self) -> Vec<Vec<(usize, usize)>> {
        if let Some(lengths) = &self.documents {
            let starts = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
            return starts.zip(lengths).map(|(start, n)| (start..start + n).map(|i| (0, i)).collect()).collect();
        }
        let real = |(row, keep): (usize, &Vec<bool>)| (0..keep.len()).filter(|i| keep[*i]).map(|i| (row, i)).collect();
        self.keep.iter().enumerate().map(real).collect()
    }

    /// Returns the first non-padding token of each row, or the first token of each packed text, as (row, index in the
    /// row). For a row that has only padding, returns the first token of the row.
    pub fn first_tokens(&self) -> Vec<(usize, usize)> {
        let texts = self.texts().into_iter().enumerate();
        texts.map(|(row, text)| text.first().copied().unwrap_or((row, 0))).collect()
    }

    /// Returns for each text the last non-padding token with another id than `pad`, as (row, index in the row). For a
    /// text without such a token, returns the first token of the text.
    pub fn last_tokens(&self, pad: Option<u32>) -> Vec<(usize, usize)> {
        let last = |text: &Vec<(usize, usize)>| {
            text.iter().rev().find(|(row, i)| Some(self.ids[*row][*i]) != pad).or(text.first()).copied()
        };
        self.texts().iter().enumerate().map(|(row, text)| last(text).unwrap_or((row, 0))).collect()
    }

    /// Returns for each text the tokens over which a mean is taken: all non-padding tokens except those of
    /// [`unpooled`](Self::unpooled). Each token is given as (row, index in the row).
    pub fn pooled_tokens(&self) -> Vec<Vec<(usize, usize)>> {
        let mut texts = self.texts();
        texts.iter_mut().for_each(|text| text.retain(|token| self.unpooled.binary_search(token).is_err()));
        texts
    }

    /// Returns the model's mask `declared`, intersected with the masks of this batch: padding is hidden, packed texts
    /// do not read each other, and masks that were added with [`mask`](Self::mask) apply.
    pub fn full_mask(&self, declared: &Mask) -> Mask {
        let parts = [Some(declared.clone()), self.mask.clone(), self.is_padded().then(atoms::padding)];
        Mask::all(parts.into_iter().flatten())
    }

    /// Returns the mask of this batch, except padding: the intersection of the masks that were added with
    /// [`mask`](Self::mask) and, for packed texts, of `documents`. Returns `None` if no mask was added and texts are
    /// not packed.
    pub fn own_mask(&self) -> Option<&Mask> {
        self.mask.as_ref()
    }

    /// Returns the facts (data for masks, such as labels and clearance levels) that were set with
    /// [`facts`](Self::facts), together with the padding of this batch.
    ///
    /// # Errors
    /// Returns the errors of noren. A valid batch causes no error.
    pub fn full_facts(&self) -> Result<Facts> {
        let len = self.len();
        if !self.is_padded() {
            return Ok(self.facts.clone().lengths(vec![len; self.rows()]));
        }
        let counts = |side: Side| {
            let lengths = self.keep.iter().map(|row| {
                let real = row.iter().filter(|keep| **keep).count();
                let run = if side == Side::Left { &row[len - real..] } else { &row[..real] };
                run.iter().all(|keep| *keep).then_some(real)
            });
            lengths.collect::<Option<Vec<_>>>()
        };
        for side in [Side::Right, Side::Left] {
            if let Some(lengths) = counts(side) {
                return Ok(self.facts.clone().lengths(lengths).side(side));
            }
        }
        let keys = self.keep.iter().map(|row| {
            let mut set = IntervalSet::new();
            (0..).zip(row).filter(|(_, keep)| **keep).for_each(|(at, _)| set.push(at, at + 1));
            set
        });
        Ok(self.facts.clone().real_keys(keys.collect()))
    }

    /// Returns the token ids as a tensor `[batch, length]`.
    pub(crate) fn ids_tensor(&self, device: &Device) -> Result<Tensor> {
        rows_tensor(&self.ids, device)
    }
}

/// Returns rows of equal length as a tensor `[rows, length]`.
pub(crate) fn rows_tensor(rows: &[Vec<u32>], device: &Device) -> Result<Tensor> {
    Ok(Tensor::from_vec(rows.concat(), (rows.len(), rows.first().map_or(0, Vec::len)), device)?)
}

fn check_texts(texts: &[Vec<u32>]) -> Result<()> {
    if texts.is_empty() {
        return Err(Error::input("the batch", "empty", "give at least one text"));
    }
    match texts.iter().position(Vec::is_empty) {
        Some(i) => Err(Error::input(&format!("text {i}"), "empty", "a text needs at least one token")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_candle::facts_from_keep;

    #[test]
    fn padding_is_said_as_lengths_where_it_is_at_one_end() {
        let keep = Tensor::new(&[[0u8, 0, 1], [1, 1, 1]], &Device::Cpu).unwrap();
        let ids = Tensor::new(&[[9u32, 9, 4], [1, 2, 3]], &Device::Cpu).unwrap();
        let batch = Batch::from_tensors(&ids, Some(&keep)).unwrap();
        assert_eq!(batch.full_facts().unwrap(), facts_from_keep(&keep).unwrap());
        assert_eq!(batch.positions(), [[0, 0, 0], [0, 1, 2]]);
        assert_eq!(batch.real_ids(), [vec![4], vec![1, 2, 3]]);
        assert_eq!(batch.first_tokens(), [(0, 2), (1, 0)]);
        assert_eq!((batch.last_tokens(None), batch.last_tokens(Some(3))), (vec![(0, 2), (1, 2)], vec![(0, 2), (1, 1)]));
        assert_eq!(batch.clone().unpooled([(1, 1)]).pooled_tokens(), [vec![(0, 2)], vec![(1, 0), (1, 2)]]);
        assert_eq!(batch.full_mask(&atoms::causal()).to_string(), "causal & padding");
    }

    #[test]
    fn wrong_batches_are_refused() {
        let message = |batch: Result<Batch>| batch.unwrap_err().to_string();
        assert!(message(Batch::new(vec![])).contains("at least one row"));
        assert!(message(Batch::new(vec![vec![1, 2], vec![3]])).contains("batch row 1 is 1 tokens: batch row 0 has 2"));
        assert!(message(Batch::packed(&[vec![1], vec![]])).contains("text 1 is empty"));
        let negative = Tensor::new(&[[3i64, -1]], &Device::Cpu).unwrap();
        assert!(message(Batch::from_tensors(&negative, None)).contains("a token id is -1"));
    }
}
