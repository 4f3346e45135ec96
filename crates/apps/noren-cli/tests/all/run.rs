//! `noren run` over the tokens of a file: the checkpoints, accepted inputs, and errors.

#![cfg(feature = "models")]

use crate::common::{Folder, noren, refused};
use noren_models::candle_core::{DType, Device, Tensor, safetensors as files};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Output;

type Tensors = HashMap<String, Tensor>;

const NAMES: [&str; 11] = [
    "bert",
    "bert_classifier",
    "bert_mlm",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt_oss",
    "llama",
    "mistral_sliding",
    "qwen3",
    "t5",
];

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models").join(name)
}

fn load(path: &Path) -> Tensors {
    files::load(path, &Device::Cpu).expect("a safetensors file")
}

/// Runs the command over tensors, which are written to a new file.
fn run(folder: &Folder, model: &Path, input: &Tensors, more: &[&str]) -> Output {
    let (tokens, out) = (folder.file("in.safetensors"), folder.file("out.safetensors"));
    let _ = std::fs::remove_file(&out);
    files::save(input, &tokens).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let args = ["run", "--model", &text(model), "--input", &text(&tokens), "-o", &text(&out)];
    noren(&[&args, more].concat())
}

/// Runs the command over tensors, asserts that it succeeds, and returns the written tensors.
#[track_caller]
fn written(folder: &Folder, model: &Path, input: &Tensors, more: &[&str]) -> Tensors {
    let output = run(folder, model, input, more);
    assert!(output.status.success(), "{}: {}", model.display(), String::from_utf8_lossy(&output.stderr));
    load(&folder.file("out.safetensors"))
}

fn given(pairs: &[(&str, &Tensor)]) -> Tensors {
    pairs.iter().map(|(name, tensor)| (name.to_string(), (*tensor).clone())).collect()
}

/// Returns the inputs of the checkpoint: token ids and mask, and the decoder's ids if there is a decoder.
fn inputs(expected: &Tensors) -> Tensors {
    let names = ["input_ids", "attention_mask", "decoder_input_ids"];
    names.iter().filter_map(|name| Some((name.to_string(), expected.get(*name)?.clone()))).collect()
}

/// Returns the rows of a batch with the padding moved to the other end.
fn turned(inputs: &Tensors) -> Tensors {
    let (ids, keep) = (&inputs["input_ids"], &inputs["attention_mask"]);
    let order: Vec<Vec<u32>> = keep
        .to_vec2::<i64>()
        .unwrap()
        .iter()
        .map(|keep| {
            let (real, padding): (Vec<u32>, Vec<u32>) = (0..keep.len() as u32).partition(|i| keep[*i as usize] != 0);
            if keep[0] == 0 { [real, padding].concat() } else { [padding, real].concat() }
        })
        .collect();
    let order = Tensor::new(order, &Device::Cpu).unwrap();
    let mut all = inputs.clone();
    all.insert("input_ids".to_owned(), ids.gather(&order, 1).unwrap());
    all.insert("attention_mask".to_owned(), keep.gather(&order, 1).unwrap());
    all
}

