//! Engines that hand requests over while everything goes wrong that can.
//!
//! Each seed is a world of its own. A broken rule fails the test with what happened to the
//! request that it concerns, and with the one command that shows it again.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use sim::world::{Faults, Setup, run, run_noted};

mod faults {
    pub mod planted;
    pub mod replays;
}

/// Worlds of every run of the tests; `cargo xtask sim` plays more.
const SEEDS: u64 = 300;

#[test]
fn all_rules_hold_in_hundreds_of_worlds() {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let report = run(&Setup::of_seed(seed)).unwrap_or_else(|broken| panic!("{broken}"));
        for (how, many) in report.ends {
            *ends.entry(how).or_default() += many;
        }
    }
    // Where one of these never happens, its rules were not looked at.
    for how in [
        "received",
        "samples beside the first",
        "decoded by the model",
        "released",
        "preempted",
        "aborted",
        "full hit or rejected",
        "failed: other prompt",
        "failed: unknown lease",
        "failed: over",
        "failed: no answer",
        "failed: peer lost",
        "failed: no handshake",
        "failed: not read",
        "rejected: the name is in use",
        "lost with a worker",
        "lost with an engine",
    ] {
        assert!(ends.get(how).is_some_and(|many| *many > 20), "{how}: {ends:#?}");
    }
}

/// Where nothing goes wrong every request is served.
#[test]
fn all_are_served_where_nothing_goes_wrong() {
    for seed in 0..60 {
        let setup = Setup { faults: Faults::none(), ..Setup::of_seed(seed) };
        let report = run(&setup).unwrap_or_else(|broken| panic!("{broken}"));
        let samples = report.ends.get("samples beside the first").unwrap_or(&0);
        assert_eq!(report.ends.get("received"), Some(&(200 + samples)), "{report:?}");
    }
}

/// Thousands of prompts for one pair of workers: windows, queues and early requests are full.
#[test]
fn limits_hold_under_a_flood() {
    let mut peaks: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..12 {
        let (prefills, decodes, prefill_ranks, decode_ranks) = (1, 1, 1, 1);
        let shape =
            Setup { prefills, decodes, prefill_ranks, decode_ranks, ..Setup::of_seed(seed) };
        let setup = Setup { requests: 1500, ..shape };
        let report = run(&setup).unwrap_or_else(|broken| panic!("{broken}"));
        for (of, size) in report.peaks {
            peaks.entry(of).and_modify(|peak| *peak = size.max(*peak)).or_insert(size);
        }
    }
    assert_eq!(peaks["reads of one peer"], 32, "a full window: {peaks:?}");
}

/// Clients leave and engines find everything in their own caches, but all can be reached.
#[test]
fn no_lease_runs_out_where_its_holder_can_be_told() {
    for seed in 0..60 {
        let setup = Setup { faults: "abort".parse().unwrap(), ..Setup::of_seed(seed) };
        run(&setup).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn the_same_seed_goes_the_same_way_to_the_letter() {
    for seed in [0, 7, 11] {
        let setup = Setup { requests: 60, ..Setup::of_seed(seed) };
        let once = run_noted(&setup, None).unwrap_or_else(|broken| panic!("{broken}"));
        let again = run_noted(&setup, None).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(once.timeline.lines().count() > 500, "{}", once.timeline);
        assert_eq!(once, again);
    }
}

#[test]
fn a_setup_is_named_as_it_is_parsed() {
    for text in ["all", "none", "crash", "pause,read,router"] {
        assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
    }
    assert!("crash,flood".parse::<Faults>().unwrap_err().to_string().contains("`flood`"));
    let command = Setup::of_seed(5).command();
    assert!(command.contains("sim --seed 5 --engines "), "{command}");
}
