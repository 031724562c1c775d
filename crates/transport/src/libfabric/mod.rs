//! A driver of network cards through libfabric: what a provider of that name stands on.
//!
//! A [`Driver`] owns one domain, that is one card, and one endpoint there that all peers share. It
//! reads and writes the registered memory of peers, which take no part in it; who may, which keys to
//! use and when a block is free again are said elsewhere, by the provider that drives it.
//!
//! * All calls into the library come from one thread, which may be bound to a core. Orders reach it
//!   by a bounded queue; what happened waits to be [polled](Driver::poll).
//! * A [`Plan`] is checked against both memories before anything is posted, merged where
//!   pieces lie side by side, and cut to what the card takes. A [`Work`] is reported once, when
//!   none of its operations can touch local memory any more.
//! * An operation that never completes is ended by [`Driver::fence`] alone, which closes the whole
//!   endpoint: libfabric has no other way to call one back ([`Fence::Endpoint`](crate::Fence)).
//! * Others read this memory only while the thread runs the library: it spins for 100 µs behind
//!   the last thing that happened, then waits for the card where that can wake it, and else naps.
//!   See [`Driver::attend`].
//!
//! The library is loaded when a driver is opened, and missing until then (`libfabric-sys`).

mod config;
mod driver;
mod engine;
mod error;
mod facts;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_tests;
#[allow(unsafe_code)]
mod native;
mod notices;
mod order;
mod pace;
mod plan;
#[cfg(test)]
mod refusal_tests;
mod seam;
mod slots;
mod tally;
mod thread;
mod work;

pub use config::FabricConfig;
pub use driver::{Attention, Driver};
pub use error::{
    CounterError, FenceError, MemoryError, OpenError, PeerError, PlanError, RejectedWork,
    WorkError, WorkErrorKind,
};
pub use facts::{FabricFacts, RegistrationModes};
pub use libfabric_sys::{LoadError, Version};
pub use notices::{Notice, Outcome};
pub use plan::{Exposure, LocalMemory, Move, Plan, RemoteMemory};
pub use seam::{Backing, FabricPeer, Rights};
pub use tally::Counter;
pub use work::{Work, WorkId, WorkKind};
