//! Continues a prompt of token ids greedily, and measures the time of each token, for `benches/peers/generate.py`, which
//! compares noren with transformers.
//!
//! ```sh
//! cargo run --release -p noren-models --example generation -- FOLDER DTYPE NEW ID,ID,...
//! ```
//!
//! `DTYPE` is `f32` or `bf16`, the type of the packed weights of the linear layers, or `unpacked` for weights as they are
//! loaded. The output is JSON: the ids of the
//! new tokens, the milliseconds until the first token, and the milliseconds of each further token.

use noren::Dtype;
use noren_models::generate::{GenerateOptions, generate};
use noren_models::model::Model;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, dtype, new, ids] = &args[..] else { return Err("give FOLDER DTYPE NEW ID,ID,...".into()) };
    let prompt = ids.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let mut model = Model::load(folder)?;
    if dtype != "unpacked" {
        model.pack(dtype.parse::<Dtype>()?)?;
    }
    let options = GenerateOptions { new_tokens: new.parse()?, ..GenerateOptions::default() };
    let mut ends = vec![Instant::now()];
    let made = generate(&model, &[prompt], &options, &mut |_| {
        ends.push(Instant::now());
        true
    })?;
    let ms: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
    println!("{{\"tokens\": {:?}, \"ms\": {ms:?}}}", made.tokens[0]);
    Ok(())
}
