//! Trains one small language model on packed documents twice: with burn's own attention layer under a dense mask, and with
//! the same layer under a noren mask. Prints the losses, the time and the memory of both side by side.
//!
//! `cargo run --release -p noren-burn --example packed_training [LENGTH [STEPS]]` [default: 2048 tokens, 50 steps]
//!
//! Each training runs in a process of its own, so that the memory of one does not count for the other. The program ends
//! with an error if the losses of a step differ by more than 1e-4, or, without arguments, if noren is not at least
//! twice as fast.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use noren::{Facts, Mask, Plan, Shape};
use noren_burn::{multi_head_attention, plan, to_drop};
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const WORDS: usize = 64;
const WIDTH: usize = 64;
const HEADS: usize = 4;
/// Length of a document, in tokens.
const DOCUMENT: usize = 128;
/// Largest accepted difference between the two losses of a training step, with burn and with noren.
const TOLERANCE: f64 = 1e-4;

/// A language model with one block: attention and a linear layer, each with a residual connection.
#[derive(Module, Debug)]
struct Model {
    embedding: Embedding,
    norm: LayerNorm,
    attention: MultiHeadAttention,
    inner: Linear,
    head: Linear,
}

impl Model {
    fn new(device: &Device) -> Self {
        Model {
            embedding: EmbeddingConfig::new(WORDS, WIDTH).init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
            attention: MultiHeadAttentionConfig::new(WIDTH, HEADS).with_dropout(0.0).init(device),
            inner: LinearConfig::new(WIDTH, WIDTH).init(device),
            head: LinearConfig::new(WIDTH, WORDS).init(device),
        }
    }

    /// Returns the logits of the next word at each position of `tokens` `[batch, length]`. The result is
    /// `[batch * length, words]`.
    fn forward(&self, tokens: Tensor<2, Int>, mask: &MaskOf) -> Result<Tensor<2>, noren_burn::Error> {
        let [batch, len] = tokens.dims();
        let x = self.embedding.forward(tokens);
        let normed = self.norm.forward(x.clone());
        let attended = match mask {
            MaskOf::Burn(drop) => self.attention.forward(MhaInput::self_attn(normed).mask_attn(*drop.clone())).context,
            MaskOf::Noren(plan) => multi_head_attention(&self.attention, normed.clone(), normed.clone(), normed, plan)?,
        };
        let x = x + attended;
        let x = x.clone() + burn::tensor::activation::gelu(self.inner.forward(x));
        Ok(self.head.forward(x).reshape([batch * len, WORDS]))
    }
}

/// The mask, in the form that burn's attention layer reads or in the form that noren's attention reads.
enum MaskOf {
    /// A dense tensor `[batch, length, length]`: true for a hidden cell.
    Burn(Box<Tensor<3, Bool>>),
    Noren(Arc<Plan>),
}

/// Returns `len` tokens of packed documents for the training step `step`, `[1, len]`, and the token after each of them,
/// `[len]`. Within a document, each token determines the next token, but one next token in eight is random.
fn packed(len: usize, step: u64, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let mut state = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut words: Vec<i64> = Vec::with_capacity(len + 1);
    for position in 0..=len {
        let determined = position % DOCUMENT > 0 && !random().is_multiple_of(8);
        words.push(match determined {
            true => (words[position - 1] * 5 + 7) % WORDS as i64,
            false => (random() % WORDS) as i64,
        });
    }
    let tokens = Tensor::from_data(TensorData::new(words[..len].to_vec(), [1, len]), device);
    (tokens, Tensor::from_data(TensorData::new(words[1..].to_vec(), [len]), device))
}

