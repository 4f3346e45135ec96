//! Which tokens influence which outputs of the stored checkpoints: exactly those that the masks of all layers let through, to
//! the bit, and nothing of padding, NaN included.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use noren::noren_mask::Keep;
use noren::{BoundMask, Dtype, Facts, Shape, Side};
use noren_flow::{Fill, Flow};
use noren_models::model::{Batch, Call, Config, Declared, Model, Stack};
use serde_json::Value;
use std::path::PathBuf;

/// Longer than the windows of all layers together in the checkpoints with windows.
const LENGTH: usize = 72;

/// Returns the folders of all stored checkpoints.
fn folders() -> impl Iterator<Item = PathBuf> {
    crate::models::NAMES
        .map(crate::models::folder)
        .into_iter()
        .chain(crate::families::NAMES.map(crate::families::folder))
}

/// Returns the outputs of a batch, as `[row][token][feature]`. A model with an encoder and a decoder gets `batch` as the
/// decoder's tokens, and a fixed text for its encoder.
fn states(model: &Model, batch: &Batch) -> Vec<Vec<Vec<f32>>> {
    let crosses = model.masks().iter().any(|declared| declared.stack == Stack::Cross);
    let text = Batch::new(vec![vec![5, 6, 7, 8, 9]; batch.rows()]).unwrap();
    let (encoder, decoder) = if crosses { (&text, Some(batch)) } else { (batch, None) };
    let output = model.forward_with(encoder, decoder, Call::default()).unwrap();
    output.last_hidden_state.to_dtype(DType::F32).unwrap().to_vec3().unwrap()
}

/// Returns the mask of the tokens of which outputs are compared: the decoder's if there is one.
fn main_mask(model: &Model) -> Declared {
    let masks = model.masks();
    masks.iter().find(|declared| declared.stack == Stack::Decoder).unwrap_or(&masks[0]).clone()
}

/// Returns two masks of (output, token): the tokens that may influence the output through all layers, and the tokens that
/// a head of every layer reads.
fn reach(declared: &Declared, length: usize) -> [Keep; 2] {
    let shape = Shape::square(length).heads(declared.heads[0]);
    let layers: Vec<_> = (0..declared.layers).map(|layer| declared.spec.mask.at_layer(layer)).collect();
    let flow = Flow::of_stack(&layers, &shape, &Facts::new(), Fill::Nothing).unwrap();
    let layers: Vec<BoundMask> = layers.iter().map(|layer| layer.bind(&shape, &Facts::new()).unwrap()).collect();
    let direct = Keep::from_fn([1, 1, length, length], |[_, _, q, k]| {
        layers.iter().all(|layer| (0..declared.heads[0]).any(|head| layer.allowed(0, head, q, k)))
    });
    [flow.closure(0), direct]
}

#[test]
fn each_token_influences_the_outputs_that_the_masks_allow() {
    for (folder, weights) in
        folders().flat_map(|folder| [None, Some(Dtype::F32)].map(|weights| (folder.clone(), weights)))
    {
        let mut model = Model::load(&folder).unwrap();
        if let Some(dtype) = weights {
            model.pack(dtype).unwrap();
        }
        let length = model.positions().unwrap_or(LENGTH).min(LENGTH);
        let ids: Vec<u32> = (0..length as u32).map(|i| 5 + 7 * i % (model.vocab() as u32 - 6)).collect();
        let changed = |k: usize| ids.iter().enumerate().map(|(i, id)| id + u32::from(i == k)).collect();
        let rows = states(&model, &Batch::new((0..length).map(changed).chain([ids.clone()]).collect()).unwrap());
        let [reach, direct] = reach(&main_mask(&model), length);
        for k in 0..length {
            for q in (0..length).filter(|q| *q != k) {
                let equal = rows[k][q] == rows[length][q];
                let place = format!("{}, packed as {weights:?}: token {k}, output {q}", folder.display());
                assert!(rows[k][q].iter().all(|x| x.is_finite()), "{place}");
                assert!(equal || reach.get([0, 0, q, k]), "{place}: hidden, and changes the output");
                // the scores of the T5 reach 200, so some weights are 0 after rounding
                let live = direct.get([0, 0, q, k]) && !folder.ends_with("t5");
                assert!(!equal || !live, "{place}: read in every layer, and changes nothing");
            }
        }
    }
}

/// Returns a model whose embedding of the token `id` is NaN.
fn spoiled(folder: &std::path::Path, id: usize) -> Model {
    let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let mut tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let words =
        ["word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight", "wte.weight", "shared.weight"];
    for (name, tensor) in tensors.iter_mut().filter(|(name, _)| words.iter().any(|word| name.ends_with(word))) {
        let mut rows = tensor.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        rows.get_mut(id).unwrap_or_else(|| panic!("{name}")).fill(f32::NAN);
        *tensor = Tensor::new(rows, &Device::Cpu).unwrap().to_dtype(tensor.dtype()).unwrap();
    }
    let config = Config::read(config.as_object().unwrap()).unwrap();
    Model::new(&config, &VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu)).unwrap()
}

#[test]
fn nothing_of_padding_reaches_an_output() {
    for folder in folders() {
        let (model, pad) = (Model::load(&folder).unwrap(), 4);
        let spoiled = spoiled(&folder, pad as usize);
        let texts: Vec<Vec<u32>> = [23, 17, 9].map(|n| (0..n).map(|i| 5 + 3 * i % 40).collect()).into();
        for side in [Side::Left, Side::Right] {
            let batch = Batch::padded(&texts, pad, side).unwrap();
            let (clean, other) = (states(&model, &batch), states(&spoiled, &batch));
            for (row, i) in batch.texts().into_iter().flatten() {
                assert!(clean[row][i] == other[row][i], "{}, {side:?}: row {row}, token {i}", folder.display());
            }
        }
    }
}
