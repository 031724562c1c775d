//! The contract of an endpoint, and what the providers of this crate make of bad company.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

#[path = "../certs/mod.rs"]
mod certs;
mod common;
mod contract;
mod greeting;
mod memory;
mod reports;
mod secret;
mod session;
mod shm_other;
mod shm_probe;
mod shm_processes;
mod shm_reader;
mod shm_source;
mod tcp_reader;
mod tcp_secret;
mod tcp_small;
mod tcp_source;
mod tls_ends;
mod tls_files;
mod tls_peers;
mod tls_wire;
