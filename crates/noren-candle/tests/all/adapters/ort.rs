//! ort: a custom operator `noren.Attention` for ONNX Runtime.

/// A copy of the part of ort's module `operator` that the adapter uses, with tensors in plain memory.
mod theirs {
    #[derive(Debug)]
    pub(crate) struct Error(pub(super) String);

    impl Error {
        pub(super) fn new(message: impl Into<String>) -> Self {
            Error(message.into())
        }
    }

    pub(crate) struct Value {
        pub(super) shape: Vec<i64>,
        pub(super) data: Vec<f32>,
    }

    impl Value {
        pub(super) fn try_extract_tensor(&self) -> Result<(&[i64], &[f32]), Error> {
            Ok((&self.shape, &self.data))
        }

        pub(super) fn try_extract_tensor_mut(&mut self) -> Result<(&[i64], &mut [f32]), Error> {
            Ok((&self.shape, &mut self.data))
        }
    }

    pub(crate) struct KernelContext {
        pub(super) inputs: Vec<Value>,
        pub(super) output: std::cell::RefCell<Option<Value>>,
    }

    impl KernelContext {
        pub(super) fn input(&self, index: usize) -> Result<Option<&Value>, Error> {
            Ok(self.inputs.get(index))
        }

        pub(super) fn output(&self, _: usize, shape: Vec<i64>) -> Result<Option<std::cell::RefMut<'_, Value>>, Error> {
            let data = vec![f32::NAN; shape.iter().product::<i64>() as usize];
            *self.output.borrow_mut() = Some(Value { shape, data });
            Ok(std::cell::RefMut::filter_map(self.output.borrow_mut(), Option::as_mut).ok())
        }
    }

    pub(crate) trait Kernel {
        fn compute(&mut self, context: &KernelContext) -> Result<(), Error>;
    }
}

use theirs::{Error, Kernel, KernelContext, Value};

// begin
use noren::{Attend, Spec, ViewMut};

/// The kernel of the operator: inputs `q`, `k` and `v`, `[batch, heads, len, head_dim]` of `f32`; the attribute `mask` is a text.
pub(crate) struct AttentionKernel {
    attend: Attend<'static>,
}

impl AttentionKernel {
    /// Returns the kernel of a node, for `create_kernel`: `mask` is its attribute, such as `sliding(256) | keys(0..4)`.
    pub(crate) fn new(mask: &str) -> Result<Self, Error> {
        let spec: Spec = mask.parse().map_err(|error| Error::new(format!("{error}")))?;
        Ok(AttentionKernel { attend: Attend::new(spec).map_err(|error| Error::new(error.to_string()))? })
    }
}

impl Kernel for AttentionKernel {
    fn compute(&mut self, context: &KernelContext) -> Result<(), Error> {
        let input = |index| context.input(index)?.ok_or_else(|| Error::new("noren.Attention needs q, k and v"));
        let shape = |dims: &[i64]| -> Result<[usize; 4], Error> {
            let sizes: Option<Vec<usize>> = dims.iter().map(|n| usize::try_from(*n).ok()).collect();
            sizes
                .and_then(|sizes| sizes.try_into().ok())
                .ok_or_else(|| Error::new(format!("shape {dims:?}: give 4 sizes")))
        };
        let (q, k, v) = (input(0)?, input(1)?, input(2)?);
        let ((q_dims, q), (k_dims, k), (v_dims, v)) =
            (q.try_extract_tensor()?, k.try_extract_tensor()?, v.try_extract_tensor()?);
        let (q_shape, k_shape, v_shape) = (shape(q_dims)?, shape(k_dims)?, shape(v_dims)?);
        let out_shape = [q_shape[0], q_shape[1], q_shape[2], v_shape[3]];
        let output = context.output(0, out_shape.map(|n| n as i64).to_vec())?;
        let mut output = output.ok_or_else(|| Error::new("noren.Attention has one output"))?;
        let (_, out) = output.try_extract_tensor_mut()?;
        let out = ViewMut::new(out, out_shape);
        out.and_then(|out| self.attend.forward_into((q, q_shape), (k, k_shape), (v, v_shape), out, None))
            .map_err(|error| Error::new(error.to_string()))
    }
}
// end

use super::{close, random, textbook};
use noren_candle::candle_core::{self, Device, Tensor};

#[test]
fn the_kernel_equals_the_textbook_and_refuses_wrong_input() -> candle_core::Result<()> {
    let (q, kv) = (random(&[1, 4, 9, 8], 6)?, random(&[1, 2, 9, 8], 7)?);
    let value = |x: &Tensor| -> candle_core::Result<Value> {
        let shape = x.dims().iter().map(|n| *n as i64).collect();
        Ok(Value { shape, data: x.flatten_all()?.to_vec1()? })
    };
    let mut kernel = AttentionKernel::new("sliding(3) | keys(0..1)").expect("a mask");
    let context = KernelContext { inputs: vec![value(&q)?, value(&kv)?, value(&kv)?], output: None.into() };
    kernel.compute(&context).expect("computes");
    let out = context.output.into_inner().expect("the kernel wrote the output");
    let out = Tensor::from_vec(out.data, (1, 4, 9, 8), &Device::Cpu)?;
    close(&out, &textbook(&q, &kv, &kv, 8f64.powf(-0.5), |q, k| (k <= q && k + 3 > q) || k == 0)?)?;

    assert!(AttentionKernel::new("slidin(3)").is_err_and(|error| error.0.contains("sliding")));
    let context =
        KernelContext { inputs: vec![value(&q)?, value(&kv.narrow(2, 0, 5)?)?, value(&kv)?], output: None.into() };
    let Error(message) = kernel.compute(&context).unwrap_err();
    assert!(message.contains("v has shape"), "{message}");
    Ok(())
}
