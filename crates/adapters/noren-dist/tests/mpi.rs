//! Ranks that are processes under `mpirun`: the checks that also run over threads, and the end of a job after a rank is
//! gone.
//!
//! Each test runs this program again under `mpirun`, where `rank` is the only test that runs.

#[path = "all/ranks_common.rs"]
mod ranks_common;

use noren_dist::ranks::{Link, Mpi, Options, Split};
use noren_mask::Shape;
use ranks_common::{World, disagreements_are_reported, everything_agrees};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const TASK: &str = "NOREN_RANKS_TASK";

/// One process of a job. The name of its task selects the behaviour of rank 1 in the middle of the job.
#[test]
#[ignore = "run by the other tests, under mpirun"]
fn rank() {
    let task = std::env::var(TASK).expect("a task");
    let link = Mpi::start(Duration::from_secs(if task.contains("gone") { 2 } else { 60 })).expect("the first");
    match task.as_str() {
        "agrees" => everything_agrees(&link),
        "differs" => disagreements_are_reported(&link),
        _ => {
            let world = World::of("causal", Shape::square(96).heads(2), "{}", [8, 8], Options::default());
            let split = Split::new(&world.plan, &link).expect("a split");
            world.compute(&split, &link).expect("all are there");
            if link.rank() == 1 {
                match task.as_str() {
                    "gone: killed" => std::process::abort(),
                    _ => std::thread::sleep(Duration::from_secs(60)),
                }
            }
            match world.compute(&split, &link) {
                Err(error) if task == "gone: stalled" => link.fail(&error),
                // dropping the link also ends the job
                Err(error) => {
                    eprintln!("returned on rank {}: {error}", link.rank());
                    return;
                }
                Ok(_) => {}
            }
        }
    }
    println!("rank {} of {} is done", link.rank(), link.ranks());
}

fn job(ranks: usize, task: &str) -> (Output, Duration) {
    let start = Instant::now();
    let mut mpirun = Command::new("mpirun");
    let output = mpirun
        .args(["--oversubscribe", "--allow-run-as-root", "-n", &ranks.to_string()])
        .arg(std::env::current_exe().expect("a program"))
        .args(["--exact", "rank", "--ignored", "--nocapture"])
        .env(TASK, task)
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .expect("mpirun, which comes with MPI");
    (output, start.elapsed())
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn all_done(ranks: usize, task: &str) {
    let (output, _) = job(ranks, task);
    assert!(output.status.success(), "{task} over {ranks}: {}", text(&output));
    for rank in 0..ranks {
        assert!(text(&output).contains(&format!("rank {rank} of {ranks} is done")), "{}", text(&output));
    }
}

#[test]
fn two_three_and_four_processes_agree_with_one() {
    for ranks in 2..=4 {
        all_done(ranks, "agrees");
    }
}

#[test]
fn differences_are_reported_to_all() {
    all_done(3, "differs");
}

#[test]
fn a_job_ends_when_a_process_is_killed() {
    let (output, time) = job(3, "gone: killed");
    assert!(!output.status.success() && time < Duration::from_secs(30), "{time:?}: {}", text(&output));
    assert!(!text(&output).contains("is done"), "{}", text(&output));
}

#[test]
fn a_stalled_process_is_an_error_on_every_other() {
    let (output, time) = job(3, "gone: stalled");
    let text = text(&output);
    assert!(!output.status.success() && time < Duration::from_secs(30), "{time:?}: {text}");
    for rank in [0, 2] {
        let said = format!("error on rank {rank}: rank {rank} of 3: receiving from rank 1 did not finish in time");
        assert!(text.contains(&said), "{text}");
    }
    assert!(!text.contains("of 3 is done"), "{text}");
}

#[test]
fn a_program_that_returns_after_an_error_ends_the_job() {
    let (output, time) = job(3, "gone: stalled, and the others return");
    let text = text(&output);
    assert!(!output.status.success() && time < Duration::from_secs(30), "{time:?}: {text}");
    assert!(text.contains("returned on rank"), "{text}");
}
