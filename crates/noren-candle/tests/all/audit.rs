//! Audits of the stored checkpoints: no check fails for a correct model, and each planted fault fails a check.

use candle_core::{DType, Tensor};
use noren::{Dtype, Mask};
use noren_candle::audit::{Report, Subject, Verdict, audit};
use noren_candle::model::{Batch, Call, Model, Output, Stack, Trace};
use noren_candle::{Error, Result};
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance/models").join(name)
}

fn load(name: &str) -> Model {
    Model::load(folder(name)).unwrap()
}

/// Asserts that a model with packed weights has the verdicts of the model with tensors. With weights of bf16, rounding
/// may remove the influence of a token.
pub(crate) fn same_verdicts(packed: &Report, tensors: &Report, dtype: Dtype) {
    assert_eq!(packed.checks.len(), tensors.checks.len());
    for (packed, tensors) in packed.checks.iter().zip(&tensors.checks) {
        let rounded = dtype == Dtype::Bf16 && packed.name.ends_with("liveness");
        let open =
            rounded && packed.verdict == Verdict::Inconclusive && packed.says.contains("bf16 rounds the change away");
        assert!(packed.verdict == tensors.verdict || open, "{dtype}: {packed:?}, {tensors:?}");
    }
}

#[test]
fn healthy_models_pass() {
    for name in ["bert", "gemma2", "gemma3", "gpt2", "gpt_oss", "llama", "mistral_sliding", "qwen3", "t5"] {
        let model = load(name);
        let report = audit(&Subject::of(&model), None).unwrap();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let mut packed = load(name);
            packed.pack(dtype).unwrap();
            let packed = audit(&Subject::of(&packed), None).unwrap();
            same_verdicts(&packed, &report, dtype);
        }
        assert!(report.ok(), "{name}: {report}");
        assert!(report.checks.iter().all(|check| check.verdict != Verdict::Inconclusive), "{name}: {report}");
        let passed = report.checks.iter().filter(|check| check.verdict == Verdict::Pass).count();
        assert!(passed >= 7, "{name}: {report}");
    }
}

#[test]
fn healthy_models_pass_in_half_precision() {
    for dtype in [DType::BF16, DType::F16] {
        for name in ["llama", "bert", "mistral_sliding"] {
            let model = Model::load_as(folder(name), dtype).unwrap();
            let report = audit(&Subject::of(&model), None).unwrap();
            assert!(report.ok(), "{name}: {report}");
        }
    }
}

/// Returns the states of a model for each token.
fn states(model: &Model, batch: &Batch, decoder: Option<&Batch>, trace: Option<&mut Trace>) -> Result<Tensor> {
    let Output { last_hidden_state, .. } = model.forward_with(batch, decoder, Call { trace, ..Call::default() })?;
    Ok(last_hidden_state)
}

/// Returns the checks that fail for a model that is called in a wrong way.
fn called(name: &str, wrong: impl Fn(&Model, &Batch) -> Result<Tensor>) -> Vec<&'static str> {
    let model = load(name);
    let subject = Subject::new(model.masks(), model.vocab(), |batch, _, _| wrong(&model, batch));
    audit(&subject.positions(model.positions().unwrap_or(200)), None).unwrap().failures()
}

/// Returns the checks that fail for a model with one changed mask, and the place of each leak. `own` is the original mask.
fn masked(name: &str, stack: Stack, mask: &str) -> (Vec<&'static str>, String) {
    let mut model = load(name);
    let declared = model.masks();
    let own = declared.iter().find(|declared| declared.stack == stack).unwrap().spec.mask.to_string();
    model.set_mask(stack, mask.replace("own", &own).parse::<Mask>().unwrap()).unwrap();
    let report = audit(&Subject::of(&model).declared(declared), None).unwrap();
    (report.failures(), report.checks.iter().filter_map(|check| check.place.clone()).collect())
}

#[test]
fn masks_that_are_wrong_in_a_layer_are_found() {
    let (failures, place) = masked("llama", Stack::Decoder, "layers(1: full, else: causal)");
    assert!(failures.contains(&"prefix") && place.contains("decoder attention of layer 1"), "{failures:?} {place}");
    let (failures, _) = masked("llama", Stack::Decoder, "heads(0..1: full, 1..: causal)");
    assert!(failures.contains(&"prefix"), "{failures:?}");
    let (failures, _) = masked("llama", Stack::Decoder, "causal(offset=1)");
    assert!(failures.contains(&"prefix"), "{failures:?}");
    let (failures, place) = masked("mistral_sliding", Stack::Decoder, "layers(1: causal, else: own)");
    assert!(failures.contains(&"window") && place.contains("decoder attention of layer 1"), "{failures:?} {place}");
    let (failures, _) = masked("bert", Stack::Encoder, "causal");
    assert!(failures.contains(&"liveness"), "{failures:?}");
    let (failures, _) = masked("t5", Stack::Cross, "causal");
    assert!(failures.contains(&"padding_left"), "{failures:?}");
}

