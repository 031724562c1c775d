//! Faults of the protocol against real processes over TCP.
//!
//! Each test is router and judge of two children, which are this very program: a prefill engine
//! that paints its blocks over as soon as they are free, and a decode engine that inspects every
//! byte it received. The children speak lines of JSON with the test and kvferry with each other.
//! `KVFERRY_CHAOS_SECONDS` makes the runs longer, `KVFERRY_CHAOS_SEED` makes them others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
mod dice;
mod form;
mod garbage;
mod judge;
mod kills;
mod links;
mod mixed;
mod network;
mod process;
mod restarts;
mod sees;
mod slow;
mod spec;
mod stops;
mod strangers;
mod world;
