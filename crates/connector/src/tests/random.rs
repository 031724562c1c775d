//! Any order of events keeps the promises; [`World`] watches them at each step.

use proptest::prelude::*;

use super::support::*;
use super::world::{NODES, World};
use crate::{Input, Time};

#[derive(Clone, Debug)]
enum Step {
    Lease(u64),
    /// A request of a lease, which may name another whose claim it shares.
    Start {
        d: usize,
        lease: u64,
        sample: u64,
        named: bool,
    },
    Deliver {
        d: usize,
        to_p: bool,
        twice: bool,
    },
    DeliverAll,
    ReadsDone(usize),
    ReadsFailed(usize),
    Abort(usize),
    Revoke,
    Pass(Time),
    Lose(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let d = || 1..NODES.len();
    let pass = prop::sample::select(vec![0, 100, 1_999, 5_000, 19_999, 20_000, 30_000, 600_000]);
    let step = prop_oneof![
        2 => (0..3u64).prop_map(Step::Lease),
        4 => (d(), 0..3u64, 0..3u64, any::<bool>())
            .prop_map(|(d, lease, sample, named)| Step::Start { d, lease, sample, named }),
        6 => (d(), any::<bool>(), any::<bool>())
            .prop_map(|(d, to_p, twice)| Step::Deliver { d, to_p, twice }),
        3 => Just(Step::DeliverAll),
        4 => d().prop_map(Step::ReadsDone),
        1 => d().prop_map(Step::ReadsFailed),
        1 => d().prop_map(Step::Abort),
        2 => Just(Step::Revoke),
        2 => pass.prop_map(|ms| Step::Pass(Time::from_millis(ms))),
        1 => d().prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 0..80)
}

/// Whom each lease is meant for: one rank, both ranks of an engine, or nobody.
fn readers(d: usize, lease: u64) -> &'static [u32] {
    match (d, lease) {
        (_, 0) => &[],
        (1 | 2, 1) => &[0, 1],
        (2, _) => &[1],
        _ => &[0],
    }
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        apply(&mut world, step);
    }
    world.settle();
    world
}

fn apply(world: &mut World, step: &Step) {
    let first = |world: &World, d: usize| world.nodes[d].reading.first().cloned();
    match *step {
        Step::Lease(nonce) if !world.freed.contains_key(&lease_id(nonce)) => {
            world.input(0, Input::Lease(lease(nonce)));
        }
        Step::Lease(_) => {}
        Step::Start { d, lease, sample, named } => {
            let of_engine = sample_of(lease, NODES[d].0, sample);
            if !world.nodes[d].started.contains(&of_engine) {
                let shared = named.then(|| claim_of(lease, NODES[d].0).request);
                world.start_sample(d, (lease, sample), shared, readers(d, lease));
            }
        }
        Step::Deliver { d, to_p, twice } => {
            let (from, to) = if to_p { (d, 0) } else { (0, d) };
            world.deliver(from, to, twice);
        }
        Step::DeliverAll => world.deliver_all(),
        Step::ReadsDone(d) => {
            first(world, d).into_iter().for_each(|claim| world.reads_done(d, &claim));
        }
        Step::ReadsFailed(d) => {
            first(world, d).into_iter().for_each(|claim| world.reads_failed(d, &claim));
        }
        Step::Abort(d) => {
            let claim = world.nodes[d].started.last().cloned();
            claim.into_iter().for_each(|claim| world.input(d, Input::Abort(claim)));
        }
        Step::Revoke => world.revoke_all(),
        Step::Pass(time) => world.pass(time),
        Step::Lose(d) => world.lose(0, d),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn promises_are_kept(steps in steps()) {
        run(&steps);
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(steps in steps()) {
        prop_assert_eq!(run(&steps).log, run(&steps).log);
    }
}
