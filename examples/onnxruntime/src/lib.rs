//! The operator `noren.Attention` for ONNX Runtime, by the crate `ort`: attention with any mask inside of an ONNX model.
//!
//! `tests/operator.rs` runs a model with the operator in ONNX Runtime. `docs/adapters.md` shows the code.

#![forbid(unsafe_code)]

// begin
use noren::{Attend, Spec, ViewMut};
use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::{Shape, TensorElementType, ValueType};
use ort::{Error, Result};

/// Returns the domain `noren` with its operator `Attention`, for `SessionBuilder::with_operators`.
///
/// # Errors
/// Returns the error of ONNX Runtime if it does not accept the operator.
pub fn domain() -> Result<OperatorDomain> {
    OperatorDomain::new("noren")?.add(Attention)
}

/// The operator: inputs `q`, `k` and `v`, `[batch, heads, len, head_dim]` of `f32`, with heads of `k` and `v` that divide those of `q`.
/// The attribute `mask` is a text, such as `sliding(256) | keys(0..4)`. Optional attributes: `scale` (a float, 1 / sqrt(head_dim)
/// by default) and `query_offset` (an integer, the position of the first query, needed if `q` and `k` have different lengths).
struct Attention;

impl Operator for Attention {
    type Kernel<'attr> = AttentionKernel;

    fn name(&self) -> &str {
        "Attention"
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [(); 3].map(|()| OperatorInput::required(TensorElementType::Float32))
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn create_kernel<'attr>(&self, node: &KernelContext<'attr>) -> Result<AttentionKernel> {
        let mask: String = node.get("mask").ok_or_else(|| Error::new("noren.Attention needs the attribute mask"))?;
        let spec: Spec = mask.parse().map_err(|error| Error::new(format!("the attribute mask: {error}")))?;
        let attend = Attend::new(spec).map_err(|error| Error::new(error.to_string()))?.scale(node.get::<f32>("scale"));
        let offset = node.get::<i64>("query_offset");
        Ok(AttentionKernel(if let Some(offset) = offset { attend.query_offset(offset) } else { attend }))
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> Result<()> {
        let inputs = context.inputs();
        let [Some(q), _, Some(v)] = [0, 1, 2].map(|input| inputs.get(input).and_then(ValueType::tensor_shape)) else {
            return Ok(());
        };
        let ([batch, heads, len, _], [.., head_dim]) = (&q[..], &v[..]) else { return Ok(()) };
        let shape = Shape::new([*batch, *heads, *len, *head_dim]);
        let symbols = ort::value::SymbolicDimensions::empty(shape.len());
        context.set_output(0, &ValueType::Tensor { ty: TensorElementType::Float32, shape, dimension_symbols: symbols })
    }
}

/// The kernel of one node. It keeps the plan of the latest shape, and writes the output in place.
struct AttentionKernel(Attend<'static>);

impl Kernel for AttentionKernel {
    fn compute(&mut self, context: &ComputeContext) -> Result<()> {
        let input = |index| context.input(index)?.ok_or_else(|| Error::new("noren.Attention needs q, k and v"));
        let sizes = |name: &str, dims: &[i64]| -> Result<[usize; 4]> {
            let sizes: Option<Vec<usize>> = dims.iter().map(|n| usize::try_from(*n).ok()).collect();
            sizes.and_then(|sizes| sizes.try_into().ok()).ok_or_else(|| {
                Error::new(format!("noren.Attention: {name} has shape {dims:?}: give [batch, heads, len, head_dim]"))
            })
        };
        let (q, k, v) = (input(0)?, input(1)?, input(2)?);
        let (q_dims, q) = q.try_extract_tensor::<f32>()?;
        let (k_dims, k) = k.try_extract_tensor::<f32>()?;
        let (v_dims, v) = v.try_extract_tensor::<f32>()?;
        let (q_shape, k_shape, v_shape) = (sizes("q", q_dims)?, sizes("k", k_dims)?, sizes("v", v_dims)?);
        let out_shape = [q_shape[0], q_shape[1], q_shape[2], v_shape[3]];
        let output = context.output(0, out_shape.map(|n| n as i64))?;
        let mut output = output.ok_or_else(|| Error::new("noren.Attention has one output"))?;
        let (_, out) = output.try_extract_tensor_mut::<f32>()?;
        let out = ViewMut::new(out, out_shape);
        out.and_then(|out| self.0.forward_into((q, q_shape), (k, k_shape), (v, v_shape), out, None))
            .map_err(|error| Error::new(format!("noren.Attention: {error}")))
    }
}
// end
