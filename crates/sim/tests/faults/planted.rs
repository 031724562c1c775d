//! The oracles can see: each mistake that is planted around the machines is caught, by the rule
//! that it breaks.

use std::collections::BTreeMap;

use sim::world::{Faults, Oracle, PLANTED, Planted, Setup, Violation, run};

/// A mistake, the rules of which one must see it first, and what may go wrong besides.
const CAUGHT: [(Planted, &[Oracle], &str); 13] = [
    (
        Planted::FreeEarly,
        &[Oracle::FreedWhileServed, Oracle::WrongBytes, Oracle::OtherLogits],
        "all",
    ),
    (Planted::FreeTwice, &[Oracle::FreedTwice], "none"),
    (Planted::IgnoreNonce, &[Oracle::WrongBytes, Oracle::Unserved, Oracle::LateFree], "none"),
    (Planted::SkipCommit, &[Oracle::StaleRead, Oracle::WrongBytes, Oracle::OtherLogits], "all"),
    (Planted::DropDone, &[Oracle::Unserved], "none"),
    (Planted::CountTwice, &[Oracle::Unserved, Oracle::StaleRead], "none"),
    (Planted::ReportTwice, &[Oracle::Ends], "none"),
    (Planted::TrustParams, &[Oracle::WrongBytes, Oracle::OtherLogits], "router"),
    (Planted::SkipDigest, &[Oracle::WrongBytes, Oracle::OtherLogits], "router"),
    (Planted::OldEpoch, &[Oracle::WrongBytes, Oracle::OtherLogits], "crash,router"),
    (Planted::FreeByClock, &[Oracle::FreedUnderRead], "read"),
    (Planted::DoneEarly, &[Oracle::StaleRead, Oracle::Unserved], "none"),
    (Planted::ClaimEach, &[Oracle::OneClaim], "none"),
];

/// Worlds in which a mistake may hide.
const SEEDS: u64 = 60;

fn caught(planted: Planted, faults: &Faults) -> Vec<Violation> {
    let setup =
        |seed| Setup { planted: Some(planted), faults: faults.clone(), ..Setup::of_seed(seed) };
    (0..SEEDS).filter_map(|seed| run(&setup(seed)).err()).map(|broken| *broken).collect()
}

#[test]
fn every_mistake_is_caught_by_the_rule_that_it_breaks() {
    let mut seen = BTreeMap::new();
    for (planted, oracles, faults) in CAUGHT {
        let broken = caught(planted, &faults.parse().unwrap());
        let by = |oracle: &Oracle| broken.iter().filter(|b| b.oracle == *oracle).count();
        let counts: Vec<_> = oracles.iter().map(|oracle| (*oracle, by(oracle))).collect();
        let mut others: Vec<_> = broken.iter().map(|broken| broken.oracle).collect();
        others.retain(|oracle| !oracles.contains(oracle));
        seen.insert(planted.to_string(), (counts, others));
    }
    let missed = |(counts, others): &(Vec<(Oracle, usize)>, Vec<Oracle>)| {
        counts.iter().all(|(_, many)| *many == 0) || !others.is_empty()
    };
    assert!(!seen.values().any(missed), "{seen:#?}");
}

#[test]
fn every_mistake_has_a_test() {
    let tested: Vec<_> = CAUGHT.iter().map(|(planted, ..)| *planted).collect();
    assert_eq!(tested, PLANTED.map(|(planted, _)| planted));
    for (planted, name) in PLANTED {
        assert_eq!(name.parse(), Ok(planted));
    }
}

/// The model has the last word: where wrong numbers are published it sees them itself, and it
/// does not mind those that are another request's but the same.
#[test]
fn wrong_numbers_show_in_the_next_token() {
    let by_the_model = |planted, faults: &str| {
        let broken = caught(planted, &faults.parse().unwrap());
        broken.iter().filter(|broken| broken.oracle == Oracle::OtherLogits).count()
    };
    for (planted, faults) in [
        (Planted::TrustParams, "router"),
        (Planted::SkipDigest, "router"),
        (Planted::FreeEarly, "all"),
    ] {
        assert!(by_the_model(planted, faults) > 0, "{planted}");
    }
    assert_eq!(by_the_model(Planted::IgnoreNonce, "none"), 0, "the same prompt");
}
