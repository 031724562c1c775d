//! The driver of libfabric over the real library, in software: providers `tcp` and `shm`.
//!
//! `KVFERRY_LIBFABRIC` may name the library's files, with colons between them; the machine's own is
//! tried as well. Where there is none, each test says that it is skipped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

mod ends;
mod faults;
mod leaks;
mod moves;
mod rest;
mod stage;