/// Trains the model for `steps` steps on `len` tokens each, with the attention of `library`: `burn` or `noren`. Prints
/// the loss of each step on a line, then the time of all steps in seconds.
fn train(library: &str, len: usize, steps: u64) -> Result<(), Box<dyn Error>> {
    let device = Device::flex().autodiff();
    device.seed(1);
    let documents: Vec<usize> = (0..len.div_ceil(DOCUMENT)).map(|n| DOCUMENT.min(len - n * DOCUMENT)).collect();
    let facts = Facts::new().documents(documents);
    let text: Mask = "causal & documents".parse()?;
    // The dense mask and the plan are made once, outside of the measured time.
    let mask = match library {
        "burn" => {
            MaskOf::Burn(Box::new(to_drop(&text.bind(&Shape::square(len), &facts)?, &device)?.reshape([1, len, len])))
        }
        _ => MaskOf::Noren(plan(&text, &Shape::square(len).heads(HEADS), &facts)?),
    };
    let mut model = Model::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let loss_of = CrossEntropyLossConfig::new().init(&device);
    let start = Instant::now();
    for step in 0..steps {
        let (tokens, next) = packed(len, step, &device);
        let loss = loss_of.forward(model.forward(tokens, &mask)?, next);
        let value: f32 = loss.clone().into_scalar();
        println!("loss {value:.7}");
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    println!("seconds {}", start.elapsed().as_secs_f64());
    Ok(())
}

/// The losses, time and memory of one training.
struct Training {
    losses: Vec<f64>,
    seconds: f64,
    /// Peak memory of the training process, in MiB; `None` where the system does not report it.
    peak: Option<u64>,
}

/// Runs [`train`] in a new process, and returns its losses, time and memory.
fn run(library: &str, len: usize, steps: u64) -> Result<Training, Box<dyn Error>> {
    let arguments = [library.to_owned(), len.to_string(), steps.to_string()];
    let output = Command::new(std::env::current_exe()?).arg("--train").args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("the training with {library} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers = |name: &str| -> Result<Vec<f64>, Box<dyn Error>> {
        let found = text.lines().filter_map(|line| line.strip_prefix(name)).map(|number| number.trim().parse());
        Ok(found.collect::<Result<_, std::num::ParseFloatError>>()?)
    };
    let seconds = *numbers("seconds")?.first().ok_or("the training printed no time")?;
    Ok(Training { losses: numbers("loss")?, seconds, peak: numbers("peak")?.first().map(|kib| *kib as u64 / 1024) })
}

/// Prints the peak memory of this process in KiB, or nothing if the system is not Linux.
fn print_peak() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    if let Some(kib) = peak.and_then(|rest| rest.split_whitespace().next()) {
        println!("peak {kib}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, library, len, steps] = &arguments[..]
        && flag == "--train"
    {
        train(library, len.parse()?, steps.parse()?)?;
        print_peak();
        return Ok(());
    }
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse::<usize>());
    let (len, steps) = (number(0, 2048)?, number(1, 50)? as u64);
    if len == 0 || steps == 0 {
        return Err(format!("{len} tokens and {steps} steps: give at least 1 of each").into());
    }
    println!("{len} tokens in documents of {DOCUMENT}, {HEADS} heads, width {WIDTH}, {steps} steps");
    let (burn, noren) = (run("burn", len, steps)?, run("noren", len, steps)?);
    println!("{:>6} {:>12} {:>12} {:>10}", "step", "burn", "noren", "difference");
    let differences: Vec<f64> = burn.losses.iter().zip(&noren.losses).map(|(a, b)| (a - b).abs()).collect();
    for (step, difference) in differences.iter().enumerate().filter(|(n, _)| n % 10 == 0 || n + 1 == differences.len())
    {
        println!("{step:6} {:12.6} {:12.6} {difference:10.1e}", burn.losses[step], noren.losses[step]);
    }
    println!("{:>6} {:11.2}s {:11.2}s {:9.1}x", "time", burn.seconds, noren.seconds, burn.seconds / noren.seconds);
    if let (Some(burn), Some(noren)) = (burn.peak, noren.peak) {
        println!("{:>6} {burn:8} MiB {noren:8} MiB", "memory");
    }
    let largest = differences.iter().copied().fold(0.0, f64::max);
    println!("largest difference of a loss: {largest:.1e}");
    let agree = differences.iter().all(|difference| *difference <= TOLERANCE); // false for NaN
    if differences.len() as u64 != steps || !agree {
        return Err(format!("the losses differ by {largest:e}, and at most {TOLERANCE:e} is allowed").into());
    }
    if arguments.is_empty() && burn.seconds < 2.0 * noren.seconds {
        return Err(format!(
            "noren took {:.2} s and burn {:.2} s, but burn must take at least twice as long",
            noren.seconds, burn.seconds
        )
        .into());
    }
    Ok(())
}
