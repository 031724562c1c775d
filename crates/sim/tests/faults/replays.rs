//! Worlds in which a rule was once broken.

use sim::world::{Setup, run};

/// Seeds by what was wrong then. The worlds change when the simulator does; the rules are in the
/// machines' own tests.
const ONCE_BROKEN: [(u64, &str); 2] = [
    (3, "a rank that had received its share and died still counted"),
    (13, "a rank that had received its share and died still counted"),
];

#[test]
fn what_was_broken_once_holds() {
    for (seed, what) in ONCE_BROKEN {
        run(&Setup::of_seed(seed)).unwrap_or_else(|broken| panic!("{what}: {broken}"));
    }
}
