//! Engines that stand still for longer than a lease lives, and go on as if nothing were.

use std::time::Duration;

use crate::dice::Dice;
use crate::form::{Form, report};
use crate::spec::{Part, short};
use crate::world::{PATIENCE, World};

/// Longer than a claim and its lease live, together; every other time longer than silence is
/// borne, too.
fn still(turn: u64) -> Duration {
    Duration::from_millis(if turn.is_multiple_of(2) { 4500 } else { 7000 })
}

/// Whatever it said and heard late, what is received is right.
#[test]
fn a_prefill_engine_that_stands_still() {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, "stop P");
    let (mut world, start) = World::start(short(), Duration::from_secs(form.pick(120, 400)));
    world.fickle = true;
    for turn in 0..form.pick(1, 6) {
        world.linger = turn % 2 * 20;
        world.run_for(dice.millis(20..100));
        world.stop(Part::Prefill);
        world.run_for(still(turn));
        world.go_on(Part::Prefill);
        world.good(1);
    }
    world.ends_as_it_began(start);
    report("SIGSTOP of P", &world.judge.tally);
}

/// Its claims have lapsed, and others have their blocks: what it says of them late is refused.
#[test]
fn a_decode_engine_that_stands_still() {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, "stop D");
    let (mut world, start) = World::start(short(), Duration::from_secs(form.pick(120, 400)));
    let mut lapsed = 0;
    for turn in 0..form.pick(1, 6) {
        // Some wait between claim and read, where the first words after the stop come too late.
        world.linger = 200;
        world.run_for(dice.millis(100..300));
        world.until("claims", Duration::from_secs(10), |world| world.judge.claimed().len() > 2);
        world.stop(Part::Decode);
        world.run_for(still(turn));
        // A claim's life and then its lease's, 4.2 s; a busy prefill engine is later.
        world.until("claims lapse", PATIENCE, |world| world.judge.leases_let_go() > 0);
        lapsed += world.judge.leases_let_go();
        world.linger = 0;
        world.go_on(Part::Decode);
        // The judge knows what was let go, and takes it from nobody as received.
        world.good(1);
    }
    world.ends_as_it_began(start);
    let tally = &world.judge.tally;
    report("SIGSTOP of D", format!("{tally}; {lapsed} claims lapsed meanwhile"));
}
