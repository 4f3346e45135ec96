//! Times attention the way the peer benchmark wants it:
//! `--mask full|causal|swa256|padding|docs8|causalpad|perhead|stride8|longformer|scattered`, `--op fwd|fwdbwd`, `--h`,
//! `--hkv`, `--d`, `--n`, `--m`, `--dtype f32|bf16|f16`, `--threads`, `--runs`, `--minruns`, `--budget` (seconds), and beyond
//! its protocol `--level`, `--block` (query rows in a tile of the plan) and `--reorder auto|never|always`.
//!
//! The last line printed is JSON: `{"base_rss_mb": .., "peak_rss_mb": .., "ms": [..], ...}`; peak memory is that of the
//! process, `base` what it was before the plan was made and the first run begun.

use noren::{
    Dtype, Element, GradientsMut, Inputs, Options, Outputs, Saved, View, ViewMut, attention_backward_into,
    attention_into, bf16, f16,
};
use noren_mask::{Facts, PlanOptions, Reorder, Shape, Spec};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    if let Some(op) = text("--op").filter(|op| !["fwd", "fwdbwd"].contains(&op.as_str())) {
        return Err(format!("--op {op}: fwd and fwdbwd are computed").into());
    }
    match text("--dtype").map_or(Ok(Dtype::F32), |name| name.parse())? {
        Dtype::F32 => measure::<f32>(),
        Dtype::Bf16 => measure::<bf16>(),
        Dtype::F16 => measure::<f16>(),
    }
}

fn measure<T: Element>() -> Result<(), Failure> {
    let [h, n, d] = [("--h", 16), ("--n", 4096), ("--d", 64)].map(|(name, default)| number(name, default));
    let (kv_heads, m, threads) = (number("--hkv", h), number("--m", n), number("--threads", 2));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let [q, k, v] = [(h, n, 1), (kv_heads, m, 2), (kv_heads, m, 3)].map(|(h, n, seed)| normal::<T>(h * n * d, seed));
    let mut out = vec![T::from_f32(0.0); h * n * d];
    let base = peak_rss_mb();

    let (mask, facts) = mask(&text("--mask").unwrap_or("full".into()), h, m)?;
    let shape = Shape::cached(m - n, n).heads(h).kv_heads(kv_heads);
    let block_q = number("--block", 96) as u32;
    let reorder = match text("--reorder").as_deref() {
        Some("never") => Reorder::Never,
        Some("always") => Reorder::Always,
        _ => Reorder::Auto,
    };
    let plan = mask.bind(&shape, &facts)?.plan_with(&PlanOptions { block_q, reorder, ..PlanOptions::default() });
    let level = text("--level").map(|name| name.parse()).transpose()?;
    let options = Options { level, threads: Some(threads), ..Options::default() };
    let [q, k, v] = [(&q, h, n), (&k, kv_heads, m), (&v, kv_heads, m)].map(|(x, h, n)| View::new(x, [1, h, n, d]));
    let inputs = Inputs { q: q?, k: k?, v: v? };
    let both = text("--op").is_some_and(|op| op == "fwdbwd");
    let dout = normal::<T>(if both { h * n * d } else { 0 }, 4);
    let mut lse = vec![0.0; h * n];
    let [mut dq, mut dk, mut dv] = [h * n, kv_heads * m, kv_heads * m].map(|rows| vec![T::from_f32(0.0); rows * d]);
    let mut once = || -> Result<f64, Failure> {
        let start = Instant::now();
        let view = ViewMut::new(&mut out, [1, h, n, d])?;
        attention_into(&inputs, &plan, &options, Outputs { out: view, lse: both.then_some(&mut lse) })?;
        if both {
            let (out, dout) = (View::new(&out, [1, h, n, d])?, View::new(&dout, [1, h, n, d])?);
            let [dq, dk, dv] = [(&mut dq, h, n), (&mut dk, kv_heads, m), (&mut dv, kv_heads, m)]
                .map(|(x, h, n)| ViewMut::new(x, [1, h, n, d]));
            let gradients = GradientsMut::new(dq?, dk?, dv?);
            attention_backward_into(&inputs, &Saved { out, lse: &lse, dout }, &plan, &options, gradients)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };

    let mut warm = 0.0;
    while warm < 300.0 {
        warm += once()?;
    }
    let (runs, least, budget) = (number("--runs", 30), number("--minruns", 5), number("--budget", 4));
    let mut ms = Vec::new();
    while ms.len() < least || ms.len() < runs && ms.iter().sum::<f64>() < budget as f64 * 1e3 {
        ms.push(once()?);
    }
    let peak = peak_rss_mb();
    let stats = plan.stats();
    // Two products forward, five backward.
    let flop = if both { 14.0 } else { 4.0 } * d as f64 * stats.allowed as f64;
    let (computed, planning) = (stats.computed_per_allowed, stats.planning_seconds * 1e3);
    let mut sorted = ms.clone();
    sorted.sort_by(f64::total_cmp);
    let [best, median] = [sorted[0], sorted[sorted.len() / 2]].map(|ms| flop / ms / 1e6);
    println!(
        r#"{{"base_rss_mb": {base:.1}, "peak_rss_mb": {peak:.1}, "ms": {ms:.3?}, "gflops_median": {median:.1}, "gflops_best": {best:.1}, "computed_per_allowed": {computed:.3}, "planning_ms": {planning:.3}}}"#
    );
    Ok(())
}

/// The mask in noren's language, and the facts it needs.
fn mask(name: &str, heads: usize, m: usize) -> Result<(noren_mask::Mask, Facts), Failure> {
    let bounds = [0, 1, 3, 4, 7, 11, 13, 15, 16].map(|share| (share * m / 16) as u64);
    let documents: Vec<u64> = bounds.windows(2).map(|w| w[1] - w[0]).collect();
    let facts = Facts::new().lengths([m as u64 / 2]).documents(vec![documents]);
    let mask = match name {
        "swa256" => "sliding(256)".to_owned(),
        "docs8" => "causal & documents".to_owned(),
        "causalpad" => "causal & padding".to_owned(),
        "perhead" => {
            let [a, b, c] = [1, 2, 3].map(|i| heads * i / 4);
            format!("heads(0..{a}: causal, {a}..{b}: sliding(256), {b}..{c}: causal & documents, {c}..: padding)")
        }
        "stride8" => "causal & stride(8)".to_owned(),
        "longformer" => "window(left=256, right=256) | global(0..8)".to_owned(),
        "scattered" => {
            let global: Vec<String> = (0..8).map(|i| (m * i / 8 + 5 + 13 * i).to_string()).collect();
            format!("window(left=256, right=256) | global([{}])", global.join(", "))
        }
        other => other.to_owned(),
    };
    Ok((mask.parse::<Spec>()?.mask, facts))
}

/// The value after `name` on the command line.
fn text(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

fn number(name: &str, default: usize) -> usize {
    text(name).and_then(|value| value.parse::<f64>().ok()).map_or(default, |value| value as usize)
}

/// Roughly standard normal numbers: sums of twelve uniform ones.
fn normal<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len).map(|_| T::from_f32((0..12).map(|_| uniform()).sum::<f32>() - 6.0)).collect()
}

/// The most memory this process ever held, where the system says so.
fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
