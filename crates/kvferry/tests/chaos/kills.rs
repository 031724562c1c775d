//! `kill -9` of either engine, at any moment.

use std::time::{Duration, Instant};

use kvferry::connector::Bounds;

use crate::dice::Dice;
use crate::form::{Form, report};
use crate::spec::short;
use crate::world::{TOLD, World};

/// Each request of the decode engine ends within 10 s, failed or right. The world looks at it.
#[test]
fn a_prefill_engine_that_is_killed() {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, "kill P");
    let (mut world, start) = World::start(short(), Duration::from_secs(form.pick(120, 400)));
    world.fickle = true;
    for _ in 0..form.pick(12, 100) {
        world.run_for(dice.millis(1..150));
        world.kill_p();
        // Sometimes nobody comes in its place for a while.
        world.run_for(dice.millis(0..50));
        world.start_p();
        world.good_within(1, TOLD);
    }
    world.ends_as_it_began(start);
    assert!(world.judge.tally.slowest < TOLD);
    report("kill -9 of P", &world.judge.tally);
}

/// Kills the decode engine a few times. Gives how long its leases were held, at most.
fn kill_d(bounds: Bounds, times: u64, limit: Duration) -> (World, Duration) {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, "kill D");
    let (mut world, start) = World::start(bounds, limit);
    let mut longest = Duration::ZERO;
    for _ in 0..times {
        // Claims that wait, reads under way, commits.
        world.linger = dice.of(0..30);
        world.run_for(dice.millis(1..150));
        let died = Instant::now();
        world.kill_d();
        let width = std::mem::take(&mut world.width);
        let bound = bounds.unclaimed + bounds.claim_life + TOLD;
        world.until("the leases of the dead", bound, |world| world.judge.leases() == 0);
        longest = longest.max(died.elapsed());
        world.width = width;
        world.start_d();
        world.good_within(1, TOLD);
    }
    world.ends_as_it_began(start);
    (world, longest)
}

#[test]
fn a_decode_engine_that_is_killed() {
    let form = Form::of_environment();
    let bounds = short();
    let times = form.pick(3, 20);
    let (world, longest) = kill_d(bounds, times, Duration::from_secs(form.pick(120, 400)));
    let kept = bounds.unclaimed + bounds.claim_life;
    let tally = &world.judge.tally;
    report("kill -9 of D", format!("{tally}; P's blocks free {longest:.1?} later, of {kept:?}"));
}

/// The same with the bounds of the protocol: half a minute, so in the long form only.
#[test]
fn a_decode_engine_that_is_killed_with_the_bounds_of_the_protocol() {
    let scenario = "kill -9 of D, default bounds";
    if !Form::of_environment().is_long() {
        report(scenario, "skipped, the long form alone has the time");
        return;
    }
    let bounds = Bounds::default();
    let (world, longest) = kill_d(bounds, 1, Duration::from_secs(240));
    let kept = bounds.unclaimed + bounds.claim_life;
    let tally = &world.judge.tally;
    let result = format!("{tally}; P's blocks free {longest:.1?} later, of {kept:?}");
    report(scenario, result);
}
