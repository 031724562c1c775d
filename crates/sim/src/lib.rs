//! Fake engines that fill a KV cache with known bytes, and the ground truth that checks what a
//! hand-off did to them.
//!
//! [`truth`] says what a decode engine must hold, from the attention mask alone: it shares no
//! code with the planner. [`Engine`] plays a prefill or a decode engine: it hands out block ids
//! at random from a bounded pool, writes [`pattern`]s as a prefill would, and inspects every
//! byte of its pool. [`Mutant`] plants the mistakes that the inspection must catch.
//!
//! [`world`] plays many engines under virtual time, with the real machines of the protocol;
//! [`Fleet`] plays thousands, among which nothing goes wrong.

#![forbid(unsafe_code)]

mod engine;
mod fleet;
mod inspect;
pub mod mutant;
pub mod pattern;
mod pool;
pub mod toy;
pub mod truth;
pub mod world;

pub use engine::{Engine, EngineError};
pub use fleet::{Fleet, PEERS};
pub use inspect::Fault;
pub use mutant::Mutant;
pub use pool::BlockPool;
