//! Measures the time of attention, for the benchmark that compares noren with other projects (peers). The benchmark
//! passes these options to the program of each project:
//!
//! * `--mask full|causal|swa256|padding|docs8|causalpad|perhead|stride8|longformer|scattered`, `--op fwd|fwdbwd`
//! * `--h` query heads, `--hkv` key-value heads, `--d` head_dim, `--n` queries, `--m` keys, `--dtype f32|bf16|f16`
//! * `--threads`, `--runs` and `--minruns` (maximum and minimum number of timed runs), `--budget` (seconds, after which
//!   no new run begins)
//!
//! Further options: `--isa`, `--block` (query rows in a tile of the plan) and `--reorder auto|never|always`.
//!
//! With few queries and many keys (`--n 1 --m 32768`), each run is one step of decoding. `--cache
//! contiguous|paged|rotating` is the form of the key-value cache; with `none`, keys and values are in arrays. Each
//! timed run appends the last `n` tokens to the cache, plans the step and computes the step. Before the next run, the
//! appended tokens are removed.
//!
//! With `--batch B`, the batch has `B` rows. With `--mask padding`, the rows have different numbers of non-padding
//! tokens. The times then include binding and planning.
//!
//! The last line of the output is JSON: `{"base_rss_mb": .., "peak_rss_mb": .., "ms": [..], ...}`. `peak_rss_mb` is the
//! maximum resident memory of the process, and `base_rss_mb` is this maximum before planning and before the first run.

