//! [`Tokens`]: the input tokens of a model, read from a safetensors file.

use crate::failure::{Failure, Result};
use half::{bf16, f16};
use noren_models::candle_core::{Device, Tensor};
use noren_models::model::Batch;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// A batch of input tokens, and for an encoder-decoder the first tokens of the decoder.
pub(crate) struct Tokens {
    pub(crate) batch: Batch,
    pub(crate) decoder: Option<Batch>,
}

impl Tokens {
    /// Reads `input_ids` and, if the file has them, `attention_mask`, `token_type_ids`, `decoder_input_ids` and
    /// `decoder_attention_mask`. Other tensors of the file are ignored.
    pub(crate) fn read(path: &Path) -> Result<Tokens> {
        let hint = "--input takes a safetensors file with input_ids, whole numbers [batch, length]";
        Self::read_file(path).map_err(|failure| failure.of(path.display()).hint(hint))
    }

    fn read_file(path: &Path) -> Result<Tokens> {
        let bytes = std::fs::read(path).map_err(|e| Failure::new(format!("the file cannot be read: {e}")))?;
        // The safetensors crate checks the header first.
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|e| Failure::new(format!("the file is not a safetensors file, or its end is missing: {e}")))?;
        let batch = |ids: &str, mask: &str| -> Result<Option<Batch>> {
            let Some(ids) = rows(&file, ids, false)? else { return Ok(None) };
            Ok(Some(Batch::from_tensors(&ids, rows(&file, mask, true)?.as_ref())?))
        };
        let Some(mut tokens) = batch("input_ids", "attention_mask")? else {
            let names = file.names().iter().map(|name| format!("{name:?}")).collect::<Vec<_>>();
            let given = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            return Err(Failure::new(format!("there is no tensor \"input_ids\": the file has {given}")));
        };
        if let Some(types) = rows(&file, "token_type_ids", false)? {
            // Token types are whole numbers from 0, like token ids.
            tokens = tokens.token_types(Batch::from_tensors(&types, None)?.ids().to_vec())?;
        }
        Ok(Tokens { batch: tokens, decoder: batch("decoder_input_ids", "decoder_attention_mask")? })
    }
}

/// Reads the tensor `name`, which must have whole numbers and the shape `[batch, length]`. Returns `None` if the file
/// does not contain the tensor. If `mask` is true, all values must be 0 or 1, and floats and truth values are accepted
/// too.
fn rows(file: &SafeTensors<'_>, name: &str, mask: bool) -> Result<Option<Tensor>> {
    let Ok(view) = file.tensor(name) else { return Ok(None) };
    let refuse = |expected: &str| {
        Err(Failure::new(format!("{name} has shape {:?} and type {:?}: {expected}", view.shape(), view.dtype())))
    };
    let numbers = match (whole_numbers(&view), mask) {
        (Some(numbers), _) => numbers,
        (None, true) => match flags(&view) {
            Some(flags) => flags,
            None => {
                return refuse(
                    "give whole numbers or truth values: 1 or true for non-padding tokens, 0 or false for padding",
                );
            }
        },
        (None, false) => return refuse("give whole numbers"),
    };
    if view.shape().len() != 2 || numbers.is_empty() {
        return refuse("give whole numbers of shape [batch, length], with at least one token");
    }
    if let Some(other) = numbers.iter().find(|x| !mask && u32::try_from(**x).is_err()) {
        return Err(Failure::new(format!("{name} holds {other}: give whole numbers from 0 to 2^32 - 1")));
    }
    if let Some(other) = numbers.iter().find(|x| mask && !matches!(x, 0 | 1)) {
        let problem = format!("{name} holds {other}: give 1 for non-padding tokens and 0 for padding");
        return Err(Failure::new(problem));
    }
    Ok(Some(Tensor::from_vec(numbers, view.shape(), &Device::Cpu).map_err(noren_models::Error::from)?))
}

/// Returns the values of a tensor of whole numbers; `None` for another type. A value that is too large for `i64` is
/// returned as -1, which is not a valid token.
fn whole_numbers(view: &TensorView<'_>) -> Option<Vec<i64>> {
    macro_rules! read {
        ($type:ty) => {{
            let (values, _) = view.data().as_chunks();
            values.iter().map(|bytes| i64::try_from(<$type>::from_le_bytes(*bytes)).unwrap_or(-1)).collect()
        }};
    }
    Some(match view.dtype() {
        Dtype::U8 | Dtype::BOOL => read!(u8),
        Dtype::I8 => read!(i8),
        Dtype::U16 => read!(u16),
        Dtype::I16 => read!(i16),
        Dtype::U32 => read!(u32),
        Dtype::I32 => read!(i32),
        Dtype::U64 => read!(u64),
        Dtype::I64 => read!(i64),
        _ => return None,
    })
}

/// Returns the values of an attention mask of floats; `None` if a value is not 0 or 1, or if the type is not a float.
fn flags(view: &TensorView<'_>) -> Option<Vec<i64>> {
    let flag = |x: f64| if x == 0.0 || x == 1.0 { Some(x as i64) } else { None };
    match view.dtype() {
        Dtype::F32 => view.data().as_chunks().0.iter().map(|x| flag(f32::from_le_bytes(*x).into())).collect(),
        Dtype::F16 => view.data().as_chunks().0.iter().map(|x| flag(f16::from_le_bytes(*x).into())).collect(),
        Dtype::BF16 => view.data().as_chunks().0.iter().map(|x| flag(bf16::from_le_bytes(*x).into())).collect(),
        Dtype::F64 => view.data().as_chunks().0.iter().map(|x| flag(f64::from_le_bytes(*x))).collect(),
        _ => None,
    }
}
