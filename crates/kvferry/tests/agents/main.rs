//! Real agents over TCP in one process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../transport/tests/certs/mod.rs"]
mod certs;
mod channels;
mod common;
mod crowd;
mod dropped;
mod handoff;
mod led;
mod loss;
mod namespaces;
mod providers;
mod ranks;
mod refused;
mod secret;
mod strangers;
mod tls;
mod traced;
