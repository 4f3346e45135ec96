//! Ranks that are threads: every mask of the corpus over 2, 3 and 4 ranks, differences between ranks, and ranks that
//! leave.

use crate::ranks_common::{World, disagreements_are_reported, everything_agrees};
use noren_dist::ranks::{Error, Link, Options, Shards, Split, threads};
use noren_dist::{Options as Wishes, Travel, partition};
use noren_mask::{Facts, Shape, atoms};
use noren_testing::drawn;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_drawn_mask_over_two_three_and_four() {
    let (mut keys, mut queries) = (0, 0);
    for (n, (file, case)) in drawn::cases().iter().filter(|(_, case)| case.message.is_none()).enumerate() {
        let bound = case.bind().unwrap_or_else(|error| panic!("{file}: {}: {error}", case.name));
        let world = World::new(&bound, [8, if n % 2 == 0 { 8 } else { 5 }], Options::default());
        for ranks in 2..=4 {
            for travel in [Travel::Keys, Travel::Both] {
                let split = world.partition(ranks, travel);
                *(if split.travel == Travel::Both { &mut queries } else { &mut keys }) += 1;
                threads(ranks, PATIENCE, |link| {
                    let split = Split::with(&world.plan, split.clone(), link).unwrap();
                    let found = world.compute(&split, link).unwrap();
                    world.check(&split, &found, 1e-6);
                });
            }
        }
    }
    assert!(keys > 500 && queries > 100, "{keys} with keys, {queries} with queries that travel");
}

#[test]
fn all_sizes_options_types_and_steps_agree() {
    for ranks in 1..=4 {
        threads(ranks, PATIENCE, |link| everything_agrees(link));
    }
}

#[test]
fn differences_are_reported_to_all() {
    threads(3, PATIENCE, |link| disagreements_are_reported(link));
}

#[test]
fn too_many_names_to_compare_are_an_error() {
    for (count, fits) in [(14, true), (15, false)] {
        threads(2, PATIENCE, |link| {
            let names = vec![("name", String::from("value")); count];
            match noren_dist::ranks::agree(link, "a call", &names) {
                Ok(()) => assert!(fits),
                Err(error) => {
                    assert!(!fits && error.to_string().contains("15 values are given for the comparison"), "{error}")
                }
            }
        });
    }
}

#[test]
fn a_rank_that_leaves_or_stalls_is_an_error_on_the_others() {
    let world = World::of("causal", Shape::square(96).heads(2), "{}", [8, 8], Options::default());
    for stalls in [false, true] {
        let start = Instant::now();
        let errors = threads(3, Duration::from_secs(3), |link| {
            let split = Split::new(&world.plan, link).unwrap();
            world.compute(&split, link).unwrap();
            if link.rank() == 1 {
                std::thread::sleep(Duration::from_secs(if stalls { 9 } else { 0 }));
                return None;
            }
            let first = world.compute(&split, link).unwrap_err();
            // the link transports nothing after the failure
            let second = world.compute(&split, link).unwrap_err().to_string();
            assert!(second.contains("an earlier exchange of messages failed"), "{second}");
            Some(first)
        });
        for error in errors.into_iter().flatten() {
            let text = error.to_string();
            assert!(matches!(error, Error::Lost(_)) && text.contains("rank 1"), "{text}");
            assert!(text.contains(if stalls { "sent nothing" } else { "left" }), "{text}");
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = atoms::causal().bind(&Shape::square(16), &Facts::new()).unwrap().plan();
    let other = atoms::sliding(3).bind(&Shape::square(16), &Facts::new()).unwrap().plan();
    let made = |ranks| partition(&other, &Wishes { ranks, ..Wishes::default() }).unwrap();
    threads(2, PATIENCE, |link| {
        let error = |ranks| Split::with(&plan, made(ranks), link).err().unwrap().to_string();
        assert!(error(3).contains("for 3 ranks, but the link has 2"), "{}", error(3));
        assert!(error(2).contains("for another mask, or for other data"), "{}", error(2));
        for held in
            [vec![vec![0..16]], vec![vec![0..9], vec![8..16]], vec![vec![0..8], vec![8..15]], vec![vec![], vec![]]]
        {
            let error = Shards::with(&plan, held, link).err().unwrap().to_string();
            assert!(error.contains("does not give each of 16 keys to one of 2 ranks"), "{error}");
        }
        Shards::with(&plan, vec![vec![8..16], vec![0..3, 3..8]], link).unwrap();
    });
}
