//! The contract of an endpoint, and what the providers of this crate make of bad company.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

mod common;
mod contract;
mod greeting;
mod memory;
mod secret;
mod session;
mod tcp_reader;
mod tcp_secret;
mod tcp_source;
