//! A prefill engine that comes back on its address, again and again.

use std::time::Duration;

use crate::dice::Dice;
use crate::form::{Form, report};
use crate::spec::short;
use crate::world::{TOLD, World};

/// What the decode engine may have grown by, in KiB. Its allocator keeps an arena a thread, and
/// more buffers are used at once in one run than in another; what leaked with each of twenty
/// lives (a pool's layout, the sockets' buffers) and mattered would be more.
const GROWTH: u64 = 8 << 10;

#[test]
fn a_prefill_engine_that_restarts_on_the_same_port() {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, "restart P");
    let (mut world, start) = World::start(short(), Duration::from_secs(form.pick(120, 400)));
    // All of the decode engine's pool and of its buffers was used once.
    world.good(100);
    world.settle();
    let before = world.d.process().resident();
    let mut slowest = Duration::ZERO;
    for _ in 0..form.pick(20, 100) {
        world.run_for(dice.millis(1..50));
        world.kill_p();
        world.start_p();
        slowest = slowest.max(world.good_within(1, TOLD));
    }
    world.ends_as_it_began(start);
    let after = world.d.process().resident();
    assert!(after < before + GROWTH, "{before} KiB before, {after} KiB after");
    let tally = &world.judge.tally;
    report(
        "restarts of P",
        format!(
            "{tally}; first good hand-off after {slowest:.1?} at most, D's memory {before} KiB \
             before and {after} KiB after"
        ),
    );
}
