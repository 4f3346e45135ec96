//! Example of packed attention: one layer computes embedding requests of different lengths in one batch. For
//! comparison, the same batch is also computed with padding. The gradients of the packed batch are computed too.
//!
//! ```sh
//! cargo run --release -p noren --example varlen
//! ```

use noren::varlen::{Planner, Sequences, Varlen, packed, packed_mut};
use noren::{Error, GradientsMut, Inputs, Outputs, Saved, View};
use std::time::Instant;

const HEADS: usize = 12;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 64;
const LENGTHS: [usize; 8] = [17, 512, 9, 64, 230, 31, 5, 128];

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

fn main() -> Result<(), Error> {
    let tokens: usize = LENGTHS.iter().sum();
    let mut cu_seqlens = vec![0i32];
    LENGTHS.iter().for_each(|len| cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + *len as i32));
    println!("{} sequences of {LENGTHS:?} tokens; cu_seqlens {cu_seqlens:?}", LENGTHS.len());

    // The arrays as a model has them: [tokens, heads, head_dim]
    let (q_shape, kv_shape) = ([tokens, HEADS, HEAD_DIM], [tokens, KV_HEADS, HEAD_DIM]);
    let (q, k, v) = (
        values(tokens * HEADS * HEAD_DIM, 1),
        values(tokens * KV_HEADS * HEAD_DIM, 2),
        values(tokens * KV_HEADS * HEAD_DIM, 3),
    );
    let inputs = Inputs { q: packed(&q, q_shape)?, k: packed(&k, kv_shape)?, v: packed(&v, kv_shape)? };
    let mut out = vec![0.0; q.len()];
    let mut lse = vec![0.0; HEADS * tokens];

    let planner = Planner::default(); // one for the whole program
    let call = Varlen::new(Sequences::packed(&cu_seqlens, &cu_seqlens)?).causal(true).window_size(255, 0);
    let mut packed_time = f64::INFINITY;
    for round in 0..20 {
        let start = Instant::now();
        let outputs = Outputs { out: packed_mut(&mut out, q_shape)?, lse: Some(&mut lse) };
        call.forward_into(&planner, &inputs, outputs)?;
        let time = start.elapsed().as_secs_f64() * 1e6;
        if round == 0 {
            println!("packed, first call: {time:.0} us, {} plans made", planner.plans_made());
        }
        packed_time = packed_time.min(time);
    }
    println!("packed, later calls: {packed_time:.0} us, {} plans made in all", planner.plans_made());

    compare_with_padding([&q, &k, &v], &cu_seqlens, &planner, packed_time)?;

    // Gradients of sum(out * dout)
    let dout = values(q.len(), 4);
    let saved = Saved { out: packed(&out, q_shape)?, lse: &lse, dout: packed(&dout, q_shape)? };
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    let gradients = GradientsMut::new(
        packed_mut(&mut dq, q_shape)?,
        packed_mut(&mut dk, kv_shape)?,
        packed_mut(&mut dv, kv_shape)?,
    );
    let start = Instant::now();
    call.backward_into(&planner, &inputs, &saved, gradients)?;
    println!("gradients: {:.0} us", start.elapsed().as_secs_f64() * 1e6);

    // A sequence alone has the same bits
    let rows = cu_seqlens[4] as usize..cu_seqlens[5] as usize;
    let part = |x: &[f32], heads: usize| x[rows.start * heads * HEAD_DIM..rows.end * heads * HEAD_DIM].to_vec();
    let (q1, k1, v1) = (part(&q, HEADS), part(&k, KV_HEADS), part(&v, KV_HEADS));
    let len = rows.len();
    let alone = Inputs {
        q: packed(&q1, [len, HEADS, HEAD_DIM])?,
        k: packed(&k1, [len, KV_HEADS, HEAD_DIM])?,
        v: packed(&v1, [len, KV_HEADS, HEAD_DIM])?,
    };
    let one = Varlen::new(Sequences::packed(&[0, len], &[0, len])?).causal(true).window_size(255, 0);
    let same = one.forward(&planner, &alone)?.out == part(&out, HEADS);
    println!(
        "the outputs of the sequence of {len} tokens, computed alone and in the batch, are {}",
        if same { "equal" } else { "different" }
    );
    Ok(())
}

/// Computes the same batch with padding, so that every sequence has the length of the longest one. Prints the times
/// next to `packed_time`, the time of the packed batch. All times are in microseconds.
fn compare_with_padding(
    [q, k, v]: [&[f32]; 3],
    cu_seqlens: &[i32],
    planner: &Planner,
    packed_time: f64,
) -> Result<(), Error> {
    let longest = LENGTHS.into_iter().max().unwrap_or(1);
    let pad = |x: &[f32], heads: usize| {
        let mut padded = vec![0.0; LENGTHS.len() * heads * longest * HEAD_DIM];
        for (b, len) in LENGTHS.iter().enumerate() {
            for (i, h) in (0..*len).flat_map(|i| (0..heads).map(move |h| (i, h))) {
                let from = ((cu_seqlens[b] as usize + i) * heads + h) * HEAD_DIM;
                let to = ((b * heads + h) * longest + i) * HEAD_DIM;
                padded[to..to + HEAD_DIM].copy_from_slice(&x[from..from + HEAD_DIM]);
            }
        }
        padded
    };
    let [pq, pk, pv] = [pad(q, HEADS), pad(k, KV_HEADS), pad(v, KV_HEADS)];
    let (q_shape4, kv_shape4) = ([8, HEADS, longest, HEAD_DIM], [8, KV_HEADS, longest, HEAD_DIM]);
    let inputs4 = Inputs { q: View::new(&pq, q_shape4)?, k: View::new(&pk, kv_shape4)?, v: View::new(&pv, kv_shape4)? };
    let all = [longest; 8];
    for (name, lens) in
        [("the padded batch with all rows at full length", &all), ("the padded batch with its lengths", &LENGTHS)]
    {
        let call = Varlen::new(Sequences::padded(lens, lens)?).causal(true).window_size(255, 0);
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            call.forward(planner, &inputs4)?;
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
        }
        println!("{name}: {best:.0} us, {:.2} times packed", best / packed_time);
    }
    Ok(())
}
