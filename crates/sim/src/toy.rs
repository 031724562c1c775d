//! A toy language model in double precision, and paged engines that really run it.
//!
//! What a hand-off is worth shows in the next token alone. The model's layers write their keys,
//! values and states into the bytes of an engine's ranks, and read what the next query sees from
//! there. The arithmetic of a step is the same for every [`Cache`], down to the order of its
//! sums: logits from bytes that were moved equal those of [`Plain`], which never moved anything,
//! bit for bit, or a byte is wrong.
//!
//! An [`Engine`] takes of a [`kv_layout::CacheLayout`] only its numbers; which tokens a query
//! sees, where a row lies and who keeps it is worked out here anew.

mod attention;
mod cache;
mod engine;
mod handoff;
mod model;
mod rank;
mod recurrence;
mod weights;

pub use cache::{Cache, Fault, Plain, Row};
pub use engine::Engine;
pub use handoff::{Front, Request, carry, plans};
pub use model::{Spec, Toy};
pub use rank::Garbage;

/// Counts of this module come from memory that is there: they fit.
fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
