//! That the judge would see it.

use std::time::Duration;

use crate::spec::{Part, Spec, short};
use crate::world::World;

/// Bytes of another request, under a digest that is right.
#[test]
#[should_panic(expected = "holds other bytes")]
fn a_prefill_engine_that_cheats() {
    let p = Spec { cheats: true, ..Spec::new(Part::Prefill, short()) };
    World::of([p, Spec::new(Part::Decode, short())], Duration::from_secs(60));
}

/// A request that is never answered, since nobody is there to do it.
#[test]
#[should_panic(expected = "has not ended")]
fn a_decode_engine_that_never_answers() {
    let (mut world, _) = World::start(short(), Duration::from_secs(60));
    world.linger = 5000;
    world.until("claims", Duration::from_secs(10), |world| !world.judge.claimed().is_empty());
    world.judge.hit(Duration::from_millis(500));
    world.run_for(Duration::from_secs(3));
}
