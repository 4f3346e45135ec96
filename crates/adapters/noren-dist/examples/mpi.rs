//! Computes attention over packed documents with several processes of an MPI program, and compares the results with
//! those of one process.
//!
//!     cargo build --release -p noren-dist --features mpi --example mpi
//!     mpirun -n 4 target/release/examples/mpi

use noren_dist::ranks::{Error, Link, Local, Mpi, Options, Split, attention, attention_backward};
use noren_mask::{Facts, Shape, atoms::*};
use std::time::{Duration, Instant};

const HEADS: usize = 8;
const DIM: usize = 64;

fn main() {
    let link = match Mpi::start(Duration::from_secs(60)) {
        Ok(link) => link,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    if let Err(error) = run(&link) {
        link.fail(&error);
    }
}

fn run(link: &Mpi) -> Result<(), Error> {
    let lengths = [3000, 500, 120, 1400, 2048, 1124];
    let len = lengths.iter().sum::<usize>();
    let plan = (causal() & documents_of(lengths)).bind(&Shape::square(len).heads(HEADS), &Facts::new())?.plan();
    // every rank draws all numbers here; in a real program, a rank reads only its own
    let draw = |seed: usize| -> Vec<f32> {
        (0..HEADS * len * DIM).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0).collect()
    };
    let [q, k, v, dout] = [1, 2, 3, 4].map(draw);

    let split = Split::new(&plan, link)?;
    let (own_q, own_dout) = (split.take_rows(&q, DIM, 0.0), split.take_rows(&dout, DIM, 0.0));
    let (own_k, own_v) = (split.take_keys(&k, DIM, 0.0), split.take_keys(&v, DIM, 0.0));
    let local = Local { q: &own_q, k: &own_k, v: &own_v, head_dim: DIM, v_dim: DIM };
    let options = Options { threads: Some(1), ..Options::default() };
    let start = Instant::now();
    let attended = attention(&split, link, &local, &options)?;
    let gradients = attention_backward(&split, link, &local, (&attended, &own_dout), &options)?;
    let seconds = start.elapsed().as_secs_f64();

    let shape = [1, HEADS, len, DIM];
    let view = |x| noren::View::new(x, shape);
    let inputs = noren::Inputs { q: view(&q)?, k: view(&k)?, v: view(&v)? };
    let alone = noren::attention(&inputs, &plan, &noren::Options::default())?;
    let saved = noren::Saved { out: view(&alone.out)?, lse: &alone.lse, dout: view(&dout)? };
    let expected = noren::attention_backward(&inputs, &saved, &plan, &noren::Options::default())?;
    // a maximum that does not ignore NaN
    let most = |most: f32, x: f32| if most.is_nan() || x <= most { most } else { x };
    let off = |found: &[f32], whole: &[f32]| found.iter().zip(whole).map(|(a, b)| (a - b).abs()).fold(0.0, most);
    let worst = [
        off(&attended.out, &split.take_rows(&alone.out, DIM, 0.0)),
        off(&gradients.dq, &split.take_rows(&expected.dq, DIM, 0.0)),
        off(&gradients.dk, &split.take_keys(&expected.dk, DIM, 0.0)),
        off(&gradients.dv, &split.take_keys(&expected.dv, DIM, 0.0)),
    ];
    let predicted: u64 = split.predicted([DIM, DIM], 4).iter().map(|traffic| traffic.sent).sum();
    println!(
        "rank {} of {}: {} tokens, {seconds:.2} s; {} bytes sent, {predicted} predicted; maximum errors of output, dq, dk, dv: {}",
        link.rank(),
        link.ranks(),
        split.rows(0).len(),
        link.job().traffic().sent,
        worst.map(|x| format!("{x:.1e}")).join(", "),
    );
    match worst.iter().all(|x| *x < 1e-4) {
        true => Ok(()),
        false => Err(Error::Input("the results of the ranks differ from those of one process".to_owned())),
    }
}
