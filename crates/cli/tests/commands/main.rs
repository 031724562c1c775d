//! The command line as a user meets it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod errors;
mod handoff;
mod hosts;
mod network;
mod pipes;
mod plan;
mod ranks;
mod replay;
