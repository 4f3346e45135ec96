//! [`Inputs`]: the arrays of an attention computation. Their shapes are checked before the computation starts.

use crate::failure::{Failure, Result};
use noren::View;
use noren_input::tensors::{Tensor, TensorFile};
use noren_mask::{Score, Spec};
use std::collections::BTreeMap;
use std::io::{Read, Seek};

/// The arrays `q`, `k` and `v`, and the tensors to which the score modifiers of a spec refer.
pub(crate) struct Inputs {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: BTreeMap<String, Tensor>,
}

/// The sizes of `q`, `k` and `v`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dims {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
    pub(crate) head_dim: usize,
    pub(crate) v_dim: usize,
}

impl Inputs {
    /// Reads the tensors `q`, `k`, `v` and the tensors to which the score modifiers of `spec` refer. Other tensors in
    /// the file are not read.
    pub(crate) fn read<R: Read + Seek>(file: &mut TensorFile<R>, spec: &Spec) -> Result<Self> {
        let [q, k, v] = [file.read("q")?, file.read("k")?, file.read("v")?];
        let mut tables = BTreeMap::new();
        for score in &spec.scores {
            if let Some(name) = table_name(score) {
                tables
                    .insert(name.to_string(), file.read(name).map_err(|e| Failure::from(e).of(format!("`{score}`")))?);
            }
        }
        let inputs = Inputs { q, k, v, tables };
        inputs.check()?;
        Ok(inputs)
    }

    fn check(&self) -> Result<()> {
        for (name, tensor, what) in [
            ("q", &self.q, "[batch, heads, q_len, head_dim]"),
            ("k", &self.k, "[batch, kv_heads, kv_len, head_dim]"),
            ("v", &self.v, "[batch, kv_heads, kv_len, v_dim]"),
        ] {
            let shape = &tensor.shape;
            if shape.len() != 4 {
                return Err(Failure::new(format!(
                    "tensor {name:?} has shape {shape:?}, {} dimensions: {what} is needed",
                    shape.len()
                )));
            }
            if let Some(at) = shape.iter().position(|n| *n == 0) {
                return Err(Failure::new(format!(
                    "tensor {name:?} has shape {shape:?}: dimension {at} of {what} is 0: give at least 1"
                )));
            }
        }
        let d = self.dims();
        let fits = |name: &str, given: &[usize], expected: [usize; 4], why: &str| match given == expected {
            true => Ok(()),
            false => Err(Failure::new(format!("tensor {name:?} has shape {given:?}, but {why} require {expected:?}"))),
        };
        if !d.heads.is_multiple_of(d.kv_heads) {
            return Err(Failure::new(format!(
                "`q` has {} heads and `k` has {} heads: the number of heads of `q` must be a multiple of the number of heads of `k`",
                d.heads, d.kv_heads
            )));
        }
        fits("k", &self.k.shape, [d.batch, d.kv_heads, d.kv_len, d.head_dim], "the batch and head_dim of q")?;
        fits(
            "v",
            &self.v.shape,
            [d.batch, d.kv_heads, d.kv_len, d.v_dim],
            "the batch of q and the heads and length of k",
        )
    }

    /// Returns the sizes of `q`, `k` and `v`.
    pub(crate) fn dims(&self) -> Dims {
        let (q, k) = (&self.q.shape, &self.k.shape);
        Dims {
            batch: q[0],
            heads: q[1],
            kv_heads: k[1],
            q_len: q[2],
            kv_len: k[2],
            head_dim: q[3],
            v_dim: self.v.shape[3],
        }
    }

    /// Returns views of `q`, `k` and `v`.
    pub(crate) fn arrays(&self) -> Result<noren::Inputs<'_>> {
        Ok(noren::Inputs { q: view(&self.q)?, k: view(&self.k)?, v: view(&self.v)? })
    }

    /// Returns the total size of all arrays, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let tensors = [&self.q, &self.k, &self.v].into_iter().chain(self.tables.values());
        tensors.map(|t| 4 * t.data.len() as u64).sum()
    }

    /// Returns a four-dimensional view of the tensor that the score modifier `score` names, such as `b0` in `bias(b0)`.
    /// Returns `None` if `score` names no tensor, or if the tensor is missing.
    pub(crate) fn table(&self, score: &Score) -> Result<Option<View<'_>>> {
        let Some((name, tensor)) = table_name(score).and_then(|name| self.tables.get_key_value(name)) else {
            return Ok(None);
        };
        let d = self.dims();
        let given = &tensor.shape;
        let refuse = |expected: String| Failure::new(format!("tensor {name:?} has shape {given:?}, but {expected}"));
        let shape = match (score, given.as_slice()) {
            (Score::Sinks { .. }, [n]) if *n == d.heads => [1, 1, 1, *n],
            (Score::Sinks { .. }, _) => {
                return Err(refuse(format!(
                    "the score `sinks` needs one value for each query head, so shape [{}]",
                    d.heads
                )));
            }
            (Score::Relative { .. }, [h, width]) if (*h == d.heads || *h == 1) && width % 2 == 1 => [1, *h, 1, *width],
            (Score::Relative { .. }, _) => {
                return Err(refuse(format!(
                    "the score `relative` needs shape [{} or 1, 2 * reach + 1], so the second dimension must be odd",
                    d.heads
                )));
            }
            (_, dims) => {
                let full = [d.batch, d.heads, d.q_len, d.kv_len];
                let mut shape = [1; 4];
                let fits = dims.len() <= 4 && {
                    shape[4 - dims.len()..].copy_from_slice(dims);
                    shape.iter().zip(full).all(|(n, all)| *n == 1 || *n == all)
                };
                if !fits {
                    return Err(refuse(format!(
                        "each dimension must be 1 or equal to the dimension in [batch, heads, q_len, kv_len] = {full:?}"
                    )));
                }
                shape
            }
        };
        if let Score::Soft { .. } = score
            && let Some(at) = tensor.data.iter().position(|w| !(0.0..=1.0).contains(w))
        {
            let given = tensor.data[at];
            return Err(Failure::new(format!(
                "tensor {name:?} has {given} at index {at}: soft weights must be from 0 to 1"
            )));
        }
        Ok(Some(View::new(&tensor.data, shape)?))
    }
}

fn view(tensor: &Tensor) -> Result<View<'_>> {
    let [a, b, c, d] = tensor.shape[..] else { unreachable!("the tensor was checked to have four dimensions") };
    Ok(View::new(&tensor.data, [a, b, c, d])?)
}

/// Returns the name of the tensor that a score modifier reads; `None` if the score modifier reads no tensor.
fn table_name(score: &Score) -> Option<&str> {
    match score {
        Score::Bias { name } | Score::Relative { name } | Score::Soft { name } | Score::Sinks { name } => Some(name),
        _ => None,
    }
}