#[test]
fn calls_that_lose_something_are_found() {
    let unmasked = |model: &Model, batch: &Batch| states(model, &Batch::new(batch.ids().to_vec())?, None, None);
    let failures = called("bert", unmasked);
    for check in ["padding_left", "padding_right", "mask_liveness", "redaction", "batch", "documents"] {
        assert!(failures.contains(&check), "{check}: {failures:?}");
    }
    // Fault: all rows get the padding of row 0.
    let first = |model: &Model, batch: &Batch| {
        let keep: Vec<u8> = batch.keep()[0].iter().map(|keep| u8::from(*keep)).collect();
        let keep = vec![keep; batch.rows()];
        let ids = Tensor::new(batch.ids().to_vec(), &candle_core::Device::Cpu)?;
        let keep = Tensor::new(keep, &candle_core::Device::Cpu)?;
        states(model, &Batch::from_tensors(&ids, Some(&keep))?, None, None)
    };
    assert!(called("bert", first).contains(&"batch"));
    // Fault: states are scaled by their mean over all tokens, with padding.
    let normed = |model: &Model, batch: &Batch| {
        let states = states(model, batch, None, None)?;
        Ok(states.broadcast_div(&states.abs()?.mean_keepdim(1)?)?)
    };
    let failures = called("bert", normed);
    assert!(failures.contains(&"padding_left") && failures.contains(&"redaction"), "{failures:?}");
    // Fault: packed texts are treated as one text.
    let unpacked = |model: &Model, batch: &Batch| match batch.documents() {
        Some(_) => states(model, &Batch::new(batch.ids().to_vec())?, None, None),
        None => states(model, batch, None, None),
    };
    assert_eq!(called("llama", unpacked), ["documents"]);
}

/// A function whose outputs are NaN fails, because its mask may be the cause. The outputs of a model are NaN only if its weights
/// are damaged, which is an error.
#[test]
fn outputs_that_are_no_numbers() {
    let failures = called("llama", |model, batch| Ok((states(model, batch, None, None)? * f64::NAN)?));
    assert!(failures.contains(&"prefix"), "{failures:?}");
}

#[test]
fn what_cannot_be_tested_is_said() {
    let model = load("llama");
    let message = |result: Result<_>| match result.map(|_: noren_candle::audit::Report| ()) {
        Err(error) => error.to_string(),
        Ok(()) => panic!("it was taken"),
    };
    assert!(message(audit(&Subject::of(&model), Some(3))).contains("give at least 12"));
    assert!(message(audit(&Subject::of(&model), Some(1 << 30))).contains("at most"));
    assert!(
        message(audit(&Subject::new(vec![], 100, |_, _, _| unreachable!()), None))
            .contains("one mask for each attention")
    );
    let small = Subject::new(model.masks(), 4, |_, _, _| unreachable!());
    assert!(message(audit(&small, None)).contains("at least 8 tokens"));
    let flat = Subject::new(model.masks(), model.vocab(), |batch: &Batch, _, _| {
        Ok::<_, Error>(Tensor::new(vec![0f32; batch.len()], &candle_core::Device::Cpu)?)
    });
    assert!(message(audit(&flat, None)).contains("[1, 72, features] is needed"));
}

/// Plants faults in a single place: a late query, the window of one layer from a position on, one row of a batch, one length.
#[test]
fn faults_in_one_place_are_found() {
    let (failures, _) = masked("llama", Stack::Decoder, "own | keys(41) & queries(40)");
    assert!(failures.contains(&"reach"), "{failures:?}");
    let wider = "own | causal & window(left=16, right=0) & queries(60..)";
    let (failures, _) = masked("mistral_sliding", Stack::Decoder, wider);
    assert!(failures.contains(&"reach"), "{failures:?}");
    let model = load("llama");
    let open = {
        let mut open = load("llama");
        open.set_mask(Stack::Decoder, "full".parse::<Mask>().unwrap()).unwrap();
        open
    };
    let last = called("llama", |model, batch| {
        let out = states(model, batch, None, None)?;
        if batch.rows() < 3 {
            return Ok(out);
        }
        let rows: Vec<Tensor> =
            (0..batch.rows()).map(|row| out.narrow(0, row, 1)).collect::<std::result::Result<_, _>>()?;
        let spoiled = (&rows[2] + rows[0].mean_keepdim(1)?.broadcast_as(rows[2].shape())?)?;
        let rows = rows.into_iter().enumerate().map(|(i, row)| if i == 2 { spoiled.clone() } else { row });
        Ok(Tensor::cat(&rows.collect::<Vec<_>>(), 0)?)
    });
    assert!(last.contains(&"batch"), "{last:?}");
    let one = called("llama", |_, batch| states(if batch.len() == 17 { &open } else { &model }, batch, None, None));
    assert_eq!(one, ["lengths"]);
}
