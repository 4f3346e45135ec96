//! The cases that PyTorch computed in `f64`.

use crate::common::{Array, Tensors, testdata};
use noren::{Bias, Options};
use noren_mask::{Facts, Plan, Score, Shape, Spec};
use serde_json::Value;

/// One case: the arrays, the plan of its mask, and the score modifiers of its text.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) tensors: Tensors,
    pub(crate) plan: Plan,
    pub(crate) scores: Vec<Score>,
    pub(crate) scale: Option<f32>,
}

impl Case {
    pub(crate) fn all() -> Vec<Case> {
        let text = std::fs::read_to_string(testdata("conformance/attention/cases.json")).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(cases.len(), 57);
        cases.iter().map(Case::read).collect()
    }

    fn read(case: &Value) -> Case {
        let name = case["name"].as_str().unwrap().to_owned();
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let shape = Shape::new(number("q_len"), number("kv_len"), case["query_offset"].as_i64().unwrap())
            .batch(number("batch"))
            .heads(number("heads"))
            .kv_heads(number("kv_heads"));
        let spec: Spec = case["mask"].as_str().unwrap().parse().unwrap();
        let plan = spec.mask.bind(&shape, &facts(&case["facts"])).unwrap().plan();
        let tensors = Tensors::read(&format!("conformance/attention/{name}.safetensors"));
        Case { name, tensors, plan, scores: spec.scores, scale: case["scale"].as_f64().map(|s| s as f32) }
    }

    /// Scores in the hundreds have an absolute error of 1e-5 in f32, and weights take it as their relative error.
    pub(crate) fn tolerance(&self) -> f64 {
        if self.name == "large_scores" { 2e-4 } else { 1e-5 }
    }

    /// Calls `f` with the options of the case's text.
    pub(crate) fn with_options(&self, f: impl FnOnce(&Options<'_>)) {
        let arrays: Vec<Option<Array>> = ["bias", "soft", "sinks"].iter().map(|n| self.tensors.get(n)).collect();
        let mut options = Options::default().scale(self.scale);
        for score in &self.scores {
            match score {
                Score::Bias { .. } => options.bias.push(Bias::Dense(arrays[0].as_ref().unwrap().view())),
                Score::Alibi { slopes: None } => {
                    let slopes = Score::alibi_slopes(self.plan.shape().head_count());
                    options.bias.push(Bias::Alibi(slopes.into_iter().map(|s| s as f32).collect()));
                }
                Score::Softcap { cap } => options.softcap = Some(cap.get() as f32),
                Score::Soft { .. } => options.soft = Some(arrays[1].as_ref().unwrap().view()),
                Score::Sinks { .. } => options.sinks = Some(&arrays[2].as_ref().unwrap().data),
                other => panic!("{other:?} is in no case"),
            }
        }
        f(&options);
    }
}

fn facts(json: &Value) -> Facts {
    Facts::from_json(&json.to_string()).unwrap()
}

pub(crate) fn doubles(array: &Array) -> Vec<f64> {
    array.data.iter().map(|x| f64::from(*x)).collect()
}

pub(crate) fn floats(values: &[f64]) -> Vec<f32> {
    values.iter().map(|x| *x as f32).collect()
}
