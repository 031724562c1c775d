//! Any fault after any other.

use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::form::{Form, report};
use crate::garbage::Flood;
use crate::spec::{Part, Spec, short};
use crate::world::{TOLD, World};
use kvferry::Provider;

#[test]
fn faults_from_a_seed() {
    mixed("mixed", Provider::Tcp);
}

/// A reader that copies by itself sees a dead source, or one that stands still, on its own.
#[test]
fn faults_from_a_seed_while_memory_is_shared() {
    mixed("mixed, shared memory", Provider::Shm);
}

fn mixed(scenario: &str, provider: Provider) {
    let form = Form::of_environment();
    let mut dice = Dice::new(form.seed, scenario);
    let specs = [Part::Prefill, Part::Decode];
    let specs = specs.map(|part| Spec { provider, ..Spec::new(part, short()) });
    let (mut world, start) = World::of(specs, form.mixed() + Duration::from_secs(180));
    let end = Instant::now() + form.mixed();
    world.fickle = true;
    while Instant::now() < end {
        world.linger = dice.of(0..3) * 20;
        world.run_for(dice.millis(1..300));
        fault(&mut world, &mut dice, form.pick(1500, 8000));
        // What is left of the last fault meets the next, but for one in three.
        if dice.of(0..3) == 0 {
            world.good_within(1, 3 * TOLD);
        }
    }
    world.linger = 0;
    world.ends_as_it_began(start);
    report(scenario, format!("seed {}, {:?}: {}", form.seed, form.mixed(), world.judge.tally));
}

fn fault(world: &mut World, dice: &mut Dice, still: u64) {
    match dice.of(0..7) {
        0 | 1 => {
            world.kill_p();
            world.run_for(dice.millis(0..100));
            world.start_p();
        }
        2 => {
            world.kill_d();
            world.run_for(dice.millis(0..100));
            world.start_d();
        }
        3 => {
            world.kill_p();
            world.kill_d();
            world.start_d();
            world.start_p();
        }
        4 => stand_still(world, Part::Prefill, dice.millis(1..still)),
        5 => stand_still(world, Part::Decode, dice.millis(1..still)),
        _ => {
            let flood = Flood::start(&world.p.process().ports(), 200, dice.next() >> 1);
            world.until("the flood's end", 3 * TOLD, |_| flood.is_over());
        }
    }
}

fn stand_still(world: &mut World, part: Part, time: Duration) {
    world.stop(part);
    world.run_for(time);
    world.go_on(part);
}
