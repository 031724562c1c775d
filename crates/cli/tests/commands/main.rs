//! The command line as a user meets it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
#[path = "../../../transport/tests/certs/mod.rs"]
mod certs;
mod common;
mod doctor;
mod errors;
mod handoff;
mod hosts;
mod network;
mod pipes;
mod plan;
mod ranks;
mod replay;
mod tls;
