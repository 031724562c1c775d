//! Engines of several ranks that hand requests over under virtual time, while everything goes
//! wrong that can.
//!
//! The machines are the real ones: each rank has a [`connector::Worker`], each engine a
//! [`connector::Scheduler`]. Their surroundings are played: hosts with their own clocks, engines
//! that obey vLLM's order of calls, a router, a network, endpoints that copy blocks over time,
//! and memories in which every block says who wrote it and, for one prompt in a few, holds the
//! keys and values of a [toy model](crate::toy), which decodes from them. After each event the
//! [`Oracle`]s look whether a rule was broken.
//!
//! Nothing here looks at a clock or draws from anything but the seed: the same [`Setup`] always
//! goes the same way, to the letter.

mod admit;
mod agent;
mod checks;
mod claims;
mod clock;
mod decode;
mod endpoint;
mod engine;
mod events;
mod faults;
mod grants;
mod memory;
mod mistakes;
mod network;
mod oracle;
mod planted;
mod prefill;
mod report;
mod router;
mod run;
mod setup;
mod sleep;
mod story;
mod timeline;

pub use oracle::Oracle;
pub use planted::{PLANTED, Planted, PlantedError};
pub use report::{Report, Violation};
pub use run::{run, run_noted};
pub use setup::{Fault, Faults, FaultsError, Setup};

use run::World;
