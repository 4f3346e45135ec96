//! Compares outputs and all gradients of layers with those of PyTorch's attention modules, tensor by tensor.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarBuilder;
use noren::{Facts, Mask, Shape, Side};
use noren_models::layers::{
    LayerConfig, LayerPlans, MhaConfig, MultiHeadAttention, TransformerDecoder, TransformerEncoder,
};
use noren_models::nn::Mode;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    name: String,
    embed_dim: usize,
    heads: usize,
    mask: String,
    memory_mask: Option<String>,
    facts: CaseFacts,
    norm_first: Option<bool>,
    layers: Option<usize>,
    ff: Option<usize>,
    activation: Option<String>,
}

#[derive(Deserialize, Default)]
struct CaseFacts {
    lengths: Option<Vec<usize>>,
    memory_lengths: Option<Vec<usize>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/modules")
}

fn facts(lengths: Option<&Vec<usize>>) -> Facts {
    lengths.map_or_else(Facts::new, |lengths| Facts::new().lengths(lengths.clone()).side(Side::Right))
}

struct Tensors {
    all: HashMap<String, Tensor>,
    params: HashMap<String, Var>,
    inputs: HashMap<String, Var>,
}

impl Tensors {
    fn load(name: &str) -> Tensors {
        let path = folder().join(format!("{name}.safetensors"));
        let all = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
        let var = |tensor: &Tensor| Var::from_tensor(tensor).unwrap();
        let params = all.iter().filter_map(|(n, t)| Some((n.strip_prefix("param.")?.to_owned(), var(t)))).collect();
        let inputs = ["x", "memory"].into_iter().filter_map(|n| Some((n.to_owned(), var(all.get(n)?)))).collect();
        Tensors { all, params, inputs }
    }

    fn builder(&self) -> VarBuilder<'static> {
        let params = self.params.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())).collect();
        VarBuilder::from_tensors(params, DType::F32, &Device::Cpu)
    }

    fn forward(&self, case: &Case) -> noren_models::Result<Tensor> {
        let x = self.inputs["x"].as_tensor();
        let memory = self.inputs.get("memory").map(Var::as_tensor);
        let (batch, q_len, _) = x.dims3()?;
        let vb = self.builder();
        let shape = |len| Shape::cross(q_len, len).batch(batch).heads(case.heads);
        let mask: Mask = case.mask.parse().unwrap();
        let Some(layers) = case.layers else {
            let kv = memory.unwrap_or(x);
            let mut facts = facts(case.facts.lengths.as_ref());
            if let Some(drop) = self.all.get("attn_mask") {
                facts = facts.array("attn_mask", noren_candle::array_from_drop(drop, case.heads)?);
            }
            let plans = LayerPlans::new(&mask, 1, &shape(kv.dim(1)?), &facts)?;
            let mha = MultiHeadAttention::new(&MhaConfig::new(case.embed_dim, case.heads), &vb)?;
            let plan = plans.get(0).unwrap();
            let (out, weights) = mha.forward_with_weights(x, kv, plan)?;
            let sums = weights.sum(3)?.flatten_all()?.to_vec1::<f32>()?;
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "weights of a row sum to 1");
            assert_eq!(out.to_vec3::<f32>()?, mha.forward(x, kv, plan, Mode::Inference)?.to_vec3::<f32>()?);
            return Ok(out);
        };
        let config = LayerConfig {
            feedforward: case.ff.unwrap(),
            activation: case.activation.as_ref().unwrap().parse()?,
            norm_first: case.norm_first.unwrap_or(false),
            ..LayerConfig::new(case.embed_dim, case.heads)
        };
        let plans = LayerPlans::new(&mask, layers, &shape(q_len), &facts(case.facts.lengths.as_ref()))?;
        let Some(memory) = memory else {
            return TransformerEncoder::new(&config, layers, &vb)?.forward(x, &plans, Mode::Inference);
        };
        let mask = case.memory_mask.as_ref().unwrap().parse().unwrap();
        let facts = facts(case.facts.memory_lengths.as_ref());
        let cross = LayerPlans::new(&mask, layers, &shape(memory.dim(1)?), &facts)?;
        TransformerDecoder::new(&config, layers, &vb)?.forward(x, memory, &plans, &cross, Mode::Inference)
    }
}

fn distance(got: &Tensor, expected: &Tensor) -> (f32, f32) {
    let most = |x: Tensor| x.abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
    assert_eq!(got.dims(), expected.dims());
    (most((got - expected).unwrap()), most(expected.clone()))
}

#[test]
fn modules_agree_in_outputs_and_all_gradients() {
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(folder().join("cases.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 7);
    for case in cases {
        let tensors = Tensors::load(&case.name);
        let out = tensors.forward(&case).unwrap();
        let gradients = (&out * &tensors.all["dout"]).unwrap().sum_all().unwrap().backward().unwrap();
        let mut pairs = vec![("out".to_owned(), out)];
        for (name, var) in tensors.params.iter().chain(&tensors.inputs) {
            let gradient = gradients.get(var).unwrap_or_else(|| panic!("{}: {name} has no gradient", case.name));
            pairs.push((format!("grad.{name}"), gradient.clone()));
        }
        assert_eq!(
            pairs.len() - 1,
            tensors.all.keys().filter(|name| name.starts_with("grad.")).count(),
            "{}",
            case.name
        );
        for (name, got) in pairs {
            let (off, size) = distance(&got, &tensors.all[&name]);
            println!("{:18} {name:48} {off:.1e} of {size:.1e}", case.name);
            assert!(
                off <= 2e-5 * size.max(1e-3),
                "{}: {name} is off by {off:e} where the largest is {size:e}",
                case.name
            );
        }
    }
}
