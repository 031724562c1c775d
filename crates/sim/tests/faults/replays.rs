//! Worlds in which a rule was once broken.

use sim::world::{Setup, run};

/// Seeds by what was wrong then. The worlds change when the simulator does; the rules are in the
/// machines' own tests.
const ONCE_BROKEN: [(u64, &str); 3] = [
    (1, "what a worker had received counted although it died or withdrew before the others"),
    (63, "a claim was granted that had been released before its lease came"),
    (1656, "one rank received its share after another had withdrawn"),
];

#[test]
fn what_was_broken_once_holds() {
    for (seed, what) in ONCE_BROKEN {
        run(&Setup::of_seed(seed)).unwrap_or_else(|broken| panic!("{what}: {broken}"));
    }
}