use noren::{
    Dtype, Element, GradientsMut, Inputs, Isa, KvCache, KvShape, Options, Outputs, Rotating, Saved, View, ViewMut,
    attention_backward_into, attention_into, bf16, f16,
};
use noren_mask::{Facts, PlanOptions, Reorder, Shape, Spec, Stats};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    if let Some(op) = text("--op").filter(|op| !["fwd", "fwdbwd"].contains(&op.as_str())) {
        return Err(format!("--op {op} is unknown: give fwd or fwdbwd").into());
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
    let batch = number("--batch", 1);
    let [q, k, v] =
        [(h, n, 1), (kv_heads, m, 2), (kv_heads, m, 3)].map(|(h, n, seed)| normal::<T>(batch * h * n * d, seed));
    let mut out = vec![T::from_f32(0.0); batch * h * n * d];
    let base = peak_rss_mb();

    let (mask, facts) = mask(&text("--mask").unwrap_or("full".into()), h, m, batch)?;
    let shape = Shape::cached(m - n, n).batch(batch).heads(h).kv_heads(kv_heads);
    let block_q = number("--block", 96) as u32;
    let reorder = match text("--reorder").as_deref() {
        Some("never") => Reorder::Never,
        Some("always") => Reorder::Always,
        _ => Reorder::Auto,
    };
    let planned = || {
        Ok::<_, Failure>(mask.bind(&shape, &facts)?.plan_with(&PlanOptions {
            block_q,
            reorder,
            ..PlanOptions::default()
        }))
    };
    let plan = planned()?;
    let isa = text("--isa").map(|name| name.parse()).transpose()?;
    let options = Options::default().isa(isa).threads(threads);
    let [q, k, v] = [(&q, h, n), (&k, kv_heads, m), (&v, kv_heads, m)].map(|(x, h, n)| View::new(x, [batch, h, n, d]));
    let (k, v) = (k?, v?);
    let inputs = Inputs { q: q?, k, v };
    let form = text("--cache").unwrap_or("contiguous".into());
    let mut cache = if n <= 16 && m > 64 * n && form != "none" { Some(filled(&form, &inputs, isa)?) } else { None };
    let [last_k, last_v] = [k, v].map(|x| rows(&x, m - n..m));
    let [last_k, last_v] = [last_k, last_v].map(|x| (x, [1, kv_heads, n, d]));
    let both = text("--op").is_some_and(|op| op == "fwdbwd");
    let dout = normal::<T>(if both { batch * h * n * d } else { 0 }, 4);
    let mut lse = vec![0.0; batch * h * n];
    let [mut dq, mut dk, mut dv] =
        [h * n, kv_heads * m, kv_heads * m].map(|rows| vec![T::from_f32(0.0); batch * rows * d]);
    let once = || -> Result<f64, Failure> {
        if let Some(cache) = &mut cache {
            cache.truncate(0, m - n)?;
            let start = Instant::now();
            cache.append(View::new(&last_k.0, last_k.1)?, View::new(&last_v.0, last_v.1)?)?;
            let plan = cache.plan(&mask, &facts, h, n)?;
            let out = ViewMut::new(&mut out, [1, h, n, d])?;
            let options = options.clone().isa(None);
            cache.attention_into(inputs.q, &plan, &options, Outputs { out, lse: None })?;
            return Ok(start.elapsed().as_secs_f64() * 1e3);
        }
        let start = Instant::now();
        let fresh = if batch > 1 { Some(planned()?) } else { None };
        let plan = fresh.as_ref().unwrap_or(&plan);
        let view = ViewMut::new(&mut out, [batch, h, n, d])?;
        attention_into(&inputs, plan, &options, Outputs { out: view, lse: both.then_some(&mut lse) })?;
        if both {
            let (out, dout) = (View::new(&out, [batch, h, n, d])?, View::new(&dout, [batch, h, n, d])?);
            let [dq, dk, dv] = [(&mut dq, h, n), (&mut dk, kv_heads, m), (&mut dv, kv_heads, m)]
                .map(|(x, h, n)| ViewMut::new(x, [batch, h, n, d]));
            let gradients = GradientsMut::new(dq?, dk?, dv?);
            attention_backward_into(&inputs, &Saved { out, lse: &lse, dout }, plan, &options, gradients)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };

    let (ms, cpu) = repeat(once)?;
    let memory = [base, peak_rss_mb()];
    // Two matrix products forward, five backward.
    let flop = if both { 14.0 } else { 4.0 } * d as f64;
    // Each key and value is read once.
    let bytes = (2 * kv_heads * m * d * T::DTYPE.size()) as f64;
    report(&ms, cpu, memory, &plan.stats(), [flop, bytes]);
    Ok(())
}

/// Calls `once` for at least 300 ms to warm up. Then calls `once` as often as the options `--runs`, `--minruns` and
/// `--budget` define. `once` runs attention and returns its milliseconds. Returns the milliseconds of each run after
/// the warm-up, and the mean processor time of a run (all threads together) in milliseconds.
fn repeat(mut once: impl FnMut() -> Result<f64, Failure>) -> Result<(Vec<f64>, f64), Failure> {
    let mut warm = 0.0;
    while warm < 300.0 {
        warm += once()?;
    }
    let (runs, least) = (number("--runs", 30), number("--minruns", 5));
    let budget: f64 = text("--budget").map_or(Ok(4.0), |seconds| seconds.parse())?;
    let (mut ms, cpu) = (Vec::new(), cpu_ms());
    while ms.len() < least || ms.len() < runs && ms.iter().sum::<f64>() < budget * 1e3 {
        ms.push(once()?);
    }
    let cpu = (cpu_ms() - cpu) / ms.len() as f64;
    Ok((ms, cpu))
}

/// Prints the results as one line of JSON, the last line of the output. `ms` has the milliseconds of each run, `cpu` is
/// the mean processor time of a run in milliseconds, and `[base, peak]` is memory in MB. `flop` is the number of
/// floating-point operations for each allowed cell, and `bytes` is the number of bytes that a run reads.
fn report(ms: &[f64], cpu: f64, [base, peak]: [f64; 2], stats: &Stats, [flop, bytes]: [f64; 2]) {
    let flop = flop * stats.allowed as f64;
    let (computed, planning) = (stats.computed_per_allowed, stats.planning_seconds * 1e3);
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [best, median] = [sorted[0], sorted[sorted.len() / 2]].map(|ms| flop / ms / 1e6);
    let [gbs_best, gbs] = [sorted[0], sorted[sorted.len() / 2]].map(|ms| bytes / ms / 1e6);
    println!(
        r#"{{"cpu_ms": {cpu:.2}, "gb_s_median": {gbs:.1}, "gb_s_best": {gbs_best:.1}, "base_rss_mb": {base:.1}, "peak_rss_mb": {peak:.1}, "ms": {ms:.3?}, "gflops_median": {median:.1}, "gflops_best": {best:.1}, "computed_per_allowed": {computed:.3}, "planning_ms": {planning:.3}}}"#
    );
}

/// Returns a key-value cache that holds all keys and values of `inputs`. `form` is `contiguous`, `paged` or `rotating`;
/// another text is an error.
fn filled<T: Element>(form: &str, inputs: &Inputs<'_, T>, isa: Option<Isa>) -> Result<KvCache<T>, Failure> {
    let [_, kv_heads, m, d] = inputs.k.shape();
    let mut shape = KvShape::new(kv_heads, d);
    shape = isa.map_or(shape.clone(), |isa| shape.isa(isa));
    let block = number("--page", 64);
    let mut cache = match form {
        "contiguous" => KvCache::contiguous(&shape, m)?,
        "paged" => KvCache::paged(&shape, block, m.div_ceil(block))?,
        "rotating" => KvCache::rotating(&shape, Rotating { window: m, sink_tokens: 0, ahead: 256 })?,
        other => return Err(format!("--cache {other} is unknown: give contiguous, paged, rotating or none").into()),
    };
    for from in (0..m).step_by(256) {
        let rows = from..m.min(from + 256);
        let [k, v] = [&inputs.k, &inputs.v].map(|x| self::rows(x, rows.clone()));
        let [k, v] = [&k, &v].map(|x| View::new(x, [1, kv_heads, rows.len(), d]));
        cache.append(k?, v?)?;
    }
    Ok(cache)
}

/// Returns a copy of the rows with the indices `rows`, for each head of the first batch row of `x`, `[heads, rows,
/// width]`.
fn rows<T: Element>(x: &View<'_, T>, rows: std::ops::Range<usize>) -> Vec<T> {
    let [_, heads, _, width] = x.shape();
    let at = |n: usize| [0, n / width / rows.len(), rows.start + n / width % rows.len(), n % width];
    (0..heads * rows.len() * width).map(|n| x.get(at(n))).collect()
}

/// Returns the mask that the option `--mask` names, and the facts (data to which the mask is bound) that the mask
/// needs.
fn mask(name: &str, heads: usize, m: usize, batch: usize) -> Result<(noren_mask::Mask, Facts), Failure> {
    let bounds = [0, 1, 3, 4, 7, 11, 13, 15, 16].map(|share| share * m / 16);
    let documents: Vec<usize> = bounds.windows(2).map(|w| w[1] - w[0]).collect();
    let unequal = (0..batch).map(|b| m - (37 * b % 96) * 3 * m / 4 / 96);
    let lengths = if batch > 1 { unequal.collect() } else { vec![m / 2] };
    let facts = Facts::new().lengths(lengths).documents(vec![documents; batch]);
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

/// Returns the command-line argument that follows the argument `name`, or `None` if there is no such argument.
fn text(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

fn number(name: &str, default: usize) -> usize {
    text(name).and_then(|value| value.parse::<f64>().ok()).map_or(default, |value| value as usize)
}

/// Returns `len` random numbers with an approximately standard normal distribution. Each is computed from the sum of
/// twelve uniform numbers.
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

/// Returns the processor time of all threads of this process in milliseconds; 0 if the system does not report it. Other
/// work on the machine does not change this time.
fn cpu_ms() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ran = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.filter_map(ran).sum::<f64>() / 1e6
}

/// Returns the maximum memory of this process in MB; 0 if the system does not report it.
fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
