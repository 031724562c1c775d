//! Performance as a ratio to a limit or a peer in the same run: one target per crate, run by
//! `cargo bench -p benches --bench NAME`.

#![forbid(unsafe_code)]
