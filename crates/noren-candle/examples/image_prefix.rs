//! Masks for an image before a text. Patches (parts of the image, one token each) read each other in both directions.
//! The text reads the image and earlier text.
//!
//! The mask is `causal | spans([1..10])`: the nine tokens of the image follow a token that begins the sequence. The
//! example draws the mask, and prints which outputs change when a patch or a word is replaced.
//!
//!     cargo run -p noren-candle --example image_prefix

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use noren::{Facts, Mask, Shape};
use noren_candle::layers::{LayerConfig, LayerPlans, TransformerEncoder};
use noren_candle::nn::Mode;
use noren_picture::Draw;
use noren_picture::TerminalOptions;

const WIDTH: usize = 32;
const TOKENS: [&str; 16] =
    ["<s>", "img", "img", "img", "img", "img", "img", "img", "img", "img", "what", "is", "in", "the", "picture", "?"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mask: Mask = "causal | spans([1..10])".parse()?;
    let shape = Shape::square(TOKENS.len()).heads(4);
    let bound = mask.bind(&shape, &Facts::new())?;
    println!("{}", bound.picture().head(0).labels(TOKENS).to_terminal(&TerminalOptions::default())?);

    let vb = VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu);
    let model = TransformerEncoder::new(&LayerConfig::new(WIDTH, 4), 2, &vb)?;
    let plans = LayerPlans::new(&mask, 2, &shape, &Facts::new())?;
    let input = Tensor::randn(0f32, 1., (1, TOKENS.len(), WIDTH), &Device::Cpu)?;
    let run = |input: &Tensor| -> Result<Vec<Vec<f32>>, noren_candle::Error> {
        Ok(model.forward(input, &plans, Mode::Inference)?.get(0)?.to_vec2()?)
    };
    let own = run(&input)?;
    for (at, what) in [(9, "the last patch"), (12, "the word `in`")] {
        let other = Tensor::randn(0f32, 1., (1, 1, WIDTH), &Device::Cpu)?;
        let other = run(&input.slice_assign(&[0..1, at..at + 1, 0..WIDTH], &other)?)?;
        let changed: Vec<usize> = (0..TOKENS.len()).filter(|token| own[*token] != other[*token]).collect();
        println!("if {what} is replaced, the outputs at these positions change: {changed:?}");
        let expected = if at == 9 { 1..TOKENS.len() } else { at..TOKENS.len() };
        assert_eq!(changed, expected.collect::<Vec<_>>());
    }
    Ok(())
}