/// Returns the values of row `r`. If there is one value for each token, only those of non-padding tokens.
fn values(tensor: &Tensor, r: usize, keep: Option<&[i64]>) -> Vec<f32> {
    let row = tensor.get(r).unwrap().to_dtype(DType::F32).unwrap();
    match keep.filter(|keep| row.rank() == 2 && row.dim(0).unwrap() == keep.len()) {
        Some(keep) => {
            let rows = row.to_vec2::<f32>().unwrap().into_iter();
            rows.zip(keep).filter(|(_, keep)| **keep != 0).flat_map(|(row, _)| row).collect()
        }
        None => row.flatten_all().unwrap().to_vec1().unwrap(),
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn all_checkpoints_padded_on_either_side_and_alone() {
    let folder = Folder::new("run-checkpoints");
    for name in NAMES {
        let expected = load(&model(name).join("expected.safetensors"));
        let decodes = expected.contains_key("greedy_12");
        let more: &[&str] = if decodes { &["--generate", "12"] } else { &[] };
        let input = inputs(&expected);
        let other = turned(&input);
        let (whole, moved) =
            (written(&folder, &model(name), &input, more), written(&folder, &model(name), &other, more));
        assert_eq!(whole.contains_key("generated"), decodes, "{name}");
        // Scores of T5 reach 200, which magnifies rounding: its stored 32-bit logits differ from 64-bit logits by
        // 1.5e-3 of the largest logit. Another order of the sums makes differences of this size.
        let tolerance = if name == "t5" { 1.5e-3 } else { 1e-4 };
        let rows = input["input_ids"].dim(0).unwrap();
        let masks = [&input, &other].map(|input| input["attention_mask"].to_vec2::<i64>().unwrap());
        let mask = |i: usize, r: usize| &masks[i][r][..];
        for (key, got) in &whole {
            let of_tokens = name != "t5";
            let dtype = if key == "generated" { DType::I64 } else { DType::F32 };
            assert_eq!(got.dtype(), dtype, "{name}: {key}");
            for r in 0..rows {
                let keep = |i: usize| of_tokens.then(|| mask(i, r));
                let row = values(got, r, keep(0));
                let stored = expected.get(if key == "generated" { "greedy_12" } else { key });
                if let Some(stored) = stored.map(|stored| values(stored, r, keep(0))) {
                    let largest = stored.iter().fold(0f32, |most, x| most.max(x.abs()));
                    let off = row.iter().zip(&stored).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                    assert_eq!(row.len(), stored.len(), "{name}: {key}");
                    assert!(off <= tolerance * largest, "{name}: {key}, row {r}: {off:e} of {largest:e}");
                    assert!(key != "generated" || off == 0.0, "{name}: other tokens");
                }
                assert_eq!(bits(&values(&moved[key], r, keep(1))), bits(&row), "{name}: {key}, row {r}, other padding");
            }
        }
        for r in 0..rows {
            let real: Vec<i64> = input["input_ids"].to_vec2::<i64>().unwrap()[r]
                .iter()
                .zip(mask(0, r))
                .filter(|(_, keep)| **keep != 0)
                .map(|(id, _)| *id)
                .collect();
            let real = Tensor::new(vec![real], &Device::Cpu).unwrap();
            let mut alone = given(&[("input_ids", &real)]);
            if let Some(ids) = input.get("decoder_input_ids") {
                alone.insert("decoder_input_ids".to_owned(), ids.narrow(0, r, 1).unwrap().contiguous().unwrap());
            }
            for (key, got) in written(&folder, &model(name), &alone, more) {
                let keep = (name != "t5").then(|| mask(0, r));
                assert_eq!(
                    bits(&values(&got, 0, None)),
                    bits(&values(&whole[&key], r, keep)),
                    "{name}: {key}, row {r} alone"
                );
            }
        }
        for key in ["logits", "last_hidden_state", "pooler_output"] {
            assert!(!expected.contains_key(key) || whole.contains_key(key), "{name}: {key}");
        }
    }
}

#[test]
fn masks_of_every_type_say_the_same() {
    let folder = Folder::new("run-masks");
    let expected = load(&model("llama").join("expected.safetensors"));
    let input = inputs(&expected);
    let plain = written(&folder, &model("llama"), &input, &[]);
    for dtype in [DType::U8, DType::I32, DType::U32, DType::F32, DType::F64] {
        let mut other = input.clone();
        other.insert("attention_mask".to_owned(), input["attention_mask"].to_dtype(dtype).unwrap());
        if dtype.is_int() {
            other.insert("input_ids".to_owned(), input["input_ids"].to_dtype(dtype).unwrap());
        }
        let got = written(&folder, &model("llama"), &other, &[]);
        assert_eq!(bits(&values(&got["logits"], 0, None)), bits(&values(&plain["logits"], 0, None)), "{dtype:?}");
    }
    // candle cannot write truth values, so the file is written by hand.
    let (ids, keep) = (input["input_ids"].to_vec2::<i64>().unwrap(), input["attention_mask"].to_vec2::<i64>().unwrap());
    let shape = vec![ids.len(), ids[0].len()];
    let ids: Vec<u8> = ids.iter().flatten().flat_map(|id| id.to_le_bytes()).collect();
    let keep: Vec<u8> = keep.iter().flatten().map(|keep| *keep as u8).collect();
    let view = |dtype, bytes| safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap();
    let views =
        [("input_ids", view(safetensors::Dtype::I64, &ids)), ("attention_mask", view(safetensors::Dtype::BOOL, &keep))];
    let (tokens, out) = (folder.file("bool.safetensors"), folder.file("bool-out.safetensors"));
    safetensors::serialize_to_file(views, None, &tokens).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let model = text(&model("llama"));
    assert!(noren(&["run", "--model", &model, "--input", &text(&tokens), "-o", &text(&out)]).status.success());
    assert_eq!(bits(&values(&load(&out)["logits"], 0, None)), bits(&values(&plain["logits"], 0, None)));
}

#[test]
fn a_decoder_over_an_encoder_goes_on_from_what_it_is_given() {
    let folder = Folder::new("run-t5");
    let input = inputs(&load(&model("t5").join("expected.safetensors")));
    let rows = input["input_ids"].dim(0).unwrap();
    let mut free = input.clone();
    free.remove("decoder_input_ids");
    let from_start = written(&folder, &model("t5"), &free, &["--generate", "6"]);
    assert_eq!(from_start["logits"].dims(), [rows, 1, 131]);
    assert_eq!(from_start["generated"].dims(), [rows, 6]);
    // The command continues the first three tokens with the other three.
    let start = Tensor::zeros((rows, 1), DType::I64, &Device::Cpu).unwrap();
    let begun = Tensor::cat(&[&start, &from_start["generated"].narrow(1, 0, 3).unwrap()], 1).unwrap();
    free.insert("decoder_input_ids".to_owned(), begun);
    let continued = written(&folder, &model("t5"), &free, &["--generate", "3"]);
    let rest = from_start["generated"].narrow(1, 3, 3).unwrap();
    assert_eq!(continued["generated"].to_vec2::<i64>().unwrap(), rest.to_vec2::<i64>().unwrap());
    assert_eq!(continued["logits"].dims(), [rows, 4, 131]);
}

#[test]
fn shards_are_one_checkpoint() {
    let folder = Folder::new("run-shards");
    let whole = load(&model("llama").join("model.safetensors"));
    let mut names: Vec<&String> = whole.keys().collect();
    names.sort();
    let mut map = serde_json::Map::new();
    for (i, half) in names.chunks(names.len().div_ceil(2)).enumerate() {
        let shard: Tensors = half.iter().map(|name| (name.to_string(), whole[*name].clone())).collect();
        let file = format!("model-0000{}-of-00002.safetensors", i + 1);
        files::save(&shard, folder.file(&file)).unwrap();
        map.extend(half.iter().map(|name| (name.to_string(), file.clone().into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    std::fs::write(folder.file("model.safetensors.index.json"), index.to_string()).unwrap();
    std::fs::copy(model("llama").join("config.json"), folder.file("config.json")).unwrap();
    let input = inputs(&load(&model("llama").join("expected.safetensors")));
    let (whole, sharded) =
        (written(&folder, &model("llama"), &input, &[]), written(&folder, &folder.file(""), &input, &[]));
    assert_eq!(bits(&values(&whole["logits"], 1, None)), bits(&values(&sharded["logits"], 1, None)));
    std::fs::remove_file(folder.file("model-00002-of-00002.safetensors")).unwrap();
    refused(&run(&folder, &folder.file(""), &input, &[]), "model-00002-of-00002.safetensors: the file cannot be read");
    assert!(!folder.file("out.safetensors").exists());
}

#[test]
fn tokens_that_make_no_sense_are_refused() {
    let folder = Folder::new("run-tokens");
    let tensor = |rows: Vec<Vec<i64>>| Tensor::new(rows, &Device::Cpu).unwrap();
    let (ids, llama) = (tensor(vec![vec![1, 2, 3]]), model("llama"));
    let check = |input: &[(&str, &Tensor)], more: &[&str], expected: &str| {
        refused(&run(&folder, &llama, &given(input), more), expected);
        assert!(!folder.file("out.safetensors").exists(), "{expected}");
    };
    check(&[("tokens", &ids)], &[], "there is no tensor \"input_ids\": the file has \"tokens\"");
    check(
        &[("input_ids", &ids.to_dtype(DType::F32).unwrap())],
        &[],
        "input_ids has shape [1, 3] and type F32: give whole numbers",
    );
    check(&[("input_ids", &tensor(vec![vec![1, -5]]))], &[], "input_ids holds -5");
    let types = tensor(vec![vec![0, -1, 0]]);
    check(&[("input_ids", &ids), ("token_type_ids", &types)], &[], "token_type_ids holds -1");
    check(
        &[("input_ids", &tensor(vec![vec![1, 131]]))],
        &[],
        "a token id is 131: the vocabulary has 131 tokens, counted from 0",
    );
    check(&[("input_ids", &tensor(vec![vec![1; 129]]))], &[], "129 tokens long: the model has 128 positions");
    check(&[("input_ids", &ids.flatten_all().unwrap())], &[], "give whole numbers of shape [batch, length]");
    let mask = |rows| tensor(rows);
    check(
        &[("input_ids", &ids), ("attention_mask", &mask(vec![vec![1, 1]]))],
        &[],
        "attention_mask must have the shape of input_ids",
    );
    check(&[("input_ids", &ids), ("attention_mask", &mask(vec![vec![0, -9, 1]]))], &[], "attention_mask holds -9");
    let nothing = mask(vec![vec![0, 0, 0]]);
    let generate = &["--generate", "3"];
    check(
        &[("input_ids", &ids), ("attention_mask", &nothing)],
        generate,
        "row 0 of `attention_mask` (counted from 0) has no non-padding token",
    );
    check(&[("input_ids", &ids), ("decoder_input_ids", &ids)], &[], "the model has no decoder that reads an encoder");
    check(&[("input_ids", &ids)], &["--generate", "0"], "--generate is 0");
    check(&[("input_ids", &ids)], &["--generate", "999"], "the model has 128 positions");
    refused(&run(&folder, &model("bert"), &given(&[("input_ids", &ids)]), generate), "the model is an encoder");
}

#[test]
fn a_row_of_padding_alone_has_finite_numbers() {
    let folder = Folder::new("run-padding");
    let ids = Tensor::new(vec![vec![1i64, 2, 3], vec![4, 5, 6]], &Device::Cpu).unwrap();
    let keep = Tensor::new(vec![vec![0i64, 0, 0], vec![1, 0, 1]], &Device::Cpu).unwrap();
    for name in NAMES {
        let got = written(&folder, &model(name), &given(&[("input_ids", &ids), ("attention_mask", &keep)]), &[]);
        for (key, tensor) in got {
            assert!(values(&tensor.unsqueeze(0).unwrap(), 0, None).iter().all(|x| x.is_finite()), "{name}: {key}");
        }
    }
}
